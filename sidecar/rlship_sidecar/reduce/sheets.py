"""The values of a window as sheets: a row for each segment in merge order, a column for each metric. Pure.

A sheet holds metrics whose lines are of the same segments. Blocks that share no metric with another are sheets as they
are. Blocks that share one, and those with several lines of a segment, are laid on top of each other: each segment's
lines stand in a row one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlship_formats.records import Definition
from rlship_sidecar.align.lineage import Order, Segment
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import Block, UnitLines
from rlship_sidecar.decode.lines import Schema
from rlship_sidecar.decode.shapes import NO_VALUE, PLAIN, SUMMARY, Stretch, width
from rlship_sidecar.reduce.columns import Doubles, ObservedParts, SummaryParts

_SPARE, _SMALL = 32, 1 << 16  # a sheet may be so many times emptier than full, or so small


class Headings:
    """The metrics of a sheet and what governs each; compared by identity."""

    __slots__ = ("asks", "names")

    def __init__(self, names: tuple[str, ...], asks: tuple[Definition, ...]) -> None:
        self.names = names
        self.asks = asks


class Sheet(NamedTuple):
    """Values of some metrics. `plain` are those of one place for each segment and metric, as `ObservedParts` has them.

    `ragged`: a segment may lack a metric.
    """

    metrics: Headings
    order: Order
    plain: Doubles | None
    parts: ObservedParts | SummaryParts
    ragged: bool = False


class Sheets(NamedTuple):
    """A window in sheets. `others` are the metrics that only the general way can reduce."""

    sheets: list[Sheet]
    others: frozenset[str]


def sheets_of(window: UnitLines, roster: Roster) -> Sheets | None:
    """A window as sheets. None where segments may supersede each other, or where several are of one rank."""
    sparse = frozenset(value.metric for _, line in window.sparse for value in line.values)
    others, blocks = set(sparse), window.blocks
    schemas = tuple([schema for schema in blocks if schema.names])
    sheets: list[Sheet] = []
    alike: dict[int, tuple[Order, list[Schema]]] = {}  # the schemas whose lines are of the same segments
    for together in groups(schemas) if len(schemas) > 1 else [schemas] if schemas else []:
        if len(together) == 1:
            order = roster.order(tuple(blocks[together[0]].owners))
            if order is not None:
                alike.setdefault(id(order), (order, []))[1].append(together[0])
                continue
        laid = _lay(together, [blocks[schema] for schema in together], roster, others)
        if laid is None:
            return None
        sheets += laid
    for order, same in alike.values():
        sheets += _as_they_are(same, blocks, order)
    if others:
        if any(schema.loose and _is_left_out(schema, block, others) for schema, block in blocks.items()):
            return None
        if any(schema.bundled and not sparse.isdisjoint(schema.names) for schema in blocks):
            return None  # a superseded one may have given the bundle its time
        sheets = [sheet for sheet in (_without(sheet, others) for sheet in sheets) if sheet is not None]
    return Sheets(sheets, frozenset(others))


def _is_left_out(schema: Schema, block: Block, others: Collection[str]) -> bool:
    """Whether a line of a loose schema has no metric but `others`. Then its segment may have no part in the sheets."""
    kept = [place for place, name in enumerate(schema.names) if name not in others]
    return not block.filled()[:, kept].any(axis=1).all()


# Blocks as they are ---------------------------------------------------------------------------------------------------


def _as_they_are(schemas: list[Schema], blocks: Mapping[Schema, Block], order: Order) -> list[Sheet]:
    """Sheets of blocks whose lines are of the same segments, one of each. The plain numbers of all make one sheet; a
    loose schema has its own.
    """
    sheets: list[Sheet] = []
    plain: list[Doubles] = []
    for schema in schemas:
        matrix = blocks[schema].matrix()
        if order.places is not None:
            matrix = matrix[list(order.places)]
        if schema.loose:
            parts = ObservedParts(matrix[:, :, np.newaxis], None)
            sheet = Sheet(_of_stretch(schema, schema.stretches[0]), order, matrix, parts, ragged=True)
            sheets.append(_only(sheet, np.flatnonzero((matrix != NO_VALUE).any(axis=0)).tolist()))
            continue
        for stretch in schema.stretches:
            values = matrix[:, stretch.columns]
            if stretch.shape == PLAIN:
                plain.append(values)
            else:
                sheets.append(Sheet(_of_stretch(schema, stretch), order, None, _parts(values, stretch)))
    if plain:
        matrix = plain[0] if len(plain) == 1 else np.concatenate(plain, axis=1)
        exact = tuple([schema for schema in schemas if not schema.loose])
        sheets.insert(0, Sheet(_plain_of(exact), order, matrix, ObservedParts(matrix[:, :, np.newaxis], None)))
    return sheets


def _parts(values: Doubles, stretch: Stretch) -> ObservedParts | SummaryParts:
    found = values.reshape(len(values), -1, width(stretch.shape))
    if stretch.shape == SUMMARY:
        return SummaryParts(found)
    if stretch.shape >= 0:
        return ObservedParts(found, None)
    return ObservedParts(found[:, :, : -stretch.shape], found[:, :, -stretch.shape :])


@lru_cache(256)
def _of_stretch(schema: Schema, stretch: Stretch) -> Headings:
    return Headings(schema.names[stretch.first : stretch.end], schema.asks[stretch.first : stretch.end])


@lru_cache(256)
def _plain_of(schemas: tuple[Schema, ...]) -> Headings:
    """The plain metrics of some schemas, one schema after the other."""
    firsts = [stretch for schema in schemas for stretch in schema.stretches[:1] if stretch.shape == PLAIN]
    ends = [schema.stretches[0].end if schema.stretches[0].shape == PLAIN else 0 for schema in schemas]
    assert firsts
    return Headings(
        tuple(name for schema, end in zip(schemas, ends) for name in schema.names[:end]),
        tuple(asks for schema, end in zip(schemas, ends) for asks in schema.asks[:end]),
    )


def _without(sheet: Sheet, others: Collection[str]) -> Sheet | None:
    """A sheet without some metrics; None if nothing is left."""
    kept = [place for place, name in enumerate(sheet.metrics.names) if name not in others]
    return _only(sheet, kept) if kept else None


def _met(sheet: Sheet) -> Sheet | None:
    """A sheet without the metrics that no line has; None if nothing is left."""
    kept = np.flatnonzero(sheet.parts.observed.any(axis=0)).tolist()
    return _only(sheet, kept) if kept else None


def _only(sheet: Sheet, kept: list[int]) -> Sheet:
    """A sheet with these of its metrics."""
    if len(kept) == len(sheet.metrics.names):
        return sheet
    names = tuple([sheet.metrics.names[place] for place in kept])
    asks = tuple([sheet.metrics.asks[place] for place in kept])
    parts: ObservedParts | SummaryParts
    if isinstance(sheet.parts, SummaryParts):
        parts = SummaryParts(sheet.parts.fields[:, kept])
    else:
        parts = sheet.parts.only(kept)
    plain = None if sheet.plain is None else sheet.plain[:, kept]
    return Sheet(_headings(names, asks), sheet.order, plain, parts, sheet.ragged)


# Blocks on top of each other ------------------------------------------------------------------------------------------


def groups(schemas: tuple[Schema, ...]) -> list[tuple[Schema, ...]]:
    """Schemas that share metrics together, the others alone. Loose ones come first: the rest of their lines is put over
    the empty places.
    """
    return _groups(tuple(sorted(schemas, key=id)))


@lru_cache(256)
def _groups(schemas: tuple[Schema, ...]) -> list[tuple[Schema, ...]]:
    group_of: dict[str, list[Schema]] = {}
    for schema in schemas:
        touched = {id(held): held for name in schema.names if (held := group_of.get(name)) is not None}
        mine, *rest = sorted(touched.values(), key=len, reverse=True) or [[]]
        mine.append(schema)
        group_of.update(dict.fromkeys(schema.names, mine))
        for held in rest:
            mine += held
            for member in held:
                group_of.update(dict.fromkeys(member.names, mine))
    found = {id(group): group for group in group_of.values()}.values()
    return [tuple(sorted(group, key=lambda schema: not schema.loose)) for group in found]


class _Target(NamedTuple):
    """Where the metrics `places` of a stretch stand in a sheet: in its columns `columns`."""

    sheet: int
    places: Any
    columns: Any


class _Layout(NamedTuple):
    """The sheets of schemas that share metrics: their metrics, how many observations a line may have, and whether with
    weights (`SUMMARY`: they are summaries). `targets` are those of each schema's stretches. `others` have different
    rules on different lines, or forms that do not go together.
    """

    sheets: list[tuple[Headings, int, bool]]
    targets: list[list[list[_Target]]]
    others: frozenset[str]


@lru_cache(64)
def _layout(schemas: tuple[Schema, ...]) -> _Layout:
    asked: dict[str, Definition] = {}
    forms: dict[str, tuple[int, bool]] = {}
    others: set[str] = set()
    for schema in schemas:
        for stretch in schema.stretches:
            shape, part = stretch.shape, slice(stretch.first, stretch.end)
            form = (SUMMARY, False) if shape == SUMMARY else (max(1, abs(shape)), shape < 0)
            for name, asks in zip(schema.names[part], schema.asks[part]):
                held = forms.setdefault(name, form)
                if held != form:
                    if SUMMARY in (form[0], held[0]):
                        others.add(name)
                    forms[name] = max(held[0], form[0]), held[1] or form[1]
                known = asked.setdefault(name, asks)
                if known is not asks and known != asks:
                    others.add(name)
    sheets: dict[tuple[int, bool], list[str]] = {}
    for name in sorted(forms):
        if name not in others:
            sheets.setdefault(forms[name], []).append(name)
    place_of = [{name: column for column, name in enumerate(names)} for names in sheets.values()]
    targets = [
        [_targets(schema.names[stretch.first : stretch.end], place_of) for stretch in schema.stretches]
        for schema in schemas
    ]
    found = [
        (_headings(tuple(names), tuple([asked[name] for name in names])), room, weighted)
        for (room, weighted), names in sheets.items()
    ]
    return _Layout(found, targets, frozenset(others))


def _targets(names: Sequence[str], place_of: Sequence[Mapping[str, int]]) -> list[_Target]:
    """Where the metrics of a stretch stand."""
    found = []
    for sheet, columns_of in enumerate(place_of):
        columns = [columns_of.get(name, -1) for name in names]
        places = range(len(names))
        if -1 in columns:
            places = [place for place in places if columns[place] >= 0]  # type: ignore[assignment]
            columns = [columns[place] for place in places]
        if columns:
            found.append(_Target(sheet, np.array(places), np.array(columns)))
    return found


@lru_cache(256)
def _headings(names: tuple[str, ...], asks: tuple[Definition, ...]) -> Headings:
    """The same for the same metrics, so that they are planned once."""
    return Headings(names, asks)


def _lay(schemas: Sequence[Schema], blocks: Sequence[Block], roster: Roster, others: set[str]) -> list[Sheet] | None:
    """Sheets of blocks that share metrics, or have several lines of a segment. Adds to `others`."""
    owners = [owner for block in blocks for owner in block.owners]
    order = roster.order(tuple(dict.fromkeys(owners)))
    if order is None:
        return None
    row_of = {segment: row for row, segment in enumerate(order.segments)}
    rows = np.fromiter(map(row_of.__getitem__, owners), np.int64, len(owners))
    offsets = np.fromiter((offset for block in blocks for _, offset, _ in block.lines), np.int64, len(owners))
    matrices = [block.matrix() for block in blocks]
    if len(schemas) > 1 and any(schema.bundled for schema in schemas):
        ends = np.concatenate([_last_offsets(schema, matrix) for schema, matrix in zip(schemas, matrices)])
        if _interleaved(rows, offsets, np.fmax(offsets, ends)) and _entangled(schemas, blocks):
            others.update(name for schema in schemas for name in schema.names)
            return []
    rounds = _rounds(rows, offsets)
    turns = int(rounds.max()) + 1
    layout = _layout(tuple(schemas))
    others |= layout.others
    sheets: list[Sheet] = []
    for number, (metrics, room, weighted) in enumerate(layout.sheets):
        size = len(order.segments) * len(metrics.names) * turns * (8 if room == SUMMARY else room)
        if (room == SUMMARY and turns > 1) or size > _SPARE * sum(matrix.size for matrix in matrices) + _SMALL:
            others.update(metrics.names)
            continue
        into = _Room(len(order.segments), len(metrics.names), turns, room, weighted)
        begin = 0
        for schema, matrix, targets in zip(schemas, matrices, layout.targets):
            end = begin + len(matrix)
            for stretch, of_stretch in zip(schema.stretches, targets):
                for target in of_stretch:
                    if target.sheet == number:
                        values = matrix[:, stretch.columns].reshape(len(matrix), -1, width(stretch.shape))
                        into.put(stretch.shape, rows[begin:end], rounds[begin:end], target, values)
            begin = end
        parts = into.parts()
        plain = parts.xs[:, :, 0] if isinstance(parts, ObservedParts) and turns == room == 1 and not weighted else None
        sheets.append(Sheet(metrics, order, plain, parts, ragged=True))
    if any(schema.loose for schema in schemas):
        sheets = [sheet for sheet in map(_met, sheets) if sheet is not None]
    return sheets


def _last_offsets(schema: Schema, matrix: Doubles) -> Doubles:
    """Where the last line of each bundle begins; 0 for other lines."""
    if not schema.bundled:
        return np.zeros(len(matrix))
    last: Doubles = matrix[:, schema.width - len(schema.names) :].max(axis=1)
    return last


def _interleaved(rows: Any, begins: Any, ends: Any) -> bool:
    """Whether a line begins within a bundle of its segment. Then no order of whole bundles may be right."""
    sorting = np.lexsort((begins, rows))
    same = rows[sorting][1:] == rows[sorting][:-1]
    return bool((same & (begins[sorting][1:] <= ends[sorting][:-1])).any())


def _entangled(schemas: Sequence[Schema], blocks: Sequence[Block]) -> bool:
    """Whether a segment has a metric in two blocks."""
    of_segment: dict[Segment, tuple[int, ...]] = {}
    for number, block in enumerate(blocks):
        for owner in set(block.owners):
            of_segment[owner] = (*of_segment.get(owner, ()), number)
    for numbers in set(of_segment.values()):
        names = [name for number in numbers for name in schemas[number].names]
        if len(numbers) > 1 and len(set(names)) < len(names):
            return True
    return False


def _rounds(rows: Any, offsets: Any) -> Any:
    """For each line how many lines of its segment stand before it in its file. Parts of one line have one number."""
    sorting = np.lexsort((offsets, rows))
    rows, offsets = rows[sorting], offsets[sorting]
    new_row = np.r_[True, rows[1:] != rows[:-1]]
    lines = np.cumsum(new_row | np.r_[True, offsets[1:] != offsets[:-1]])
    found = np.empty(len(rows), np.int64)
    found[sorting] = lines - np.maximum.accumulate(np.where(new_row, lines, 0))
    return found


class _Room:
    """The observations of a sheet while its blocks are put there."""

    def __init__(self, segments: int, metrics: int, turns: int, room: int, weighted: bool) -> None:
        if room == SUMMARY:
            self._xs = np.zeros((segments, metrics, turns, 8))
            self._xs[:, :, :, 1] = np.nan  # no w: no summary
        else:
            self._xs = np.full((segments, metrics, turns, room), NO_VALUE)
        self._ws = np.ones((segments, metrics, turns, room)) if weighted else None
        self._summaries = room == SUMMARY

    def put(self, shape: int, rows: Any, turns: Any, target: _Target, values: Doubles) -> None:
        """Put the values of one stretch of a block there."""
        if len(target.places) < values.shape[1]:
            values = values[:, target.places]
        places = 8 if shape == SUMMARY else max(1, abs(shape))
        where = rows[:, np.newaxis], target.columns[np.newaxis, :], turns[:, np.newaxis], slice(None, places)
        self._xs[where] = values[:, :, :places]
        if shape < 0 and self._ws is not None:
            self._ws[where] = values[:, :, places:]

    def parts(self) -> ObservedParts | SummaryParts:
        """The observations, each segment's lines one after another."""
        segments, metrics, *_ = self._xs.shape
        if self._summaries:
            return SummaryParts(self._xs[:, :, 0])
        xs = self._xs.reshape(segments, metrics, -1)
        return ObservedParts(xs, None if self._ws is None else self._ws.reshape(segments, metrics, -1))


def segments_of(sheets: Iterable[Sheet]) -> tuple[Segment, ...]:
    """All segments that have a part in some sheets."""
    return tuple(dict.fromkeys(segment for sheet in sheets for segment in sheet.order.segments))
