"""One experiment: every stage from its files to committed rows, wired. One thread; the caller passes the time.

A `tick` reads what is new, decides what closes, reduces it and commits positions, rows and dirty marks together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.align.units import MAX_KEPT, Closing, Patience, StreamConfig
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import MAX_REPORTED, REPORTED, Batch, Dead
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.pipeline.alert_book import AlertBook, Alerting
from rlship_sidecar.pipeline.intake import Access, Intake, words
from rlship_sidecar.pipeline.ledger_book import LedgerBook
from rlship_sidecar.pipeline.lookback import Lookback, Short
from rlship_sidecar.pipeline.nonfinite import keep_nonfinite
from rlship_sidecar.pipeline.past_rows import PastRows
from rlship_sidecar.pipeline.recall import Recall
from rlship_sidecar.pipeline.rereading import from_floor, read_from_floor
from rlship_sidecar.pipeline.run_book import RunBook
from rlship_sidecar.pipeline.source import Source, load_source, removed, saved_position
from rlship_sidecar.pipeline.sweep import Sweep
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.unit import reduce_unit
from rlship_sidecar.rows import ALERT, LEDGER, OWN_KINDS, STEP, Arrival, Row, Unit
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.changes import Changes, SavedBlock, SavedWriter
from rlship_sidecar.store.logged_steps import LoggedSteps
from rlship_sidecar.store.store import Store
from rlship_sidecar.store.units import ActorUnits
from rlship_sidecar.streams.streaming import ExperimentStreams
from rlship_sidecar.tally import observes

SAVE_EVERY_S = 5.0  # positions alone are not worth a transaction: what is not saved is read again


_NONE_FRESH: Mapping[Unit, bool] = {}


@dataclass(frozen=True, slots=True)
class StepRows:
    """Makes the rows of steps: those that can be closed, and revisions of dirty ones. Both by the one reduce function.

    `actors` are the experiment's own, by name. With `steps`, only these steps become rows. The other steps are read all
    the same, because rows depend on which writers wrote when.
    """

    store: Store
    actors: Mapping[str, Actor]
    recall: Recall
    streaming: ExperimentStreams
    rules: Rules
    past: PastRows
    steps: Steps | None = None
    lookbacks: dict[str, Lookback] = field(default_factory=dict)
    _fresh: dict[Unit, bool] = field(default_factory=dict)
    """The steps that were closed last, whose rows the store does not have yet, and whether these lack ranks."""

    def close(self, hindered: Collection[str], now: float, *, timers: bool, end: bool) -> list[Row]:
        """Rows of the steps that close now, numbered on; `hindered`: actors whose files cannot be read just now."""
        rows: list[Row] = []
        self._fresh.clear()
        first_no = self.store.row_count()
        for name in sorted(self.actors):
            actor = self.actors[name]
            if name in hindered:
                continue
            closings = actor.closings(now, timers=timers, end=end)
            if not self.rules.short_window:
                closings = self._wanted(actor, closings)
            if not self._refill(actor, closings, now, end=end):
                continue
            for closing in closings:
                window = actor.close(closing.step)
                assert window is not None
                if window.empty:
                    continue  # the only file that had lines of it is gone
                short = self._look_back(actor, closing.step, window, now, whole=False)
                if not self._wants(closing.step):
                    continue
                row = self._reduced(Unit(name, STEP, closing.step), window, actor, short)
                self._note_past(row, window, actor)
                rows.append(_numbered(row, first_no + len(rows), 0, row.keys(), closing.how))
                self._fresh[row.unit] = bool(row.coverage.missing)
        self._mark_tables(now)
        return rows

    def flush(self) -> None:
        """Hand over what the store lacks, before a commit."""
        for lookback in self.lookbacks.values():
            lookback.flush()

    def _wanted(self, actor: Actor, closings: list[Closing]) -> list[Closing]:
        """Of closings those that become rows; the others are over with this."""
        for closing in closings:
            if not self._wants(closing.step):
                window = actor.close(closing.step)
                if window is not None:
                    self.recall.pass_over(Unit(actor.name, STEP, closing.step), window)
        return [closing for closing in closings if self._wants(closing.step)]

    def _wants(self, step: int) -> bool:
        return self.steps is None or step in self.steps

    def revise(self, now: float, *, first_no: int, end: bool) -> tuple[list[Row], list[Unit]]:
        """Revisions that are due, numbered on from `first_no`, and the units that are not dirty any more."""
        rows: list[Row] = []
        revised = []
        for name in sorted(self.actors):
            actor = self.actors[name]
            steps = actor.due(now, end=end)
            if not steps:
                continue
            windows = self.recall.steps(actor, steps, now, closing=False, end=end)
            if windows is None:
                continue
            for step in steps:
                unit = Unit(name, STEP, step)
                actor.revisions.done(unit, now)
                revised.append(unit)
                row = self._revision(actor, step, windows.get(step), first_no + len(rows), now)
                if row is not None:
                    rows.append(row)
        self._mark_tables(now, self._fresh)
        return rows, revised

    def _mark_tables(self, now: float, fresh: Mapping[Unit, bool] = _NONE_FRESH) -> None:
        """Later rows become dirty where an earlier step of their stretch shows other tables, those of `fresh` too."""
        tables = self.recall.tables
        for name, step in tables.moved:
            actor = self.actors[name]
            first, last = tables.later(step)
            made = [
                (unit.index, lacks)
                for unit, lacks in fresh.items()
                if unit.actor == name and first <= unit.index <= last
            ]
            for later, partial in (*actor.rows.rows_between(first, last, partial=False), *made):
                actor.mark_dirty(later, now, partial=partial)
        tables.moved.clear()

    def _reduced(self, unit: Unit, window: UnitLines, actor: Actor, short: Short) -> Row:
        streaming = self.streaming
        return reduce_unit(unit, window, actor.roster, self.rules, streaming.clocks, streaming.axis, short)

    def _note_past(self, row: Row, window: UnitLines, actor: Actor) -> None:
        """Keep what a step was in earlier lineages."""
        streaming, rules, unit = self.streaming, self.rules, row.unit
        self.past.note(
            *(row, window, actor),
            lambda lines, roster: reduce_unit(unit, lines, roster, rules, streaming.clocks, streaming.axis),
        )

    def _look_back(self, actor: Actor, step: int, window: UnitLines, now: float, *, whole: bool) -> Short:
        """What a step is short of. Later rows that look back as far as this step become dirty if it has changed."""
        if not self.rules.short_window:
            return {}
        lookback = self.lookbacks.get(actor.name)
        if lookback is None:
            steps = LoggedSteps(self.store, actor.name)
            lookback = self.lookbacks[actor.name] = Lookback(steps, self.rules.short_window)
        short, affected = lookback.look(step, window, actor.roster, whole=whole)
        for later in affected:
            if self._wants(later):
                actor.mark_dirty(later, now, partial=actor.rows.lacks_ranks(later) is True)
        return short

    def _refill(self, actor: Actor, closings: list[Closing], now: float, *, end: bool) -> bool:
        """Fetch values that were not kept, and samples. False: a file cannot be read just now, so nothing closes."""
        if steps := actor.unfilled(closings):
            windows = self.recall.steps(actor, steps, now, closing=True, end=end)
            if windows is None:
                return False
            actor.refill(windows)
        shown = [closing for closing in closings if self._wants(closing.step)]
        if len(shown) < len(closings):
            for unit, window in sorted(actor.windows(closings).items(), key=lambda one: one[0]):
                if not self._wants(unit.index):
                    self.recall.pass_over(unit, window)
        return self.recall.show(actor.windows(shown), now=now, end=end)

    def _revision(self, actor: Actor, step: int, window: UnitLines | None, no: int, now: float) -> Row | None:
        """The next revision of a row, or None if nothing in it changed."""
        unit = Unit(actor.name, STEP, step)
        before = self.store.newest(unit)
        if window is None or before is None or window.empty:
            return None
        # A row keeps what foreign files that are gone said, so what is known of its ranks stays, too.
        short = self._look_back(actor, step, window, now, whole=not self.recall.lacking)
        row = self.recall.kept(self._reduced(unit, window, actor, short), before)
        self.recall.tables.note(actor.name, step, frozenset(row.samples))
        if not self.recall.lacking:
            self._note_past(row, window, actor)
        changed = row.differing(before)
        if row == before and not changed:
            return None
        return _numbered(row, no, before.arrival.revision + 1, changed, "revision")


def _numbered(row: Row, no: int, revision: int, changed: tuple[str, ...], how: str) -> Row:
    return replace(row, arrival=Arrival(no, revision, changed, how))


@dataclass(slots=True)
class Unsaved:
    """What the next commit makes durable besides rows: files that went on, dead letters, counts, and units that are not
    dirty any more. `since`: the last commit, in seconds of the sidecar's clock.
    """

    since: float
    changed: dict[str, Source] = field(default_factory=dict)
    dead: list[tuple[str, Dead]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    revised: list[Unit] = field(default_factory=list)


class Experiment:
    """The pipeline of one experiment over its store."""

    def __init__(
        self,
        directory: Path,
        store: Store,
        filesystem: Filesystem,
        *,
        now: float,
        patience: Patience | None = None,
        rules: Rules | None = None,
        streams: StreamConfig | None = None,
        access: Access | None = None,
    ) -> None:
        self.directory = directory
        self.store = store
        self.filesystem = filesystem
        self.intake = Intake(str(directory), filesystem, access or Access())
        self.intake.room = lambda actor: MAX_KEPT - (self.actors[actor].kept if actor in self.actors else 0)
        self.actors: dict[str, Actor] = {}
        self.rules = rules or Rules()
        self.patience = patience or Patience()
        self._unsaved = Unsaved(since=now)
        self._unrestored: list[Source] = []
        self._hindered: set[str] = set()
        self._unrecovered: list[Writer] = []
        self._streams = streams or StreamConfig()
        self.alert_book = AlertBook(store, Alerting(), self._streams.lead)
        self._sweep = Sweep(store, self.rules.signature())
        with store.together():
            self._reported = {REPORTED + text: 0.0 for text in store.reported()}  # and when it was read last
            self._load(now)

    def judge(self, alerting: Alerting, now: float) -> None:
        """Have rules of alerts evaluated from the next look on; not where only some steps become rows, as these have no
        history.
        """
        if self._streams.steps is None:
            with self.store.together():
                self.alert_book = self.alert_book.judging(alerting, now)

    def close(self) -> None:
        """Release the files; what was not committed is read again next time."""
        self.intake.close()

    @property
    def sources(self) -> dict[str, Source]:
        """All files ever read, by name."""
        return self.intake.sources

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do before a file changes, nor before a writer was silent for long enough: every
        unit is a row, every row is as the files have it, and no file that is there waits to be read.
        """
        if self._unrestored or self._unrecovered or self.intake.holding or self.intake.replaced:
            return False
        if self.run_book.pending:
            return False
        if self.ledger_book.revisions.dirty or self.ledger_book.revisions.unsaved:
            return False
        if not self.alert_book.is_settled:
            return False
        if any(actor.open or actor.revisions.dirty or actor.revisions.unsaved for actor in self.actors.values()):
            return False
        return not any(streams.pending or streams.revisions.dirty for streams in self.streaming.streams.values())

    @property
    def all_closed(self) -> bool:
        """Whether there are writers, every one said that it is done, and all that it wrote is read."""
        return bool(self.sources) and all(
            source.gone or (source.writer is not None and source.writer.closed and source.size <= source.read)
            for source in self.sources.values()
        )

    def save(self) -> None:
        """Commit positions that were not worth a transaction so far."""
        self._commit([], self._unsaved.since, force=bool(self._unsaved.changed))

    # Restart -------------------------------------------------------------------------------------------------------

    def _load(self, now: float) -> None:
        """Go on where the store left off: rebuild what was open, remember what is dirty."""
        intake = self.intake
        self._recall = Recall(self.store, intake, self.rules.samples)
        self.run_book = RunBook(self.store, self._streams.lead)
        self.ledger_book = LedgerBook(self.store, self._writer_of, self.rules.ledger_wait_s, self.patience)
        self.alert_book = self.alert_book.anew()
        for saved in self._verified():
            source = load_source(saved, intake.tail(saved.file), intake.schemas, self.store, now)
            intake.add(source, now)
        writers = [source.writer for source in self.sources.values() if source.writer is not None]
        # As they opened: each is then of the latest submission, and the roster looks at no other writer.
        writers.sort(key=lambda writer: writer.open.t)
        for writer in writers:
            self._actor(writer.open.actor).add_writer(writer, now)
        for actor in self.actors.values():
            actor.revisions.clear()  # a child that was loaded before its parent made rows dirty: the store knows better
        dirty = self.store.dirty()
        for unit in dirty:
            if unit.kind == STEP:
                actor = self._actor(unit.actor)
                actor.revisions.restore(unit, now, partial=actor.rows.lacks_ranks(unit.index) is True)
        self.streaming = ExperimentStreams(
            self.store, self.actors, self._recall.files(), self._streams, self.patience, self.rules
        )
        self._step_rows = StepRows(
            self.store,
            self.actors,
            self._recall,
            self.streaming,
            self.rules,
            self.alert_book.past,
            self._streams.steps,
        )
        self.streaming.load(writers, [unit for unit in dirty if unit.kind not in (STEP, *OWN_KINDS)], now)
        self.ledger_book.load((unit for unit in dirty if unit.kind == LEDGER), now, again=self._sweep.active)
        self.alert_book.load((unit for unit in dirty if unit.kind == ALERT), now)
        self._unrecovered = [writer for writer in writers if writer.stream_t is not None]
        self._unrestored = [source for source in self.sources.values() if source.unrestored is not None]
        self._restore(now)

    def _restore(self, now: float) -> None:
        """Take in the applied lines of steps that were open when the last sidecar ended, from every file that can be
        read. The others are tried again: if they are gone, steps become rows without them, which are revised when they
        come back; if they are there, their actor's steps wait.
        """
        waiting = []
        self._hindered.clear()
        for source in self.intake.fetched(self._unrestored, self._blocks_to_restore):
            assert source.writer is not None and source.unrestored is not None
            actor, begun = self._actor(source.writer.open.actor), False
            taken_in = source.writer.starts.keys() & actor.open.keys()
            try:
                for batch in read_from_floor(source, self.store, self.intake.schemas, source.unrestored):
                    begun = True
                    actor.restore(source.writer, batch, now, late=source.missed, but=taken_in)
                    if source.missed:
                        self.streaming.came_back(source.writer, batch, now)
            except OSError as error:
                if removed(source, error):
                    source.unrestored = None
                    continue
                source.problem = source.problem or words(error)
                if not (begun or source.gone):
                    waiting.append(source)
                    if not source.missed:
                        source.miss(source.unrestored)
                        self._unsaved.changed[source.name] = source
                    if not isinstance(error, FileNotFoundError):
                        self._hindered.add(actor.name)
                    continue
                if not isinstance(error, FileNotFoundError):
                    raise
                self._unsaved.dead.append((source.name, Dead(source.unrestored, "file gone before its row", "")))
            if source.missed:
                self.streaming.whole_again(source.writer, now)
            source.unrestored, source.missed = None, False
            self._unsaved.changed[source.name] = source
        self._unrestored = waiting

    def _blocks_to_restore(self, source: Source) -> list[SavedBlock]:
        return [] if source.unrestored is None else from_floor(source, self.store, source.unrestored)

    def _verified(self) -> list[SavedWriter]:
        """What the store knows of the files, once those that are others now are set aside."""
        saved = self.store.writers()
        replaced = self.intake.replaced_of((one.file, saved_position(one)) for one in saved)
        if not replaced:
            return saved
        self.store.set_aside(replaced)
        return self.store.writers()

    def _actor(self, name: str) -> Actor:
        actor = self.actors.get(name)
        if actor is None:
            rows = ActorUnits(self.store, name)
            actor = self.actors[name] = Actor(name, rows, self.patience, highest_closed=rows.highest_step())
        return actor

    # One tick ------------------------------------------------------------------------------------------------------

    def tick(
        self,
        now: float,
        wall: float,
        *,
        only: Collection[str] | None = None,
        timers: bool = True,
        end: bool = False,
    ) -> bool:
        """Read, decide, commit. Returns whether files hold more than was read: call again at once.

        `only`: names of files known to have changed, where not all need be looked at. `timers`: steps may be given up
        too, and writers that are silent. `end`: nothing more will come, so
        once all is read every open step becomes a row and every revision is made. `wall`: the time by the sidecar's own
        clock, in Unix seconds, which tells the far future from the rest.
        """
        with self.store.together():
            return self._tick(now, wall, only, timers=timers, end=end)

    def _tick(self, now: float, wall: float, only: Collection[str] | None, *, timers: bool, end: bool) -> bool:
        intake = self.intake
        if only is None or intake.is_listing or not all(name in self.sources for name in only):
            intake.discover(now, force=end)
        if self._unrestored:
            self._restore(now)
        if self._unrecovered:
            self._recover(now)
        more = intake.read(now, self.sources if only is None else only, self._apply, end=end)
        self.streaming.catch_up(now)
        # Where bytes are waited for it is not the end yet.
        more = more or (end and intake.holding)
        swept = not more and self._sweep_on(now)
        open_before = self._open_units()
        self.alert_book.past.begin()
        settled = self._step_rows.close(self._hindered, now, timers=timers, end=end and not more)
        first_no = self.store.row_count() + len(settled)
        revisions, self._unsaved.revised = self._step_rows.revise(now, first_no=first_no, end=end and not more)
        rows = settled + revisions
        streamed, more_streamed = self._stream(now, wall, self.store.row_count() + len(rows), end=end and not more)
        rows += streamed
        rows += self._ledger_rows(now, self.store.row_count() + len(rows), end=end and not more)
        rows += self.alert_book.rows(rows, now)
        self._unsaved.revised += self.alert_book.take_done()
        writers = (source.writer for source in self.sources.values())
        # With its first row a run is made, of what was said until then.
        at_once = (end and not more) or self.store.row_count() == 0
        self.run_book.settle((one for one in writers if one is not None), now, at_once=at_once)
        # At most so many units of an actor are closed or revised at a time: there may be more.
        done = open_before - self._open_units() + len(self._unsaved.revised)
        more = more or done >= MAX_KEPT or (end and done > 0) or more_streamed or swept
        more = more or not self.alert_book.is_settled
        settle = (end and not more) or bool(intake.replaced)
        if settle:  # save as well how far rows are made, in case a file is another when it is seen again
            self._unsaved.changed |= {
                s.name: s for s in self.sources.values() if s.writer is not None and s.writer.starts
            }
        self._commit(rows, now, force=settle)
        if intake.replaced:
            self._set_aside(intake.replaced, now)
            return True
        return more

    def news(self) -> list[str]:
        """What a person should hear of this experiment: each line is worth saying once."""
        return [*self._sweep.news, *self.intake.news()]

    def awaited(self) -> list[Writer]:
        """The writers of the job that have not closed, without past lives of their ranks and without children."""
        # An agent of a node may write on, or be killed, long after the job.
        found = [
            source.writer
            for source in self.sources.values()
            if source.writer is not None
            and source.writer.root is source.writer
            and not source.writer.closed
            and not observes(source.writer.open.actor, source.writer.open.agent)
        ]
        past: set[Writer] = set()
        for name in {writer.open.actor for writer in found}:
            past |= self.actors[name].roster.past_lives()
        return [writer for writer in found if writer.root not in past]

    def finished(self) -> bool:
        """Whether nothing is left to come: every line that is there is in a row, and no writer is awaited."""
        return (
            not self.awaited()
            and all(source.size <= source.read and not source.is_unreadable for source in self.sources.values())
            and not (self._open_units() or self._dirty_units() or self._unrestored or self._unrecovered)
            and not any(streams.pending for streams in self.streaming.streams.values())
        )

    def _sweep_on(self, now: float) -> bool:
        """Mark the next units dirty whose rows have to be made again. Returns whether there are any."""
        # A finished experiment keeps its rows and their number: a new release would otherwise rewrite every chart of
        # the past. Once it grows, its rows have to be of one function again.
        if self._sweep.pending and not self.finished():
            self._sweep.begin()
            self.streaming.remake_timeline()  # an older row function kept other times; the sweep marks every row
        piece = self._sweep.next_piece(self._dirty_units())
        for unit, partial in piece:
            if unit.kind == LEDGER:
                self.ledger_book.make_again(unit)
            # Dirty for ever: a piece waits for no `revise_s`.
            self._revisions_of(unit).mark_dirty(unit, -math.inf, partial=partial)
        return bool(piece)

    def _dirty_units(self) -> int:
        return sum(len(revisions.dirty) for revisions in self._revisions())

    def _revisions(self) -> Iterator[Revisions]:
        yield from (actor.revisions for actor in self.actors.values())
        yield from (streams.revisions for streams in self.streaming.streams.values())
        yield self.ledger_book.revisions
        yield self.alert_book.revisions

    def _revisions_of(self, unit: Unit) -> Revisions:
        if unit.kind == LEDGER:
            return self.ledger_book.revisions
        if unit.kind == ALERT:
            return self.alert_book.revisions
        return self._actor(unit.actor).revisions if unit.kind == STEP else self.streaming.of(unit.actor).revisions

    def _apply(self, source: Source, batch: Batch, now: float) -> None:
        if batch.opened is not None:
            source.opening.at = batch.opened_at
            source.writer = Writer(source.name, batch.opened, seen_at=now, line_at=now)
            moved = self._actor(batch.opened.actor).add_writer(source.writer, now)
            self.streaming.add_writer(source.writer, moved, now)
        writer = source.writer
        source.sightings.take(now)
        self.run_book.take(source.name, batch)
        if writer is not None:
            before_t, actor = writer.newest_t, self._actor(writer.open.actor)
            if batch.adoption is not None:
                adopted_from = self.streaming.release(writer, batch.adoption, now)
                source.index.adoption = batch.adoption
                adopted = batch.adopt(batch.adoption)
                actor.apply(writer, batch, now)
                if adopted_from is not None:
                    actor.adopt(writer, batch.adoption.step, adopted_from, now)
                self.streaming.apply(writer, batch, before_t, now, adopted)
            else:
                actor.apply(writer, batch, now)
                self.streaming.apply(writer, batch, before_t, now)
            self.ledger_book.take(source.name, batch)
        self._unsaved.changed[source.name] = source
        self._unsaved.dead.extend((source.name, dead) for dead in batch.dead)
        for name, count in batch.counts.items():
            if not name.startswith(REPORTED) or self._is_kept(name, 0.0 if writer is None else writer.newest_t):
                self._unsaved.counts[name] = self._unsaved.counts.get(name, 0) + count

    def _is_kept(self, text: str, t: float) -> bool:
        """True if a text that a writer reported up to `t` is counted by itself: it is known, or one of the first."""
        if text in self._reported or len(self._reported) < MAX_REPORTED:
            self._reported[text] = max(t, self._reported.get(text, 0.0))
        return text in self._reported

    @property
    def reported_at(self) -> dict[str, float]:
        """When writers last reported each wrong call that was read since the start, in Unix seconds."""
        return {text.removeprefix(REPORTED): t for text, t in self._reported.items() if t > 0}

    def _take_missed(self) -> None:
        """Files that rows were made without may come back."""
        for source in self._recall.missed:
            self._unsaved.changed[source.name] = source
            if source not in self._unrestored:
                self._unrestored.append(source)
        self._unsaved.dead += self._recall.dead
        self._recall.missed, self._recall.dead = [], []

    def _set_aside(self, replaced: list[Source], now: float) -> None:
        """Files that do not hold any more what was read of them count as gone; what has their names is read as new."""
        self.store.set_aside([source.name for source in replaced])
        self.intake = self.intake.anew()
        self.actors.clear()
        self._load(now)

    # Streams -------------------------------------------------------------------------------------------------------

    def _recover(self, now: float) -> None:
        """Find out which stream lines wait, from every file that can be read; of others they may come back."""
        waiting = []
        sources = [self.sources[writer.file] for writer in self._unrecovered]
        for source in self.intake.fetched(sources, lambda source: [source.unfinished()]):
            writer = source.writer
            assert writer is not None
            try:
                self.streaming.recover(writer, now)
            except FileNotFoundError:
                self._recall.miss_streams(source, [(-math.inf, math.inf)])
            except OSError as error:
                source.problem = words(error)
                waiting.append(writer)
        self._unrecovered = waiting

    def _stream(self, now: float, wall: float, first_no: int, *, end: bool) -> tuple[list[Row], bool]:
        """Rows of streams, numbered on from `first_no`, and whether there may be more at once."""
        hindered = self._hindered.union(writer.open.actor for writer in self._unrecovered)
        made = self.streaming.rows(now, wall, hindered, self._recall.fetching(now, end=end), end=end)
        self._unsaved.revised += made.revised
        self._take_missed()
        return [
            replace(r, arrival=replace(r.arrival, row_number=no)) for no, r in enumerate(made.rows, first_no)
        ], made.more

    def _ledger_rows(self, now: float, first_no: int, *, end: bool) -> list[Row]:
        """Rows of the ledger, numbered on from `first_no`."""
        book = self.ledger_book
        book.settle(now, over=end or self.all_closed)
        rows, revised = book.rows(now, first_no, end=end)
        self._unsaved.revised += revised
        return rows

    def _writer_of(self, file: str) -> Writer | None:
        source = self.sources.get(file)
        return None if source is None else source.writer

    def _open_units(self) -> int:
        return sum(len(actor.open) for actor in self.actors.values())

    def _commit(self, rows: list[Row], now: float, *, force: bool) -> None:
        self._step_rows.flush()
        dirty = [unit for revisions in self._revisions() for unit in revisions.unsaved]
        book = self.run_book
        urgent = rows or self._unsaved.revised or dirty or self._unsaved.dead or self.store.changed or force
        urgent = urgent or book.is_unsaved
        if not urgent and (not self._unsaved.changed or now - self._unsaved.since < SAVE_EVERY_S):
            return
        # In the order of the store's own table: in any other one SQLite looks for each file's page anew.
        changed = [source for _, source in sorted(self._unsaved.changed.items())]
        for source in changed:
            if source.writer is not None:
                source.writer.forget_starts(self.actors[source.writer.open.actor].open)
        keep_nonfinite(self.store, rows)
        self.store.commit(
            Changes(
                [source.saved() for source in changed],
                [(source.name, offset, line) for source in changed for offset, line in source.fresh_governing],
                [block for source in changed for block in source.index.fresh],
                rows=rows,
                dirty=dirty,
                revised=self._unsaved.revised,
                dead=self._unsaved.dead,
                counts=self._unsaved.counts,
                said=book.unsaved,
                run=book.fresh,
            )
        )
        book.committed()
        for source in changed:
            source.fresh_governing.clear()
            source.index.fresh.clear()
        for revisions in self._revisions():
            revisions.unsaved.clear()
        self._unsaved = Unsaved(since=now)
