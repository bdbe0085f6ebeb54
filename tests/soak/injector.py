"""Does to real processes, files and the server what the plan says, and counts what really struck."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from rlship_sidecar.store.store import Store
from tests.soak.isolation import Disk, isolated
from tests.soak.plan import DISKS, SERVER, Strike
from tests.soak.server_faults import ServerFaults
from tests.soak.sidecars import CHILD, CORE, Daemon, Sidecars
from tests.soak.writers import Attempt, Job, append_rubbish, cut_unread

PATIENCE_S = 5.0  # a strike waits so long for its target to be there
RESTART_S = 0.3
UPGRADE_AT = 1 / 3  # of a round
WRITER, SIDECAR = "writer", "sidecar"


@dataclass
class Tally:
    """What really struck. `signals` is by (signal, process); `missed` by kind: nothing was there to be struck;
    `impossible`: why a kind could not be tried here; `with_rows`: server faults that met a request with rows in it.
    """

    planned: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    signals: Counter[tuple[str, str]] = field(default_factory=Counter)
    impossible: dict[str, str] = field(default_factory=dict)
    with_rows: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take in another one."""
        for mine, more in ((self.planned, other.planned), (self.struck, other.struck), (self.missed, other.missed)):
            mine.update(more)
        self.signals.update(other.signals)
        self.impossible.update(other.impossible)
        self.with_rows.update(other.with_rows)

    @property
    def sigkills(self) -> int:
        """Processes that SIGKILL ended."""
        return sum(count for (name, _), count in self.signals.items() if name == "SIGKILL")

    @property
    def server_faults(self) -> int:
        """Requests that met a fault, and times that the server was away when a client was there."""
        return sum(self.struck[kind] for kind in SERVER)


