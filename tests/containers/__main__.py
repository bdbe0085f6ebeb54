"""`make containers`: build the image with podman and run it, alone, as the singleton's pod and in a job's pod."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.containers import image, job_pod, pod
from tests.containers.engine import Engine, Failed
from tests.containers.needs import ENGINE, provide
from tests.deploy.tools import rendered
from tests.guards.tree import ROOT
from tests.kit.debian import Missing
from tests.kit.findings import Findings
from tests.kit.tools import path

COMMAND = "make containers"
FOR_KUBECTL = {"node": "nodejs", "npm": "npm"}  # Debian 12's own cannot render the overlays


def main() -> int:
    """0 if all was as it has to be, 1 if not, 2 if this machine cannot run it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=ROOT / "build" / "containers", help="where packages are kept")
    folder: Path = arguments.parse_args().folder.resolve()
    try:
        provide(COMMAND, ENGINE if renders() else {**ENGINE, **FOR_KUBECTL}, folder)
        fetch_kubectl()
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    found = Findings()
    try:
        with tempfile.TemporaryDirectory(prefix="rlship-containers-") as scratch, Engine(folder) as engine:
            version = engine("version", "--format", "{{.Client.Version}}")
            print(f"podman {version} with runc; what it has is in {folder}, and removed at the end but for packages")
            parts = {"alone": image.under_a_job, "bare": image.without_settings}
            parts |= {"pod": pod.singleton, "job": job_pod.in_the_jobs_pod}
            for name, part in parts.items():
                if name == "alone":
                    image.build(engine, folder, found)
                place = Path(scratch) / name
                place.mkdir(mode=0o755)
                Path(scratch).chmod(0o755)
                part(engine, place, found)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    except (AssertionError, Failed, subprocess.TimeoutExpired) as error:
        print(f"\nFAILED after {found.count} facts: {error}", file=sys.stderr)
        return 1
    print(f"\n{found.count} facts in {found.seconds():.0f} s")
    return 0


def renders() -> bool:
    """Whether there is a program here that renders the overlays."""
    if not any(shutil.which(name, path=path()) for name in ("kustomize", "kubectl")):
        return False
    try:
        return bool(rendered(ROOT / "k8s" / "overlays" / "singleton"))
    except ValueError:
        return False


def fetch_kubectl() -> None:
    """Get one that does. Raises Missing."""
    script = ROOT / "tests" / "deploy" / "kubectl.sh"
    done = subprocess.run([script, sys.prefix], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"the overlays cannot be rendered: {done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
