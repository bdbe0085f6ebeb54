"""One experiment that this process owns: its lease, store, pipeline and shippers, opened and closed together."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.align.units import Patience, StreamConfig
from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.limits import FILES
from rlship_sidecar.daemon.resting import LINGER_S, SILENT_S, UNSEEN, FilesSeen, Footprint, Resting, Sighting, footprint
from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.observe.own import SelfMetrics
from rlship_sidecar.ownership.inherit import lost_its_store
from rlship_sidecar.ownership.lease import Lease, acquire, owner
from rlship_sidecar.ownership.place import make_place
from rlship_sidecar.ownership.state_owner import location, ownership_error
from rlship_sidecar.pipeline.alert_book import Alerting
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.intake import Access
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.report.status import STATUS_FILE, Status, read_status, write_status
from rlship_sidecar.report.streams import over_time_only, own_named
from rlship_sidecar.report.survey import survey
from rlship_sidecar.report.trends import Trends
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.registry import make_sink
from rlship_sidecar.sinks.ship import Pace, Shipper
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.store import CountingStore
from rlship_sidecar.tail.listing import WRITERS_FOLDER
from rlship_sidecar.tally import Tally

if TYPE_CHECKING:
    from rlship_sidecar.notifiers.mail import Mail

IDLE_POLL_S = 1.0  # between two looks at the clock where change events wake the loop
NETWORK_POLL_S = 0.5  # where no events do
TURN_S = 0.02  # between two turns of looks at files of a network filesystem
SWEEP_SHARE = 0.01  # looking at all files, beside change events, may take this share of a core
MAX_SWEEP_S = 10.0
BUSY_POLL_SHARE = 0.02  # the same where there are no events
FASTEST_POLL_S = 0.02
IDLE_SINK_S = 600.0
IDLE_READER_S = 5.0
STOPS_WITHIN_S = 10.0  # a notifier's thread that waits for its receiver
_DRAIN_SLICE_S = 1.0


def is_damage(error: BaseException) -> bool:
    """True if the error means that the store is damaged. A full disk, a lost mount and a lock are no damage."""
    return type(error) is sqlite3.DatabaseError or isinstance(error, sqlite3.IntegrityError)


@dataclass(slots=True)
class Charts:
    """What sinks show rows over and call them by; their threads read it.

    `over_time`: streams have rows over time only. `own_names`: the actors whose metrics have the names that the job
    gave them at W&B.
    """

    over_time: bool = False
    own_names: tuple[str, ...] = ()

    def look(self, experiment: Experiment) -> None:
        """Take what is so now."""
        self.over_time, self.own_names = over_time_only(experiment), own_named(experiment)


@dataclass(slots=True)
class Watched:
    """An open experiment.

    `look_at`: when to run the next tick that looks at the clock, in monotonic seconds; `sweep_at`: when one looks at
    all files that events watch; `turn_at`: when files of a network filesystem are due. `news`: a message about how it
    was opened, or "". `before`: the counts from before it was last at rest. `changed_at`: when this process last read
    one of its lines or made one of its rows. `rest_at`: when to try next to put it to rest; `sighting` is the look at
    its files before.
    """

    lease: Lease
    store: CountingStore
    experiment: Experiment
    shippers: list[Shipper]
    poll_s: float | None
    own: SelfMetrics | None = None
    trends: Trends = field(default_factory=Trends)
    news: str = ""
    look_at: float = 0.0
    turn_at: float = math.inf
    sweep_at: float = 0.0
    hinted: bool = False
    shipped: tuple[int, int] = (0, 0)
    before: Tally | None = None
    opened_at: float = field(default_factory=time.monotonic)
    changed_at: float = -math.inf
    rest_at: float = 0.0
    sighting: Sighting | None = None
    lines_and_rows: tuple[int, int] = (0, 0)
    charts: Charts = field(default_factory=Charts)

    @property
    def mail(self) -> Mail | None:
        """What notifiers are to send; None without notifiers."""
        return cast("Mail | None", self.experiment.alert_book.teller)

    def look(self, now: float, changed: Mapping[str, Iterable[str]], wake: Wake) -> bool:
        """Run one tick if it is due or files changed. `changed` names the files by folder. Returns True to be called
        again at once.
        """
        self._check_readers()
        names = self.experiment.intake.hinted(changed) if changed else None
        full, turn = now >= self.look_at, now >= self.turn_at
        if not (full or turn or names or (self.hinted and wake.overflowed)):
            return False
        self.lease.check()
        began = time.thread_time()
        sweep = (full and now >= self.sweep_at) or wake.overflowed
        more = self.experiment.tick(now, time.time(), only=None if sweep else names or (), timers=full)
        if full and not more:
            self.store.close_idle_reader(IDLE_READER_S)
            self._plan(time.thread_time() - began if sweep else None, wake)
        elif more:
            self.look_at = now
        self.turn_at = max(time.monotonic() + TURN_S, self.experiment.intake.next_look)
        self._note_change(now)
        self.ship()
        return more

    def _note_change(self, now: float) -> None:
        count = self.experiment.intake.lines, self.store.row_count()
        if count != self.lines_and_rows:
            self.lines_and_rows, self.changed_at = count, now

    # Rest ----------------------------------------------------------------------------------------------------------

    def rest(self, now: float, wall: float, *, linger_s: float) -> Resting | None:
        """What to keep of the experiment if it is finished and delivered (see `resting`), else None. Closes nothing."""
        if now >= self.look_at:  # valid only right after a look that found nothing new
            return None
        if now < self.rest_at and not self.experiment.all_closed:
            return None
        if not self._may_rest or now - self.changed_at < linger_s:
            self.sighting = None
            return None
        # Taken first, so that whatever is written from here on changes the footprint.
        if self.sighting is None:
            self.sighting = self._sighting()
        seen = self.sighting.seen()
        return None if seen is None else self._settled(seen, now, wall)

    @property
    def _may_rest(self) -> bool:
        if (self.own is not None and self.own.is_open) or not self.experiment.is_settled:
            return False
        if self.mail is not None and not self.mail.at_rest:
            return False
        if all(shipper.at_rest for shipper in self.shippers):
            return True
        if self.experiment.all_closed:  # no row will follow, so a flush has nothing to wait for
            for shipper in self.shippers:
                shipper.begin_drain()
        return False

    def _sighting(self) -> Sighting:
        return Sighting(footprint(self.experiment, self.lease.state_dir), self.experiment.intake.files.looks)

    def _settled(self, seen: FilesSeen, now: float, wall: float) -> Resting | None:
        experiment, sighting, self.sighting = self.experiment, self.sighting, None
        assert sighting is not None
        quiet_s = max(now - max(self.opened_at, self.changed_at), wall - seen.newest)
        if not experiment.all_closed and quiet_s < SILENT_S:
            # A look opens every file, and before that it cannot find what it looks for.
            self.rest_at = now + min(SILENT_S, max(LINGER_S, SILENT_S - quiet_s))
            return None
        if self._has_grown(now):
            return None
        experiment.save()
        return self._kept(sighting.footprint, seen, now, wall)

    def _has_grown(self, now: float) -> bool:
        """True if there are files or lines that no look has read; the next look is due then."""
        intake, count = self.experiment.intake, len(self.experiment.sources)
        intake.discover(now, force=True)
        if len(self.experiment.sources) > count or intake.grew():
            self.look_at = self.sweep_at = now
            return True
        return False

    def yields(self, now: float, wall: float, *, turn_s: float) -> Resting | None:
        """What to keep of the experiment if it can give its place to another one, else None.

        It can once it is read to the end, and only waits for failing sinks or silent writers.
        """
        if now >= self.look_at:  # as for `rest`: between two pieces of its files it may be settled, too
            return None
        if now - max(self.opened_at, self.changed_at) < turn_s or not self.experiment.is_settled:
            return None
        if not all(shipper.at_rest or shipper.failing for shipper in self.shippers):
            return None
        if self.own is not None and self.own.is_open:
            return None
        sighting = self._sighting()
        seen = sighting.wait()
        return None if self._has_grown(now) else self._kept(sighting.footprint, seen, now, wall)

    def keep(self, now: float, wall: float) -> Resting:
        """What to keep of the experiment in its present state."""
        sighting = self._sighting()
        return self._kept(sighting.footprint, sighting.wait(), now, wall)

    def _kept(self, files: Footprint, seen: FilesSeen | None, now: float, wall: float) -> Resting:
        refused = [f"sink {one.name}: refused: {one.status().error}" for one in self.refused]
        found = replace(files, seen=UNSEEN if seen is None else seen.number)
        return Resting(found, self.report(now, wall), self.tally(), refused, self.undelivered() if not refused else [])

    def begin_close(self) -> None:
        """Begin to close the sinks, each in a thread of the pool; `is_closing` is True until they have closed."""
        self.end_own()
        for shipper in self.shippers:
            shipper.begin_stop()

    @property
    def is_closing(self) -> bool:
        """True while a sink has not closed."""
        return not all(shipper.ended for shipper in self.shippers)

    def _plan(self, cost_s: float | None, wake: Wake) -> None:
        """Plan the next tick that looks at the clock. `cost_s`: the CPU time of this one if it looked at all files."""
        now = time.monotonic()
        if self.poll_s is not None or not self.experiment.filesystem.local:
            self.look_at = now + (NETWORK_POLL_S if self.poll_s is None else self.poll_s)
            return
        self.hinted = all(map(wake.watch, self.experiment.intake.folders))
        self.look_at = now + IDLE_POLL_S
        if cost_s is None:
            return
        if self.hinted:
            self.sweep_at = now + min(MAX_SWEEP_S, max(IDLE_POLL_S, cost_s / SWEEP_SHARE))
        else:
            self.look_at = now + min(IDLE_POLL_S, max(FASTEST_POLL_S, cost_s / BUSY_POLL_SHARE))

    @property
    def next_look(self) -> float:
        """When `look` has something to do, as far as time decides."""
        return min(self.look_at, self.turn_at)

    def unwatch(self, wake: Wake) -> None:
        """Stop watching the experiment's folders."""
        for folder in self.experiment.intake.folders:
            wake.unwatch(folder)

    def read_to_the_end(self) -> bool:
        """Run one tick that reads everything as if no line followed. Returns True to be called again."""
        self.lease.check()
        more = self.experiment.tick(time.monotonic(), time.time(), end=True)
        self.ship()
        return more

    def ship(self) -> None:
        """Wake the shippers if there are new rows, or new data of the run."""
        committed = self.store.row_count(), self.store.run_version()
        if committed != self.shipped:
            self.shipped = committed
            with self.store.together():
                self.charts.look(self.experiment)
            for shipper in self.shippers:
                shipper.wake()
            if self.mail is not None:
                self.mail.wake()

    def _check_readers(self) -> None:
        """Raise the damage that a shipper's thread found in the store."""
        for shipper in self.shippers:
            error = shipper.store_error
            if error is not None and is_damage(error):
                raise error

    @property
    def refused(self) -> list[Shipper]:
        """The shippers whose sink refused rows, which is final."""
        return [shipper for shipper in self.shippers if shipper.refused is not None]

    def tally(self) -> Tally:
        """The counts since this process first owned the experiment."""
        counted = self.experiment.intake.tally
        counted.rows = self.store.made
        counted.sinks = {shipper.name: shipper.shipping for shipper in self.shippers}
        return counted if self.before is None else self.before + counted

    def report(self, now: float, wall: float, *, last: bool = False) -> Status:
        """Return the status, write it beside the store for other processes, and log it into the run if that is due.
        `last`: this sidecar writes no later one.
        """
        sinks = [shipper.status() for shipper in self.shippers]
        with self.store.together():
            status = survey(self.experiment, sinks, now=now, wall=wall, trends=self.trends, last=last)
        status.notes += [] if self.mail is None else self.mail.problems()
        if self.own is not None:
            self.own.log(status, self.tally(), now)
        try:
            write_status(self.lease.state_dir, status, generation=self.lease.generation, held=self.lease.held)
        except OSError as error:
            # Rows matter more than their status, so go on.
            status.notes.append(f"{self.lease.state_dir / STATUS_FILE} cannot be written: {error.strerror}")
        return status

    def end_own(self) -> None:
        """Stop logging the sidecar's own metrics."""
        if self.own is not None:
            self.own.close()
            self.own = None
            self.look_at = 0.0

    def undelivered(self) -> list[str]:
        """Describe the rows that each sink lacks."""
        count = self.store.row_count()
        return [
            f"sink {sink.name} lacks rows {sink.next_row} to {count - 1} of {self.experiment.directory}: "
            f"{sink.error or 'it took too long'}; the next `rlship watch` delivers them"
            for sink in (shipper.status() for shipper in self.shippers)
            if sink.next_row < count
        ]

    def drain(self, deadline: float, beat: Callable[[], None]) -> bool:
        """Deliver every committed row until `deadline` (monotonic), and call `beat` about once a second.

        Returns True if all sinks have them, except those that refused.
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
        while self.mail is not None and not self.mail.drain(min(_DRAIN_SLICE_S, deadline - time.monotonic())):
            beat()
            self.lease.check()
            if time.monotonic() >= deadline:
                break  # rows are delivered; the next sidecar sends what is left
        return True

    def close(self) -> None:
        """Stop shipping, close everything and let the next sidecar take over."""
        self.end_own()
        for shipper in self.shippers:
            shipper.begin_stop()
        stopped = [shipper.stop() for shipper in self.shippers]
        if self.mail is not None:
            stopped.append(self.mail.stop(STOPS_WITHIN_S))
        self.experiment.close()
        self.store.close()
        if all(stopped):
            self.lease.release()
        else:
            self.lease.abandon()


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay.

    Its store lies in `state_dir`, and its run is called `name`. With `steps` it makes only the rows of these steps. The
    files are complete, so a replay waits only for their ends.
    """

    state_dir: Path
    name: str
    steps: Steps | None = None

    def patience(self, revise_s: float) -> Patience:
        """A patience without time limits: a writer whose lines are still unread is not silent."""
        return Patience(0.0, math.inf, math.inf, math.inf, revise_s)


