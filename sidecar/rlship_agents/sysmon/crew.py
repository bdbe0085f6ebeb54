"""The writers in an experiment, as far as this node needs them: read from the first lines of their files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from rlship.identity import safe
from rlship_formats.reading import FileReader
from rlship_formats.records import Open
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.plainfiles import read_plain
from rlship_sidecar.tail.discover import experiments
from rlship_sidecar.tail.listing import WRITERS_FOLDER, Folder
from rlship_sidecar.tally import observes

_MAX_LINE_BYTES = 64 << 10  # of a first line: labels take at most 8 KiB
_MAX_AT_ONCE = 500
_SHARE = 0.002  # the share of time for finding files
_SELDOM_S = 300.0  # the longest time between two checks for new writes
_FUTURE_S = 3600.0
_MAX_NAME = 200


class Member(NamedTuple):
    """A writer, from its first line: `t` is when it opened its file (0: unknown), `file` the file's name."""

    id: str
    actor: str
    replica: str
    rank: int
    host: str
    pid: int
    t: float
    file: str
    observes: bool = False  # it writes beside the job, even when the job has ended

    @property
    def label(self) -> str:
        """Actor, replica and rank, as in names of metrics."""
        return f"{self.actor}/r{self.replica}.{self.rank}"


class Crew:
    """The writers of one experiment. `me` is the actor of agents; writers on `host` are found first."""

    def __init__(self, experiment: Path, me: str, host: str = "") -> None:
        self._me = me
        self._here = f"-{safe(host)}-"  # as in most names of files
        root = os.path.realpath(experiment)
        path = os.path.join(root, WRITERS_FOLDER)
        self._folder = Folder(path, root, local=filesystem_of(path).local)
        self._look_at = float("-inf")
        self._waiting: set[str] = set()
        self._known: set[str] = set()
        self._latest = ""
        self.ask_at = float("-inf")
        self.members: dict[str, Member] = {}

    def look(self, now: float) -> None:
        """Read new files, some hundred at a time, as often as that is cheap. `now` is monotonic. Raises OSError."""
        if now < self._look_at:
            return
        began = time.thread_time()
        self._take_in(now)
        self._look_at = now + (time.thread_time() - began) / _SHARE

    def _take_in(self, now: float) -> None:
        listed = self._folder.look(now, force=False)
        for name in listed.files if listed is not None else ():
            if name not in self._known:
                self._known.add(name)
                self._waiting.add(name)
        for name in sorted(self._waiting, key=lambda name: (self._here not in name, name))[:_MAX_AT_ONCE]:
            found = first_line(os.path.join(self._folder.path, name))
            if found is None:
                continue  # the line is not whole yet
            self._waiting.discard(name)
            member = member_of(found, name)
            if member is not None:
                self.members[name] = member
                self.ask_at = float("-inf")

    def fresh(self, wall: float, within_s: float) -> bool:
        """True if a process of the job itself wrote within the last `within_s` seconds, by the files' own times."""
        if self._latest and self._written(self._latest, wall, within_s):
            return True
        for name, member in reversed(self.members.items()):
            if not member.observes and self._written(name, wall, within_s):
                self._latest = name
                return True
        return False

    def agents(self, host: str) -> list[Member]:
        """The files of agents on this host, including this process's."""
        return [one for one in self.members.values() if one.actor == self._me and one.host == host]

    def workers(self) -> list[Member]:
        """All other members."""
        return [one for one in self.members.values() if one.actor != self._me]

    def _written(self, name: str, wall: float, within_s: float) -> bool:
        try:
            t = os.stat(os.path.join(self._folder.path, name), follow_symlinks=False).st_mtime
        except OSError:
            return False
        return wall - within_s <= t <= wall + _FUTURE_S


def first_line(path: str) -> bytes | None:
    """The first line of a file without its LF; b"" if the file has no usable one, None if the line is not whole yet."""
    try:
        data = read_plain(path, _MAX_LINE_BYTES)
    except OSError:
        return b""
    line, found, _ = data.partition(b"\n")
    if found:
        return line
    return b"" if len(data) >= _MAX_LINE_BYTES else None


def member_of(line: bytes, file: str) -> Member | None:
    """The writer whose `open` record this line is; None for any other line."""
    opened = FileReader().read(line)
    if not isinstance(opened, Open) or max(map(len, (opened.id, opened.actor, opened.host))) > _MAX_NAME:
        return None
    return Member(
        opened.id,
        opened.actor,
        opened.replica[:_MAX_NAME],
        opened.rank,
        opened.host,
        opened.pid,
        opened.t,
        file,
        observes(opened.actor, opened.agent),
    )


class Sight(NamedTuple):
    """The scout's view of one experiment: whether it runs, and its members."""

    path: Path
    fresh: bool
    workers: list[Member]
    agents: list[Member]


class Scout:
    """Looks for experiments in a folder, and for their writers. Every call that may block on the folder's filesystem is
    here, so that only the scout's thread can hang.
    """

    def __init__(self, directory: Path, me: str, host: str, within_s: float) -> None:
        self._directory = directory
        self._me = me
        self._host = host
        self._within_s = within_s
        self._crews: dict[Path, Crew] = {}

    def look(self) -> list[Sight]:
        """All experiments. Raises OSError if the folder cannot be read."""
        found = experiments(self._directory)
        for gone in self._crews.keys() - set(found):
            del self._crews[gone]
        sights = []
        for path in found:
            crew = self._crews.get(path)
            try:
                if crew is None:
                    crew = self._crews[path] = Crew(path, self._me, self._host)
                crew.look(time.monotonic())
            except OSError:
                continue
            sights.append(Sight(path, self._is_fresh(crew), crew.workers(), crew.agents(self._host)))
        return sights

    def _is_fresh(self, crew: Crew) -> bool:
        """True if an experiment runs. Finding out that one does not run takes a look at each of its files. There may be
        hundreds of experiments that ended long ago, so the more there are, the more rarely each one is checked.
        """
        began = time.monotonic()
        if began < crew.ask_at:
            return False
        fresh = crew.fresh(time.time(), self._within_s)
        if not fresh:
            took = time.monotonic() - began
            crew.ask_at = began + min(_SELDOM_S, took * len(self._crews) / _SHARE)
        return fresh
