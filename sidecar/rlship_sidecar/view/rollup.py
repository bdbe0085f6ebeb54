"""The rollup: the values of all rows of a store in buckets, in bounded memory. Pure.

It is made of the rows alone and can be made again from them at any time. Each family of rows (an actor and a kind) has
a table of its metrics, and a table of ranks for each metric that rows have by rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlship_sidecar.rows import POINT
from rlship_sidecar.view.binned import Array, Binned
from rlship_sidecar.view.lean import ChartedRow

ROWS_BYTES, RANKS_BYTES = 24 << 20, 64 << 20  # at most, of all families together
MOST_BUCKETS, MOST_RANK_BUCKETS = 16_384, 1_024
LEAST_BUCKETS, LEAST_RANK_BUCKETS = 512, 64
MAX_METRICS = 5_000  # of all families
MAX_KEY = 1_000  # characters; writers refuse longer names
MAX_LACKING = 4_096  # rows of a family of which it is kept which ranks they lack
T, X, PARTIAL, REVISED = range(4)  # the first lines of each family's table are no metrics
HEAD = 4

FamilyName = tuple[str, str]  # actor, kind


@dataclass(slots=True)
class RankTable:
    """A metric by rank. `lines` has the line of each rank's name."""

    table: Binned
    lines: dict[str, int] = field(default_factory=dict)
    known: tuple[list[str], Array] | None = None  # the names of the row before, and their lines

    def put(self, slot: int, values: Mapping[str, float]) -> None:
        """Add the values of a row."""
        names = list(values)
        if self.known is None or self.known[0] != names:
            for name in names:
                self.lines.setdefault(name, len(self.lines))
            self.table.need_lines(len(self.lines))
            self.known = names, np.fromiter((self.lines[name] for name in names), np.int64, len(names))
        self.table.put(slot, self.known[1], np.fromiter(values.values(), np.float64, len(names)))


@dataclass(slots=True)
class Family:
    """The rows of an actor and kind. `keys` has the line of each metric's key, `last` the newest value of each that has
    one. `lacking`: the ranks that rows lack; `shown`: the positions of rows with samples, both of the newest such rows.
    """

    table: Binned = field(default_factory=lambda: Binned(np.float64, MOST_BUCKETS, HEAD))
    keys: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, RankTable] = field(default_factory=dict)
    lacking: dict[int, tuple[str, ...]] = field(default_factory=dict)
    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    axis: str = ""
    shown: dict[int, None] = field(default_factory=dict)
    known: tuple[list[str], Array] | None = None

    @property
    def widest(self) -> int:
        """The stride of its widest buckets, which all others divide."""
        return max([self.table.stride, *(one.table.stride for one in self.ranks.values())])

    @property
    def metrics(self) -> list[str]:
        """The keys that rows have, of values and by rank."""
        return list(dict.fromkeys((*self.last, *self.ranks)))

    def forget(self, first: int, last: int) -> list[str]:
        """Forget the rows of a stretch, which is of whole buckets; the keys whose newest value was there."""
        for table in (self.table, *(one.table for one in self.ranks.values())):
            table.wipe(first, last)
        for kept in (self.lacking, self.shown):
            for position in [one for one in kept if first <= one <= last]:
                del kept[position]
        gone = [key for key, (position, _) in self.last.items() if first <= position <= last]
        for key in gone:
            del self.last[key]
        return gone


