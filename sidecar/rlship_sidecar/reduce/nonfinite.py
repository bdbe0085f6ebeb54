"""Which ranks' observations of a metric were NaN or infinite. Pure.

A row counts such observations, and its values are made without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from rlship_sidecar.align.lineage import Segment, newest, rank_names
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Schema
from rlship_sidecar.decode.shapes import PLAIN, observations_in, width
from rlship_sidecar.reduce.naming import Naming
from rlship_sidecar.rows import RankName

COUNTED = "/nonfinite"  # after the key of a metric, the number of these observations


def who_was_nonfinite(
    naming: Naming, window: UnitLines, values: Mapping[str, float], *, superseding: bool = True
) -> dict[str, tuple[str, ...]]:
    """The names of those ranks by the key of each metric of which the row's `values` count such observations.

    `superseding`: a newer segment of a rank takes the place of older ones.
    """
    if COUNTED not in "\n".join(values):  # nearly all rows; one look at a long text costs less than one at each key
        return {}
    found: dict[str, tuple[str, ...]] = {}
    lines, names = _NonFiniteLines(window, superseding), dict[frozenset[RankName], tuple[str, ...]]()
    for metric in sorted(lines.metrics()):
        key = naming.plain(metric)
        if f"{key}{COUNTED}" in values and (ranks := lines.ranks(metric)):
            found[key] = names.get(ranks) or names.setdefault(ranks, rank_names(ranks))
    return found


class _NonFiniteLines:
    """The lines of a window. Many metrics stand in the same blocks, so what they have in common is kept."""

    def __init__(self, window: UnitLines, superseding: bool) -> None:
        self._window = window
        self._superseding = superseding
        self._matrices: dict[Schema, NDArray[np.float64]] = {}
        self._counting: dict[tuple[Schema, ...], set[Segment]] = {}

    def metrics(self) -> set[str]:
        """The metrics of any line."""
        found = {name for schema in self._window.blocks for name in schema.names}
        return found.union(value.metric for _, line in self._window.sparse for value in line.values)

    def ranks(self, metric: str) -> frozenset[RankName]:
        """The ranks with such an observation of a metric that counts."""
        schemas = tuple(schema for schema in self._window.blocks if metric in schema.names)
        sparse = [
            (segment, value) for segment, line in self._window.sparse for value in line.values if value.metric == metric
        ]
        bad = {segment for segment, value in sparse if value.observations.nonfinite}
        for schema in schemas:
            bad.update(self._of_block(schema, schema.names.index(metric)))
        if self._superseding and bad:
            bad &= self._counted(metric, schemas, sparse=bool(sparse))
        return frozenset(segment.writer.rank for segment in bad)

    def _counted(self, metric: str, schemas: tuple[Schema, ...], *, sparse: bool) -> set[Segment]:
        """The segments with a metric, in these blocks or, if `sparse`, in other lines, that no newer one supersedes."""
        blocks = self._window.blocks
        if not sparse:
            if schemas not in self._counting:
                self._counting[schemas] = newest(owner for schema in schemas for owner in blocks[schema].owners)
            counted = self._counting[schemas]
            # A line of a loose schema that lacks the metric supersedes nothing, also of another schema.
            if not any(schema.loose for schema in schemas) or all(
                counted.issuperset(blocks[schema].owners) for schema in schemas
            ):
                return counted
        return newest(self._window.owners(metric))

    def _of_block(self, schema: Schema, place: int) -> Iterator[Segment]:
        block = self._window.blocks[schema]
        if schema not in self._matrices:
            self._matrices[schema] = block.matrix()
        shape, first = schema.shapes[place], sum(map(width, schema.shapes[:place]))
        columns = self._matrices[schema][:, first : first + width(shape)]
        for line in np.flatnonzero(np.isnan(columns).any(axis=1)).tolist():
            # In other shapes than a plain number, NaN may also stand for a field that is unknown.
            if shape == PLAIN or observations_in(shape, columns[line].tolist()).nonfinite:
                yield block.owners[line]
