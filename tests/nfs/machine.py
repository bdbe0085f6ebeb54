"""One run of a virtual machine without a network: folders of this machine read-only, one to write, and a script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nfs.boot import Share, first_filesystem, kernel
from tests.nfs.packages import LIBRARIES, program

MEMORY = "3G"
PROBE_S = 15.0


def accelerator(tree: Path) -> str:
    """`kvm` where a machine comes up with it, which is more than that /dev/kvm exists; else `tcg`, ten times slower."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    try:
        said = _boot(tree, "kvm", [], "echo it runs\n/root/busybox poweroff -f\n", None, PROBE_S)
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if "it runs" in said else "tcg"


def run(tree: Path, kind: str, shown: list[Path], written: Path, program_text: str, timeout_s: float) -> str:
    """Boot with the accelerator `kind`, run a shell program with the folders `shown` (and `written`) at their own
    paths, and wait for the end.

    Returns what the machine said on its console; raises subprocess.TimeoutExpired.
    """
    shares = [Share(f"share{n}", "ro,cache=loose", str(path)) for n, path in enumerate(_outermost(shown))]
    written.mkdir(parents=True, exist_ok=True)
    shares.append(Share("written", "rw", str(written)))
    return _boot(tree, kind, shares, program_text, written / "console.txt", timeout_s)


def _boot(tree: Path, kind: str, shares: list[Share], program_text: str, console: Path | None, timeout_s: float) -> str:
    with tempfile.TemporaryDirectory(prefix="rlship-nfs-") as folder:
        archive = Path(folder) / "first.cpio"
        archive.write_bytes(first_filesystem(tree, shares, program_text))
        libraries = ":".join(str(tree / part) for part in LIBRARIES)
        with open(console or Path(folder) / "console", "w+b") as said:
            subprocess.run(
                _command(tree, kind, archive, shares),
                env={**os.environ, "LD_LIBRARY_PATH": libraries},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
            )
            said.seek(0)
            return said.read().decode(errors="replace")


def _command(tree: Path, kind: str, archive: Path, shares: list[Share]) -> list[str]:
    command = [str(program(tree, "qemu-system-x86_64"))]
    for part in ("usr/share/seabios", "usr/share/qemu", "usr/lib/ipxe/qemu"):
        command += ["-L", str(tree / part)]
    command += ["-accel", kind, "-cpu", "host,-arch-capabilities" if kind == "kvm" else "max", "-smp", "4"]
    command += ["-m", MEMORY, "-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot", "-nic", "none"]
    command += ["-kernel", str(kernel(tree)), "-initrd", str(archive)]
    command += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off no5lvl"]
    for share in shares:
        path = share.path.replace(",", ",,")
        what = f"local,path={path},mount_tag={share.tag},security_model=none,multidevs=remap"
        command += ["-virtfs", what + (",readonly=on" if share.options.startswith("ro") else "")]
    return command


def _outermost(folders: list[Path]) -> list[Path]:
    """Each folder once, and none that is inside another."""
    real = sorted({folder.resolve() for folder in folders})
    return [folder for folder in real if not any(other in folder.parents for other in real)]


def needed(tree: Path, repository: Path) -> list[Path]:
    """The folders in which Python, what it imports, the project and the packages are."""
    imported = [Path(folder) for folder in sys.path if folder and os.path.isdir(folder)]
    return [Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), *imported, repository, tree]
