"""The kind of filesystem under a path, how to read files there, and how to make names durable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay", "bcachefs"))


@dataclass(frozen=True, slots=True)
class Filesystem:
    """`type` is the kernel's name for it, or "unknown". `local` is True only if change events of all writers reach this
    host.

    A type not known to be local counts as a network filesystem. Its files are reopened and polled, which is correct
    everywhere.
    """

    type: str
    local: bool
    mount: str


def filesystem_of(path: str, mountinfo: str | None = None) -> Filesystem:
    """The filesystem that holds `path` (absolute, resolved); `mountinfo` is the text of /proc/self/mountinfo."""
    if mountinfo is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return Filesystem("unknown", False, "/")
    holding = [mount for mount in _mounts(mountinfo) if _holds(mount.point, path)]
    if not holding:
        return Filesystem("unknown", False, "")
    holding.reverse()  # of two equal mount points, the later one is on top
    ids = {mount.id for mount in holding}
    at = max((m for m in holding if m.parent not in ids or m.parent == m.id), key=lambda m: len(m.point))
    # Walk down the tree as the kernel does: a mount on a folder hides everything mounted below it before.
    while deeper := [m for m in holding if m.parent == at.id and m.id != at.id]:
        holding.remove(at)
        at = min(deeper, key=lambda m: len(m.point))
    return Filesystem(at.type, at.type in _LOCAL, at.point)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a crash."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Mount(NamedTuple):
    id: str
    parent: str
    point: str
    type: str


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.split("\n"):
        left, _, right = line.partition(" - ")
        fields, type_fields = left.split(" "), right.split(" ")
        if len(fields) >= 5 and type_fields[0]:
            yield _Mount(fields[0], fields[1], _unescape(fields[4]), type_fields[0])


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescape(field: str) -> str:
    """The kernel writes space, tab, LF and backslash as octal escapes."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, char)
    return os.path.normpath(field)
