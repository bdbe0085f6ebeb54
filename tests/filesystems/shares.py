"""Filesystems that get into trouble and out of it: real ones in a mount namespace of their own, or a faulty `Disk`.

Nothing of a real one outlives the process that made it: its mounts end with its namespace, and a loop device with its
mount.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rlship.file import Disk
from tests.filesystems.mirror import Mirror
from tests.kit.waiting import wait_until

# mkfs and fsck are often not in a user's path.
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
# With processes of its own, too, so that none can be left behind.
ROOT = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
USER = [*ROOT, "--user", "--map-root-user"]
_MNT_DETACH = 2


class Share:
    """Where a job logs. `folder` is its experiment; `disk` makes the system calls."""

    def __init__(self, place: Path) -> None:
        self.disk = Disk()
        self.folder = place / "share" / "job"
        self._share = place / "share"
        self._share.mkdir()

    def strike(self, trouble: str) -> None:
        """Get into the trouble of this name."""
        getattr(self, f"strike_{trouble}")()

    def mend(self, trouble: str) -> None:
        """Get out of it."""
        getattr(self, f"mend_{trouble}")()

    def _fill(self) -> None:
        with open(self._share / "filler", "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1 << 9, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def _empty(self) -> None:
        (self._share / "filler").unlink()

    strike_full = _fill
    mend_full = _empty

    def _unmount(self) -> None:
        detach(self._share)


class TmpfsShare(Share):
    """A small filesystem in memory. Taken away, it is lost, and another empty one comes in its place."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._mount()

    def _mount(self) -> None:
        run("mount", "-t", "tmpfs", "-o", "size=1m", "share", str(self._share))

    def strike_replaced(self) -> None:
        self._unmount()

    def mend_replaced(self) -> None:
        self._mount()
        self.folder.mkdir()
        (self.folder / "rlship").mkdir()


class Ext4Share(Share):
    """A small ext4 in a file. Taken away, it comes back as it was; after an error it is read-only until checked."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._image = place / "image"
        with open(self._image, "wb") as image:
            image.truncate(8 << 20)
        run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount()

    def _mount(self) -> None:
        run("mount", "-t", "ext4", "-o", "loop,errors=remount-ro", str(self._image), str(self._share))

    def strike_away(self) -> None:
        self._unmount()

    def mend_away(self) -> None:
        self._mount()

    def strike_readonly(self) -> None:
        os.sync()  # what the disk did not have yet when it failed is lost on any filesystem
        run("mount", "-o", "remount,abort", str(self._share))

    def mend_readonly(self) -> None:
        self._unmount()
        # As long as the writer keeps its file open, it cannot be checked, and a mount would be the failed one.
        wait_until(lambda: str(self._image) not in _files_of_loops(), "the writer closes the file that was lost")
        run("fsck.ext4", "-f", "-y", str(self._image), good=(0, 1))
        self._mount()


def _files_of_loops() -> list[str]:
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it was let go just now
            found.append(path.read_text().strip())
    return found


class FaultyShare(Share):
    """A folder, and a `Disk` that fails as told: the same facts where nothing can be mounted."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.disk = self.faulty = FaultyDisk()

    def strike_full(self) -> None:
        self.faulty.failure, self.faulty.room = errno.ENOSPC, 37

    def strike_quota(self) -> None:
        self.faulty.failure, self.faulty.room = errno.EDQUOT, 37

    def strike_readonly(self) -> None:
        self.faulty.failure = errno.EROFS

    def strike_hung_up(self) -> None:
        self.faulty.failure = errno.EIO

    def strike_stale(self) -> None:
        self.faulty.failure = errno.ESTALE

    def mend(self, trouble: str) -> None:
        """All of them end alike."""
        self.faulty.failure = 0


class FaultyDisk(Disk):
    """While `failure` is an errno, nothing can be written but the first `room` bytes, and nothing opened to write."""

    def __init__(self) -> None:
        self.failure = 0
        self.room = 0

    def _fail(self) -> None:
        if self.failure:
            raise OSError(self.failure, os.strerror(self.failure))

    def open(self, path: str, flags: int) -> int:
        self._fail()
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.failure and self.room:
            data, self.room = data[: self.room], 0
            return super().write(fd, data)
        self._fail()
        return super().write(fd, data)


# Which troubles each can have. EDQUOT is made up: few kernels that tests run on can do quotas.
SHARES: dict[str, tuple[Callable[[Path], Share], tuple[str, ...]]] = {
    "faulty": (FaultyShare, ("full", "quota", "readonly", "hung_up", "stale")),
    "tmpfs": (TmpfsShare, ("full", "replaced")),
    "ext4": (Ext4Share, ("full", "away", "readonly")),
}


@functools.cache
def unshare_for(share: str) -> tuple[str, ...] | None:
    """What to run before a program so that it can make such a share, or a "mirror"; None where this machine cannot."""
    if share == "faulty":
        return ()
    for before in (ROOT, USER):
        program = [sys.executable, "-m", "tests.filesystems.shares", share]
        try:
            done = subprocess.run([*before, *program], cwd=Path(__file__).parents[2], capture_output=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return tuple(before)
    return None


def detach(point: Path) -> None:
    """`umount -l`: gone from the path, but not for who has a file open."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount2", str(point))


def run(*command: str, good: tuple[int, ...] = (0,)) -> None:
    """Run a command to its end; raises RuntimeError with what it said."""
    program = shutil.which(command[0], path=PATH) or command[0]
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True)
    if done.returncode not in good:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stderr}")


def probe(share: str) -> None:
    """Make such a share and let it go again."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if share == "mirror":
            Mirror(place, place, sys.stderr)
            detach(place)
        else:
            SHARES[share][0](place)
            detach(place / "share")


if __name__ == "__main__":
    probe(sys.argv[1])
