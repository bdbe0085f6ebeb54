"""The agent's log in one experiment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlship.identity import Identity, bounded
from rlship.logger import Logger
from rlship.system import series
from rlship.system.attribution import Attribution, Share, memory_of, under
from rlship.system.background import Repeated
from rlship.system.processes import Processes
from rlship.system.readings import GpuProcess, GpuReading
from rlship_agents.sysmon.crew import Member

ACTOR = "node"
# Ranks with metrics of their own in one agent's life; later ones count only in those of their actor.
MAX_LABELS = 256


class Post:
    """The agent's writer in the experiment `path`, from `open` to `close`.

    `name` is the node's name, `host` the host's own name. `roles` are the actors whose processes get metrics (None:
    all). Calls `report(topic, line)` with messages for people.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        host: str,
        roles: Collection[str] | None,
        place: Repeated | None,
        report: Callable[[str, str], object],
    ) -> None:
        self.path = path
        self._roles = roles
        self._place = place
        self._report = report
        self._shares: dict[str, Share] = {}
        self._labels: set[str] = set()
        self._defined: set[str] = set()
        replica = bounded("replica", name, lambda line: report("", line))
        # Not through `init`: the launcher's ranks and attempts do not apply to an agent.
        identity = Identity(ACTOR, replica, 0, None, 0, "given", host)
        self.logger = Logger(str(path.absolute()), identity, labels={"agent": "sysmon"})
        self.logger.start()
        if place is not None:
            place.start()

    def put(
        self,
        now: float,
        node: Mapping[str, Any],
        gpus: GpuReading | None,
        residents: Mapping[int, list[Member]],
        processes: Processes,
        attribution: Attribution,
        *,
        rare: bool,
    ) -> dict[str, Any]:
        """Log one record of the values, and return it. `node` holds the values for all experiments."""
        found = dict(node)
        news = self._place.take() if self._place is not None else None
        found.update(series.of_node(news or {}))
        if gpus is not None:
            devices = series.by_device(gpus, rare=rare)
            self._define(dict(series.device_definitions(devices.keys() - self._defined)))
            found.update(devices)
        found.update(self._by_process(now, gpus, residents, processes, attribution))
        if found:
            self.logger.log(found)
        return found

    def event(self, name: str, attrs: Mapping[str, Any]) -> None:
        """Log an event."""
        self.logger.event(name, **attrs)

    def close(self, timeout_s: float) -> bool:
        """Write what is left. Returns False if that took over `timeout_s` seconds."""
        if self._place is not None:
            self._place.stop()
        return self.logger.close(timeout_s)

    def _by_process(
        self,
        now: float,
        gpus: GpuReading | None,
        residents: Mapping[int, list[Member]],
        processes: Processes,
        attribution: Attribution,
    ) -> dict[str, Any]:
        on_gpus: dict[int, list[GpuProcess]] = {}
        found: dict[str, Any] = {}
        if gpus is not None:
            others = []
            for one in gpus.processes:
                owner = attribution.owner(one.pid, residents)
                if owner is None:
                    others.append(one)
                else:
                    on_gpus.setdefault(owner, []).append(one)
            if gpus.known and attribution.trusted:
                found["gpu_mem_other"] = memory_of(others)
        by_label: dict[str, list[int]] = {}
        roles: dict[str, str] = {}
        for pid, members in residents.items():
            for member in members:
                if self._roles is None or member.actor in self._roles:
                    pids = by_label.setdefault(member.label, [])
                    roles[member.label] = member.actor
                    if pid not in pids:
                        pids.append(pid)
        by_role: dict[str, dict[str, list[Any]]] = {}
        for label, pids in by_label.items():
            share = self._shares.setdefault(label, Share())
            use = processes.use([one for pid in pids for one in processes.tree(pid, residents)])
            figures = share.figures(now, use, [one for pid in pids for one in on_gpus.get(pid, ())])
            if self._has_own(label):
                found.update(under(self._named(f"proc/{label}"), figures))
            columns = by_role.setdefault(roles[label], {})
            for name, value in figures.items():
                columns.setdefault(name, []).extend(value if isinstance(value, list) else [value])
        for role, columns in by_role.items():
            found.update(under(self._named(f"proc/{role}"), columns))
        for label in self._shares.keys() - by_label.keys():
            del self._shares[label]
        return found

    def _has_own(self, label: str) -> bool:
        if label not in self._labels:
            if len(self._labels) >= MAX_LABELS:
                self._report(
                    "labels",
                    f"{self.path}: more than {MAX_LABELS} ranks had processes here; later ones count in the metrics "
                    "of their actor only",
                )
                return False
            self._labels.add(label)
        return True

    def _named(self, prefix: str) -> str:
        if prefix not in self._defined:
            self._defined.add(prefix)
            self.logger.define(series.process_definitions(prefix, per_rank=False))
        return prefix

    def _define(self, entries: dict[str, dict[str, object]]) -> None:
        if entries:
            self._defined.update(entries)
            self.logger.define(entries)


def rival(agents: Sequence[Member], residents: Mapping[int, list[Member]], own: Logger | None) -> Member | None:
    """Another agent that logs this host already and takes precedence over this one; None without such an agent.

    Of two that began at the same time, the one with the smaller id takes precedence.
    """
    alive = {member.id: pid for pid, members in residents.items() for member in members}
    mine = next(((one.t, one.id) for one in agents if own is not None and one.id == own.id), (time.time(), "~"))
    for one in agents:
        if alive.get(one.id, os.getpid()) != os.getpid() and (one.t, one.id) < mine:
            return one
    return None


def as_json(path: Path, found: Mapping[str, Any]) -> str:
    """One record as a line of JSON."""
    return json.dumps({"experiment": str(path), "m": dict(found)}, ensure_ascii=False)
