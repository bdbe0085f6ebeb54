"""Finds out whether a path is on a filesystem that other machines read through the network."""

from __future__ import annotations

import os

# On these filesystems other clients may see a write only after it is synced.
# fmt: off
_NETWORK = frozenset((
     "9p", "acfs", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "gfs", "gfs2", "glusterfs", "gpfs",
     "lustre", "nfs", "nfs4", "ocfs2", "openafs", "orangefs", "panfs", "pvfs2", "quobyte", "smb3", "smbfs",
     "vastnfs", "virtiofs", "wekafs",
))
# fmt: on


def is_network(path: str, mountinfo: str = "/proc/self/mountinfo") -> bool:
    """True if `path` (absolute; it need not exist yet) is on a network filesystem. False if that cannot be determined.

    FUSE counts as one, because its backing store is unknown, and syncing a local FUSE filesystem is only slower.
    """
    try:
        # Not as text: the first look for a codec imports it, and the writing thread must not import.
        with open(mountinfo, "rb") as lines:
            kind = _type_of(os.path.realpath(path), lines.read().decode("utf-8", "surrogateescape"))
    except OSError:
        return False
    return kind in _NETWORK or kind == "fuse" or kind.startswith("fuse.")


def _type_of(path: str, mountinfo: str) -> str:
    best, kind = "", ""
    for line in mountinfo.splitlines():
        # "36 35 98:0 /root /mount/point options [tags…] - type source superoptions"
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # `>=`, because of two mounts on one point the later hides the earlier.
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ", 1)[0]
    return kind


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
