"""The agent's loop: once a second it logs the node's use into every experiment that runs here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlship.system import series
from rlship.system.attribution import Attribution
from rlship.system.background import Due, Repeated
from rlship.system.processes import Processes
from rlship.system.readings import GpuReading
from rlship.system.sampler import Sampler
from rlship_agents.sysmon.crew import Member, Scout, Sight
from rlship_agents.sysmon.post import ACTOR, Post, rival
from rlship_agents.sysmon.residents import Residents

SCOUT_EVERY_S = 5.0
HANGS_S = 30.0
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The agent's task: once in `interval_s` seconds, for the processes of the actors in `roles` (None: all) and the
    GPUs in `gpus` (None: all visible ones). An experiment without a write for `quiet_s` seconds gets no logs until the
    next write; with `always` every experiment gets them.
    """

    interval_s: float = 1.0
    roles: Collection[str] | None = None
    gpus: Sequence[str] | None = None
    quiet_s: float = 300.0
    always: bool = False


class Agent:
    """Logs this node into the experiment `directory`, or into those in the folder `directory`.

    Calls `say(line)` with messages for people. `name` is the node's name, by default the host's. One thread calls
    `tick`.
    """

    def __init__(self, directory: Path, plan: Plan, say: Callable[[str], None], *, name: str = "") -> None:
        self._directory = directory
        self._plan = plan
        self._say = say
        self._reported: set[str] = set()
        self._host = os.uname().nodename or "unknown"
        self._name = name or self._host
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._gpus_event: dict[str, Any] | None = None
        self._posts: dict[Path, Post] = {}
        self._rare_at = float("-inf")
        self._blind = False
        self._processes = Processes()
        self._attribution = Attribution(self._processes)
        self._residents = Residents(self._processes, self._host)
        self._sampler = Sampler(plan.interval_s, plan.gpus, self._report, self._event)
        scout = Scout(directory, ACTOR, self._host, plan.quiet_s)
        self._scout = Repeated(scout.look, SCOUT_EVERY_S, self._scouting_failed)
        self._seen: list[Sight] | None = None
        self._members: dict[Path, Mapping[int, list[Member]]] = {}

    def start(self) -> None:
        """Start the threads that look."""
        self._scout.start()
        self._sampler.start()

    def run(self, stop: threading.Event) -> None:
        """Log until `stop` is set."""
        self.start()
        try:
            stop.wait(self._sampler.phase_s)
            due = Due(self._plan.interval_s)
            while not stop.is_set():
                self.tick(time.monotonic())
                stop.wait(due.left())
        finally:
            self.close()

    def once(self, stop: threading.Event) -> dict[Path, dict[str, Any]]:
        """Look twice, an interval apart, as rates need it, and return what was logged into each experiment."""
        self.start()
        try:
            deadline = time.monotonic() + HANGS_S
            while self._scout.latest() is None and time.monotonic() < deadline and not stop.is_set():
                stop.wait(0.02)
            while not self._sampler.looked and time.monotonic() < deadline and not stop.is_set():
                stop.wait(0.02)  # a vendor's command takes its time
            stop.wait(self._sampler.phase_s)
            first = self.tick(time.monotonic())
            stop.wait(self._plan.interval_s)
            self._rare_at = float("-inf")
            return {path: first.get(path, {}) | found for path, found in self.tick(time.monotonic()).items()}
        finally:
            self.close()

    def tick(self, now: float) -> dict[Path, dict[str, Any]]:
        """One look at the node; returns what was logged into each experiment."""
        if self._processes.look(now) or self._scout.latest() is not self._seen:
            self._settle()
        rare = now >= self._rare_at
        if rare:
            self._rare_at = now + series.RARELY_S - self._plan.interval_s / 2
        node: dict[str, Any] = series.of_node(self._sampler.host(rare=rare))
        gpus: GpuReading | None = self._sampler.gpus()
        if gpus is not None:
            node.update(series.of_node(series.overall(gpus, rare=rare)))
        events, self._events = self._events, []
        logged = {}
        for path, post in self._posts.items():
            for name, attrs in events:
                post.event(name, attrs)
            logged[path] = post.put(
                now, node, gpus, self._members.get(path, {}), self._processes, self._attribution, rare=rare
            )
        return logged

    def close(self) -> None:
        """Write what is left and release everything; takes a few seconds at most."""
        self._scout.stop()
        self._sampler.close()
        deadline = time.monotonic() + CLOSE_S
        for post in self._posts.values():
            post.close(max(0.1, deadline - time.monotonic()))
        self._posts.clear()

    def _settle(self) -> None:
        """Begin, continue or end the logging into experiments, by the scout's last result."""
        self._report_hanging()
        sights: list[Sight] | None = self._scout.latest()
        self._seen = sights
        if sights is None:
            return
        if not sights:
            self._report("waiting", f"no experiment in {self._directory} yet; waiting for one")
        going, wanted = set(), 0
        for sight in sights:
            relevant = sight.fresh or self._plan.always  # the others' processes are not needed
            residents = self._residents.find([*sight.workers, *sight.agents]) if relevant else {}
            mine = {pid: kept for pid, ms in residents.items() if (kept := [m for m in ms if m.actor != ACTOR])}
            self._members[sight.path] = mine
            resident = any(not member.observes for members in mine.values() for member in members)
            if self._goes_on(sight, resident, alone=sight.path == self._directory):
                wanted += 1
                if self._has_post(sight, residents):
                    going.add(sight.path)
        if sights and not wanted and not self._posts:
            self._report("idle", self._waits_for([sight.path for sight in sights]))
        for path in self._posts.keys() - going:
            self._end(path)
        for path in self._members.keys() - {sight.path for sight in sights}:
            del self._members[path]

    def _goes_on(self, sight: Sight, resident: bool, *, alone: bool) -> bool:
        if self._plan.always:
            return True
        # In a folder of many experiments a node logs itself into those that have a process on it.
        return sight.fresh and (alone or resident or any(self._is_here(one) for one in sight.workers))

    def _waits_for(self, found: Sequence[Path]) -> str:
        quiet = f"for {self._plan.quiet_s:g} s (--quiet-after)"
        if [*found] == [self._directory]:
            return f"no process has written into {self._directory} {quiet}; waiting for one"
        count = f"{len(found)} experiment{'s' if len(found) != 1 else ''}"
        return f"{count} in {self._directory}, into which no process of this node has written {quiet}; waiting for one"

    def _is_here(self, member: Member) -> bool:
        return member.host == self._host and not member.observes

    def _has_post(self, sight: Sight, residents: Mapping[int, list[Member]]) -> bool:
        post = self._posts.get(sight.path)
        other = rival(sight.agents, residents, None if post is None else post.logger)
        if other is not None:
            self._report(
                f"rival {sight.path} {other.id}",
                f"{sight.path}: another agent (pid {other.pid}) logs this node already; this one leaves it alone",
            )
            return False
        if post is None:
            place = self._sampler.place(str(sight.path))
            post = self._posts[sight.path] = Post(
                sight.path, self._name, self._host, self._plan.roles, place, self._report
            )
            if self._gpus_event is not None and not self._events:
                post.event("gpus", self._gpus_event)
            self._say(f"logging this node, {self._name}, into {sight.path}")
        return True

    def _end(self, path: Path) -> None:
        post = self._posts.pop(path)
        post.close(CLOSE_S)
        self._say(f"{path} does not run here any more; waiting until it does")

    def _report_hanging(self) -> None:
        hangs = self._scout.hangs_s > HANGS_S
        if hangs != self._blind:
            self._blind = hangs
            self._say(
                f"{self._directory} has not answered for {HANGS_S:.0f} s; going on with what was known"
                if hangs
                else f"{self._directory} answers again"
            )

    def _report(self, topic: str, line: str) -> None:
        if topic:
            if topic in self._reported or len(self._reported) > 1000:
                return
            self._reported.add(topic)
        self._say(line)

    def _event(self, name: str, attrs: dict[str, Any]) -> None:
        if name == "gpus":
            self._gpus_event = attrs
        self._events.append((name, attrs))
        del self._events[:-100]  # while there is no experiment

    def _scouting_failed(self, error: Exception) -> None:
        self._report(f"scout {type(error).__name__}", f"{self._directory} cannot be looked through: {error}")
