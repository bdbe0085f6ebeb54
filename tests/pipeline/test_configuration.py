"""What changes in the configuration do to rows that exist."""

from __future__ import annotations

from tests.pipeline.simulated import simulation
from tests.reference.building import barrier, file, log
from tests.reference.reduction import exactly, final_rows

FILES = {
    f"r{rank}.jsonl": file(
        *(record for step in range(100) for record in (log(step, loss=rank + step), barrier(step))),
        id=f"w{rank}",
        rank=rank,
        world=2,
    )
    for rank in range(2)
}


def test_other_reductions_revise_the_rows_that_exist() -> None:
    """A row is a function of the files and the configuration: with another one every row is revised once."""
    with simulation() as sim:
        for name, data in FILES.items():
            sim.write(name, data)
        sim.finish()
        sim.overrides = {"trainer/loss": ["max", "min"]}
        sim.restart()
        sim.finish()
        assert exactly(sim.final()) == exactly(final_rows(FILES, sim.overrides))
        assert {row.arrival.revision for row in sim.final().values()} == {1}
        rows = len(sim.rows())
        sim.restart()
        sim.finish()
        assert len(sim.rows()) == rows


def test_values_of_ranks_for_all_metrics() -> None:
    """`per_rank` gives every row the values of each rank, and no more figures; switched on later, as revisions."""
    with simulation() as sim:
        for name, data in FILES.items():
            sim.write(name, data)
        sim.finish()
        before = sim.final()
        sim.per_rank = True
        sim.restart()
        sim.finish()
        after = sim.final()
        assert {row.arrival.revision for row in after.values()} == {1}
        assert not any(row.per_rank for row in before.values())
        for unit, row in after.items():
            step = unit.index
            assert row.values == before[unit].values
            assert row.per_rank == {"trainer/loss": [("0.0", float(step)), ("0.1", float(step + 1))]}
            assert row.arrival.changed == ("trainer/loss",)
            assert row.shipped_per_rank == row.per_rank
