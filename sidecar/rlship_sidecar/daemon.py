"""The daemon: wires experiments, stores, leases, shippers and the clock. Nothing else in the sidecar knows the time or
a thread.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rlship_sidecar.align import Patience
from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.discover import experiments
from rlship_sidecar.errors import NothingToWatch, OwnedElsewhere, RlshipError, SinkRefusedError
from rlship_sidecar.experiment import Experiment
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.lease import Lease, acquire
from rlship_sidecar.ship import Pace, Shipper
from rlship_sidecar.sinks.contract import Run
from rlship_sidecar.sinks.registry import make_sink
from rlship_sidecar.status import Status, write_status
from rlship_sidecar.store import Store
from rlship_sidecar.survey import survey
from rlship_sidecar.wake import MAX_WATCHED_FILES, Wake

IDLE_POLL_S = 1.0  # between two looks at all files where change events wake us
NETWORK_POLL_S = 0.5  # where none do: as often as a writer syncs
BUSY_POLL_SHARE = 0.02  # where there are too many files for events: looking may take this share of a core
FASTEST_POLL_S = 0.02
DISCOVER_EVERY_S = 1.0
STATUS_EVERY_S = 1.0
STATUS_SHARE = 0.01
IDLE_SINK_S = 600.0

OK, FAILED, INCOMPLETE, REFUSED = 0, 1, 3, 4

OnStatus = Callable[[list[Status]], None]
Say = Callable[[str], None]


@dataclass(slots=True)
class Watched:
    """One experiment that this process owns."""

    lease: Lease
    store: Store
    experiment: Experiment
    shippers: list[Shipper]
    poll_s: float = IDLE_POLL_S
    look_at: float = 0.0
    hinted: bool = False
    shipped: int = 0
    status: Status | None = None


@dataclass(slots=True)
class _Pacing:
    """When a status is due: every second, more seldom where making one is dear."""

    due: float = 0.0
    made: list[Status] = field(default_factory=list)


def watch(
    directory: Path,
    config: Config,
    *,
    once: bool,
    on_status: OnStatus | None = None,
    stop: threading.Event | None = None,
    say: Say = lambda line: None,
) -> int:
    """Watch an experiment, or every experiment in a folder, until `stop` is set; with `once` until all that is there is
    delivered.

    Returns an exit code: 0, 1 (a sink is still short of rows), 3 (`once`: data incomplete) or 4.
    Raises RlshipError where there is nothing to watch, or another sidecar owns all there is.
    """
    return _Daemon(directory, config, once, on_status, stop or threading.Event(), say).run()


class _Daemon:
    def __init__(
        self, directory: Path, config: Config, once: bool, on_status: OnStatus | None, stop: threading.Event, say: Say
    ) -> None:
        self._directory = directory
        self._config = config
        self._once = once
        self._on_status = on_status
        self._stop = stop
        self._say = say
        self._wake = Wake()
        self._watched: dict[Path, Watched] = {}
        self._owned_elsewhere: dict[Path, float] = {}
        self._discover_at = 0.0
        self._pacing = _Pacing()
        self._told_waiting = False

    def run(self) -> int:
        # Most objects here live as long as the process; scanning them again and again costs a fifth of the ingest.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        try:
            self._discover(time.monotonic())
            if self._once and not self._watched:
                raise NothingToWatch(
                    f"no experiment in {self._directory}",
                    "An experiment is a folder with `rlship/` in it: "
                    f"rlship.init({str(self._directory)!r}, …) in the job makes one.",
                )
            if self._once:
                self._read_to_the_end()
            else:
                self._loop()
            return self._finish()
        finally:
            self._close()

    # The loop ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        waker = threading.Thread(target=self._nudge_on_stop, name="rlship-stop", daemon=True)
        waker.start()
        changed: dict[str, set[str]] = {}
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= self._discover_at:
                self._discover(now)
            more = False
            for watched in self._watched.values():
                more = self._look(watched, changed.get(watched.experiment.folder), now) or more
            self._tell(now)
            if more:
                changed = {}
                continue
            deadlines = [watched.look_at for watched in self._watched.values()]
            wait_s = max(0.0, min([self._discover_at, *deadlines]) - time.monotonic())
            changed = self._wake.wait(wait_s)
        # What the writers finished before the stop still becomes rows.
        for watched in self._watched.values():
            while watched.experiment.tick(time.monotonic()):
                watched.lease.check()

    def _nudge_on_stop(self) -> None:
        self._stop.wait()
        self._wake.nudge()

    def _look(self, watched: Watched, names: set[str] | None, now: float) -> bool:
        """One tick of an experiment if it is due or files of it changed; returns whether it should be called again at
        once.
        """
        full = now >= watched.look_at
        if not full and not names:
            return False
        watched.lease.check()
        began = time.thread_time()
        more = watched.experiment.tick(now, only=None if full else names)
        if full:
            watched.poll_s = self._poll_s(watched, time.thread_time() - began)
            watched.look_at = now if more else time.monotonic() + watched.poll_s
        elif more:
            watched.look_at = now
        self._ship(watched)
        return more

    def _poll_s(self, watched: Watched, cost_s: float) -> float:
        """Seconds to the next look at all files."""
        if self._config.poll_s is not None:
            return self._config.poll_s
        experiment = watched.experiment
        if not experiment.filesystem.local:
            return NETWORK_POLL_S
        few = len(experiment.sources) <= MAX_WATCHED_FILES
        if few != watched.hinted:
            if few:
                watched.hinted = self._wake.watch(experiment.folder)
            else:
                self._wake.unwatch(experiment.folder)
                watched.hinted = False
        if watched.hinted:
            return IDLE_POLL_S
        return min(IDLE_POLL_S, max(FASTEST_POLL_S, cost_s / BUSY_POLL_SHARE))

    def _ship(self, watched: Watched) -> None:
        count = watched.store.row_count()
        if count > watched.shipped:
            watched.shipped = count
            for shipper in watched.shippers:
                shipper.wake()

    def _read_to_the_end(self) -> None:
        for watched in self._watched.values():
            more = True
            while more and not self._stop.is_set():
                watched.lease.check()
                more = watched.experiment.tick(time.monotonic(), end=True)
                self._ship(watched)
                self._tell(time.monotonic())

    # Experiments ---------------------------------------------------------------------------------------------------

    def _discover(self, now: float) -> None:
        self._discover_at = now + DISCOVER_EVERY_S
        try:
            found = experiments(self._directory)
        except OSError as error:
            raise NothingToWatch(
                f"{self._directory} cannot be read: {error.strerror}", "Check its permissions and the mount."
            ) from error
        if not found and not self._once and not self._told_waiting:
            self._told_waiting = True
            self._say(f"no experiment in {self._directory} yet: waiting for a writer to make one")
        refused: OwnedElsewhere | None = None
        for path in found:
            if path in self._watched or now < self._owned_elsewhere.get(path, 0.0):
                continue
            try:
                self._watched[path] = self._open(path, single=found == [self._directory])
            except OwnedElsewhere as error:
                refused = error
                if path not in self._owned_elsewhere and found != [path]:
                    self._say(str(error))
                self._owned_elsewhere[path] = now + self._config.lease_ttl_s
        if refused is not None and not self._watched:
            raise refused

    def _open(self, path: Path, *, single: bool) -> Watched:
        config = self._config
        state_dir = state_dir_for(path, config)
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RlshipError(
                f"cannot make the state folder {state_dir}: {error.strerror}",
                "Give another with --state-dir, on a disk that this user may write to.",
            ) from error
        lease = acquire(state_dir, config.lease_ttl_s)
        store = Store(lease.store_path, local=filesystem_of(os.path.realpath(state_dir)).local)
        patience = Patience(config.join_s, config.grace_s, config.max_wait_s, config.implicit_s, config.revise_s)
        experiment = Experiment(
            path,
            store,
            filesystem_of(os.path.realpath(path)),
            now=time.monotonic(),
            patience=patience,
            overrides=config.reductions,
            max_open_files=_file_budget(),
        )
        run = Run(path.resolve().name, path.resolve(), state_dir, store.store_id, store.row_count())
        shippers = [self._shipper(name, run, store, lease, single=single) for name in config.sinks]
        for shipper in shippers:
            shipper.start()
        return Watched(lease, store, experiment, shippers, shipped=0)

    def _shipper(self, name: str, run: Run, store: Store, lease: Lease, *, single: bool) -> Shipper:
        options = self._config.sink.get(name, {})
        own = Run(run.name, run.experiment, run.state_dir, run.store_id, run.rows, options)
        pace = Pace(idle_close_s=None if single or self._once else IDLE_SINK_S)
        return Shipper(name, lambda: make_sink(name), own, store, pace=pace, may_ship=lease.held)

    # Status and end ------------------------------------------------------------------------------------------------

    def _tell(self, now: float, *, force: bool = False) -> None:
        if now < self._pacing.due and not force:
            return
        began = time.thread_time()
        wall = time.time()
        statuses = []
        for watched in self._watched.values():
            sinks = [shipper.status() for shipper in watched.shippers]
            watched.status = survey(watched.experiment, sinks, now=now, wall=wall)
            write_status(watched.lease.state_dir, watched.status)
            statuses.append(watched.status)
        self._pacing.made = statuses
        if self._on_status is not None:
            self._on_status(statuses)
        self._pacing.due = now + max(STATUS_EVERY_S, (time.thread_time() - began) / STATUS_SHARE)

    def _finish(self) -> int:
        """Deliver what is committed, within `drain_s`, and judge."""
        deadline = time.monotonic() + self._config.drain_s
        short = False
        for watched in self._watched.values():
            self._ship(watched)
            for shipper in watched.shippers:
                delivered = shipper.drain(max(0.0, deadline - time.monotonic()))
                short = short or (not delivered and shipper.refused is None)
            for shipper in watched.shippers:
                shipper.stop()
        self._tell(time.monotonic(), force=True)
        for watched in self._watched.values():
            for shipper in watched.shippers:
                if shipper.refused is not None:
                    self._say(str(SinkRefusedError(str(shipper.refused))))
                    return REFUSED
        if short:
            return FAILED
        incomplete = any(not status.complete for status in self._pacing.made)
        return INCOMPLETE if self._once and incomplete else OK

    def _close(self) -> None:
        self._wake.close()
        for watched in self._watched.values():
            for shipper in watched.shippers:
                shipper.stop()
            watched.experiment.close()
            watched.store.close()
            watched.lease.release()


def _file_budget() -> int:
    """How many files may stay open: most of what the system allows this process, whose soft limit is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536, hard)
            )
        except (OSError, ValueError):
            return max(16, soft - 128)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(16, min(soft, 65_536) - 128)
