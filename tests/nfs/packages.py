"""What the guest needs and this machine lacks: Debian packages, fetched and unpacked into a folder, never installed."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("qemu-system-x86", "busybox-static", "nfs-kernel-server", "nfs-common", "rpcbind", "iproute2")
KERNEL = "linux-image-amd64"  # the cloud kernel has no 9p
NEEDED = ("apt-get", "apt-cache", "dpkg-deb")
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


class Missing(Exception):
    """Something that the laboratory cannot do without; the text says what, and the way out."""


def unpacked(folder: Path) -> Path:
    """The tree of all packages in `folder`, fetched unless it is there; raises Missing."""
    tree = folder / "tree"
    if tree.is_dir():
        return tree
    _require()
    debs = folder / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    wanted = [*_lacking(PROGRAMS), _kernel()]
    _run(["apt-get", "download", *wanted], debs)
    scratch = folder / "tree.part"
    shutil.rmtree(scratch, ignore_errors=True)
    for deb in sorted(debs.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(deb.resolve()), str(scratch.resolve())], debs)
    scratch.rename(tree)
    shutil.rmtree(debs)
    return tree


def program(tree: Path, name: str) -> Path:
    """A program of the packages, or the one installed here; raises Missing."""
    for place in (tree / part for part in ("usr/bin", "usr/sbin", "bin", "sbin")):
        if (place / name).exists():
            return place / name
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if found is None:
        raise Missing(f"no {name}, neither installed nor in {tree}: remove {tree} to fetch the packages again")
    return Path(found)


def _require() -> None:
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking or platform.machine() != "x86_64":
        raise Missing(
            f"this needs Debian or Ubuntu on x86_64 with {', '.join(NEEDED)}; here: {platform.machine()}, "
            f"without {', '.join(lacking) or 'nothing of these'}. Run it in a container of debian:12"
        )


def _lacking(names: tuple[str, ...]) -> list[str]:
    """The packages of `names` and all they depend on that are not installed here."""
    plan = _run(["apt-get", "--simulate", "--no-install-recommends", "install", *names])
    return re.findall(r"^Inst (\S+)", plan, re.MULTILINE)


def _kernel() -> str:
    found = re.search(r"Depends: (linux-image-\S+)", _run(["apt-cache", "depends", KERNEL]))
    if found is None:
        raise Missing(f"the package lists have no {KERNEL}: run `apt-get update` as root, on Debian")
    return found[1]


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"`{' '.join(command)}` failed (run `apt-get update` as root first?): {done.stderr.strip()}")
    return done.stdout
