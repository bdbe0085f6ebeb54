"""One experiment that this process owns: lease, store, pipeline and shippers, opened and closed together."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rlship_sidecar.align.units import Patience, StreamConfig
from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.limits import FILES
from rlship_sidecar.daemon.resting import LINGER_S, SILENT_S, Footprint, Resting, footprint
from rlship_sidecar.daemon.wake import MAX_WATCHED_FILES, Wake
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.observe.own import SelfMetrics
from rlship_sidecar.ownership.inherit import lost_its_store
from rlship_sidecar.ownership.lease import Lease, acquire
from rlship_sidecar.ownership.place import make_place
from rlship_sidecar.ownership.state_owner import location, ownership_error
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.report.status import STATUS_FILE, Status, read_status, write_status
from rlship_sidecar.report.survey import survey
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.registry import make_sink
from rlship_sidecar.sinks.ship import Pace, Shipper
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.store import CountingStore
from rlship_sidecar.tally import Tally

IDLE_POLL_S = 1.0  # between two looks at all files where change events wake us
NETWORK_POLL_S = 0.5  # where none do: as often as a writer syncs
BUSY_POLL_SHARE = 0.02  # where there are too many files for events: looking may take this share of a core
FASTEST_POLL_S = 0.02
IDLE_SINK_S = 600.0
_DRAIN_SLICE_S = 1.0


def is_damage(error: BaseException) -> bool:
    """Whether it says that the store is not whole any more. A full disk, a lost mount and a lock are no damage."""
    return type(error) is sqlite3.DatabaseError or isinstance(error, sqlite3.IntegrityError)


@dataclass(slots=True)
class Watched:
    """An experiment at work. `look_at` is when all its files are to be looked at next, in monotonic seconds; `news` is
    what a person should hear of how it was opened, or "". `before`: what was counted before it was last at rest.
    `changed_at`: when this process last read a line of it or made a row; `rest_at`: when to ask next whether it can
    rest.
    """

    lease: Lease
    store: CountingStore
    experiment: Experiment
    shippers: list[Shipper]
    poll_s: float | None
    own: SelfMetrics | None = None
    news: str = ""
    look_at: float = 0.0
    hinted: bool = False
    shipped: int = 0
    before: Tally | None = None
    opened_at: float = field(default_factory=time.monotonic)
    changed_at: float = -math.inf
    rest_at: float = 0.0
    lines_and_rows: tuple[int, int] = (0, 0)

    def look(self, now: float, changed: Mapping[str, Iterable[str]], wake: Wake) -> bool:
        """One tick if it is due or files changed, which are named by folder. Returns whether to call again at once."""
        self.lease.check()
        self._check_readers()
        names = self.experiment.intake.hinted(changed) if changed else None
        full = now >= self.look_at
        if not full and not names:
            return False
        began = time.thread_time()
        more = self.experiment.tick(now, time.time(), only=None if full else names)
        if full and not more:
            self.look_at = time.monotonic() + self._interval_s(time.thread_time() - began, wake)
        elif more:
            self.look_at = now
        self._note_change(now)
        self.ship()
        return more

    def _note_change(self, now: float) -> None:
        count = self.experiment.intake.lines, self.store.row_count()
        if count != self.lines_and_rows:
            self.lines_and_rows, self.changed_at = count, now

    # Rest ----------------------------------------------------------------------------------------------------------

    def rest(self, now: float, wall: float, *, linger_s: float) -> Resting | None:
        """What is kept of the experiment if it is finished and delivered (see `resting`); None if it is not. Nothing is
        closed yet.
        """
        if now < self.rest_at or now >= self.look_at:  # only a look that found nothing more tells
            return None
        if (self.own is not None and self.own.is_open) or not self.experiment.is_settled:
            return None
        if not all(shipper.at_rest for shipper in self.shippers):
            if self.experiment.all_closed:  # no row will follow for which a flush could wait
                for shipper in self.shippers:
                    shipper.begin_drain()
            return None
        return self._settled(now, wall) if now - self.changed_at >= linger_s else None

    def _settled(self, now: float, wall: float) -> Resting | None:
        experiment = self.experiment
        # Taken first: what is written from here on makes another one.
        found = footprint(experiment, self.lease.state_dir)
        quiet_s = now - max(self.opened_at, self.changed_at)
        if not experiment.all_closed and max(quiet_s, found.silent_s(wall)) < SILENT_S:
            self.rest_at = now + LINGER_S
            return None
        count = len(experiment.sources)
        experiment.intake.discover(now, force=True)
        if len(experiment.sources) > count or self._grew():
            self.look_at = now
            return None
        experiment.save()
        return self._kept(found, now, wall)

    def _grew(self) -> bool:
        """Whether a file is larger than it was at the last look."""
        for source in self.experiment.sources.values():
            if not source.gone:
                try:
                    if source.tail.size() > max(source.size, source.read):
                        return True
                except OSError:  # the look at it says what is wrong with it
                    continue
        return False

    def yields(self, now: float, wall: float, *, turn_s: float) -> Resting | None:
        """What is kept of the experiment if it can give its place to another one: it is read to the end, and what is
        left to do is to wait for sinks that fail, or for writers that are silent.
        """
        if now - max(self.opened_at, self.changed_at) < turn_s or not self.experiment.is_settled:
            return None
        if not all(shipper.at_rest or shipper.failing for shipper in self.shippers):
            return None
        if self.own is not None and self.own.is_open:
            return None
        return self.keep(now, wall)

    def keep(self, now: float, wall: float) -> Resting:
        """What is kept of the experiment as it is."""
        return self._kept(footprint(self.experiment, self.lease.state_dir), now, wall)

    def _kept(self, found: Footprint, now: float, wall: float) -> Resting:
        refused = [f"sink {one.name}: refused: {one.status().error}" for one in self.refused]
        return Resting(found, self.report(now, wall), self.tally(), refused, self.undelivered() if not refused else [])

    def begin_close(self) -> None:
        """Let the sinks close, each in a thread of the pool; `is_closing` until they have."""
        self.end_own()
        for shipper in self.shippers:
            shipper.begin_stop()

    @property
    def is_closing(self) -> bool:
        """Whether a sink is not closed yet."""
        return not all(shipper.ended for shipper in self.shippers)

    def _interval_s(self, cost_s: float, wake: Wake) -> float:
        """Seconds to the next look at all files, given what one costs."""
        if self.poll_s is not None:
            return self.poll_s
        if not self.experiment.filesystem.local:
            return NETWORK_POLL_S
        few = len(self.experiment.sources) <= MAX_WATCHED_FILES
        if few:
            self.hinted = all(map(wake.watch, self.experiment.intake.folders))
        elif self.hinted:
            self.unwatch(wake)
            self.hinted = False
        if self.hinted:
            return IDLE_POLL_S
        return min(IDLE_POLL_S, max(FASTEST_POLL_S, cost_s / BUSY_POLL_SHARE))

    def unwatch(self, wake: Wake) -> None:
        """No more change events."""
        for folder in self.experiment.intake.folders:
            wake.unwatch(folder)

    def read_to_the_end(self) -> bool:
        """One tick of reading all there is as if nothing more came. Returns whether to call replay."""
        self.lease.check()
        more = self.experiment.tick(time.monotonic(), time.time(), end=True)
        self.ship()
        return more

    def ship(self) -> None:
        """Wake the shippers if there are new rows."""
        count = self.store.row_count()
        if count > self.shipped:
            self.shipped = count
            for shipper in self.shippers:
                shipper.wake()

    def _check_readers(self) -> None:
        """Raise what a shipper's thread found wrong with the store, unless it may pass."""
        for shipper in self.shippers:
            error = shipper.store_error
            if error is not None and is_damage(error):
                raise error

    @property
    def refused(self) -> list[Shipper]:
        """Shippers whose sink refused, which is final."""
        return [shipper for shipper in self.shippers if shipper.refused is not None]

    def tally(self) -> Tally:
        """What was counted since this process owns the experiment."""
        counted = self.experiment.intake.tally
        counted.rows = self.store.made
        counted.sinks = {shipper.name: shipper.shipping for shipper in self.shippers}
        return counted if self.before is None else self.before + counted

    def report(self, now: float, wall: float) -> Status:
        """The status, also written beside the store for other processes, and now and then into the run."""
        status = survey(self.experiment, [shipper.status() for shipper in self.shippers], now=now, wall=wall)
        if self.own is not None:
            self.own.log(status, self.tally(), now)
        try:
            write_status(self.lease.state_dir, status, generation=self.lease.generation, held=self.lease.held)
        except OSError as error:
            # Rows are worth more than what is told about them.
            status.notes.append(f"{self.lease.state_dir / STATUS_FILE} cannot be written: {error.strerror}")
        return status

    def end_own(self) -> None:
        """Log no more of the sidecar's own figures: what follows is the end."""
        if self.own is not None:
            self.own.close()
            self.own = None
            self.look_at = 0.0

    def undelivered(self) -> list[str]:
        """What each sink lacks, in words."""
        count = self.store.row_count()
        return [
            f"sink {sink.name} lacks rows {sink.next_row} to {count - 1} of {self.experiment.directory}: "
            f"{sink.error or 'it took too long'}; the next `rlship watch` delivers them"
            for sink in (shipper.status() for shipper in self.shippers)
            if sink.next_row < count
        ]

    def drain(self, deadline: float, beat: Callable[[], None]) -> bool:
        """Deliver every committed row until `deadline` (monotonic), and call `beat` about once a second. Returns
        whether all sinks that did not refuse have them.
        """
        self.ship()
        for shipper in self.shippers:
            while not shipper.drain(min(_DRAIN_SLICE_S, max(0.0, deadline - time.monotonic()))):
                beat()
                self.lease.check()
                if shipper.refused is not None:
                    break
                if time.monotonic() >= deadline:
                    return False
        return True

    def close(self) -> None:
        """Stop shipping, close everything and let the next sidecar take over."""
        self.end_own()
        for shipper in self.shippers:
            shipper.begin_stop()
        stopped = [shipper.stop() for shipper in self.shippers]
        self.experiment.close()
        self.store.close()
        if all(stopped):
            self.lease.release()
        else:
            self.lease.abandon()


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How an experiment is replayed: with a store of its own in `state_dir`, as a run called `name`, and with `steps`
    only the rows of these. The files are all there, so nothing is waited for but their ends.
    """

    state_dir: Path
    name: str
    steps: Steps | None = None

    def patience(self, revise_s: float) -> Patience:
        """Whose lines were not read yet is not silent."""
        return Patience(0.0, math.inf, math.inf, math.inf, revise_s)


def open_watched(
    path: Path,
    config: Config,
    *,
    alone: bool,
    sleep: Callable[[float], None] = time.sleep,
    replay: ReplayOptions | None = None,
    files: int = FILES,
) -> Watched:
    """Own an experiment and start its shippers. `alone`: it is the only one, so its sinks stay open while it is idle.
    `sleep` is what is done for some seconds, again and again, while another owner is watched for signs of life.
    `again`: to replay it, beside whoever watches it. `files`: how many of its writers' files may stay open.

    Raises OwnedElsewhere, StoreUnusable, StateOfAnother, UntrustedState; OSError and sqlite3.Error where the state
    cannot be read or written just now.
    """
    state_dir = state_dir_for(path, config) if replay is None else replay.state_dir
    make_place(path, state_dir)
    news = ""
    if replay is None and lost_its_store(state_dir):
        news = (
            f"{state_dir} has lost its store: a new one is begun, all rows are made again from the files, and W&B gets "
            "a new run; the file sinks refuse what they wrote for the old one until it is moved away"
        )
    lease = acquire(state_dir, config.lease_ttl_s, sleep=sleep)
    store: CountingStore | None = None
    try:
        store = CountingStore(lease.store_path, local=filesystem_of(os.path.realpath(state_dir)).local)
        _claim(store, path, state_dir)
        experiment = Experiment(
            path,
            store,
            filesystem_of(os.path.realpath(path)),
            now=time.monotonic(),
            patience=_patience(config) if replay is None else replay.patience(config.revise_s),
            streams=StreamConfig(config.lead, config.clock_window_s, None if replay is None else replay.steps),
            rules=Rules(config.reductions, config.per_rank, samples=SampleChoice(config.samples, config.samples_every)),
            max_open_files=files,
        )
    except BaseException:
        if store is not None:
            store.close()
        lease.release()
        raise
    news = "; ".join(filter(None, [news, _other_streams(experiment, config)]))
    called = path.resolve().name if replay is None else replay.name
    shippers = [_shipper(name, path, called, config, store, lease, alone=alone) for name in config.sinks]
    places = _places_before(state_dir)
    for shipper in shippers:
        shipper.recall(places.get(shipper.name, ""))
        shipper.start()
    own = SelfMetrics(path, config.own_rows_s, lease.generation) if config.own_rows_s and replay is None else None
    return Watched(lease, store, experiment, shippers, config.poll_s, own, news)


def _places_before(state_dir: Path) -> dict[str, str]:
    """Where sinks delivered to, by name, as the last status says."""
    try:
        status = read_status(state_dir)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {} if status is None else {sink.name: sink.where for sink in status.sinks}


def _patience(config: Config) -> Patience:
    return Patience(config.join_s, config.grace_s, config.max_wait_s, config.implicit_s, config.revise_s)


def _other_streams(experiment: Experiment, config: Config) -> str:
    """What another `lead` or `clock_window_s` than at the last start does to rows that were shipped."""
    before = experiment.streaming.made_with
    if before is None:
        return ""
    lead, window_s = before
    changed = [f"lead is {config.lead}, was {lead}"] if lead != config.lead else []
    if window_s != config.clock_window_s:
        changed.append(f"clock_window_s is {config.clock_window_s:g}, was {window_s:g}")
    return (
        f"{' and '.join(changed)}: rows of what is logged without a step are made again; former ones that have "
        "no place any more become empty by a revision, and stay in W&B and TensorBoard as they were drawn"
    )


def _claim(store: CountingStore, path: Path, state_dir: Path) -> None:
    """Make sure that the state is this experiment's: with a copy's, two experiments would overwrite one W&B run."""
    here = location(path)
    owner = store.experiment()
    why = ownership_error(owner, here, state_dir)
    if why is not None:
        raise why
    if owner != here:
        store.claim(*here)


def _shipper(
    name: str, path: Path, called: str, config: Config, store: CountingStore, lease: Lease, *, alone: bool
) -> Shipper:
    run = SinkContext(
        called,
        path.resolve(),
        lease.state_dir,
        store.store_id,
        store.row_count(),
        config.sink.get(name, {}),
        lease.generation,
        lease.suspect,
    )
    pace = Pace(idle_close_s=None if alone else IDLE_SINK_S)
    return Shipper(name, lambda: make_sink(name), run, store, pace=pace, may_ship=lease.held)


def state_problem(path: Path, state_dir: Path, error: Exception, *, gone: bool) -> RlshipError:
    """What keeps an experiment's state from being used, and the way out. `gone`: its folder is not there any more."""
    if isinstance(error, RlshipError) and not gone:
        return error
    return RlshipError(
        f"cannot keep the state of {path} in {state_dir}: {'it is gone' if gone else error}",
        "If it was moved, it goes on where it is now. If only the state was removed, rows are made again, "
        "into a new W&B run."
        if gone
        else "Give a folder that this user may write to, on a disk with room: --state-dir.",
    )
