"""The one reduce function: a window of values and a roster to the figures and coverage of a row. Pure.

Live, replay and revisions all come here, so that equal lines give equal bits. `blocks` is the fast path for the common
unit (one plain number per rank and metric); `general` is the definition. A test holds them against each other and both
against the reference in `tests/reference/`.
"""

from __future__ import annotations

from rlship_sidecar.barriers import Clocks, NoClocks, measured
from rlship_sidecar.blocks import everyone, reduce_blocks
from rlship_sidecar.general import reduce_any
from rlship_sidecar.lineage import newest, order_of, rank_names
from rlship_sidecar.rates import Seconds, between_barriers
from rlship_sidecar.roster import Roster
from rlship_sidecar.rows import Coverage, Row, Unit, name_ranks
from rlship_sidecar.rules import Rules
from rlship_sidecar.window import Window

_NO_CLOCKS = NoClocks()


def reduce_unit(
    unit: Unit,
    window: Window,
    roster: Roster,
    rules: Rules,
    clocks: Clocks = _NO_CLOCKS,
    seconds: float | None = None,
) -> Row:
    """The row of a unit. `rules` are the configuration's. `seconds` is what the rates of a unit that is no step are
    over, None where that is not known; those of a step are over the time between barriers.
    """
    over: Seconds = between_barriers(window.barriers) if unit.kind == "step" else seconds
    found = reduce_blocks(unit.actor, window, roster, rules, over) or reduce_any(unit.actor, window, rules, over)
    for name, value in measured(window.barriers, clocks).items():
        key = f"{unit.actor}/{name}"
        if key not in found.taken:
            found.figures[key] = value
    expected, missing, absent = roster.coverage(unit.index)
    order = found.order
    coverage = Coverage(
        ranks=order.ranks,
        expected=expected,
        missing=rank_names(missing),
        absent=name_ranks(absent),
        attempts=order.attempts,
        gap=roster.gap(unit.index),
        underivable=found.underivable,
    )
    segments = order.segments or order_of(tuple(everyone(window))).segments
    x: dict[str, int | float] = {segments[0].writer.open.axis: unit.index}
    tagging = newest(segment for segment, _ in window.tags)
    tags = tuple(sorted({line.tag for segment, line in window.tags if segment in tagging}))
    return Row(unit, found.t, x, found.figures, coverage, hists=found.hists, per_rank=found.per_rank, tags=tags)
