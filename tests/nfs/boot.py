"""What a guest starts from: a kernel of the packages, and a first filesystem that mounts the folders it is shown."""

from __future__ import annotations

import lzma
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from tests.nfs.packages import Missing, program

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "nfsd", "nfsv3", "nfsv4", "veth", "sch_netem")

_INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /dev /new
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do busybox insmod "$module" || echo "cannot load $module"; done
busybox mount -t tmpfs -o size=90% new /new
cd /new
busybox mkdir -p proc sys dev tmp run etc var/lib/nfs/sm var/lib/nfs/sm.bak var/lib/nfs/v4recovery root mnt
busybox cp /etc/* etc/
for name in bin sbin lib lib64; do busybox ln -s usr/$name $name; done
busybox cp /bin/busybox /new/root/busybox
while read -r tag mode path; do
    busybox mkdir -p "/new$path"
    busybox mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$mode" "$tag" "/new$path" || echo "no $path"
done < /shares
busybox mount -t proc proc /new/proc
busybox mount -t sysfs sys /new/sys
busybox mount -t devtmpfs dev /new/dev
busybox cp /program /new/root/program
exec busybox switch_root /new /root/busybox sh /root/program
"""

_ETC = {
    "passwd": "root:x:0:0::/root:/bin/sh\n_rpc:x:100:65534::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost one two\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nrpc: files\n",
    "protocols": "ip 0 IP\ntcp 6 TCP\nudp 17 UDP\n",
    "services": "sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\nnfs 2049/tcp\n",
    "rpc": "portmapper 100000\nnfs 100003\nmountd 100005\nnlockmgr 100021\nstatus 100024\n",
    "netconfig": "udp tpi_clts v inet udp - -\ntcp tpi_cots_ord v inet tcp - -\nlocal tpi_cots_ord - loopback - - -\n",
    "exports": "",
    "mtab": "",
}


class Share(NamedTuple):
    """A folder of this machine that the guest sees at the same path, and the options it mounts it with."""

    tag: str
    options: str
    path: str


def kernel(tree: Path) -> Path:
    """The kernel of the packages; raises Missing."""
    found = sorted((tree / "boot").glob("vmlinuz-*"))
    if not found:
        raise Missing(f"no kernel in {tree}/boot: remove {tree} to fetch the packages again")
    return found[-1]


def first_filesystem(tree: Path, shares: list[Share], program_text: str) -> bytes:
    """A cpio archive for the kernel. It mounts `shares` and runs a shell program among them."""
    files: list[tuple[str, int, bytes]] = [(name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "etc", "modules")]
    files += [
        ("init", stat.S_IFREG | 0o755, _INIT.encode()),
        ("bin/busybox", stat.S_IFREG | 0o755, program(tree, "busybox").read_bytes()),
        ("shares", stat.S_IFREG | 0o644, "".join(" ".join(share) + "\n" for share in shares).encode()),
        ("program", stat.S_IFREG | 0o644, program_text.encode()),
    ]
    files += [(f"etc/{name}", stat.S_IFREG | 0o644, text.encode()) for name, text in _ETC.items()]
    for number, (name, data) in enumerate(_modules(tree)):
        files.append((f"modules/{number:03}-{name}", stat.S_IFREG | 0o644, data))
    return b"".join(_entry(number, *file) for number, file in enumerate(files, 1)) + _entry(0, "TRAILER!!!", 0, b"")


def _modules(tree: Path) -> list[tuple[str, bytes]]:
    """Modules and what they depend on, in an order in which they can be loaded."""
    version = kernel(tree).name.partition("-")[2]
    paths: dict[str, Path] = {}
    for part in ("lib", "usr/lib"):
        for path in (tree / part / "modules" / version / "kernel").rglob("*.ko*"):
            paths[path.name.partition(".")[0].replace("-", "_")] = path
    loaded: dict[str, bytes] = {}

    def load(name: str) -> None:
        name = name.replace("-", "_")
        if name in loaded or name not in paths:  # the latter is built in
            return
        data = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends[1].decode().split(",") if depends else []:
            load(other)
        loaded[name] = data

    for name in MODULES:
        load(name)
    return list(loaded.items())


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + os.fsencode(name) + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
