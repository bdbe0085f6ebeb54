"""The daemon: the loop over experiments. Nothing else in the sidecar decides when something happens."""

from __future__ import annotations

import gc
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.daemon.watched import Watched, is_damage, open_watched, state_problem
from rlship_sidecar.errors import NothingToWatch, OwnedElsewhere
from rlship_sidecar.observe.pulse import Pulse, Telling
from rlship_sidecar.ownership.belongs import StateOfAnother
from rlship_sidecar.ownership.inherit import damaged, newest_store
from rlship_sidecar.ownership.lease import LeaseLost
from rlship_sidecar.ownership.place import UntrustedState
from rlship_sidecar.report.status import Status
from rlship_sidecar.report.terminal import clean
from rlship_sidecar.store.store import StoreUnusable
from rlship_sidecar.tail.discover import Dull, barred, experiments, is_experiment

DISCOVER_EVERY_S = 1.0
RETRY_EVERY_S = 5.0
STATUS_EVERY_S = 1.0
HELD_POLL_S = 0.1  # between looks at files whose ends are not there yet, with `--once`
STATUS_SHARE = 0.005  # making statuses may take this share of a core

OK, FAILED, INCOMPLETE, REFUSED = 0, 1, 3, 4

# What waiting does not mend.
_LASTING = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)

OnStatus = Callable[[list[Status]], None]
Say = Callable[[str], None]


def watch(
    directory: Path,
    config: Config,
    *,
    once: bool,
    on_status: OnStatus | None = None,
    stop: threading.Event | None = None,
    say: Say = lambda line: None,
    pulse: Pulse | None = None,
) -> int:
    """Watch an experiment, or every experiment in a folder, until `stop` is set; with `once` until all is delivered.

    Returns an exit code: 0, 1 (a sink is still short of rows), 3 (`once`: data incomplete) or 4 (a sink refused).
    Raises RlshipError where there is nothing to watch, or another sidecar owns all there is.
    """
    return _Daemon(directory, config, once, on_status, stop or threading.Event(), say, pulse or Pulse()).run()


class _Stopped(Exception):
    """The daemon was told to stop while it waited for another sidecar's lease to run out."""


