"""The use of a machine's processors, memory, disks and network, in metrics of the catalogue."""

from __future__ import annotations

import os

from .cgroup import Cgroup
from .rates import Rates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .readings import Reading

_SECTOR = 4  # counters of InfiniBand count words of four bytes


class Host:
    """Samples of this machine. `psutil` is the module; `root` contains /proc and /sys, for tests.

    Where the control group of this process has less than the machine, shares are relative to the group's limit.
    """

    def __init__(self, psutil: Any, *, root: str = "/") -> None:
        self._psutil = psutil
        self._root = root
        self._rates = Rates()
        self._cgroup = Cgroup(root)
        self._cores = float(psutil.cpu_count() or 1)
        self._cpu_before: tuple[float, float] | None = None
        self._physical: dict[str, bool] = {}

    def sample(self, t: float) -> Reading:
        """All values that change from second to second. `t`: seconds of a clock that does not go back."""
        found: Reading = {}
        parts: tuple[Callable[[Reading, float], None], ...] = (self._cpu, self._memory, self._disks, self._network)
        for part in parts:
            try:
                part(found, t)
            except (OSError, AttributeError, ValueError, RuntimeError):
                continue  # the machine lacks this part, but has the others
        return found

    def limits(self) -> Reading:
        """Values that hardly ever change: the number of cores and the size of the memory."""
        cpus = self._cgroup.cpus()
        found: Reading = {"node/cpu_limit": min(self._cores, cpus or self._cores)}
        allowed, total = self._cgroup.memory(), int(self._psutil.virtual_memory().total)
        found["node/host_mem_limit"] = total if allowed is None else min(total, allowed[1])
        found["node/swap"] = int(self._psutil.swap_memory().used)
        return found

    def _cpu(self, found: Reading, t: float) -> None:
        limit, own = self._cgroup.cpus(), self._cgroup.cpu_s()
        if limit is not None and limit < self._cores and own is not None:
            used = own
        else:
            limit = self._cores
            times = self._psutil.cpu_times()
            # `user` already contains the time of a guest's processors.
            used = sum(times) - times.idle - getattr(times, "iowait", 0.0)
            used -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        before, self._cpu_before = self._cpu_before, (t, used)
        if before is not None and t > before[0] and used >= before[1]:
            found["node/cpu"] = round(min(1.0, (used - before[1]) / (t - before[0]) / limit), 4)

    def _memory(self, found: Reading, t: float) -> None:
        memory = self._psutil.virtual_memory()
        used, limit = int(memory.total - memory.available), int(memory.total)
        allowed = self._cgroup.memory()
        if allowed is not None and allowed[1] < limit:
            used, limit = allowed
        found["node/host_mem"] = used
        if limit:
            found["node/host_mem_frac"] = round(used / limit, 4)

    def _disks(self, found: Reading, t: float) -> None:
        disks = self._psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        real = [io for name, io in disks.items() if self._is_physical("block", name)]
        if real:
            self._put(found, "node/disk_read_per_s", sum(io.read_bytes for io in real), t)
            self._put(found, "node/disk_write_per_s", sum(io.write_bytes for io in real), t)

    def _network(self, found: Reading, t: float) -> None:
        cards = self._psutil.net_io_counters(pernic=True, nowrap=False)
        real = [name for name in cards if self._is_physical("net", name)]
        # In a container no card is physical; any card but loopback may lead outside.
        chosen = real or [name for name in cards if name != "lo"]
        self._put(found, "node/net_recv_per_s", sum(cards[name].bytes_recv for name in chosen), t)
        self._put(found, "node/net_sent_per_s", sum(cards[name].bytes_sent for name in chosen), t)
        received = self._rdma("port_rcv_data")
        if received is not None:
            self._put(found, "node/rdma_recv_per_s", received * _SECTOR, t)
            self._put(found, "node/rdma_sent_per_s", (self._rdma("port_xmit_data") or 0) * _SECTOR, t)

    def _put(self, found: Reading, name: str, total: int, t: float) -> None:
        rate = self._rates.of(name, total, t)
        if rate is not None:
            found[name] = round(rate)

    def _is_physical(self, kind: str, name: str) -> bool:
        """True if a disk or a network card is hardware: others pass on what the hardware counts already."""
        known = self._physical.get(kind + name)
        if known is None:
            if len(self._physical) > 1000:  # cards of containers come and go
                self._physical.clear()
            folder = "sys/class/net" if kind == "net" else "sys/block"
            known = os.path.exists(os.path.join(self._root, folder, name.replace("/", "!"), "device"))
            self._physical[kind + name] = known
        return known

    def _rdma(self, counter: str) -> int | None:
        top = os.path.join(self._root, "sys/class/infiniband")
        total = None
        try:
            for card in os.listdir(top):
                for port in os.listdir(os.path.join(top, card, "ports")):
                    with open(os.path.join(top, card, "ports", port, "counters", counter), "rb") as file:
                        total = (total or 0) + int(file.read(64))
        except (OSError, ValueError):
            return total
        return total


class Place:
    """The filesystem that an experiment is on: its space, and the traffic of its disk if that is in this machine."""

    def __init__(self, psutil: Any, folder: str, *, root: str = "/") -> None:
        self._psutil = psutil
        self._folder = folder
        self._rates = Rates()
        device = os.stat(folder).st_dev
        link = os.path.join(root, f"sys/dev/block/{os.major(device)}:{os.minor(device)}")
        self._disk = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else ""

    def sample(self, t: float) -> Reading:
        """Free space and rates. May block for as long as the filesystem does. Raises OSError."""
        room = os.statvfs(self._folder)
        found: Reading = {"node/fs_free": room.f_bavail * room.f_frsize}
        if room.f_blocks:
            # As in df: space reserved for root counts as used.
            used = room.f_blocks - room.f_bfree
            found["node/fs_used_frac"] = round(used / ((used + room.f_bavail) or 1), 4)
        io = (self._psutil.disk_io_counters(perdisk=True, nowrap=False) or {}).get(self._disk) if self._disk else None
        if io is not None:
            for name, total in (("node/fs_read_per_s", io.read_bytes), ("node/fs_write_per_s", io.write_bytes)):
                rate = self._rates.of(name, total, t)
                if rate is not None:
                    found[name] = round(rate)
        return found