def open_watched(
    path: Path,
    config: Config,
    *,
    alone: bool,
    sleep: Callable[[float], None] = time.sleep,
    replay: ReplayOptions | None = None,
    access: Access | None = None,
) -> Watched:
    """Own an experiment and start its shippers.

    `alone`: it is the only experiment, so its sinks stay open while it is idle. `sleep` is called repeatedly while
    `acquire` watches another owner for signs of life. `replay`: replay the experiment, beside the sidecar that watches
    it. `access`: how its writers' files may be read.

    Raises OwnedElsewhere, StoreUnusable, StateOfAnother, UntrustedState; OSError and sqlite3.Error if the state cannot
    be read or written now.
    """
    state_dir = state_dir_for(path, config) if replay is None else replay.state_dir
    make_place(path, state_dir)
    news = ""
    if replay is None and lost_its_store(state_dir):
        news = (
            f"{state_dir} has lost its store: a new one is begun, all rows are made again from the files, and W&B gets "
            "a new run; the file sinks refuse what they wrote for the old one until it is moved away"
        )
    beside = "" if replay is not None else _shipped_beside(path, state_dir)
    lease = acquire(state_dir, config.lease_ttl_s, sleep=sleep)
    store: CountingStore | None = None
    try:
        store = CountingStore(lease.store_path, local=filesystem_of(os.path.realpath(state_dir)).local)
        _claim(store, path, state_dir)
        mail = None
        if config.notify and config.alerts and replay is None:
            from rlship_sidecar.notifiers.mail import Mail  # most have no notifiers, and HTTP takes time to import

            mail = Mail(store, path.resolve().name, config.notify, config.notify_max_age_s, may_send=lease.held)
        experiment = Experiment(
            path,
            store,
            filesystem_of(os.path.realpath(path)),
            now=time.monotonic(),
            patience=_patience(config) if replay is None else replay.patience(config.revise_s),
            streams=StreamConfig(config.lead, config.clock_window_s, None if replay is None else replay.steps),
            rules=Rules(
                config.reductions,
                config.per_rank,
                samples=SampleChoice(config.samples, config.samples_every),
                short_window=config.short_window,
                ledger_wait_s=config.ledger_wait_s,
            ),
            access=replace(access or Access(FILES), opens_per_s=config.opens_per_s, poll_s=config.poll_s),
        )
        if config.alerts:
            experiment.judge(Alerting(rules_of(config.alert), mail), time.monotonic())
    except BaseException:
        if store is not None:
            store.close()
        lease.release()
        raise
    news = "; ".join(filter(None, [news, beside, _other_streams(experiment, config)]))
    charts = Charts()
    charts.look(experiment)
    run = SinkContext(
        path.resolve().name if replay is None else replay.name,
        path.resolve(),
        lease.state_dir,
        store.store_id,
        store.row_count(),
        generation=lease.generation,
        suspect=lease.suspect,
        over_time=lambda: charts.over_time,
        own_names=lambda: charts.own_names,
        is_replay=replay is not None,
    )
    pace = Pace(idle_close_s=None if alone else IDLE_SINK_S)
    shippers = [_shipper(name, run, config, store, lease, pace) for name in config.sinks]
    places = _places_before(state_dir)
    for shipper in shippers:
        shipper.recall(places.get(shipper.name, ""))
        shipper.start()
    own = SelfMetrics(path, config.own_rows_s, lease.generation) if config.own_rows_s and replay is None else None
    trends = _trends(store, config) if replay is None else Trends()
    if mail is not None:
        mail.wake()
    return Watched(lease, store, experiment, shippers, config.poll_s, own, trends, news, charts=charts)


