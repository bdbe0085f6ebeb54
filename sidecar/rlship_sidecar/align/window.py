"""The values of one open unit, kept as they came until it closes: packed lines in one block per schema, others as
observations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlship_sidecar.align.lineage import Segment
from rlship_sidecar.decode.lines import Dense, SampleLine, Schema, Sparse, StreamLine, TagLine
from rlship_sidecar.decode.shapes import NO_VALUE
from rlship_sidecar.rows import Samples

Ended: TypeAlias = "tuple[Segment, float, int, float | None]"
"""A barrier record of a step: whose it is, its `t`, the byte of the file where it begins, and the `t` of the one before
in its segment (None: it is the first).
"""


Packed: TypeAlias = "tuple[float, int, bytes]"
"""A packed line: its `t`, the byte of the file where it begins, and the values as native doubles."""


@dataclass(slots=True)
class Block:
    """Lines of one schema: `lines[i]` is of `owners[i]`."""

    owners: list[Segment] = field(default_factory=list)
    lines: list[Packed] = field(default_factory=list)

    def add(self, segment: Segment, line: Packed) -> None:
        """Take in a line."""
        self.owners.append(segment)
        self.lines.append(line)

    def matrix(self) -> NDArray[np.float64]:
        """The values: one row for each line."""
        data = b"".join([values for _, _, values in self.lines])
        return np.frombuffer(data, np.float64).reshape(len(self.lines), -1)

    def filled(self) -> NDArray[np.bool_]:
        """Of a loose schema, where a line has a metric."""
        found: NDArray[np.bool_] = self.matrix() != NO_VALUE
        return found


@dataclass(slots=True)
class UnitLines:
    """Everything that the lines of one unit say. Lines of one segment arrive in file order. `shown` are the samples
    that its row shows, once they were chosen and read. `over_t` is the greatest `t` of lines of a stream that do not
    count, as a later submission had begun.
    """

    blocks: dict[Schema, Block] = field(default_factory=dict)
    sparse: list[tuple[Segment, Sparse]] = field(default_factory=list)
    barriers: list[Ended] = field(default_factory=list)
    samples: list[tuple[Segment, SampleLine]] = field(default_factory=list)
    tags: list[tuple[Segment, TagLine]] = field(default_factory=list)
    shown: Samples = field(default_factory=dict)
    over_t: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether it has no metrics record at all."""
        return not (self.blocks or self.sparse)

    def add(self, segment: Segment, line: Dense | Sparse) -> None:
        """Take in a metrics line."""
        if type(line) is Dense:
            self.block(line.schema).add(segment, (line.t, line.offset, line.data))
        else:
            assert type(line) is Sparse
            self.sparse.append((segment, line))

    def owners(self, metric: str) -> Iterator[Segment]:
        """The segment of each line that has a metric."""
        for schema, block in self.blocks.items():
            if metric in schema.names:
                if schema.loose:
                    yield from compress(block.owners, block.filled()[:, schema.names.index(metric)])
                else:
                    yield from block.owners
        for segment, line in self.sparse:
            if any(value.metric == metric for value in line.values):
                yield segment

    def block(self, schema: Schema) -> Block:
        """The block of a schema, which may be empty still."""
        block = self.blocks.get(schema)
        if block is None:
            block = self.blocks[schema] = Block()
        return block


def put(window: UnitLines, segment: Segment, line: StreamLine) -> None:
    """Take in a stream line of any kind."""
    if type(line) is Dense:
        _, t, offset, _, schema, data = line
        block = window.block(schema)
        block.owners.append(segment)
        block.lines.append((t, offset, data))
    elif type(line) is SampleLine:
        window.samples.append((segment, line))
    elif type(line) is TagLine:
        window.tags.append((segment, line))
    else:
        assert type(line) is Sparse
        window.sparse.append((segment, line))
