"""The limits of a control group (of a container, a batch job, a unit) below those of the machine."""

from __future__ import annotations

import os

# A limit at or above this means "no limit": version 1 writes the greatest number of whole pages.
_NO_LIMIT = 1 << 60


class Cgroup:
    """The control group of a process, version 1 or 2. `root` is the root of the machine's file system, for tests.

    A limit of any group above applies too; the least counts.
    """

    def __init__(self, root: str = "/", pid: str = "self") -> None:
        self._root = root
        self._memory: list[str] = []
        self._cpu: list[str] = []
        self._v2: list[str] = []
        for line in self._text(os.path.join(root, f"proc/{pid}/cgroup")).splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                self._v2 = self._chain(("sys/fs/cgroup", "sys/fs/cgroup/unified"), path)
            elif "memory" in controllers.split(","):
                self._memory = self._chain(("sys/fs/cgroup/memory",), path)
            elif "cpu" in controllers.split(","):
                self._cpu = self._chain(("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), path)

    def memory(self) -> tuple[int, int] | None:
        """(bytes in use, limit in bytes) of the group whose limit is the least, or None without a limit.

        Does not count file pages that can be dropped at once, as for the machine.
        """
        found: list[tuple[int, int]] = []
        for folders, limit_file, used_file, droppable in (
            (self._v2, "memory.max", "memory.current", "inactive_file"),
            (self._memory, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for folder in folders:
                limit = self._number(folder, limit_file)
                used = self._number(folder, used_file)
                if limit is not None and used is not None and limit < _NO_LIMIT:
                    found.append((limit, max(0, used - self._stat(folder, droppable))))
        if not found:
            return None
        limit, used = min(found)
        return used, limit

    def cpus(self) -> float | None:
        """The number of cores that the group may use, or None without a limit."""
        found = []
        for folder in self._v2:
            quota, _, period = self._text(os.path.join(folder, "cpu.max")).strip().partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                found.append(int(quota) / int(period))
        for folder in self._cpu:
            quota_us = self._number(folder, "cpu.cfs_quota_us")
            period_us = self._number(folder, "cpu.cfs_period_us")
            if quota_us and period_us:
                found.append(quota_us / period_us)
        return min(found, default=None)

    def cpu_s(self) -> float | None:
        """CPU seconds that the group has used since it exists, or None if that is unknown."""
        for folder in self._v2[:1]:
            for line in self._text(os.path.join(folder, "cpu.stat")).splitlines():
                name, _, value = line.partition(" ")
                if name == "usage_usec" and value.isdigit():
                    return int(value) / 1e6
        for folder in self._cpu[:1]:
            for place in (folder, folder.replace("sys/fs/cgroup/cpu/", "sys/fs/cgroup/cpuacct/", 1)):
                used = self._number(place, "cpuacct.usage")
                if used is not None:
                    return used / 1e9
        return None

    def _chain(self, mounts: tuple[str, ...], path: str) -> list[str]:
        """The group's folder and those above it, as far as they are visible from here."""
        for mount in mounts:
            top = os.path.join(self._root, mount)
            if not os.path.isdir(top):
                continue
            folder = os.path.normpath(os.path.join(top, path.strip().lstrip("/")))
            # In a container the path may be the host's, while the group itself is mounted at the top.
            if not (folder + "/").startswith(top + "/") or not os.path.isdir(folder):
                folder = top
            chain = [folder]
            while folder != top:
                folder = os.path.dirname(folder)
                chain.append(folder)
            return chain
        return []

    def _number(self, folder: str, name: str) -> int | None:
        text = self._text(os.path.join(folder, name)).strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 40 else None

    def _stat(self, folder: str, wanted: str) -> int:
        for line in self._text(os.path.join(folder, "memory.stat")).splitlines():
            name, _, value = line.partition(" ")
            if name == wanted and value.isdigit():
                return int(value)
        return 0

    @staticmethod
    def _text(path: str) -> str:
        try:
            with open(path, "rb") as file:
                return file.read(65536).decode("ascii", "replace")
        except OSError:
            return ""
