"""The values of one open unit, kept as they came until it closes: dense lines in one block per schema, others as
observations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlship_sidecar.align.lineage import Segment
from rlship_sidecar.decode.lines import BarrierLine, Dense, SampleLine, Schema, Sparse, StreamLine, TagLine
from rlship_sidecar.rows import Samples


@dataclass(slots=True)
class Block:
    """Dense lines of one schema: row i of `data` (native doubles) was written by `owners[i]` at time `ts[i]` and byte
    `offsets[i]` of its file.
    """

    data: bytearray = field(default_factory=bytearray)
    owners: list[Segment] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ts: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Window:
    """Everything that the lines of one unit say. Lines of one segment arrive in file order. `shown` are the samples
    that its row shows, once they were chosen and read.
    """

    blocks: dict[Schema, Block] = field(default_factory=dict)
    sparse: list[tuple[Segment, Sparse]] = field(default_factory=list)
    barriers: list[tuple[Segment, BarrierLine]] = field(default_factory=list)
    samples: list[tuple[Segment, SampleLine]] = field(default_factory=list)
    tags: list[tuple[Segment, TagLine]] = field(default_factory=list)
    shown: Samples = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether it has no metrics record at all."""
        return not (self.blocks or self.sparse)

    def add(self, segment: Segment, line: Dense | Sparse) -> None:
        """Take in a metrics line."""
        if type(line) is Sparse:
            self.sparse.append((segment, line))
            return
        assert type(line) is Dense
        block = self.blocks.get(line.schema)
        if block is None:
            block = self.blocks[line.schema] = Block()
        block.data += line.data
        block.owners.append(segment)
        block.offsets.append(line.offset)
        block.ts.append(line.t)


def put(window: Window, segment: Segment, line: StreamLine) -> None:
    """Take in a stream line of any kind."""
    if type(line) is SampleLine:
        window.samples.append((segment, line))
    elif type(line) is TagLine:
        window.tags.append((segment, line))
    else:
        assert type(line) is Dense or type(line) is Sparse
        window.add(segment, line)
