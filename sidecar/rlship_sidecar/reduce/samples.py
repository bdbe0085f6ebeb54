"""Which samples a row shows. Pure.

Of a step these are the highest and the lowest scores, and a fair random few; of a window of time the newest ones.

The terms are those of docs/semantics.md, "Tags, samples, policy lag".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from rlship_formats.foreign.trl_completions import OF_EVALUATION, TABLE
from rlship_formats.reading import FileReader
from rlship_formats.reading import Sample as SampleRecord
from rlship_sidecar.align.lineage import Segment, newest
from rlship_sidecar.decode.lines import SampleLine
from rlship_sidecar.reduce.per_rank import rank_name
from rlship_sidecar.rows import ALIGNED, CLOCK, STEP, Sample, Unit

TOP, BOTTOM, RANDOM, NEWEST = "top", "bottom", "random", "newest"


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """How many samples of each kind a row shows, and of which units.

    Of steps those do that are the first with a table in a stretch of `every`, beside steps of the lead those that
    `every` divides. Windows of time have no numbers that mean anything: each does.
    """

    each: int = 4
    every: int = 10

    def shows(self, unit: Unit) -> bool:
        """Whether the row of a unit may show samples."""
        return self.each > 0 and (unit.kind != ALIGNED or unit.index % self.every == 0)


class Chosen(NamedTuple):
    """A sample that a row shows, and the reasons: "newest", or any of "top", "bottom" and "random"."""

    segment: Segment
    line: SampleLine
    why: tuple[str, ...]


def counted(
    lines: Iterable[tuple[Segment, SampleLine]], *, superseding: bool = True
) -> dict[str, list[tuple[Segment, SampleLine]]]:
    """Each table's samples, in merge and file order.

    With `superseding` it drops the samples that a newer segment of their rank supersedes, and copies of evaluations.
    """
    tables: dict[str, list[tuple[Segment, SampleLine]]] = {}
    for segment, line in lines:
        tables.setdefault(line.table, []).append((segment, line))
    if superseding and OF_EVALUATION in tables:
        _drop_copies(tables)
    return {table: _counted(found, superseding) for table, found in sorted(tables.items())}


def _drop_copies(tables: dict[str, list[tuple[Segment, SampleLine]]]) -> None:
    """Drop what TRL's file has of an evaluation, where its rank gave the evaluation itself."""
    ranks = {segment.writer.rank for segment, _ in tables[OF_EVALUATION]}
    found = tables.pop(TABLE, [])
    if kept := [one for one in found if not (one[0].writer.copies and one[0].writer.rank in ranks)]:
        tables[TABLE] = kept


def _counted(found: list[tuple[Segment, SampleLine]], superseding: bool) -> list[tuple[Segment, SampleLine]]:
    segments = {segment for segment, _ in found}
    kept = newest(segments) if superseding else segments
    return sorted((one for one in found if one[0] in kept), key=lambda one: (one[0].merge_key, one[1].offset))


def choose(lines: Iterable[tuple[Segment, SampleLine]], each: int, unit_kind: str) -> dict[str, list[Chosen]]:
    """The samples of each table, at most `each` of a kind, in merge and file order, for a unit of this kind.

    The writers drew `pri` evenly from 0..1. So the lowest ones of all ranks are a fair choice among all their samples,
    whatever the order of reading.
    """
    choosing = _newest if unit_kind == CLOCK else _choose
    tables = counted(lines, superseding=unit_kind == STEP)
    return {table: choosing(found, each) for table, found in tables.items()}


def _newest(found: list[tuple[Segment, SampleLine]], each: int) -> list[Chosen]:
    by_time = sorted(range(len(found)), key=lambda place: (found[place][1].t, place))
    return [Chosen(*found[place], (NEWEST,)) for place in sorted(by_time[-each:])]


def _choose(found: list[tuple[Segment, SampleLine]], each: int) -> list[Chosen]:
    scored = [place for place, (_, line) in enumerate(found) if line.score is not None]
    # Sorting keeps the order of equals.
    highest = sorted(scored, key=lambda place: -(found[place][1].score or 0.0))[:each]
    lowest = sorted(scored, key=lambda place: found[place][1].score or 0.0)[:each]
    fair = sorted(range(len(found)), key=lambda place: found[place][1].pri)[:each]
    reasons: dict[int, list[str]] = {}
    for why, places in ((TOP, highest), (BOTTOM, lowest), (RANDOM, fair)):
        for place in places:
            reasons.setdefault(place, []).append(why)
    return [Chosen(*found[place], tuple(reasons[place])) for place in sorted(reasons)]


ROOM_BYTES = 8 << 20  # all sample lines of a row together; a single line has at most 1 MiB
NO_ROOM = "(left out: the samples of one row are too large)"
TOO_DEEP = "(nested too deeply to be shown)"


def filled(chosen: Chosen, line: bytes) -> Sample | None:
    """The sample with the content of `line`, from which it was read; None if the line is a different one."""
    found = chosen.line
    record = FileReader(chosen.segment.writer.open, t=found.t).read(line)
    if not isinstance(record, SampleRecord) or record[3:5] != (found.score, found.pri) or record.table != found.table:
        return None
    return Sample(
        chosen.why,
        rank_name(chosen.segment.writer.rank),
        found.t,
        record.word if record.score is None else record.score,
        {name: _writable(value) for name, value in record.row.items()},
        _writable(record.cut),
    )


def _writable(value: Any) -> Any:
    """The value, unless it is nested too deeply for JSON, with room for the levels around it."""
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])
    except orjson.JSONEncodeError:
        return TOO_DEEP
    return value
