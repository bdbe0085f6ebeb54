"""Which ranks' observations of a metric were NaN or infinite. Pure.

A row counts such observations, and its values are made without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rlship_sidecar.align.lineage import Segment, newest, rank_names
from rlship_sidecar.align.window import Block, UnitLines
from rlship_sidecar.decode.lines import Schema
from rlship_sidecar.decode.shapes import PLAIN, observations_in, width
from rlship_sidecar.reduce.naming import Naming

COUNTED = "/nonfinite"  # behind the key of a metric, the number of these observations


def who_was_nonfinite(
    naming: Naming, window: UnitLines, values: Mapping[str, float], *, superseding: bool = True
) -> dict[str, tuple[str, ...]]:
    """The names of those ranks by the key of each metric of which the row's `values` count such observations.

    `superseding`: a newer segment of a rank takes the place of older ones.
    """
    if COUNTED not in "\n".join(values):  # nearly all rows; one look at a long text costs less than one at each key
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for metric in sorted(_metrics(window)):
        key = naming.plain(metric)
        if f"{key}{COUNTED}" in values:
            bad, all_of_it = _segments(window, metric)
            counting = newest(all_of_it) if superseding else bad
            if ranks := {segment.writer.rank for segment in bad if segment in counting}:
                found[key] = rank_names(ranks)
    return found


def _metrics(window: UnitLines) -> set[str]:
    found = {name for schema in window.blocks for name in schema.names}
    return found.union(value.metric for _, line in window.sparse for value in line.values)


def _segments(window: UnitLines, metric: str) -> tuple[set[Segment], list[Segment]]:
    """The segments with such an observation of a metric, and all segments that have the metric."""
    bad: set[Segment] = set()
    every: list[Segment] = []
    for schema, block in window.blocks.items():
        if metric in schema.names:
            every += block.owners
            bad.update(_of_block(schema, block, schema.names.index(metric)))
    for segment, line in window.sparse:
        for value in line.values:
            if value.metric == metric:
                every.append(segment)
                if value.observations.nonfinite:
                    bad.add(segment)
    return bad, every


def _of_block(schema: Schema, block: Block, place: int) -> Iterable[Segment]:
    shape, first = schema.shapes[place], sum(map(width, schema.shapes[:place]))
    columns = block.matrix()[:, first : first + width(shape)]
    for line in np.flatnonzero(np.isnan(columns).any(axis=1)).tolist():
        # In other shapes than a plain number, NaN may also stand for a field that is unknown.
        if shape == PLAIN or observations_in(shape, columns[line].tolist()).nonfinite:
            yield block.owners[line]
