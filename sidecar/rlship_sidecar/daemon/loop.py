"""The daemon: the loop over experiments. It alone decides when anything in the sidecar happens.

A newly found experiment waits to be opened. Experiments with the newest files come first, so that running ones have
their rows soon. `limits` bounds how many are open at a time. The loop looks at each open experiment in every round. A
finished and delivered experiment is put to rest (`resting`): it holds nothing, and is opened again if its files change.
If descriptors, threads or memory run out, an experiment waits and is tried again, while the others go on.

At a start, at most `MAX_TURNS` experiments without recent writes are open at a time. So a thousand of them take turns
beside those that run.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.limits import Budget
from rlship_sidecar.daemon.resting import LINGER_S, Rest, Resting
from rlship_sidecar.daemon.setbacks import MAX_SAID, Say, Setbacks, problem_of
from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.daemon.watched import Watched, is_damage, open_watched
from rlship_sidecar.errors import (
    FAILED,
    INCOMPLETE,
    OK,
    REFUSED,
    NothingToWatch,
    OwnedElsewhere,
    RlshipError,
    UsageProblem,
)
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.observe.pulse import LoopSnapshot, Pulse
from rlship_sidecar.ownership.inherit import damaged
from rlship_sidecar.ownership.lease import LeaseLost
from rlship_sidecar.ownership.place import UntrustedState
from rlship_sidecar.ownership.state_owner import StateOfAnother
from rlship_sidecar.pipeline.intake import Access
from rlship_sidecar.report.status import Status
from rlship_sidecar.report.terminal import clean, counted
from rlship_sidecar.shortage import WAITS_FOR_DESCRIPTORS, is_shortage
from rlship_sidecar.sinks.registry import foreseen
from rlship_sidecar.store.store import StoreUnusable
from rlship_sidecar.tail.discover import Directory, is_experiment, nothing_in
from rlship_sidecar.tail.looks import Looks
from rlship_sidecar.tally import Tally

DISCOVER_EVERY_S = 1.0
RETRY_EVERY_S = 5.0
STATUS_EVERY_S = 1.0
HELD_POLL_S = 0.1  # between looks at files that hold incomplete data, with `--once`
STATUS_SHARE = 0.005  # collecting statuses may take this share of a core
MAX_TURNS = 12  # experiments that are open at a time only to check for work left to do
OPENING_S = 0.2  # seconds of opening experiments between two rounds over the open ones
TURN_POLL_S = 0.05  # between rounds while experiments wait for a place
TURN_S = 2.0  # the least time that an experiment keeps its place while others wait
SAY_WAITING_S = 10.0  # how long experiments wait for a place before the daemon reports it
ONCE_AT_A_TIME = 64  # with `--once`: the number of experiments that are open at a time
LATELY_S = 120.0  # an experiment whose files changed in this time counts as running
_AGES_S = (LATELY_S, 3600.0, 86_400.0)

# Errors that waiting does not cure.
_LASTING = (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError)
_UNOPENED = (OSError, sqlite3.Error, StoreUnusable, StateOfAnother, UntrustedState, RuntimeError, MemoryError)

_NAMED = 3  # experiments in one message
ADVISE_AFTER_S = 10.0  # seconds without another experiment that needs the same advice

logger = logging.getLogger("rlship.daemon")
OnStatus = Callable[[list[Status]], None]
SettingsOf = Callable[[Path], Config]  # raises UsageProblem


class Advised(Protocol):
    """The advice that was said already."""

    def __contains__(self, advice: str, /) -> bool:
        """True if it was said."""

    def add(self, advice: str, /) -> None:
        """It is said."""


def watch(
    directory: Path,
    config: Config,
    *,
    once: bool,
    on_status: OnStatus | None = None,
    stop: threading.Event | None = None,
    say: Say = lambda line: None,
    pulse: Pulse | None = None,
    settings_of: SettingsOf | None = None,
    further_since: float | None = None,
    advised: Advised | None = None,
) -> int:
    """Watch an experiment, or every experiment in a folder, until `stop` is set; with `once`, until all is delivered.

    `settings_of` gives the configuration of each experiment; without it, `config` counts for all of them. With
    `further_since` (Unix seconds), the further runs of the same job are watched as well (`discover.further_runs`).
    What is in `advised` is not advised again.
    Returns an exit code: 0, 1 (a sink still lacks rows), 3 (`once`: data are incomplete) or 4 (a sink refused). Raises
    RlshipError if there is nothing to watch, or another sidecar owns all of it.
    """
    stop = stop or threading.Event()
    # Resolved, because a link such as `latest` may come to point to another experiment while this one is watched.
    scope = _Scope(Path(os.path.realpath(directory)), once, further_since)
    return _Daemon(scope, config, settings_of, on_status, stop, say, pulse or Pulse(), _Advice(advised)).run()


def _together(errors: dict[Path, OwnedElsewhere]) -> OwnedElsewhere:
    """One error for the experiments of one owner."""
    first = next(iter(errors.values()))
    if len(errors) == 1:
        return first
    names = [path.name for path in errors][:_NAMED]
    more = f" and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
    what = f"{len(errors)} experiments ({', '.join(names)}{more}) are"
    return OwnedElsewhere(what, first.owner, first.hint)


class _Stopped(Exception):
    """`stop` was set while the daemon waited for another sidecar's lease to run out."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What to watch, as `watch` has it."""

    directory: Path
    once: bool
    further_since: float | None