class Rollup:
    """Rows below `upto`. `left_out` are keys for which there is no room. `again`: families of points with revisions,
    all of whose rows are to be taken again.
    """

    def __init__(self, store_id: str = "") -> None:
        self.store_id = store_id
        self.upto = 0
        self.families: dict[FamilyName, Family] = {}
        self.left_out: set[str] = set()
        self.left_out_by_rank: set[str] = set()
        self.again: set[FamilyName] = set()
        self._dirty: dict[FamilyName, set[int]] = {}
        self._metrics = 0

    @property
    def nbytes(self) -> int:
        """The bytes of its tables."""
        return sum(self._bytes())

    def _bytes(self) -> tuple[int, int]:
        of_rows = sum(family.table.nbytes for family in self.families.values())
        return of_rows, sum(one.table.nbytes for one in self._rank_tables())

    def _rank_tables(self) -> Iterator[RankTable]:
        for family in self.families.values():
            yield from family.ranks.values()

    # Taking rows ------------------------------------------------------------------------------------------------------

    def take(self, rows: Iterable[ChartedRow], *, first_seen: bool = False) -> None:
        """Take rows in the order of their numbers. `first_seen`: no earlier revision of any of them was taken.

        Afterwards `stale` names what has to be taken again.
        """
        for row in rows:
            name = row.family
            if row.arrival.revision == 0 or first_seen:
                self._add(row)
            elif name[1] == POINT:
                self.again.add(name)  # the store does not know which rows are of a time
            else:
                self._dirty.setdefault(name, set()).add(row.position)
            self.upto = max(self.upto, row.row + 1)
        self._keep_bounds()

    def stale(self) -> tuple[FamilyName, int, int] | None:
        """A stretch of positions (family, first, last) with revised rows, which is to be given to `retake`."""
        for name, positions in self._dirty.items():
            width = self.families[name].widest if name in self.families else 1
            position = positions.pop()  # it is dirty until it was taken again
            positions.add(position)
            first = position // width * width
            return name, first, first + width - 1
        return None

    def retake(self, name: FamilyName, first: int, last: int, rows: Iterable[ChartedRow]) -> None:
        """Put the newest rows of a stretch in the place of what was taken of it."""
        family = self.families.setdefault(name, _family_of(name))
        gone = family.forget(first, last)
        by_rank: set[str] = set()
        for row in filter(self.has, rows):
            by_rank.update(row.per_rank)
            self._add(row)
        left = self._dirty.pop(name, set())
        if last - first < len(left):
            left.difference_update(range(first, last + 1))
        else:
            left = {position for position in left if not first <= position <= last}
        # Where a revision took away the newest value of a key, the one before is in rows of another stretch.
        for key in gone:
            if key not in family.last and (position := family.table.newest(family.keys[key])) is not None:
                left.add(position)
        for key in [*family.ranks]:
            if key not in by_rank and not family.ranks[key].table.has_values().any():
                del family.ranks[key]
        if left:
            self._dirty[name] = left
        self._keep_bounds()

    def has(self, row: ChartedRow) -> bool:
        """Whether a row, which is the newest of its unit, counts by now: a first one that is newer than `upto` is taken
        later. A revision makes `stale` what it is taken into, so that it may be there before.
        """
        return row.row < self.upto or row.arrival.revision > 0

    def remade(self, name: FamilyName) -> Rollup:
        """An empty rollup that takes the rows of a family again; see `replace`."""
        made = Rollup(self.store_id)
        made._metrics = self._metrics - len(self.families[name].keys) if name in self.families else self._metrics
        made.upto = self.upto
        return made

    def replace(self, name: FamilyName, made: Rollup) -> None:
        """Put the family that was taken again in the place of the former one."""
        self.families[name] = made.families.get(name, _family_of(name))
        self.left_out |= made.left_out
        self._metrics = made._metrics
        self.again.discard(name)
        self._keep_bounds()

    def _add(self, row: ChartedRow) -> None:
        family = self.families.get(row.family)
        if family is None:
            family = self.families[row.family] = _family_of(row.family)
        family.axis = family.axis or next(iter(row.x), "")[:MAX_KEY]
        slot = family.table.slot(row.position)
        lines = self._lines(family, list(row.m))
        x = row.position if row.step is not None else next(iter(row.x.values()), row.t)
        head = (row.t, x, float(bool(row.coverage.missing)), float(row.arrival.revision > 0))
        family.table.put(slot, _HEAD_LINES, np.array(head))
        values = np.fromiter(row.m.values(), np.float64, len(row.m))
        kept = lines >= 0
        family.table.put(slot, lines[kept], values[kept])
        for key, value in row.m.items():
            if key in family.keys and row.position >= family.last.get(key, (-1, 0.0))[0]:
                family.last[key] = row.position, value
        if row.coverage.missing:
            family.lacking[row.position] = row.coverage.missing[:1000]
            if len(family.lacking) > MAX_LACKING:
                del family.lacking[next(iter(family.lacking))]
        else:
            family.lacking.pop(row.position, None)
        if row.samples:
            family.shown[row.position] = None
            if len(family.shown) > MAX_LACKING:
                del family.shown[next(iter(family.shown))]
        self._add_ranks(family, row)

    def _add_ranks(self, family: Family, row: ChartedRow) -> None:
        for key, values in row.per_rank.items():
            table = family.ranks.get(key)
            if table is None:
                if len(key) > MAX_KEY or not self._has_room(len(values)):
                    self.left_out_by_rank.add(key[:MAX_KEY])
                    continue
                table = family.ranks[key] = RankTable(Binned(np.float32, MOST_RANK_BUCKETS))
            table.put(table.table.slot(row.position), values)

    def _has_room(self, ranks: int) -> bool:
        """Whether one more table of so many ranks fits, if all get the least number of buckets."""
        lines = ranks + sum(max(64, one.table.lines) for one in self._rank_tables())
        return lines * LEAST_RANK_BUCKETS * 14 <= RANKS_BYTES

    def _lines(self, family: Family, keys: list[str]) -> Array:
        if family.known is not None and family.known[0] == keys:
            return family.known[1]
        found = []
        for key in keys:
            line = family.keys.get(key, -1)
            if line < 0 and len(key) <= MAX_KEY and self._metrics < MAX_METRICS:
                line = family.keys[key] = HEAD + len(family.keys)
                self._metrics += 1
            elif line < 0:
                self.left_out.add(key[:MAX_KEY])
            found.append(line)
        family.table.need_lines(HEAD + len(family.keys))
        family.known = keys, np.array(found, np.int64)
        return family.known[1]

    def _keep_bounds(self) -> None:
        """Widen the buckets of the largest tables until all are within their bounds."""
        of_rows, of_ranks = self._bytes()
        if of_rows > ROWS_BYTES:
            _shrink([family.table for family in self.families.values()], ROWS_BYTES, LEAST_BUCKETS)
        if of_ranks > RANKS_BYTES:
            _shrink([one.table for one in self._rank_tables()], RANKS_BYTES, LEAST_RANK_BUCKETS)


