"""Finds the processes of writers on this node, also in containers, where they have other pids and host names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rlship.system.processes import Processes, open_files
from rlship_agents.sysmon.crew import Member

# A process begins before it opens its file, but clocks may be set in between.
_SLACK_S = 60.0
_MAX_REMEMBERED = 20_000


class Residents:
    """Finds the processes of writers.

    A writer's process is the one with its pid that has its file open. If no process has (the file is closed, or may not
    be looked at), the host's name and the process's start time decide. In a container a writer knows itself by another
    pid, and its host by another name; there only the open file counts.
    """

    def __init__(self, processes: Processes, host: str, *, root: str = "/") -> None:
        self._processes = processes
        self._host = host
        self._root = root
        self._holds: dict[tuple[int, int, str], bool] = {}

    def find(self, members: Iterable[Member]) -> dict[int, list[Member]]:
        """The members by their living processes' pids on this host; a process may be several members."""
        processes = self._processes
        inner: dict[int, list[int]] = {}
        for outer, name in processes.names.items():
            inner.setdefault(name, []).append(outer)
        boot = processes.boot_t()
        found: dict[int, list[Member]] = {}
        pid: int | None
        for member in members:
            here = member.host == self._host and processes.alive(member.pid) and member.pid not in processes.names
            candidates = [*([member.pid] if here else []), *inner.get(member.pid, ())]
            pid = next((one for one in candidates if self._has_open(one, member)), None)
            if pid is None and here and self._was_before(member, boot):
                pid = member.pid
            if pid is not None:
                found.setdefault(pid, []).append(member)
        return found

    def _has_open(self, pid: int, member: Member) -> bool:
        key = (pid, self._processes.started.get(pid, 0), member.id)
        known = self._holds.get(key)
        if known is None:
            # A file's name holds its writer's random id, so its folder need not be known.
            known = any(os.path.basename(file) == member.file for file in open_files(pid, self._root) or ())
            if len(self._holds) > _MAX_REMEMBERED:
                self._holds.clear()
            self._holds[key] = known
        return known

    def _was_before(self, member: Member, boot: float | None) -> bool:
        began = None if boot is None else self._processes.start_t(member.pid, boot)
        return began is not None and began <= member.t + _SLACK_S
