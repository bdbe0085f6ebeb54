"""The alerts of one experiment: takes its rows in, has rules evaluated, and makes rows of the episodes.

The store holds all of it, and what a look changes becomes durable with the rows of the look. So a restart goes on where
a kill came, and each episode is in rows once.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.frames import JOINED, FrameNames, belongs
from rlship_sidecar.alerts.rules import Rule, wanted
from rlship_sidecar.alerts.verdict_rows import TABLE, alert_row, steps_of
from rlship_sidecar.alerts.verdicts import Piece, Verdicts
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.pipeline.past_rows import PastRows
from rlship_sidecar.pipeline.step_pieces import StepPieces
from rlship_sidecar.rows import ALERT, STEP, Arrival, Lineage, Row, Unit
from rlship_sidecar.store.alerts import AlertTables
from rlship_sidecar.store.past_rows import PastRowTable
from rlship_sidecar.store.store import Store

EVALUATION = 4  # the number of the evaluation: add one when equal rows and rules give other verdicts
KEPT = 1  # the number of the form of what the store keeps for it: add one when that is another
AT_ONCE = 4096  # frames that one look evaluates, each as often as there are rules
ROWS_AT_ONCE = 256  # rows of before that one look takes in


class Teller(Protocol):
    """Hears of each episode once a row says it, in the transaction of that row."""

    def take(self, episode: Episode, rule: Rule) -> None:
        """An episode is in a row, as it is now."""

    def withdraw(self, id: str) -> None:
        """An episode is in no row any more."""


@dataclass(frozen=True, slots=True)
class Alerting:
    """The rules in force, and who hears of episodes. Without rules nothing is evaluated."""

    rules: tuple[Rule, ...] = ()
    teller: Teller | None = None


class AlertBook:
    """Without rules it keeps only what steps were before they were done again (`past`)."""

    def __init__(self, store: Store, alerting: Alerting, lead: str, past: PastRows | None = None) -> None:
        self.revisions = Revisions(0.0)
        self._store = store
        self.past = past or PastRows(store, lead)
        self._alerting = alerting
        self._lead = lead
        self._tables = AlertTables(store)
        self._past = PastRowTable(store)
        self._names = FrameNames(wanted(alerting.rules), lead)
        self._signature = _signature(alerting.rules, lead)
        self._current = False  # whether the store's verdicts are those of these rules
        self._next = 0  # the number of the next row to take in
        self._pieces = StepPieces(store, self._names, lead)
        self._left: set[Piece] = set()
        self._episodes: dict[str, Episode] = {}
        self._at: dict[int, set[str]] = {}  # ids by the steps whose rows say something of them
        self._done: list[Unit] = []
        self._caught_up = True
        self._verdicts = self._none()

    def anew(self) -> AlertBook:
        """The same over the same store, before it has looked into it."""
        return AlertBook(self._store, self._alerting, self._lead)

    def judging(self, alerting: Alerting, now: float) -> AlertBook:
        """The same with rules, before any look."""
        made = AlertBook(self._store, alerting, self._lead, self.past)
        made.load(self.revisions.dirty, now)
        return made

    @property
    def _rules(self) -> tuple[Rule, ...]:
        return self._alerting.rules

    @property
    def teller(self) -> Teller | None:
        """Who hears of episodes."""
        return self._alerting.teller

    def _none(self) -> Verdicts:
        return Verdicts(self._rules, self._tables, self._pieces.piece)

    @property
    def is_on(self) -> bool:
        """Whether there are rules."""
        return bool(self._rules)

    @property
    def is_settled(self) -> bool:
        """Whether every row is evaluated and every verdict is in a row."""
        if not (self._rules and self._current):
            return not self.revisions.dirty
        return self._caught_up and self._verdicts.settled and not self.revisions.dirty

    def going_on(self) -> list[Episode]:
        """The episodes that are not over."""
        return self._verdicts.going_on()

    @property
    def count(self) -> int:
        """How many episodes there are, over or not."""
        return len(self._episodes)

    def rule(self, name: str) -> Rule:
        """A rule by its name."""
        return self._verdicts.rules[name]

    def episodes(self) -> list[Episode]:
        """All episodes, as the rows have them and, of those that go on, how they go on."""
        found = (self._verdicts.episode(id) for id in self._verdicts.ids())
        return [one for one in found if one is not None]

    # Restart -------------------------------------------------------------------------------------------------------

    def load(self, units: Iterable[Unit], now: float) -> None:
        """Go on where the store left off, with these dirty units."""
        for unit in units:
            self.revisions.restore(unit, now)
        if not self._rules:
            return
        tables, count = self._tables, self._store.row_count()
        noted = tables.noted("rules")
        self._current = noted == self._signature
        if not self._current:
            if not count:
                self._adopt()
            return
        self._next = int(tables.noted("next") or count)
        self._caught_up = self._next >= count
        self._pieces.places = set(tables.places())
        self._verdicts.load(tables.steps(), tables.episodes(), tables.dirty())
        self._left = set(tables.dirty())
        steps = [step for key in self._verdicts.lineages.keys for step in self._verdicts.lineages.own(key)[:1]]
        self._pieces.lowest = min(steps, default=None)
        lowest = None if not steps else self._store.newest(Unit(self._lead, STEP, min(steps)))
        self._pieces.axis = "" if lowest is None else next(iter(lowest.x), "")
        for id in self._verdicts.ids():
            self._place(id)

    def _adopt(self) -> None:
        self._tables.note("rules", self._signature)
        self._current = True

    def _begin_again(self, now: float) -> None:
        """The verdicts are those of other rules, or of another axis: all rows are taken in anew."""
        for unit in self._tables.clear():
            self.revisions.mark_dirty(unit, now)
        self._adopt()
        self._next = 0
        self._pieces.clear()
        self._verdicts = self._none()
        self._left = set()
        self._episodes.clear()
        self._at.clear()

    # One look ------------------------------------------------------------------------------------------------------

    def rows(self, fresh: list[Row], now: float) -> list[Row]:
        """The rows of verdicts, numbered on after `fresh`, which this look commits."""
        if not self._rules or not (self._current or fresh):
            # A finished experiment keeps the verdicts that it has. Once it grows, they are those of one set of rules.
            self._done += list(self.revisions.dirty)
            self.revisions.clear()
            if fresh and self._tables.noted("rules"):
                self._tables.note("rules", "")  # what comes now is not evaluated
            return []
        if not self._current:
            self._begin_again(now)
        if self._take(fresh, self.past.touched):
            self._begin_again(now)
            self._caught_up = False
            self._tables.note("next", "0")
        self._verdicts.settle(AT_ONCE)
        left = self._verdicts.left()
        if left != self._left:
            self._tables.keep_dirty(left - self._left, self._left - left)
            self._left = left
        self._mark(now)
        # Rows wait for the whole, so that none of them shows a verdict on half of what changed.
        made = self._due(len(fresh), now) if self._verdicts.settled and self._caught_up else []
        self._pieces.end_look()
        if self._caught_up:
            self._next = self._store.row_count() + len(fresh) + len(made)
        return made

    def take_done(self) -> list[Unit]:
        """The units of the last look that are not dirty any more."""
        done, self._done = self._done, []
        return done

    def _take(self, fresh: list[Row], touched: Collection[int]) -> bool:
        """Take in rows: those of this look, or the next ones of the store.

        Returns whether the lead's axis turned out to be another one.
        """
        count = self._store.row_count()
        self._caught_up = self._next >= count
        if self._caught_up:
            turned = self._put_all(fresh, touched)
            self._refresh(touched, fresh)
            return turned
        self._pieces.forget()  # rows that are committed with this look are taken in by a later one
        rows = self._store.read_rows(self._next, ROWS_AT_ONCE)
        newest = {row.unit: row for row in rows}
        turned = self._put_all(list(newest.values()), stored=True)
        self._refresh(touched, rows)
        self._next += len(rows)
        behind = self._next < count
        self._tables.note("next", str(self._next) if behind else "")
        if not behind:
            # From here on the rows of each look are taken in with it: first those of this one.
            self._caught_up = True
            self._pieces.forget()
            turned |= self._put_all(fresh, touched)
        return turned

    def _put_all(self, rows: list[Row], touched: Collection[int] = (), *, stored: bool = False) -> bool:
        """Put rows into the frames. `stored`: the store has them, and maybe newer ones of their units."""
        lead = (self._lead, STEP)
        if stored:
            rows = [self._store.newest(row.unit) or row if row.unit.kind in JOINED else row for row in rows]
        turned = self._pieces.learn_axis(row for row in rows if (row.unit.actor, row.unit.kind) == lead)
        for row in rows:
            unit = row.unit
            if unit.kind not in JOINED:
                continue
            self._pieces.places.add((unit.actor, unit.kind))
            if (unit.actor, unit.kind) == lead:
                self._put_lead(row, known=not stored and unit.index not in touched)
            elif belongs(row, self._pieces.axis):
                self._put_other(row, stored=stored)
        return turned

    def _refresh(self, touched: Iterable[int], rows: list[Row]) -> None:
        """What steps of the lead were in earlier lineages is another, without new rows of theirs."""
        at = {row.unit.index for row in rows if (row.unit.actor, row.unit.kind) == (self._lead, STEP)}
        for step in sorted(set(touched) - at):
            row = self._store.newest(Unit(self._lead, STEP, step))
            if row is not None:
                self._put_lead(row, known=False)

    def _put_lead(self, row: Row, *, known: bool) -> None:
        """Put a row of the lead into the parts. `known`: what is there is what was taken in before."""
        step = row.unit.index
        parts = self._pieces.changing(step)
        own = self._names.part(row)
        after = {
            lineage: self._names.part(Row.from_json(body), past=True)
            for lineage, body in self._past.at(self._lead, step).items()
        }
        after[own.lineage] = own
        before = {
            lineage: parts.lead.get(lineage) if known else None
            for lineage in self._verdicts.lineages.keys
            if self._has_taken(lineage, step)
        }
        parts.lead = after
        for lineage in after.keys() - before.keys():
            self._tables.add_step(lineage, step)
        for lineage in before.keys() - after.keys():
            self._tables.remove_step(lineage, step)
        self._verdicts.lead_changed(step, before, after)

    def _has_taken(self, lineage: Lineage, step: int) -> bool:
        own = self._verdicts.lineages.own(lineage)
        at = bisect_left(own, step)
        return at < len(own) and own[at] == step

    def _put_other(self, row: Row, *, stored: bool) -> None:
        parts = self._pieces.changing(row.unit.index)
        place = row.unit.actor, row.unit.kind
        before, after = parts.others.get(place), self._names.part(row)
        parts.others[place] = after
        # A row of the store may be in the parts already: that it is there says nothing of whether it was taken in.
        self._verdicts.other_changed(row.unit.index, None if stored else before, after)

    # Rows out ------------------------------------------------------------------------------------------------------

    def _mark(self, now: float) -> None:
        """The rows that say something of the episodes that may be others now are dirty."""
        for id in sorted(self._verdicts.touched):
            before = self._episodes.get(id)
            after = self._place(id)
            for step in {*(steps_of(before) if before else ()), *(steps_of(after) if after else ())}:
                self.revisions.mark_dirty(Unit("", ALERT, step), now)
        self._verdicts.touched.clear()

    def _place(self, id: str) -> Episode | None:
        """Note an episode under the steps whose rows say something of it."""
        before, after = self._episodes.pop(id, None), self._verdicts.episode(id)
        for step in steps_of(before) if before else ():
            self._at[step].discard(id)
        if after is not None:
            self._episodes[id] = after
            for step in steps_of(after):
                self._at.setdefault(step, set()).add(id)
        return after

    def _due(self, ahead: int, now: float) -> list[Row]:
        made: list[Row] = []
        first_no = self._store.row_count() + ahead
        for unit in self.revisions.due(now, end=True):
            self.revisions.done(unit, now)
            self._done.append(unit)
            row = self._row(unit, first_no + len(made))
            if row is not None:
                made.append(row)
        return made

    def _row(self, unit: Unit, no: int) -> Row | None:
        before = self._store.newest(unit)
        episodes = [self._episodes[id] for id in self._at.get(unit.index, ())]
        if before is None and not episodes:
            return None
        row = alert_row(unit.index, self._pieces.axis, 0.0 if before is None else before.t, episodes)
        if before is None:
            self._tell(episodes, None)
            return replace(row, arrival=Arrival(no, 0, row.keys(), "complete"))
        changed = row.differing(before)
        if row == before and not changed:
            return None
        self._tell(episodes, before)
        return replace(row, arrival=Arrival(no, before.arrival.revision + 1, changed, "revision"))

    def _tell(self, episodes: list[Episode], before: Row | None) -> None:
        """Let the teller know what a row says that its revision before did not."""
        if self.teller is None:
            return
        for episode in sorted(episodes, key=lambda one: one.id):
            self.teller.take(episode, self.rule(episode.rule))
        for sample in before.samples.get(TABLE, ()) if before is not None else ():
            if sample.row["id"] not in self._episodes:
                self.teller.withdraw(sample.row["id"])


def _signature(rules: tuple[Rule, ...], lead: str) -> str:
    """What verdicts depend on besides the rows."""
    return hashlib.sha256(repr((EVALUATION, KEPT, lead, rules)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
