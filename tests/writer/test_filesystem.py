"""Telling network filesystems by /proc/self/mountinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlship.filesystem import is_network

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /mnt/home rw - nfs4 server:/home rw,vers=4.2
31 22 0:41 / /mnt/home/local rw shared:5 master:3 - xfs /dev/sdb rw
32 22 0:42 / /mnt/scratch rw - lustre 10.0.0.1@tcp:/scratch rw,flock
33 22 0:43 / /mnt/with\040space rw - nfs server:/x rw
34 22 0:44 / /gcs rw - fuse.gcsfuse gcsfuse rw
35 22 0:45 / /weird rw - fuse something rw
36 22 0:46 / /dev/shm rw - tmpfs tmpfs rw
37 22 0:47 / /over rw - ext4 /dev/sdc rw
38 22 0:48 / /over rw - ceph mon:/ rw
a line that is no mount
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/outputs/run", False),
        ("/mnt/home/user/outputs", True),
        ("/mnt/home", True),
        ("/mnt/homework", False),
        ("/mnt/home/local/run", False),
        ("/mnt/scratch/run", True),
        ("/mnt/with space/run", True),
        ("/gcs/bucket", True),
        ("/weird/run", True),
        ("/dev/shm/run", False),
        ("/over/run", True),
    ],
)
def test_the_deepest_and_newest_mount_decides(tmp_path: Path, path: str, expected: bool) -> None:
    """Of all mounts that hold the path the longest counts, and of two at one place the later."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert is_network(path, str(mounts)) is expected


def test_unknown_is_local(tmp_path: Path) -> None:
    """Where the mounts cannot be read, nothing is synced."""
    assert is_network("/x", str(tmp_path / "missing")) is False


def test_this_machine_can_be_asked() -> None:
    """The real table of mounts is understood."""
    assert is_network("/proc") is False
