"""The one reduce function: a window of values and a roster to the figures and coverage of a row. Pure.

Live, replay and revisions all come here, so that equal lines give equal bits. `blocks` is the fast path for the common
unit (one plain number per rank and metric); `general` is the definition. A test holds them against each other and both
against the reference in `tests/reference/`.
"""

from __future__ import annotations

from rlship_formats.clocks import HostClocks
from rlship_sidecar.align.lineage import newest, order_of, rank_names
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import Window
from rlship_sidecar.reduce.barriers import measured
from rlship_sidecar.reduce.blocks import everyone, reduce_blocks
from rlship_sidecar.reduce.figures import add_lag
from rlship_sidecar.reduce.general import reduce_any
from rlship_sidecar.reduce.naming import Naming
from rlship_sidecar.reduce.rates import between_barriers
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.rows import Coverage, Row, Unit, name_ranks

_NO_CLOCKS = HostClocks()


def reduce_unit(
    unit: Unit,
    window: Window,
    roster: Roster,
    rules: Rules,
    clocks: HostClocks = _NO_CLOCKS,
    lead_axis: str | None = None,
) -> Row:
    """The row of a step. `rules` are the configuration's. `lead_axis`: what the lead's steps count, None without a
    lead.
    """
    over = between_barriers(window.barriers)
    found = reduce_blocks(unit.actor, window, roster, rules, over) or reduce_any(
        Naming(unit.actor), window, rules, over
    )
    for name, value in measured(window.barriers, clocks, roster).items():
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
    axis = segments[0].writer.open.axis
    x: dict[str, int | float] = {axis: unit.index}
    if axis == lead_axis:
        add_lag(Naming(unit.actor), found, unit.index)
    tagging = newest(segment for segment, _ in window.tags)
    tags = tuple(sorted({line.tag for segment, line in window.tags if segment in tagging}))
    return Row(
        unit,
        found.t,
        x,
        found.figures,
        coverage,
        hists=found.hists,
        per_rank=found.per_rank,
        tags=tags,
        samples=window.shown,
    )