_HEAD_LINES = np.arange(HEAD)


def _family_of(name: FamilyName) -> Family:
    """A family without rows."""
    family = Family()
    if name[1] == POINT:
        family.table.count()  # several processes may log at one time
    return family


def _shrink(tables: list[Binned], most: int, least: int) -> None:
    while sum(table.nbytes for table in tables) > most:
        largest = max((table for table in tables if table.most > least), key=lambda one: one.nbytes, default=None)
        if largest is None:
            return
        largest.most = max(least, min(largest.most, largest.used) * 3 // 4)
        while largest.used > largest.most:
            largest.fold()
        largest.trim()


def state_of(rollup: Rollup) -> tuple[dict[str, Any], list[Array]]:
    """What a file keeps of it: plain data, and the matrices in the order in which the data name them."""
    arrays: list[Array] = []

    def table(one: Binned) -> dict[str, Any]:
        matrices = [each for each in (one.total, one.low, one.high, one.n) if each is not None]
        kept = [np.ascontiguousarray(each[: max(1, one.lines), : max(1, one.used)]) for each in matrices]
        arrays.extend(kept)
        return {
            **{name: getattr(one, name) for name in ("most", "lines", "stride", "first", "used")},
            "arrays": [[each.dtype.str, *each.shape] for each in kept],
        }

    families = [
        {
            "name": name,
            "axis": family.axis,
            "table": table(family.table),
            "keys": list(family.keys),
            "last": list(family.last.items()),
            "lacking": list(family.lacking.items()),
            "shown": list(family.shown),
            "ranks": [[key, list(one.lines), table(one.table)] for key, one in family.ranks.items()],
        }
        for name, family in rollup.families.items()
    ]
    left_out = [sorted(rollup.left_out), sorted(rollup.left_out_by_rank)]
    again = sorted(rollup.again)
    head = {"store": rollup.store_id, "upto": rollup.upto, "families": families, "left_out": left_out, "again": again}
    return head, arrays


def restored(data: dict[str, Any], take: Any) -> Rollup:
    """The rollup of which `state_of` gave these; `take(dtype, shape)` gives the next matrix."""
    rollup = Rollup(data["store"])
    rollup.upto = data["upto"]
    rollup.left_out, rollup.left_out_by_rank = (set(names) for names in data["left_out"])
    rollup.again = {(actor, kind) for actor, kind in data["again"]}

    def table(kept: dict[str, Any]) -> Binned:
        found = [take(np.dtype(dtype), (lines, slots)) for dtype, lines, slots in kept["arrays"]]
        one = Binned(found[0].dtype, kept["most"], kept["lines"])
        one.stride, one.first, one.used = kept["stride"], kept["first"], kept["used"]
        one.total = found[0]
        if len(found) == 4:
            one.low, one.high, one.n = found[1:]
        return one

    for kept in data["families"]:
        family = Family(table(kept["table"]))
        family.axis = kept["axis"]
        family.keys = {key: HEAD + at for at, key in enumerate(kept["keys"])}
        family.last = {key: (at, value) for key, (at, value) in kept["last"]}
        family.lacking = {at: tuple(names) for at, names in kept["lacking"]}
        family.shown = dict.fromkeys(kept["shown"])
        for key, names, each in kept["ranks"]:
            family.ranks[key] = RankTable(table(each), {name: at for at, name in enumerate(names)})
        rollup.families[kept["name"][0], kept["name"][1]] = family
        rollup._metrics += len(family.keys)
    return rollup
