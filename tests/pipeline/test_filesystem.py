"""Which filesystem holds a path, from literal mount tables."""

from __future__ import annotations

import os

import pytest

from rlship_sidecar.filesystem import Filesystem, filesystem_of

NODE = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
24 22 0:22 / /dev/shm rw shared:3 - tmpfs tmpfs rw,inode64
30 22 0:45 / /home rw,relatime shared:40 - nfs4 filer:/export/home rw,vers=4.2,addr=10.0.0.5
31 22 0:46 / /lustre rw shared:41 - lustre 10.0.0.7@tcp:/scratch rw,flock
32 22 0:47 / /mnt/bucket rw,nosuid - fuse.s3fs s3fs rw,user_id=0
33 30 259:3 / /home/local\040disk rw,relatime shared:42 - xfs /dev/nvme1n1 rw
34 22 259:2 /var/data /data rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
35 22 0:45 /team /team rw,relatime shared:40 - nfs4 filer:/export/home rw
36 22 0:48 / /odd\134040name rw - btrfs /dev/sdc rw
37 22 0:49 / /tab\011and\012line rw - f2fs /dev/sdd rw
38 22 0:50 / /beegfs rw - beegfs beegfs_nodev rw
39 22 0:51 / /win rw - 9p drvfs rw
"""
POD = """1200 900 0:300 / / rw,relatime master:500 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
1201 1200 0:301 / /outputs rw,relatime - nfs filer:/vol rw,vers=3
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", Filesystem("ext4", True, "/")),
        ("/outputs/run", Filesystem("ext4", True, "/")),
        ("/dev/shm/run", Filesystem("tmpfs", True, "/dev/shm")),
        ("/home", Filesystem("nfs4", False, "/home")),
        ("/home/ann/run", Filesystem("nfs4", False, "/home")),
        ("/homework/run", Filesystem("ext4", True, "/")),
        ("/lustre/run", Filesystem("lustre", False, "/lustre")),
        ("/mnt/bucket/run", Filesystem("fuse.s3fs", False, "/mnt/bucket")),
        ("/home/local disk/run", Filesystem("xfs", True, "/home/local disk")),
        ("/data/run", Filesystem("ext4", True, "/data")),
        ("/team/run", Filesystem("nfs4", False, "/team")),
        ("/odd\\040name/run", Filesystem("btrfs", True, "/odd\\040name")),
        ("/tab\tand\nline/run", Filesystem("f2fs", True, "/tab\tand\nline")),
        ("/beegfs/run", Filesystem("beegfs", False, "/beegfs")),
        ("/win/run", Filesystem("9p", False, "/win")),
    ],
)
def test_the_longest_mount_point_holds_the_path(path: str, expected: Filesystem) -> None:
    """Network and unknown filesystems are not local, bind mounts have the type of what they show, escapes are read."""
    assert filesystem_of(path, NODE) == expected


def test_inside_a_container() -> None:
    """The root of a container has a parent that its table does not list; a volume in it is found all the same."""
    assert filesystem_of("/root/run", POD) == Filesystem("overlay", True, "/")
    assert filesystem_of("/outputs/run", POD) == Filesystem("nfs", False, "/outputs")


def test_a_later_mount_covers_the_one_before_it() -> None:
    """Of two mounts on one folder the one on top holds its files."""
    table = NODE + "50 31 0:60 / /lustre rw - tmpfs tmpfs rw\n"
    assert filesystem_of("/lustre/run", table) == Filesystem("tmpfs", True, "/lustre")


def test_a_mount_covers_what_was_mounted_below_it() -> None:
    """A mount on a folder hides earlier mounts further down, but not those made on it afterwards."""
    table = (
        NODE
        + "50 34 0:60 / /data/fast rw - tmpfs tmpfs rw\n"
        + "51 34 0:61 / /data rw - nfs4 filer:/data rw\n"
        + "52 51 0:62 / /data/later rw - xfs /dev/sde rw\n"
    )
    assert filesystem_of("/data/fast/run", table) == Filesystem("nfs4", False, "/data")
    assert filesystem_of("/data/later/run", table) == Filesystem("xfs", True, "/data/later")


def test_a_table_that_says_nothing_counts_as_a_network() -> None:
    """Where the kernel names no filesystem for a path, files are reopened and polled, which is right everywhere."""
    assert filesystem_of("/run", "") == Filesystem("unknown", False, "")
    assert not filesystem_of("/run", "garbage\n1 2 3\n5 6 0:1 / / rw - \n").local


def test_this_machine_has_an_answer() -> None:
    """The real table names a filesystem for a folder that certainly exists."""
    found = filesystem_of(os.path.realpath("/proc/self"))
    assert (found.type, found.local, found.mount) == ("proc", False, "/proc")
