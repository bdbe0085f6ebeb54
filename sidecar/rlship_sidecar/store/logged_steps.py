"""Tables of which ranks logged which metrics at an actor's steps, so that a look back outlives the process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from rlship_sidecar.steps import Steps
from rlship_sidecar.store.tables import StoreTables

_PAGE, _MAX_PAGE = 32, 4096  # steps of the first query of a walk, and of later ones at most
_NEWEST = 64  # steps that are kept at hand: a walk back seldom goes further


_number = attrgetter("step")


class LoggedStep(NamedTuple):
    """A step with the ranks of each metric, and the ranks that its row is short of. Both are JSON, `short` or None."""

    step: int
    ranks: str
    short: str | None


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """The steps of one actor. Those that were put wait until `flush`, or until a question, because many at a time cost
    less. The newest ones are at hand: all that there are from the first of them on.
    """

    ledger: StoreTables
    actor: str
    _waiting: list[LoggedStep] = field(default_factory=list)
    _newest: list[LoggedStep] = field(default_factory=list)

    def flush(self) -> None:
        """Hand over the steps that wait. Call it before a commit."""
        if self._waiting:
            self.ledger.change_many(
                "insert or replace into logged_steps values (?, ?, ?, ?)",
                [(self.actor, *step) for step in self._waiting],
            )
            self._waiting.clear()

    def get(self, step: int) -> LoggedStep | None:
        """One step, if it was put."""
        found = self._ask("step = ?", (step,), 1)
        return found[0] if found else None

    def put(self, step: LoggedStep) -> None:
        """Keep a step, in place of the same one."""
        newest = self._newest
        if newest and step.step >= newest[0].step:
            at = bisect_left(newest, step.step, key=_number)
            newest[at : at + (at < len(newest) and newest[at].step == step.step)] = [step]
            del newest[: max(0, len(newest) - _NEWEST)]
        elif not newest and step.step > self.highest():
            newest.append(step)
        self._waiting.append(step)

    def highest(self) -> int:
        """The highest step, or -1."""
        self.flush()
        found = self.ledger.ask("select max(step) from logged_steps where actor = ?", (self.actor,))
        return -1 if found[0][0] is None else int(found[0][0])

    def before(self, step: int) -> Iterator[LoggedStep]:
        """The steps below one, the nearest first. They must not change meanwhile."""
        newest = self._newest
        if newest and step > newest[0].step:
            yield from reversed(newest[: bisect_left(newest, step, key=_number)])
            step = newest[0].step
        page = _PAGE
        while found := self._ask("step < ? order by step desc", (step,), page):
            yield from found
            step, page = found[-1].step, min(4 * page, _MAX_PAGE)

    def after(self, step: int) -> Iterator[LoggedStep]:
        """The steps above one, the nearest first. They must not change meanwhile."""
        page = _PAGE
        while found := self._ask("step > ? order by step", (step,), page):
            yield from found
            step, page = found[-1].step, min(4 * page, _MAX_PAGE)

    def newest_short(self, steps: Steps, limit: int) -> list[LoggedStep]:
        """The highest of `steps` whose rows are short of ranks, the highest first."""
        return self._ask(
            "short is not null and step between ? and ? order by step desc", (steps.first, steps.last), limit
        )

    def count_short(self, steps: Steps) -> tuple[int, int, int]:
        """How many rows of `steps` are short of ranks, and the first and the last of these steps (-1: none)."""
        self.flush()
        ((count, first, last),) = self.ledger.ask(
            "select count(*), min(step), max(step) from logged_steps where actor = ? and short is not null"
            " and step between ? and ?",
            (self.actor, steps.first, steps.last),
        )
        return (count, first, last) if count else (0, -1, -1)

    def metrics(self) -> list[tuple[str, int, int, str]]:
        """(metric, its id, the first step that has it, all ranks that ever logged it as JSON)."""
        found = self.ledger.ask("select metric, id, first, ranks from logged_metrics where actor = ?", (self.actor,))
        return [(metric, number, first, ranks) for metric, number, first, ranks in found]

    def put_metric(self, metric: str, number: int, first: int, ranks: str) -> None:
        """Keep a metric, in place of the same one."""
        self.ledger.change(
            "insert or replace into logged_metrics values (?, ?, ?, ?, ?)", (self.actor, metric, number, first, ranks)
        )

    def _ask(self, which: str, values: tuple[int, ...], limit: int) -> list[LoggedStep]:
        self.flush()
        found = self.ledger.ask(
            f"select step, ranks, short from logged_steps where actor = ? and {which} limit ?",
            (self.actor, *values, limit),
        )
        return [LoggedStep(*one) for one in found]
