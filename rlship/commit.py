"""The git commit of a folder, read from git's own files: no process, and no answer where it would take long."""

from __future__ import annotations

import os
import stat
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Entry: TypeAlias = tuple[bytes, tuple[int, int], int, int]  # path, (seconds, nanoseconds), mode, size

_MAX_LEVELS = 40
_MAX_LINKS = 5  # of refs that name another ref
_MAX_PACKED = 16 << 20
_MAX_INDEX = 1 << 20  # bytes: some 10,000 files
_MAX_LOOK_S = 0.1
_SHA1 = 40  # hex digits
_ENTRY = 62  # bytes of an entry before its path
_UNCHANGED, _STAGES, _EXTENDED = 0x8000, 0x3000, 0x4000
_SUBMODULE = 0xE000


class Repository:
    """The repository around a folder. `top` is the work tree, `own` the git folder of it, `common` that of refs."""

    __slots__ = ("common", "own", "top")

    def __init__(self, top: str, own: str, common: str) -> None:
        self.top = top
        self.own = own
        self.common = common


def find(folder: str) -> Repository | None:
    """The repository that a folder is in; None without one."""
    for _ in range(_MAX_LEVELS):
        place = os.path.join(folder, ".git")
        own: str | None = place if os.path.isdir(place) else None
        if own is None:
            text = _text(place)  # of a submodule, or of a further work tree
            own = os.path.join(folder, text[7:].strip()) if text.startswith("gitdir:") else None
        if own is not None:
            common = _text(os.path.join(own, "commondir")).strip()
            return Repository(folder, own, os.path.join(own, common) if common else own)
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return None


def commit_of(found: Repository) -> str | None:
    """The commit that is checked out, in hex; None before the first, and where git keeps refs in another way."""
    name = "HEAD"
    for _ in range(_MAX_LINKS):
        place = found.own if name == "HEAD" else found.common
        text = _text(os.path.join(place, name)).strip() or _packed(found.common, name)
        if not text.startswith("ref:"):
            return text if len(text) in (_SHA1, 64) and _is_hex(text) else None
        name = text[4:].strip()
        if not name.startswith("refs/") or ".." in name:
            return None
    return None


def is_dirty(found: Repository, commit: str) -> bool | None:
    """Whether tracked files differ from the commit; None where that takes longer to find out, as it mostly does."""
    index = _read(os.path.join(found.own, "index"), _MAX_INDEX)
    if len(commit) != _SHA1 or index[:4] != b"DIRC" or index[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
        return None
    differs = _differs(found.top, index, os.path.join(found.own, "index"))
    if differs is not False:
        return differs
    tree = _tree_of(found.common, commit)
    staged = _tree_in(index)
    return None if tree is None or staged is None else tree != staged


def _differs(top: str, index: bytes, place: str) -> bool | None:
    """Whether files differ from the index: by their sizes surely, not by their times alone. None: not known."""
    deadline = time.monotonic() + _MAX_LOOK_S
    written = os.stat(place).st_mtime_ns
    answer: bool | None = False
    for path, modified, mode, size in _entries(index):
        if size < 0 or mode == _SUBMODULE or time.monotonic() > deadline:
            return None
        try:
            status = os.lstat(os.path.join(os.fsencode(top), path))
        except OSError:
            return True
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(mode) or status.st_size & 0xFFFFFFFF != size:
            return True
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        same = modified == (seconds, nanoseconds) or modified == (seconds, 0)
        if not same or status.st_mtime_ns >= written:  # it may have changed after the index was written
            answer = None
    return answer


def _entries(index: bytes) -> list[Entry]:
    """The files of an index. The size is -1 where git itself takes another look than at the file."""
    found, at = [], 12
    for _ in range(int.from_bytes(index[8:12], "big")):
        numbers = [int.from_bytes(index[at + i : at + i + 4], "big") for i in range(0, 40, 4)]
        flags = int.from_bytes(index[at + 60 : at + 62], "big")
        start = at + _ENTRY + (2 if flags & _EXTENDED else 0)
        end = index.index(b"\0", start)
        odd = flags & (_UNCHANGED | _STAGES | _EXTENDED)
        found.append((index[start:end], (numbers[2], numbers[3]), numbers[6], -1 if odd else numbers[9]))
        at += (end - at) // 8 * 8 + 8
    return found


def _tree_in(index: bytes) -> bytes | None:
    """The tree that a commit of the index would have, from the index' own cache of trees."""
    at = 12
    for _ in range(int.from_bytes(index[8:12], "big")):
        at += (index.index(b"\0", at + _ENTRY) - at) // 8 * 8 + 8
    while at + 8 <= len(index) - 20:
        name, size = index[at : at + 4], int.from_bytes(index[at + 4 : at + 8], "big")
        if name == b"TREE":
            counts, _, rest = index[at + 9 : at + 8 + size].partition(b"\n")
            return rest[:20] if not counts.startswith(b"-") and len(rest) >= 20 else None
        if name in (b"link", b"sdir"):
            return None
        at += 8 + size
    return None


def _tree_of(common: str, commit: str) -> bytes | None:
    """The tree of a commit that lies in a file of its own; None for one in a pack."""
    packed = _read(os.path.join(common, "objects", commit[:2], commit[2:]), _MAX_INDEX)
    text = zlib.decompressobj().decompress(packed, 1024) if packed else b""
    _, _, body = text.partition(b"\0")
    if not text.startswith(b"commit ") or not body.startswith(b"tree "):
        return None
    return bytes.fromhex(body[5:45].decode("ascii", "replace"))


def _packed(common: str, name: str) -> str:
    """A ref that lies with others in one file; "" without it."""
    for line in _read(os.path.join(common, "packed-refs"), _MAX_PACKED).splitlines():
        commit, _, ref = line.partition(b" ")
        if ref == name.encode():
            return commit.decode("ascii", "replace")
    return ""


def _text(path: str) -> str:
    return _read(path, 4096).decode("utf-8", "replace")


def _read(path: str, most: int) -> bytes:
    """The bytes of a plain file; b"" where there is no such file, or a longer one."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:  # to open a pipe might wait for ever
            return b""
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def _is_hex(text: str) -> bool:
    return all(c in "0123456789abcdef" for c in text)