def _trends(store: CountingStore, config: Config) -> Trends:
    """The trends of the experiment's rows, those of earlier sidecars included."""
    chosen = config.sink.get("console", {}).get("metrics")  # the sink checks the option once it is in use
    patterns = [pattern for pattern in chosen if isinstance(pattern, str)] if isinstance(chosen, list) else []
    trends = Trends(patterns, config.lead)
    # A damaged row is found and reported by the shippers, which need it; curves then begin with the next row.
    with suppress(sqlite3.Error, ValueError, LookupError, TypeError):
        trends.seed(store)
    store.on_rows = trends.note
    return trends


def _places_before(state_dir: Path) -> dict[str, str]:
    """The destination of each sink by name, from the last status."""
    try:
        status = read_status(state_dir)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {} if status is None else {sink.name: sink.where for sink in status.sinks}


def _patience(config: Config) -> Patience:
    return Patience(config.join_s, config.grace_s, config.max_wait_s, config.implicit_s, config.revise_s)


def _shipped_beside(path: Path, state_dir: Path) -> str:
    """Describe a sidecar that ships the experiment too, with its state in the usual place."""
    usual = path / WRITERS_FOLDER / "state"
    if os.path.realpath(usual) == os.path.realpath(state_dir):
        return ""
    with suppress(OSError):  # what cannot be read is not ours to look into
        other = owner(usual)
        if other is not None and other.alive is not False:
            return (
                f"another sidecar (process {other.pid} on {other.host}) ships this experiment too, with its state in "
                f"{usual}: each makes a run of its own with all rows; stop one of them unless that is meant"
            )
    return ""


