"""What kind of filesystem a path is on, and what follows for reading it."""

from __future__ import annotations

import os
from dataclasses import dataclass

_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay", "bcachefs"))


@dataclass(frozen=True, slots=True)
class Filesystem:
    """`type` as the kernel names it ("unknown" if it does not say); `local` only where change events of all writers
    reach us.

    Everything not known to be local counts as a network filesystem: it is read by reopening and polling, which is right
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
    best = Filesystem("unknown", False, "")
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, type_fields = left.split(" "), right.split(" ")
        if len(fields) < 5 or not type_fields[0]:
            continue
        mount = _unescape(fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        # Later lines cover earlier mounts of the same point.
        if inside and len(mount) >= len(best.mount):
            best = Filesystem(type_fields[0], type_fields[0] in _LOCAL, mount)
    return best


def _unescape(field: str) -> str:
    """The kernel writes space, tab, LF and backslash as octal escapes."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, char)
    return os.path.normpath(field)
