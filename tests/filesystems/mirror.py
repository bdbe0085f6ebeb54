"""A filesystem that shows another folder, read-only, and gives no change events: FUSE spoken without a library.

`python -m tests.filesystems.mirror BACK POINT JOURNAL` serves until it is killed. As with a network filesystem, what
happens in BACK is another host's doing, which no kernel tells, and attributes are remembered for a while. The journal
gets a line for each file that is opened and each that is closed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from pathlib import Path
from typing import TextIO

TYPE = "fuse.mirror"
REMEMBERED_S = 0.25

_MS_NOSUID_NODEV = 2 | 4
_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<6Q10I")
_VALID = (int(REMEMBERED_S), int(REMEMBERED_S % 1 * 1e9))
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET = 26, 27, 28, 29, 36, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_MOST = 1 << 16


class Mirror:
    """Answers the kernel's requests. A node is a path, for as long as the filesystem lives."""

    def __init__(self, back: Path, point: Path, journal: TextIO) -> None:
        self._paths = {1: str(back)}
        self._nodes = {str(back): 1}
        self._open: dict[int, tuple[str, int]] = {}
        self._journal = journal
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"mirror", os.fsencode(point), TYPE.encode(), _MS_NOSUID_NODEV, options.encode()):
            raise OSError(ctypes.get_errno(), "mount", str(point))

    def serve(self) -> None:
        """Answer until the filesystem is unmounted."""
        while True:
            try:
                request = os.read(self._device, _MOST + (1 << 12))
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, what, unique, node, *_ = _IN.unpack_from(request)
            if what in _UNANSWERED:
                continue
            try:
                failure, answer = 0, self._answer(what, node, request[_IN.size :])
            except OSError as error:
                failure, answer = -(error.errno or errno.EIO), b""
            os.write(self._device, _OUT.pack(_OUT.size + len(answer), failure, unique) + answer)

    def _answer(self, what: int, node: int, body: bytes) -> bytes:
        if what == _INIT:
            return struct.pack("<4I2H2I2H8I", 7, 31, _MOST, 0, 16, 12, _MOST, 1, 16, 0, *[0] * 8)
        path = self._paths[node]
        if what == _LOOKUP:
            found = os.path.join(path, os.fsdecode(body[:-1]))
            attributes = _attributes(found)
            return struct.pack("<4Q2I", self._node(found), 0, _VALID[0], _VALID[0], _VALID[1], _VALID[1]) + attributes
        if what == _GETATTR:
            return struct.pack("<Q2I", *_VALID, 0) + _attributes(path)
        if what in (_OPEN, _OPENDIR):
            return struct.pack("<Q2I", self._opened(path, directory=what == _OPENDIR), 0, 0)
        if what == _READ:
            handle, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self._open[handle][1], size, offset)
        if what == _READDIR:
            _, offset, size = struct.unpack_from("<QQI", body)
            return _entries(path, offset, size)
        if what in (_RELEASE, _RELEASEDIR):
            path, fd = self._open.pop(struct.unpack_from("<Q", body)[0])
            os.close(fd)
            self._note("close", path, directory=what == _RELEASEDIR)
            return b""
        if what == _STATFS:
            return struct.pack("<5Q4I24x", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def _node(self, path: str) -> int:
        node = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[node] = path
        return node

    def _opened(self, path: str, *, directory: bool) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open[fd] = (path, fd)
        self._note("open", path, directory=directory)
        return fd

    def _note(self, what: str, path: str, *, directory: bool) -> None:
        if not directory:
            self._journal.write(f"{what} {os.path.basename(path)}\n")


def _attributes(path: str) -> bytes:
    found = os.stat(path, follow_symlinks=False)
    times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
    parts = tuple(ns % 1_000_000_000 for ns in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns))
    owner = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0)
    return _ATTRIBUTES.pack(found.st_ino, found.st_size, found.st_blocks, *times, *parts, *owner)


def _entries(path: str, offset: int, size: int) -> bytes:
    data = b""
    names = sorted(os.listdir(path))
    for number, name in enumerate(names[offset:], offset + 1):
        found = os.stat(os.path.join(path, name), follow_symlinks=False)
        raw = os.fsencode(name)
        entry = struct.pack("<QQII", found.st_ino, number, len(raw), stat.S_IFMT(found.st_mode) >> 12) + raw
        entry += b"\0" * (-len(entry) % 8)
        if len(data) + len(entry) > size:
            break
        data += entry
    return data


def main(back: Path, point: Path, journal: Path) -> None:
    """Mount and serve; says so on stdout once it is mounted."""
    with open(journal, "a", buffering=1) as lines:
        mirror = Mirror(back, point, lines)
        print("mounted", flush=True)
        mirror.serve()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
