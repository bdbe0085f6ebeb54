"""Points: single lines that are rows of their own, of metrics declared as streams. Pure.

The rules: docs/semantics.md, "Stream lines".
"""

from __future__ import annotations

from collections.abc import Iterable

from rlship_sidecar.align.lineage import Segment, Writer, rank_names
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Dense, Sparse, StreamLine, values_of
from rlship_sidecar.reduce.general import Manner, reduce_any
from rlship_sidecar.reduce.naming import Naming
from rlship_sidecar.rows import POINT, Coverage, Row, Unit
from rlship_sidecar.streams.rows import ELAPSED, RowContext

# Lines of a file may come a little out of order; one from so much earlier says that the clock was set.
_SET_BACK_S = 60.0


def chosen(writer: Writer, lines: Iterable[StreamLine]) -> list[tuple[Segment, Dense | Sparse]]:
    """Of a file's next lines those that become points: not too many of them."""
    apart_s = max(1.0, (writer.open.world or 1) / 16)
    found: list[tuple[Segment, Dense | Sparse]] = []
    for line in lines:
        if type(line) is Dense:
            if not line.schema.streamed:
                continue
        elif type(line) is not Sparse or not streamed_part(line).values:
            continue
        if writer.point_t is None or not -_SET_BACK_S <= line.t - writer.point_t < apart_s:
            writer.point_t = line.t
            found.append((writer.segments[line.segment], line))
    return found


def point_row(segment: Segment, line: Dense | Sparse, at: RowContext) -> Row:
    """The row of a single line: its metrics that are declared as streams."""
    writer = segment.writer
    window = UnitLines()
    window.add(segment, streamed_part(line))
    naming = Naming(writer.open.actor, prefix="point/", first_only=True)
    found = reduce_any(window, Manner(naming, at.rules, None, superseding=False))
    return Row(
        Unit(writer.open.actor, POINT, line.offset, writer.open.id),
        line.t,
        {ELAPSED: max(0.0, line.t - at.origin)},
        found.values,
        Coverage(rank_names([writer.rank]), 1, attempts=(writer.open.attempt,), underivable=found.underivable),
        hists=found.hists,
    )


def writer_of(unit: Unit, writers: Iterable[Writer]) -> Writer:
    """The writer of a point; of copies of one file the first by name."""
    return min((w for w in writers if w.open.id == unit.writer), key=lambda writer: writer.file)


def point_again(writer: Writer, lines: Iterable[StreamLine], at: RowContext) -> Row | None:
    """A point's row, from what its line in the file says; None if that is gone."""
    for line in lines:
        if type(line) is Dense or type(line) is Sparse:
            return point_row(writer.segment(line.segment), line, at)
    return None


def streamed_part(line: Dense | Sparse) -> Sparse:
    """What a line says of metrics that are declared as streams; may be nothing."""
    values = tuple([value for value in values_of(line) if value.asks.stream])
    return Sparse(line.step, line.t, line.offset, line.segment, values)