@dataclass(slots=True)
class _Queue:
    """Experiments that are not open yet, in the order in which they will be opened.

    `recent`: those whose files changed lately. `owned`: the errors of those that another sidecar owns, up
    to the end of the queue. `told`: those that were reported, with their owners. `full_since`: since when no place was
    free.
    """

    paths: list[Path] = field(default_factory=list)
    recent: set[Path] = field(default_factory=set)
    owned: dict[Path, OwnedElsewhere] = field(default_factory=dict)
    told: set[tuple[Path, str]] = field(default_factory=set)
    full_since: float = math.inf

    def take_owned(self, *, again: bool) -> list[OwnedElsewhere]:
        """One error for each other sidecar; without `again`, of experiments for which there was none before."""
        found, self.owned = self.owned, {}
        alike: dict[str, dict[Path, OwnedElsewhere]] = {}
        for path, error in found.items():
            if again or (path, error.owner) not in self.told:
                alike.setdefault(error.owner, {})[path] = error
        self.told.update((path, error.owner) for path, error in found.items())
        return [_together(errors) for errors in alike.values()]

    def add(self, changed: dict[Path, float]) -> None:
        """Queue experiments after those that wait, the most recently changed first. `changed`: when, in Unix
        seconds.
        """
        now, found = time.time(), list(changed)
        aged = {path: sum(now - at > limit for limit in _AGES_S) for path, at in changed.items()}
        self.recent.update(path for path in found if not aged[path])
        first = [path for path in self.paths if path in self.recent]
        last = [path for path in self.paths if path not in self.recent]
        found = sorted(found, key=lambda path: (aged[path], path))
        self.paths = [
            *first,
            *(path for path in found if path in self.recent),
            *last,
            *(path for path in found if path not in self.recent),
        ]

    def taken(self, path: Path) -> None:
        """Remove an experiment that is open now, or was given up."""
        self.paths.remove(path)
        self.recent.discard(path)


