"""What the run's summary shows of the rows: of each key the number of the furthest row in the newest lineage. Pure.

W&B puts the numbers of each line that it takes into the summary, also those of a late line or a revision of an earlier
step. So the numbers that such a line displaces are said again behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from rlship_sidecar.rows import STEP, Lineage, Row, axis, plain_lineage

MAX_KEYS = 10_000
Number = int | float


class RowSeries(NamedTuple):
    """What puts rows in one order: rows of one kind, of one actor, on one axis."""

    kind: str
    actor: str
    axis: str


class Standing(NamedTuple):
    """Where a row stands among those of its series.

    `place` is its place on the axis for rows of steps. Other rows say nothing of lineages: theirs is the time, because
    steps that the lead does again cover later times.
    """

    series: RowSeries
    lineage: Lineage
    place: Number
    t: float
    row_number: int
    position: Number  # on the axis


def standing(row: Row) -> Standing:
    """Where a row stands."""
    name, position = axis(row)
    series = RowSeries(row.unit.kind, row.unit.actor, name)
    if row.unit.kind != STEP:
        return Standing(series, (0, 0, 0), row.t, row.t, row.row_number, position)
    lineage = row.coverage.lineage or plain_lineage(row.coverage.attempts)
    return Standing(series, lineage, position, row.t, row.row_number, position)


def follows(new: Standing, old: Standing) -> bool:
    """Whether the row that came later also shows what is newer, of one series.

    It does at the same place or further on. A row of a newer lineage does wherever it is. But where the older lineage
    is further on and later as well, it goes on: one restarted rank that left again does not hold the others back.
    """
    if new.lineage == old.lineage:
        return new.place >= old.place
    newer, older = (new, old) if new.lineage > old.lineage else (old, new)
    goes_on = older.place > newer.place and older.t > newer.t
    return (older is new) == goes_on


class SavedSummary(msgspec.Struct):
    """A summary in JSON: numbers by key, each with the index of its row's standing."""

    naming: str
    rows: int
    standings: list[Standing]
    numbers: dict[str, list[tuple[int, Number]]]
    axes: dict[str, list[int]]


_decode = msgspec.json.Decoder(SavedSummary).decode


class Summary:
    """The numbers of a run's summary after its first `rows` rows, in bounded memory: of 10,000 keys at most.

    A key that several series have, such as a name without an actor, shows the newest row among the furthest ones of
    each. An axis shows the furthest position among them.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._numbers: dict[str, dict[RowSeries, tuple[Standing, Number]]] = {}
        self._axes: dict[str, dict[RowSeries, Standing]] = {}

    def add(
        self, row: Standing, axis: str, numbers: Mapping[str, Number], line: Mapping[str, Number]
    ) -> dict[str, Number]:
        """Add the next row, whose axis has this name at the sink. Returns what has to be said to W&B after its line.

        `numbers` are all of the row, `line` are those in its line. In a revision a line has what changed alone.
        """
        told: dict[str, Number] = {}
        for key in {**numbers, **line}:
            if key == axis:
                continue
            before = self.get(key)
            self._take(key, row, numbers.get(key, line.get(key, 0)))
            after = self.get(key)
            if after is not None and after != line.get(key, before):
                told[key] = after
        self._move(axis, row)
        furthest = self.get(axis)
        if furthest is not None and furthest != line.get(axis, furthest):
            told[axis] = furthest
        self.rows = row.row_number + 1
        return told

    def get(self, key: str) -> Number | None:
        """What the summary has under a key; None if no row had it."""
        if key in self._axes:
            return max(one.position for one in self._axes[key].values())
        found = self._numbers.get(key)
        return None if not found else max(found.values(), key=lambda one: one[0].row_number)[1]

    def knows(self, key: str) -> bool:
        """Whether any row had a number under a key, though it may be gone by now."""
        return key in self._numbers

    def withdraw(self, row: Standing, keys: Iterable[str]) -> set[str]:
        """A revision has no number any more under these keys. Returns those of which the summary had this row's."""
        gone = set()
        for key in keys:
            found = self._numbers.get(key, {})
            if row.series in found and found[row.series][0].position == row.position:
                del found[row.series]
                gone.add(key)
        return gone

    def put(self, key: str, row: Standing, number: Number) -> None:
        """The furthest row that still has a number under a key is this one."""
        self._take(key, row, number)

    def all(self) -> dict[str, Number]:
        """Every number."""
        found = {key: self.get(key) for key in (*self._numbers, *self._axes)}
        return {key: number for key, number in found.items() if number is not None}

    def _take(self, key: str, row: Standing, number: Number) -> None:
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) < MAX_KEYS:
                self._numbers[key] = {row.series: (row, number)}
        elif row.series not in found or follows(row, found[row.series][0]):
            found[row.series] = (row, number)

    def _move(self, axis: str, row: Standing) -> None:
        found = self._axes.setdefault(axis, {})
        if row.series not in found or follows(row, found[row.series]):
            found[row.series] = row

    def to_json(self, naming: str) -> bytes:
        """The summary for a file. `naming` stands for the settings that its keys come from."""
        index: dict[Standing, int] = {}
        numbers = {
            key: [(index.setdefault(row, len(index)), number) for row, number in found.values()]
            for key, found in self._numbers.items()
            if found
        }
        axes = {
            axis: [index.setdefault(row, len(index)) for row in found.values()] for axis, found in self._axes.items()
        }
        return msgspec.json.encode(SavedSummary(naming, self.rows, list(index), numbers, axes))

    @classmethod
    def from_json(cls, data: bytes, naming: str) -> Summary:
        """The inverse; an empty summary if the data are damaged or have keys of other settings."""
        made = cls()
        try:
            saved = _decode(data)
            if saved.naming == naming:
                rows = saved.standings
                for key, found in saved.numbers.items():
                    made._numbers[key] = {rows[at].series: (rows[at], number) for at, number in found}
                made._axes = {axis: {rows[at].series: rows[at] for at in found} for axis, found in saved.axes.items()}
                made.rows = saved.rows
        except (msgspec.DecodeError, IndexError):
            return cls()
        return made