class Injector:
    """One round's strikes and what follows from them, in order of time and in one thread."""

    def __init__(
        self,
        job: Job,
        sidecars: Sidecars,
        server: ServerFaults,
        state_dir: Path,
        disks: dict[str, Disk],
        dice: random.Random,
    ) -> None:
        self.tally = Tally()
        self.problems: list[str] = []
        self._job = job
        self._sidecars = sidecars
        self._server = server
        self._state_dir = state_dir
        self._disks = disks
        self._dice = dice
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._starting = 0
        self._began = 0.0
        self._over = False

    def run(self, strikes: tuple[Strike, ...], seconds: float) -> None:
        """Strike for so long; then what still holds is ended, and what is dead is started again."""
        self._began = time.monotonic()
        for strike in strikes:
            self.tally.planned[strike.kind] += 1
            self._after(strike.at_s, partial(self._strike, strike, strike.at_s + PATIENCE_S))
        self._sidecars.older = True
        self._after(UPGRADE_AT * seconds, self._upgrade)
        self._start_sidecars(0.0)
        while self._now() < seconds:
            while self._due and self._due[0][0] <= self._now():
                heapq.heappop(self._due)[2]()
            self._supervise()
            time.sleep(0.02)
        self._over = True
        while self._due:
            heapq.heappop(self._due)[2]()
        self._supervise()
        self.tally.struck.update(self._server.struck())
        self.tally.with_rows = self._server.with_rows

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._now() + seconds, next(self._order), action))

    def _supervise(self) -> None:
        self.problems += self._sidecars.reap()
        self.problems += (problem for problem in self._job.ended_early() if problem not in self.problems)
        if not self._starting and not self._sidecars.alive():
            self._start_sidecars(RESTART_S)

    def _start_sidecars(self, after_s: float, hosts: tuple[str, ...] = ("",)) -> None:
        """Start some, all in the same instant."""
        self._starting += 1

        def start() -> None:
            self._starting -= 1
            for host in hosts:
                self._sidecars.start(host)

        self._after(after_s, start)

    # Strikes

    def _strike(self, strike: Strike, give_up_at: float) -> None:
        if strike.kind in DISKS and strike.kind not in self._disks:
            self.tally.impossible[strike.kind] = "no disk of its own could be mounted"
        elif strike.detail == "another host" and not isolated():
            self.tally.impossible[f"{strike.kind}, {strike.detail}"] = "no host name of its own could be set"
        elif strike.kind in SERVER and self._server_ready(strike):
            self._strike_server(strike)
        elif self._try(strike):
            self.tally.struck[strike.kind] += 1
        elif self._now() < give_up_at and not self._over:
            self._after(self._dice.uniform(0.1, 0.6), partial(self._strike, strike, give_up_at))
        else:
            self.tally.missed[strike.kind] += 1

    def _try(self, strike: Strike) -> bool:
        """Strike if there is something to be struck."""
        verb, _, target = strike.kind.partition(" ")
        if strike.kind == "kill writer":
            return self._kill_writer(strike)
        if strike.kind == "kill sidecar":
            return self._kill_sidecar(strike)
        if strike.kind == "host dies":
            return self._kill_host(strike)
        if strike.kind == "freeze sidecar":
            return self._freeze(strike)
        if strike.kind == "second sidecar":
            if running := bool(self._sidecars.alive(stopped=False)):
                self._sidecars.start(strike.detail.replace(" ", "-") if strike.detail == "another host" else "")
            return running
        if strike.kind in DISKS:
            return self._fill(strike)
        if strike.kind in SERVER:
            return False
        if verb == "kill":
            return self._kill_client(target, strike.pick)
        if target == WRITER:
            return self._stop_writer(strike)
        if target == SIDECAR:
            return self._stop_sidecar(strike) is not None
        return self._stop_client(target, strike)

    def _server_ready(self, strike: Strike) -> bool:
        """One in four comes whenever it is due, also while a client starts; the others when rows are on their way."""
        return strike.pick < 0.25 or self._server.flowing(strike)

    def _strike_server(self, strike: Strike) -> None:
        if strike.kind == "server down":
            self.tally.struck[strike.kind] += bool(self._sidecars.client_processes(CORE))
        self._server.strike(strike)
        if strike.kind in ("server down", "stale answers"):
            self._after(strike.hold_s, partial(self._server.over, strike))

    # SIGKILL

    def _kill_writer(self, strike: Strike) -> bool:
        victims = self._job.alive()
        if not victims:
            return False
        dead = victims[int(strike.pick * len(victims))]
        self._killed(WRITER, self._job.kill([dead]))
        if strike.detail and (file := dead.file()) is not None and file.exists():
            try:
                append_rubbish(file, strike.detail, self._dice)
                self.tally.struck["rubbish behind a dead writer's last line"] += 1
            except OSError:  # its disk is full just now
                self.tally.missed["rubbish behind a dead writer's last line"] += 1
        self._after(strike.hold_s, partial(self._job.restart, dead, strike.number))
        return True

    def _kill_sidecar(self, strike: Strike) -> bool:
        running = self._sidecars.alive(stopped=False)
        if not running:
            return False
        self._killed(SIDECAR, self._sidecars.kill([running[int(strike.pick * len(running))]]))
        if len(running) == 1 and not self._sidecars.alive():
            if strike.detail.startswith("tear"):
                self._tear(strike.detail.split()[1], strike.number)
            self._start_sidecars(strike.hold_s, ("", "") if strike.detail == "two at once" else ("",))
            self.tally.struck["two sidecars in one instant"] += strike.detail == "two at once"
        return True

    def _upgrade(self) -> None:
        """Kill every sidecar of the older row function; from now on those of today's start."""
        self._sidecars.older = False
        self._killed(SIDECAR, self._sidecars.kill(self._sidecars.alive()))
        self.tally.struck["sidecar upgraded"] += 1

    def _kill_client(self, what: str, pick: float) -> bool:
        found = self._sidecars.client_processes(what)
        if not found:
            return False
        try:
            victim = found[int(pick * len(found))]
            victim.kill()
        except psutil.NoSuchProcess:
            return False
        self._killed(what, 1)
        return True

    def _kill_host(self, strike: Strike) -> bool:
        """Everything that runs but a few writers, which are on another host; then what a lost page cache may do."""
        writers = [one for one in self._job.alive() if self._dice.random() < 0.5]
        clients = {what: self._sidecars.client_processes(what) for what in (CHILD, CORE)}
        daemons = self._sidecars.alive()
        if not writers or not daemons:
            return False
        self._killed(WRITER, self._job.kill(writers))
        self._killed(SIDECAR, self._sidecars.kill(daemons))
        for what, processes in clients.items():
            for process in processes:
                try:
                    process.kill()
                    self._killed(what, 1)
                except psutil.NoSuchProcess:
                    continue
        self._cut_unread(writers)
        for kind in ("jsonl", "tensorboard"):
            if self._dice.random() < 0.5:
                self._tear(kind, strike.number)
        for dead in writers:
            self._after(strike.hold_s + self._dice.random(), partial(self._job.restart, dead, self._dice.randrange(6)))
        self._start_sidecars(strike.hold_s)
        return True

    def _killed(self, what: str, count: int) -> None:
        self.tally.signals["SIGKILL", what] += count

    # SIGSTOP

    def _stop_writer(self, strike: Strike) -> bool:
        running = self._job.alive()
        if not running:
            return False
        one = running[int(strike.pick * len(running))]
        self._stop(WRITER, one, strike.hold_s)
        return True

    def _stop_sidecar(self, strike: Strike) -> Daemon | None:
        running = self._sidecars.alive(stopped=False)
        if not running:
            return None
        one = running[int(strike.pick * len(running))]
        self._stop(SIDECAR, one, strike.hold_s)
        return one

    def _freeze(self, strike: Strike) -> bool:
        if self._stop_sidecar(strike) is None:
            return False
        self._start_sidecars(0.1, ("another-host" if strike.detail == "another host" else "",))
        return True

    def _stop(self, what: str, one: Attempt | Daemon, hold_s: float) -> None:
        one.process.send_signal(signal.SIGSTOP)
        one.stopped = True
        self.tally.signals["SIGSTOP", what] += 1

        def thaw() -> None:
            one.stopped = False
            one.process.send_signal(signal.SIGCONT)

        self._after(hold_s, thaw)

    def _stop_client(self, what: str, strike: Strike) -> bool:
        found = self._sidecars.client_processes(what)
        if not found:
            return False
        victim = found[int(strike.pick * len(found))]

        def thaw() -> None:
            try:
                victim.resume()
            except psutil.NoSuchProcess:  # killed meanwhile
                return

        try:
            victim.suspend()
        except psutil.NoSuchProcess:
            return False
        self.tally.signals["SIGSTOP", what] += 1
        self._after(strike.hold_s, thaw)
        return True

    # Files and disks

    def _tear(self, sink: str, size: int) -> None:
        """Cut some bytes off the end of what a sink wrote; its daemon must be dead."""
        if sink == "jsonl":
            found = [self._state_dir / "rows.jsonl"]
        else:
            found = sorted((self._state_dir / "tensorboard").rglob("events.*"))[-1:]
        for file in found:
            if file.exists() and (held := file.stat().st_size) > 0:
                os.truncate(file, max(0, held - size))
                self.tally.struck[f"{sink} file torn"] += 1

    def _cut_unread(self, dead: list[Attempt]) -> None:
        """Cut the files of dead writers where the store has not read; all daemons must be dead."""
        read = positions(self._state_dir)
        for one in dead:
            file = one.file()
            if file is not None and file.exists() and cut_unread(file, read.get(file.name, 0), self._dice):
                one.torn = True
                self.tally.struck["writer's last line cut"] += 1

    def _fill(self, strike: Strike) -> bool:
        disk = self._disks[strike.kind]
        disk.fill()
        self._after(strike.hold_s, disk.empty)
        return True


def positions(state_dir: Path) -> dict[str, int]:
    """How far each file was read, by the newest store; read from a copy, so that the store stays as it was left."""
    stores = sorted(state_dir.glob("store.*.db"), key=lambda path: int(path.suffixes[0][1:]))
    if not stores:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        for file in state_dir.glob(f"{stores[-1].name}*"):
            shutil.copy(file, folder)
        store = Store(Path(folder) / stores[-1].name, local=True)
        try:
            return {writer.file: writer.read for writer in store.writers()}
        finally:
            store.close()