class _Fleet:
    """The experiments of this process: `active` ones are open, `closing` ones are on their way to rest."""

    def __init__(self, looks: Looks) -> None:
        self.active: dict[Path, Watched] = {}
        self.closing: dict[Path, tuple[Watched, Resting]] = {}
        self.rest = Rest(looks)
        self.queue = _Queue()
        self.turns: set[Path] = set()  # the active ones without recent writes when they were opened
        self.owned: set[Path] = set()  # every experiment that this process has owned

    @property
    def known(self) -> dict[str, Path]:
        """All experiments that are open, closing, at rest or waiting, by path."""
        paths = (*self.active, *self.closing, *self.rest.all, *self.queue.paths)
        return {os.fspath(path): path for path in paths}

    @property
    def resting(self) -> dict[Path, Resting]:
        """What is kept of each experiment that is at rest or closing."""
        return {**self.rest.all, **{path: kept for path, (_, kept) in self.closing.items()}}

    @property
    def is_empty(self) -> bool:
        """True if no experiment is open, closing or at rest."""
        return not (self.active or self.closing or self.rest.all)

    def forget_closed(self) -> None:
        """Put to rest the experiments whose sinks have closed."""
        for path, (watched, kept) in list(self.closing.items()):
            if not watched.is_closing:
                del self.closing[path]
                watched.close()
                self.rest.add(path, kept)


class _Advice:
    """Says once what the sinks of several experiments advise alike, with the number of experiments."""

    def __init__(self, said: Advised | None) -> None:
        self._counts: dict[str, tuple[int, float]] = {}  # by advice: the number of experiments, and since when it is so
        self._said: Advised = set() if said is None else said

    def foresee(self, config: Config) -> None:
        """Say what the sinks advise before they are open: the first row may take a minute."""
        for name in config.sinks:
            advice = foreseen(name, config.sink.get(name, {}))
            if advice and advice not in self._said:
                self._said.add(advice)
                logger.warning("%s", advice)

    def look(self, statuses: list[Status], now: float, *, last: bool) -> None:
        """Say each advice that no further experiment has needed for a while; all of it if this is the `last` look."""
        found = Counter(sink.advice for status in statuses for sink in status.sinks if sink.advice)
        for advice, count in found.items():
            before, since = self._counts.get(advice, (0, now))
            if count != before:
                since = now
                self._counts[advice] = count, since
            if advice not in self._said and (last or now - since >= ADVISE_AFTER_S):
                self._said.add(advice)
                logger.warning("%s%s", f"{counted(count, 'experiment')}: " if count > 1 else "", advice)


@dataclass(slots=True)
class _Due:
    """When each of the daemon's periodic tasks is due next, in seconds of its monotonic clock."""

    discover: float = 0.0
    tell: float = 0.0


