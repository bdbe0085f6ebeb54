"""Which rows of steps show which tables: of each stretch of `samples_every` steps the first one that has a table.

So a table that comes seldom is in the sinks each time, and one that comes with each step at every so many. A row
depends on earlier steps of its stretch. Where what a step shows has changed, later rows there are made again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

from rlship_sidecar.rows import Row

logger = logging.getLogger("rlship.samples")

MAX_STRETCHES = 256

Steps = dict[int, frozenset[str]]


class TablesShown:
    """The tables that steps show, by (actor, number of the stretch). `stored` gives the rows of an actor's steps from a
    first to a last one that have samples.

    `moved` are the steps whose tables changed; the owner empties it after use.
    """

    def __init__(self, stored: Callable[[str, int, int], Iterable[Row]], every: int) -> None:
        self.moved: list[tuple[str, int]] = []
        self._stored = stored
        self._every = every
        self._stretches: OrderedDict[tuple[str, int], Steps] = OrderedDict()
        self._thinned: set[tuple[str, str]] = set()

    def choose(self, actor: str, step: int, tables: Collection[str]) -> frozenset[str]:
        """Of the tables that a step has, those that it shows: no earlier step of its stretch does."""
        steps = self._of(actor, step)
        before = {table for earlier, shown in steps.items() if earlier < step for table in shown}
        for table in sorted(before.intersection(tables)):
            self._say(actor, table)
        return frozenset(tables) - before

    def note(self, actor: str, step: int, tables: frozenset[str]) -> None:
        """A step shows these tables now."""
        steps = self._of(actor, step)
        if steps.get(step, frozenset()) == tables:
            return
        self.moved.append((actor, step))
        if tables:
            steps[step] = tables
        else:
            del steps[step]

    def later(self, step: int) -> tuple[int, int]:
        """The first and the last of the later steps in the stretch of a step."""
        return step + 1, step - step % self._every + self._every - 1

    def _of(self, actor: str, step: int) -> Steps:
        key = actor, step // self._every
        steps = self._stretches.get(key)
        if steps is None:
            first = step - step % self._every
            rows = self._stored(actor, first, first + self._every - 1)
            steps = self._stretches[key] = {row.unit.index: frozenset(row.samples) for row in rows if row.samples}
            if len(self._stretches) > MAX_STRETCHES:
                self._stretches.popitem(last=False)
        self._stretches.move_to_end(key)
        return steps

    def _say(self, actor: str, table: str) -> None:
        if (actor, table) not in self._thinned:
            self._thinned.add((actor, table))
            logger.warning(
                "%s of %s: W&B, TensorBoard and rows show one step in each %d (samples_every); "
                'rlship query DIR "FROM samples" shows all',
                table,
                actor,
                self._every,
            )