class _Daemon:
    def __init__(
        self,
        directory: Path,
        config: Config,
        once: bool,
        on_status: OnStatus | None,
        stop: threading.Event,
        say: Say,
        pulse: Pulse,
    ) -> None:
        # Resolved: a link such as `latest` may come to mean another experiment while this one is watched.
        self._directory = Path(os.path.realpath(directory))
        self._config = replace(config, own_rows_s=0.0) if once else config
        self._pulse = pulse
        self._once = once
        self._on_status = on_status
        self._stop = stop
        self._say = say
        self._wake = Wake()
        self._watched: dict[Path, Watched] = {}
        self._statuses: list[Status] = []
        self._owned: set[Path] = set()  # experiments that this process has owned
        self._retry_at: dict[Path, float] = {}
        self._left: dict[Path, object] = {}  # experiments whose stores cannot be used, as these were then
        self._undone: dict[Path, str] = {}  # experiments that were given up for now, and why
        self._said: set[str] = set()
        self._dull = Dull()
        self._found_any = False
        self._unusable_any = False
        self._discover_at = 0.0
        self._tell_at = 0.0
        self._until = math.inf

    def run(self) -> int:
        # Most objects here live as long as the process; scanning them again and again costs a fifth of the ingest.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        try:
            self._discover(time.monotonic())
            if not self._once:
                self._loop()
                self._until = time.monotonic() + self._config.drain_s  # of reading: a file may have no end
            elif not self._watched and not self._unusable_any:
                raise NothingToWatch(
                    f"no experiment in {self._directory}",
                    "An experiment is a folder with `rlship/` in it: "
                    f"rlship.init({str(self._directory)!r}, …) in the job makes one. Or it holds files of a framework "
                    "that rlship reads: docs/foreign.md.",
                )
            self._read_what_is_there()
            if self._stop.is_set():
                self._try_once_more()
            return self._finish()
        finally:
            self._wake.close()
            for watched in self._watched.values():
                watched.close()

    # The loop ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        threading.Thread(target=self._nudge_on_stop, name="rlship-stop", daemon=True).start()
        changed: dict[str, set[str]] = {}
        while not self._stop.is_set() and not self._all_refused():
            now = time.monotonic()
            if now >= self._discover_at:
                self._discover(now)
            changed = self._round(now, changed, until=self._discover_at)
        self._pulse.stopping()

    def _round(self, now: float, changed: dict[str, set[str]], until: float) -> dict[str, set[str]]:
        """Look at each experiment that is due or `changed`, then rest, at most until `until`. Returns what changed."""
        self._pulse.beat()
        more = False
        for path, watched in list(self._watched.items()):
            try:
                more = watched.look(now, changed, self._wake) or more
            except (OSError, sqlite3.Error, LeaseLost) as error:
                self._drop(path, watched, error)
            self._pulse.beat()
        self._tell(now)
        if more:
            return {}
        due = min([until, *(watched.look_at for watched in self._watched.values())])
        return self._wake.wait(max(0.0, due - time.monotonic()))

    def _meanwhile(self, seconds: float) -> None:
        """Go on with the experiments at hand while another one's owner is watched for signs of life."""
        until = time.monotonic() + seconds
        changed: dict[str, set[str]] = {}
        while (now := time.monotonic()) < until:
            if self._stop.is_set():
                raise _Stopped
            changed = self._round(now, changed, until)

    def _nudge_on_stop(self) -> None:
        self._stop.wait()
        self._wake.nudge()

    def _all_refused(self) -> bool:
        """Whether no sink is left that takes rows: a person has to act."""
        shippers = [shipper for watched in self._watched.values() for shipper in watched.shippers]
        return bool(shippers) and all(shipper.refused is not None for shipper in shippers)

    def _read_what_is_there(self) -> None:
        """Before the end: what the writers finished still becomes rows; with `once`, all that they wrote."""
        for path, watched in list(self._watched.items()):
            watched.end_own()
            try:  # telling its status may drop it
                while path in self._watched and self._read_on(watched) and time.monotonic() < self._until:
                    self._pulse.beat()
            except (OSError, sqlite3.Error, LeaseLost) as error:
                self._drop(path, watched, error)

    def _try_once_more(self) -> None:
        """Before the end: experiments that were given up for now. A disk that was full may have room by now."""
        for path in [path for path in self._undone if path not in self._watched and is_experiment(path)]:
            try:
                self._open(path)
            except (OwnedElsewhere, _Stopped):  # another sidecar does it, or a crashed one's lease must run out first
                continue
        self._read_what_is_there()

    def _read_on(self, watched: Watched) -> bool:
        if not self._once:
            return watched.look(time.monotonic(), {}, self._wake)
        more = watched.read_to_the_end()
        self._tell(time.monotonic())
        if more and watched.experiment.intake.holding:
            self._stop.wait(HELD_POLL_S)
        return more and not self._stop.is_set()

    # Experiments ---------------------------------------------------------------------------------------------------

    def _discover(self, now: float) -> None:
        self._discover_at = now + DISCOVER_EVERY_S
        try:
            found = experiments(self._directory, self._dull)
        except OSError as error:
            problem = f"{self._directory} cannot be read: {error.strerror}"
            if not self._found_any:
                raise NothingToWatch(problem, "Check its permissions and the mount.") from error
            self._say_once(f"{problem}; trying again")
            return
        self._found_any = self._found_any or bool(found)
        if self._directory not in found:
            for folder, why in barred(self._directory).items():
                self._say_once(clean(f"{folder} {why}", 2000))
        if not found and not self._once:
            self._say_once(f"no experiment in {self._directory} yet: waiting for a writer to make one")
        owned: OwnedElsewhere | None = None
        for path in found:
            if path in self._watched or now < self._retry_at.get(path, 0.0) or (self._watched and self._stop.is_set()):
                continue
            try:
                self._open(path)
            except OwnedElsewhere as error:
                owned = error
                self._retry_at[path] = now + self._config.lease_ttl_s
                if len(found) > 1:
                    self._say_once(str(error))
            except _Stopped:
                return
        if owned is not None and not self._watched:
            raise owned

    def _open(self, path: Path) -> None:
        """Begin with an experiment, or go on with it. Raises OwnedElsewhere, and _Stopped."""
        if self._still_left(path):
            return
        try:
            self._watched[path] = open_watched(path, self._config, alone=path == self._directory, sleep=self._meanwhile)
            self._pulse.beat()  # of thousands the last is opened minutes after the first
            self._undone.pop(path, None)
            self._owned.add(path)
            if self._watched[path].news:
                self._say(self._watched[path].news)
        except (OSError, sqlite3.Error, StoreUnusable, StateOfAnother, UntrustedState) as error:
            self._unusable(path, error)

    def _still_left(self, path: Path) -> bool:
        """Whether the experiment's store could not be used, and is still the same."""
        if path in self._left and self._left[path] != newest_store(state_dir_for(path, self._config)):
            del self._left[path]
        return path in self._left

    def _drop(self, path: Path, watched: Watched, error: Exception) -> None:
        """Give an experiment up for now: a full disk, a lost mount or a deleted folder must not stop the others. Its
        store tells where to go on.
        """
        lost = isinstance(error, LeaseLost) and os.path.exists(watched.lease.state_dir)
        if lost and path == self._directory and (self._once or self._stop.is_set()):
            raise error
        del self._watched[path]
        watched.unwatch(self._wake)
        watched.close()
        if isinstance(error, LeaseLost) and lost:
            # Whether another one owns it now, or nobody came while this one stood still, is seen by trying.
            self._say_once(f"{error.message}: looking who does")
            self._retry_at[path] = self._discover_at = 0.0
        elif isinstance(error, sqlite3.DatabaseError) and is_damage(error):
            self._unusable(path, damaged(watched.lease.store_path, error))
        else:
            self._unusable(path, error)

    def _unusable(self, path: Path, error: Exception) -> None:
        """Try again later, or end where that is all there is to do and only a person can help."""
        state_dir = state_dir_for(path, self._config)
        # Not Path.exists: that raises where a folder on the way may not be searched.
        gone = not isinstance(error, PermissionError) and not os.path.exists(state_dir)
        problem = state_problem(path, state_dir, error, gone=gone)
        lasting = isinstance(error, _LASTING) or not isinstance(error, (OSError, sqlite3.OperationalError))
        # What was exchanged under a running sidecar may be put back.
        passing = isinstance(error, LeaseLost) or (isinstance(error, UntrustedState) and path in self._owned)
        lasting = lasting and not gone and not passing
        if path == self._directory and (self._once or lasting):
            raise problem from error
        self._unusable_any = True
        self._undone[path] = problem.message
        self._retry_at[path] = time.monotonic() + RETRY_EVERY_S
        again = "" if self._once or self._stop.is_set() else f"; trying again every {RETRY_EVERY_S:.0f} s"
        if isinstance(error, StoreUnusable):
            self._left[path] = newest_store(state_dir)
            again = "" if self._once else "; it is left out until that is done"
        self._say_once(f"{problem.message}. {problem.hint}".rstrip(". "), again)

    def _say_once(self, line: str, more: str = "") -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line + more)

    # Status and end ------------------------------------------------------------------------------------------------

    def _tell(self, now: float, *, force: bool = False) -> None:
        if now < self._tell_at and not force:
            return
        began, wall = time.thread_time(), time.time()
        self._statuses = []
        for path, watched in list(self._watched.items()):
            self._pulse.beat()  # the statuses of thousands take longer than a probe waits
            try:
                self._statuses.append(watched.tell(now, wall))
                for line in watched.experiment.news():
                    self._say_once(clean(f"{path}: {line}", 2000))
            except (OSError, sqlite3.Error) as error:
                self._drop(path, watched, error)
        if self._on_status is not None:
            self._on_status(self._statuses)
        tallies = [watched.tally() for watched in self._watched.values()]
        undone = [why for path, why in self._undone.items() if path not in self._watched]
        self._pulse.tell(Telling(self._statuses, tallies, undone), last=force)
        self._tell_at = now + max(STATUS_EVERY_S, (time.thread_time() - began) / STATUS_SHARE)

    def _finish(self) -> int:
        """Deliver what is committed, within `drain_s`, and judge."""
        self._pulse.stopping()
        deadline = time.monotonic() + self._config.drain_s
        drained = []
        for path, watched in list(self._watched.items()):
            try:
                drained.append(watched.drain(deadline, self._pulse.beat))
            except (OSError, sqlite3.Error, LeaseLost) as error:
                drained.append(False)
                self._drop(path, watched, error)
        refused = [shipper for watched in self._watched.values() for shipper in watched.refused]
        for watched in self._watched.values():
            for shipper in watched.shippers:
                shipper.stop()
        self._tell(time.monotonic(), force=True)
        for shipper in refused:
            self._say(f"sink {shipper.name}: refused: {shipper.status().error}")
        undone = [path for path in self._undone if path not in self._watched and is_experiment(path)]
        for path in undone:
            self._say(f"{path} is left as it is: {self._undone[path]}; the next `rlship watch` goes on with it")
        if refused:
            return REFUSED
        if not all(drained):
            for line in (line for watched in self._watched.values() for line in watched.undelivered()):
                self._say(line)
            return FAILED
        if undone or (self._once and self._unusable_any):
            return FAILED
        incomplete = any(not status.complete for status in self._statuses)
        return INCOMPLETE if self._once and incomplete else OK