class _Daemon:
    def __init__(
        self,
        scope: _Scope,
        config: Config,
        settings_of: SettingsOf | None,
        on_status: OnStatus | None,
        stop: threading.Event,
        say: Say,
        pulse: Pulse,
        advice: _Advice,
    ) -> None:
        self._directory = scope.directory
        self._config = config
        self._settings_of = settings_of or (lambda experiment: config)
        self._pulse = pulse
        self._once = scope.once
        self._on_status = on_status
        self._stop = stop
        self._say = say
        self._wake = Wake()
        self._looks = Looks()
        self._budget = Budget(self._config.sinks)
        self._fleet = _Fleet(self._looks)
        self._setbacks = Setbacks(self._config, say)
        self._advice = advice
        self._statuses: list[Status] = []
        local = filesystem_of(os.fspath(self._directory)).local
        self._outlook = Directory(self._directory, None if local else self._looks, scope.further_since)
        self._found_any = False
        self._due = _Due()
        self._until = math.inf

    def run(self) -> int:
        # Most objects here live as long as the process. Repeated scans of them would cost a fifth of the ingest.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        try:
            if not self._once:
                self._advice.foresee(self._config)
            self._discover(time.monotonic(), force=True)
            if self._once:
                drained = self._deliver_in_turns()
            else:
                self._loop()
                # bounds the reading, because a file may have no end
                self._until = time.monotonic() + self._config.drain_s
                self._read_what_is_there()
                drained = []
            if self._stop.is_set():
                self._try_once_more()
            return self._finish(drained)
        finally:
            self._wake.close()
            for watched in self._fleet.active.values():
                watched.close()
            for watched, _ in self._fleet.closing.values():
                watched.close()
            if hung := self._looks.close():
                self._say(f"{hung} looks at files of a network filesystem have not returned; their threads end later")

    # The loop ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        with suppress(RuntimeError):  # no thread is available; the loop checks `stop` every second anyway
            threading.Thread(target=self._nudge_on_stop, name="rlship-stop", daemon=True).start()
        changed: dict[str, set[str]] = {}
        while not self._stop.is_set() and not self._all_refused():
            now = time.monotonic()
            if now >= self._due.discover:
                self._discover(now)
            waiting = self._open_some(now)
            self._put_to_rest(now)
            self._look_at_resting(now)
            until = min(self._due.discover, self._fleet.rest.next_look if self._fleet.rest.all else math.inf)
            if waiting or self._fleet.closing:
                until = min(until, time.monotonic() + TURN_POLL_S)
            changed = self._round(now, changed, until)
        self._pulse.stopping()

    def _round(self, now: float, changed: dict[str, set[str]], until: float) -> dict[str, set[str]]:
        """Look at each experiment that is due or `changed`, then wait, at most until `until`. Returns the files that
        changed.
        """
        self._pulse.beat()
        more = False
        for path, watched in list(self._fleet.active.items()):
            try:
                more = watched.look(now, changed, self._wake) or more
            except (OSError, sqlite3.Error, LeaseLost) as error:
                self._drop(path, watched, error)
            except Exception as error:  # noqa: BLE001 - a fault over one experiment must not stop the others
                self._drop_faulty(path, watched, error)
            self._pulse.beat()
        self._wake.overflowed = False
        self._tell(now)
        if more:
            return {}
        active = self._fleet.active.values()
        due = min([until, *(watched.next_look for watched in active)])
        files = sum(len(watched.experiment.sources) for watched in active)
        return self._wake.wait(max(0.0, due - time.monotonic()), files=files)

    def _meanwhile(self, seconds: float) -> None:
        """Serve the open experiments while `acquire` watches another owner for signs of life."""
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
        """True if every sink refuses rows, so that a person has to act."""
        fleet = self._fleet
        shippers = [shipper for watched in fleet.active.values() for shipper in watched.shippers]
        if fleet.queue.paths or not all(shipper.refused is not None for shipper in shippers):
            return False
        resting = fleet.resting.values()
        return bool(shippers or resting) and all(kept.all_refused for kept in resting)

    def _read_what_is_there(self) -> None:
        """Before the end, make rows of the steps that writers finished; of all that they wrote with `once`, or where
        every one has closed.
        """
        active = self._fleet.active
        for path, watched in list(active.items()):
            watched.end_own()
            watched.look_at = watched.sweep_at = 0.0  # all of its files, and now
            try:  # reporting the status may drop the experiment
                while path in active and self._read_on(watched) and time.monotonic() < self._until:
                    self._pulse.beat()
            except (OSError, sqlite3.Error, LeaseLost) as error:
                self._drop(path, watched, error)
            except Exception as error:  # noqa: BLE001 - as above
                self._drop_faulty(path, watched, error)

    def _try_once_more(self) -> None:
        """Before the end, try suspended experiments again: a disk that was full may have room by now."""
        suspended = self._setbacks.suspended
        for path in [path for path in suspended if path not in self._fleet.active and is_experiment(path)]:
            try:
                self._open(path)
            # another sidecar serves it, or a crashed sidecar's lease has to run out first
            except (OwnedElsewhere, _Stopped):
                continue
        self._read_what_is_there()

    def _read_on(self, watched: Watched) -> bool:
        if not self._once:
            # Where every writer has closed, nothing more will come: no rank is waited for that never logged.
            return watched.look(time.monotonic(), {}, self._wake) or (
                not watched.experiment.awaited() and watched.read_to_the_end()
            )
        more = watched.read_to_the_end()
        self._tell(time.monotonic())
        if more and watched.experiment.intake.holding:
            self._stop.wait(HELD_POLL_S)
        return more and not self._stop.is_set()

    def _deliver_in_turns(self) -> list[bool]:
        """With `once`: read and deliver as many experiments at a time as may be open. The last ones stay open.

        Returns, for each experiment that was closed again, whether everything was delivered.
        """
        fleet = self._fleet
        drained: list[bool] = []
        most = min(ONCE_AT_A_TIME, self._budget.places)
        while True:
            with suppress(_Stopped):
                while fleet.queue.paths and len(fleet.active) < most:
                    self._open_next()
            if not fleet.queue.paths:
                self._raise_owned()
            if fleet.is_empty and not self._setbacks.any_unusable and not self._stop.is_set():
                raise nothing_in(self._directory)
            self._read_what_is_there()
            if not fleet.queue.paths or self._stop.is_set():
                return drained
            drained += self._drain()
            for path, watched in list(fleet.active.items()):
                try:
                    kept = watched.keep(time.monotonic(), time.time())
                except (OSError, sqlite3.Error) as error:
                    self._drop(path, watched, error)
                    continue
                del fleet.active[path]
                watched.close()
                fleet.rest.add(path, kept)

    # Experiments ---------------------------------------------------------------------------------------------------

    def _discover(self, now: float, *, force: bool = False) -> None:
        self._due.discover = now + DISCOVER_EVERY_S
        fleet, known = self._fleet, self._fleet.known
        try:
            outlook = self._outlook.look(now, known, force=force, wait_s=TURN_POLL_S)
        except OSError as error:
            problem = f"{self._directory} cannot be read: {error.strerror}"
            if not self._found_any and not is_shortage(error):
                raise NothingToWatch(problem, "Check its permissions and the mount.") from error
            self._setbacks.say_once(f"{problem}; trying again")
            return
        if outlook is None:
            return
        found = outlook.found
        self._found_any = self._found_any or bool(found)
        for folder, why in (outlook.excluded or {}).items():
            self._setbacks.say_clean(f"{folder} {why}")
        if not found and not self._once:
            self._setbacks.say_once(f"no experiment in {self._directory} yet: waiting for a writer to make one")
        there = set(found)
        for path in [path for path in fleet.rest.all if path not in there]:
            fleet.rest.remove(path)  # it was removed or renamed
        new = [path for path in found if os.fspath(path) not in known and self._setbacks.may_try(path, now)]
        if new:
            # The only one needs no order.
            alone = new == [self._directory]
            now = time.time()
            fleet.queue.add({self._directory: now} if alone else self._outlook.changes(new, now - LATELY_S))

    def _open_some(self, now: float) -> bool:
        """Open waiting experiments, for at most `OPENING_S`. Returns True if some still wait."""
        fleet, queue = self._fleet, self._fleet.queue
        while queue.paths and time.monotonic() < now + OPENING_S:
            if fleet.active and self._stop.is_set():
                return False
            if not self._has_place(queue.paths[0]):
                break
            try:
                self._open_next()
            except _Stopped:
                return False
        if not queue.paths:
            queue.full_since = math.inf
            self._raise_owned()
            return False
        self._say_waiting(now)
        return True

    def _has_place(self, path: Path) -> bool:
        """True if an experiment may be opened now. While others wait, one place is kept for turns."""
        fleet = self._fleet
        count = len(fleet.active) + len(fleet.closing)
        if not self._budget.has_room(count):
            return False
        if path in fleet.queue.recent:
            waiting = len(fleet.queue.paths) > len(fleet.queue.recent)
            return count == 0 or not waiting or count + 1 < self._budget.places
        return len(fleet.turns) < MAX_TURNS

    def _say_waiting(self, now: float) -> None:
        """Report that experiments wait because of a limit, once they have waited for a while."""
        fleet, queue = self._fleet, self._fleet.queue
        if self._budget.has_room(len(fleet.active) + len(fleet.closing)):
            queue.full_since = math.inf
            return
        queue.full_since = min(queue.full_since, now)
        if queue.recent and now - queue.full_since >= SAY_WAITING_S:
            self._say_full()

    def _say_full(self) -> None:
        self._setbacks.say_once(
            f"more experiments are at work than may be open at a time ({self._budget.places}): the rest "
            f"{WAITS_FOR_DESCRIPTORS}; they take turns meanwhile, and nothing is lost"
        )

    def _open_next(self) -> None:
        """Open the first waiting experiment. Raises _Stopped."""
        queue, path = self._fleet.queue, self._fleet.queue.paths[0]
        recent = path in queue.recent
        queue.taken(path)
        try:
            self._open(path)
        except OwnedElsewhere as error:
            queue.owned[path] = error
            self._setbacks.put_off(path, self._config.lease_ttl_s)
        if path in self._fleet.active and not recent:
            self._fleet.turns.add(path)

    def _raise_owned(self) -> None:
        """Raise OwnedElsewhere if another sidecar owns all that this one could work on; report it if it owns some."""
        nothing_else = self._fleet.is_empty
        found = self._fleet.queue.take_owned(again=nothing_else)
        last = found.pop() if found and nothing_else else None
        for error in found:
            self._setbacks.say_once(str(error))
        if last is not None:
            raise last

    def _open(self, path: Path) -> None:
        """Open an experiment. Raises OwnedElsewhere, _Stopped."""
        fleet = self._fleet
        if not self._setbacks.may_try(path, math.inf):
            return
        files = self._budget.files_each(len(fleet.active) + 1)
        alone = path == self._directory
        try:
            config = self._settings_of(path)
            if self._once:
                config = replace(config, own_rows_s=0.0)
            access = Access(files, self._looks)
            watched = open_watched(path, config, alone=alone, sleep=self._meanwhile, access=access)
        except UsageProblem as problem:
            self._setbacks.unusable(path, problem, RETRY_EVERY_S, again=not self._once)
            return
        except _UNOPENED as error:
            if isinstance(error, RuntimeError) and not is_shortage(error):
                raise
            self._unusable(path, error)
            return
        except LeaseLost as error:
            if os.path.exists(state_dir_for(path, self._config)):
                raise
            self._unusable(path, error)  # the folder was renamed or removed during the opening
            return
        kept = fleet.rest.remove(path)
        watched.before = kept.tally if kept is not None else None
        fleet.active[path] = watched
        for other in fleet.active.values():
            other.experiment.intake.limit_files(files)
        self._pulse.beat()  # opening thousands of experiments takes minutes
        self._setbacks.over(path)
        fleet.owned.add(path)
        if watched.news:
            self._say(watched.news)

    def _put_to_rest(self, now: float) -> None:
        """Close the experiments that are finished and delivered; if others wait, also those that can give up their
        place.
        """
        fleet = self._fleet
        fleet.forget_closed()
        wall, waiting = time.time(), bool(fleet.queue.paths)
        full = waiting and not self._has_place(fleet.queue.paths[0])
        for path, watched in list(fleet.active.items()):
            try:
                kept = watched.rest(now, wall, linger_s=0.0 if waiting else LINGER_S)
                if kept is None and full and (path in fleet.turns or len(fleet.turns) == 0):
                    kept = watched.yields(now, wall, turn_s=TURN_S)
                    full = full and kept is None
                    if kept is not None and path not in fleet.turns:
                        self._say_full()
            except (OSError, sqlite3.Error) as error:
                self._drop(path, watched, error)
                continue
            if kept is not None:
                self._close(path, watched, kept)
                self._pulse.beat()

    def _close(self, path: Path, watched: Watched, kept: Resting) -> None:
        fleet = self._fleet
        del fleet.active[path]
        fleet.turns.discard(path)
        watched.unwatch(self._wake)
        watched.begin_close()
        fleet.closing[path] = watched, kept

    def _look_at_resting(self, now: float) -> None:
        """Queue the experiments at rest whose files changed, or that gave up their place before all was delivered."""
        fleet = self._fleet
        changed = fleet.rest.look(now)
        waiting = set(fleet.queue.paths)
        again = [path for path in changed if path not in waiting and self._setbacks.may_try(path, now)]
        if again:
            fleet.queue.recent.update(again)
            fleet.queue.paths[:0] = again
        if not fleet.queue.paths:
            fleet.queue.paths += [path for path in sorted(fleet.rest.lacking) if self._setbacks.may_try(path, now)]

    def _drop(self, path: Path, watched: Watched, error: Exception) -> None:
        """Suspend an experiment: a full disk, a lost mount or a deleted folder must not stop the others.

        Its store keeps the position at which reading continues.
        """
        lost = isinstance(error, LeaseLost) and os.path.exists(watched.lease.state_dir)
        if lost and path == self._directory and (self._once or self._stop.is_set()):
            raise error
        del self._fleet.active[path]
        self._fleet.turns.discard(path)
        watched.unwatch(self._wake)
        watched.close()
        if isinstance(error, LeaseLost) and lost:
            # The next attempt finds out whether another sidecar owns it, or none took over while this one stood still.
            self._setbacks.say_once(f"{error.message}; checking which one does")
            self._setbacks.put_off(path, 0.0)
            self._due.discover = 0.0
        elif isinstance(error, sqlite3.DatabaseError) and is_damage(error):
            self._unusable(path, damaged(watched.lease.store_path, error))
        else:
            self._unusable(path, error)

    def _drop_faulty(self, path: Path, watched: Watched, error: Exception) -> None:
        """Suspend an experiment over which rlship itself failed; raise if it is the only one, or to end the command."""
        if path == self._directory or isinstance(error, (RlshipError, _Stopped)):
            raise error
        logger.debug("the fault of rlship's own", exc_info=error)
        fault = f"{path}: {type(error).__name__}: {error}; the others go on. This is a fault of rlship's own"
        self._drop(path, watched, error if is_shortage(error) else RlshipError(clean(fault, MAX_SAID)))

    def _unusable(self, path: Path, error: Exception) -> None:
        """Suspend an experiment; raise instead if it is the only one and only a person can help."""
        alone = path == self._directory
        if is_shortage(error) and not (alone and self._once):
            self._setbacks.short(path, error, RETRY_EVERY_S)
            return
        problem, gone = problem_of(path, state_dir_for(path, self._config), error)
        lasting = isinstance(error, _LASTING) or not isinstance(error, (OSError, sqlite3.OperationalError))
        # A folder that was swapped under a running sidecar may be put back.
        passing = isinstance(error, LeaseLost) or (isinstance(error, UntrustedState) and path in self._fleet.owned)
        lasting = lasting and not gone and not passing
        if alone and (self._once or lasting):
            raise problem from error
        if isinstance(error, StoreUnusable):
            self._setbacks.leave_out(path, error, again=not self._once)
        else:
            self._setbacks.unusable(path, problem, RETRY_EVERY_S, again=not (self._once or self._stop.is_set()))

    # Status and end ------------------------------------------------------------------------------------------------

    def _tell(self, now: float, *, force: bool = False) -> None:
        if now < self._due.tell and not force:
            return
        began, wall = time.thread_time(), time.time()
        fleet = self._fleet
        statuses: dict[Path, Status] = {}
        for path, watched in list(fleet.active.items()):
            self._pulse.beat()  # collecting thousands of statuses takes longer than a probe waits
            try:
                statuses[path] = watched.report(now, wall, last=force)
                for line in watched.experiment.news():
                    self._setbacks.say_clean(f"{path}: {line}")
            except (OSError, sqlite3.Error) as error:
                statuses.pop(path, None)
                self._drop(path, watched, error)
            except Exception as error:  # noqa: BLE001 - a fault in what a person sees must not keep rows from sinks
                self._flawed(f"{path}: its status cannot be made", error)
        resting = fleet.resting
        statuses |= {path: kept.status for path, kept in resting.items()}
        self._statuses = [statuses[path] for path in sorted(statuses, key=str)]
        self._show()
        self._advice.look(self._statuses, now, last=force)
        tallies: list[Tally] = [watched.tally() for watched in fleet.active.values()]
        tallies += [kept.tally for kept in resting.values()]
        suspended = [why for path, why in self._setbacks.suspended.items() if path not in fleet.active]
        self._pulse.report(LoopSnapshot(self._statuses, tallies, suspended), last=force)
        self._due.tell = now + max(STATUS_EVERY_S, (time.thread_time() - began) / STATUS_SHARE)

    def _show(self) -> None:
        """Hand the statuses to what shows them. A fault in it ends the display and not the daemon."""
        if self._on_status is None:
            return
        try:
            self._on_status(self._statuses)
        except (OSError, RlshipError):
            raise  # the terminal is gone, or the command is to end
        except Exception as error:  # noqa: BLE001 - as above
            self._on_status = None
            self._flawed("nothing is shown any more", error)

    def _flawed(self, what: str, error: Exception) -> None:
        """Report a fault of rlship's own that keeps nothing from its sink, once."""
        self._setbacks.say_clean(
            f"{what}: {type(error).__name__}: {error}; rows go on. This is a fault of rlship's own"
        )
        logger.debug("the fault of rlship's own", exc_info=error)

    def _drain(self) -> list[bool]:
        """Deliver the committed rows of the open experiments within `drain_s`. Returns for each whether all were
        delivered.
        """
        deadline = time.monotonic() + self._config.drain_s
        drained = []
        for watched in self._fleet.active.values():
            for shipper in watched.shippers:
                shipper.begin_drain()
        for path, watched in list(self._fleet.active.items()):
            try:
                drained.append(watched.drain(deadline, partial(self._while_draining, watched)))
            except (OSError, sqlite3.Error, LeaseLost) as error:
                drained.append(False)
                self._drop(path, watched, error)
        return drained

    def _while_draining(self, watched: Watched) -> None:
        """Report each reason why a sink holds rows back, once."""
        self._pulse.beat()
        count = watched.store.row_count()
        for shipper in watched.shippers:
            status = shipper.status()
            if status.error and status.next_row < count and shipper.refused is None:
                self._setbacks.say_clean(f"sink {status.name} holds rows back: {status.error}")

    def _finish(self, drained: list[bool]) -> int:
        """Deliver the committed rows within `drain_s` and return the exit code. `drained`: the results of experiments
        before.
        """
        self._pulse.stopping()
        fleet = self._fleet
        drained = drained + self._drain()
        active = list(fleet.active.values())
        refused = [f"sink {sink.name}: refused: {sink.status().error}" for one in active for sink in one.refused]
        for watched in active:
            for shipper in watched.shippers:
                shipper.begin_stop()
        for watched in active:
            for shipper in watched.shippers:
                shipper.stop()
        self._tell(time.monotonic(), force=True)
        resting = fleet.resting.values()
        refused += [line for kept in resting for line in kept.refused]
        lacks = [line for kept in resting for line in kept.lacks]
        for line, count in Counter(refused).items():
            self._say(f"{counted(count, 'experiment')}: {line}" if count > 1 else line)
        suspended = self._setbacks.suspended
        undone = [path for path in suspended if path not in fleet.active and is_experiment(path)]
        for path in undone:
            self._say(f"{path} is left as it is: {suspended[path]}; the next `rlship watch` goes on with it")
        if refused:
            return REFUSED
        if lacks or not all(drained):
            for line in [*lacks, *(line for watched in fleet.active.values() for line in watched.undelivered())]:
                self._say(line)
            return FAILED
        if undone or (self._once and self._setbacks.any_unusable):
            return FAILED
        incomplete = any(not status.complete for status in self._statuses)
        return INCOMPLETE if self._once and incomplete else OK
