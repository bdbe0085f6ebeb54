"""Rows of steps: closes what can be closed, revises what is dirty, through the one reduce function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.units import Closing
from rlship_sidecar.align.window import Window
from rlship_sidecar.pipeline.recall import Recall
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.unit import reduce_unit
from rlship_sidecar.rows import STEP, Arrival, Row, Unit
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.store import Store
from rlship_sidecar.streams.streaming import Streaming


@dataclass(frozen=True, slots=True)
class StepRows:
    """`actors` are the experiment's own, by name. With `steps` only these become rows; the others are read all the
    same, for rows depend on who wrote when.
    """

    store: Store
    actors: Mapping[str, Actor]
    recall: Recall
    streaming: Streaming
    rules: Rules
    steps: Steps | None = None

    def close(self, hindered: Collection[str], now: float, *, timers: bool, end: bool) -> list[Row]:
        """Rows of the steps that close now, numbered on; `hindered`: actors whose files cannot be read just now."""
        rows: list[Row] = []
        first_no = self.store.row_count()
        for name in sorted(self.actors):
            actor = self.actors[name]
            if name in hindered:
                continue
            closings = self._wanted(actor, actor.closings(now, timers=timers, end=end))
            if not self._refill(actor, closings, now, end=end):
                continue
            for closing in closings:
                window = actor.close(closing.step)
                assert window is not None
                if window.empty:
                    continue  # the only file that had lines of it is gone
                row = self._reduced(Unit(name, STEP, closing.step), window, actor)
                rows.append(_numbered(row, first_no + len(rows), 0, row.keys(), closing.how))
        return rows

    def _wanted(self, actor: Actor, closings: list[Closing]) -> list[Closing]:
        """Of closings those that become rows; the others are over with this."""
        if self.steps is None:
            return closings
        for closing in closings:
            if closing.step not in self.steps:
                actor.close(closing.step)
        return [closing for closing in closings if closing.step in self.steps]

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
                row = self._revision(actor, step, windows.get(step), first_no + len(rows))
                if row is not None:
                    rows.append(row)
        return rows, revised

    def _reduced(self, unit: Unit, window: Window, actor: Actor) -> Row:
        streaming = self.streaming
        return reduce_unit(unit, window, actor.roster, self.rules, streaming.clocks, streaming.axis)

    def _refill(self, actor: Actor, closings: list[Closing], now: float, *, end: bool) -> bool:
        """Fetch values that were not kept, and samples. False: a file cannot be read just now, so nothing closes."""
        if steps := actor.unfilled(closings):
            windows = self.recall.steps(actor, steps, now, closing=True, end=end)
            if windows is None:
                return False
            actor.refill(windows)
        return self.recall.show(actor.windows(closings), now=now, end=end)

    def _revision(self, actor: Actor, step: int, window: Window | None, no: int) -> Row | None:
        """The next revision of a row, or None if nothing in it changed."""
        unit = Unit(actor.name, STEP, step)
        before = self.store.newest(unit)
        if window is None or before is None or window.empty:
            return None
        row = self.recall.kept(self._reduced(unit, window, actor), before)
        changed = row.differing(before)
        if row == before and not changed:
            return None
        return _numbered(row, no, before.arrival.revision + 1, changed, "revision")


def _numbered(row: Row, no: int, revision: int, changed: tuple[str, ...], how: str) -> Row:
    return replace(row, arrival=Arrival(no, revision, changed, how))
