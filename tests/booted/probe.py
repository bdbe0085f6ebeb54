"""What a service may do: `probe.py FOLDER HOME` tries it with real files, in place of the service's own command, and
prints for each attempt "allowed" or the error's name. Needs nothing but Python.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x20000


def attempts(folder: Path, home: Path) -> dict[str, Callable[[], object]]:
    """What is tried, by what it is called in the list."""
    return {
        "write in the folder": lambda: write(folder),
        "write in /etc": lambda: write(Path("/etc")),
        "write in /usr": lambda: write(Path("/usr")),
        "write in /var": lambda: write(Path("/var")),
        "write in the home": lambda: write(home),
        "write in /tmp": lambda: write(Path("/tmp"), kept=True),
        "see another's file in /tmp": lambda: os.stat("/tmp/planted"),
        "see a device": lambda: os.stat("/dev/planted"),
        "change the kernel": lambda: write_in("/proc/sys/vm/swappiness"),
        "make a device": lambda: os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        "make a setuid file": lambda: setuid(folder),
        "mount": lambda: called(libc.unshare(CLONE_NEWNS)),
        "write and execute memory": writable_code,
        "open a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        "open a TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
        "raise its priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 1),
        "see other processes": lambda: os.stat("/proc/1/status"),
    }


def write(folder: Path, *, kept: bool = False) -> None:
    """Make a file there."""
    path = folder / "probe"
    path.write_text("written")
    if not kept:
        path.unlink()


def write_in(path: str) -> None:
    """Open an existing file for writing, and write what it holds."""
    with open(path, "r+") as file:
        held = file.read()
        file.seek(0)
        file.write(held)


def setuid(folder: Path) -> None:
    """Give a file the bit with which it runs as its owner."""
    path = folder / "setuid"
    path.write_text("")
    try:
        path.chmod(0o4755)
    finally:
        path.unlink()


def writable_code() -> None:
    """Map memory that may be written and executed."""
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def called(result: int) -> None:
    """Raise OSError for a system call that failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), "")


def outcome(attempt: Callable[[], object]) -> str:
    """ "allowed", or the name of the error."""
    try:
        attempt()
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, str(problem))
    return "allowed"


def main() -> None:
    """Try all, and say which rights this process has."""
    folder, home = Path(sys.argv[1]), Path(sys.argv[2])
    found = {name: outcome(attempt) for name, attempt in attempts(folder, home).items()}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    found["capabilities"] = str(int(status["CapEff"], 16) | int(status["CapPrm"], 16))
    found["no new privileges"] = status["NoNewPrivs"].strip()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