def _other_streams(experiment: Experiment, config: Config) -> str:
    """Describe how a changed `lead` or `clock_window_s` affects rows that were shipped."""
    before = experiment.streaming.made_with
    if before is None:
        return ""
    lead, window_s = before
    changed = [f"lead is {config.lead}, was {lead}"] if lead != config.lead else []
    if window_s != config.clock_window_s:
        changed.append(f"clock_window_s is {config.clock_window_s:g}, was {window_s:g}")
    return (
        f"{' and '.join(changed)}: rows of what is logged without a step are made again. A row of a window "
        "that no longer exists is emptied by a revision; W&B and TensorBoard go on showing what they drew of it"
    )


def _claim(store: CountingStore, path: Path, state_dir: Path) -> None:
    """Ensure that the state is this experiment's own: with a copy's, two experiments would overwrite one W&B run."""
    here = location(path)
    owner = store.experiment()
    why = ownership_error(owner, here, state_dir)
    if why is not None:
        raise why
    if owner != here:
        store.claim(*here)


def _shipper(name: str, run: SinkContext, config: Config, store: CountingStore, lease: Lease, pace: Pace) -> Shipper:
    run = replace(run, options=config.sink.get(name, {}))
    return Shipper(name, lambda: make_sink(name), run, store, pace=pace, may_ship=lease.held)


def state_problem(path: Path, state_dir: Path, error: Exception, *, gone: bool) -> RlshipError:
    """The error that describes an unusable state, with the way out. `gone`: the state's folder no longer exists."""
    if isinstance(error, RlshipError) and not gone:
        return error
    return RlshipError(
        f"cannot keep the state of {path} in {state_dir}: {'it is gone' if gone else error}",
        "If it was moved, it goes on where it is now. If only the state was removed, rows are made again, "
        "into a new W&B run."
        if gone
        else "Give a folder that this user may write to, on a disk with room: --state-dir.",
    )
