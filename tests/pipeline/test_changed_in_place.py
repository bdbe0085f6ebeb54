"""Files whose bytes are changed where they were read before, which no writer of rlship does."""

from __future__ import annotations

import json

from tests.pipeline.simulated import simulation
from tests.reference.building import barrier, file, log


def test_a_rollback_that_was_written_into_a_file_ends_nothing() -> None:
    """A late line has the rows of some steps made again, out of a file that has a rollback now where there was none:
    its lines count as they did when they were read.
    """
    rollback = json.dumps({"kind": "rollback", "step": 2, "t": 1763600003.0}).encode()
    filler = log(1, note=0.0, **{"x" * (len(rollback) - len(json.dumps(log(1, note=0.0, x=0.0)).encode()) + 1): 0.0})
    records = [log(1, loss=1.0), barrier(1), filler, log(2, loss=2.0), barrier(2), log(3, loss=3.0), barrier(3)]
    before = file(*records, id="a", world=2)
    line = json.dumps(filler).encode()
    assert len(line) == len(rollback) and before.count(line) == 1
    late = file(log(1, loss=3.0), log(2, loss=4.0), log(3, loss=5.0), id="b", rank=1, world=2)
    with simulation() as sim:
        sim.write("a.jsonl", before)
        sim.write("b.jsonl", file(barrier(1), barrier(2), barrier(3), id="b", rank=1, world=2))
        sim.wait(3.0)
        sim.tick()
        path = sim.directory / "rlship" / "a.jsonl"
        path.write_bytes(before.replace(line, rollback))
        sim.write("b.jsonl", late.split(b"\n", 1)[1])
        sim.finish()
        rows = {row.unit.index: row.values["trainer/loss"] for row in sim.final().values() if row.unit.kind == "step"}
    assert rows == {1: 2.0, 2: 3.0, 3: 4.0}
