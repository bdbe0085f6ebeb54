"""The end of the files with more open steps than are kept."""

from __future__ import annotations

import pytest

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.units import MAX_KEPT
from tests.pipeline.simulated import simulation
from tests.reference.building import barrier, file, log
from tests.reference.reduction import exactly, final_rows


def test_the_end_of_the_files_keeps_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the files a thousand open steps become rows 64 at a time, and no step is forgotten."""
    peak = 0
    real = Actor.refill

    def refill(actor, windows):
        nonlocal peak
        real(actor, windows)
        peak = max(peak, actor.kept)

    monkeypatch.setattr(Actor, "refill", refill)
    files = {
        "a.jsonl": file(*(r for s in range(1000) for r in (log(s, x=float(s)), barrier(s))), world=2, beat=10),
        "b.jsonl": file(log(0, x=1.0), barrier(0), id="b", rank=1, world=2, beat=10),
    }
    with simulation() as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        assert exactly(sim.final()) == exactly(final_rows(files))
        assert [row.arrival.row_number for row in sim.rows()] == list(range(1000))
    assert peak <= MAX_KEPT


def test_a_file_that_is_gone_before_its_steps_closed() -> None:
    """Steps whose only file was deleted while more than 64 of them were open make no row; others do."""
    with simulation() as sim:
        sim.write("a.jsonl", file(*(log(s, x=1.0) for s in range(200)), world=2, beat=10))
        sim.write("b.jsonl", file(id="b", rank=1, world=2, beat=10))
        sim.write("c.jsonl", file(log(500, x=1.0), id="c", rank=2, world=3, beat=10))
        sim.tick()
        (sim.directory / "rlship" / "a.jsonl").unlink()
        sim.experiment.close()
        sim.finish()
        assert [row.unit.index for row in sim.rows()] == [*range(63), 500]
        assert {reason for _, _, reason, _ in sim.dead()} == {"file gone before its row"}
