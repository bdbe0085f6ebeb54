"""Files that are cut when a job starts again, as some frameworks do: former rows stay, what is done again counts."""

from __future__ import annotations

import json

import pytest

from rlship_formats.foreign.contract import Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Row, Unit
from tests.foreign.made_up import reading
from tests.pipeline.simulated import Simulation, simulation


def read(raw: bytes) -> list[Record]:
    found = parse(raw)
    return [{"step": step_of(found["step"]), "m": found["data"]}]


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    rank = int(path.removesuffix(".cut.jsonl"))
    return (Translation({"actor": "trainer", "rank": rank}, read),)


CUT = Reader("cut", ("*.cut.jsonl",), bind)  # without times, like verl's


def lines(first: int, last: int, **data: float) -> bytes:
    return b"".join(json.dumps({"step": at, "data": data}).encode() + b"\n" for at in range(first, last + 1))


def settle(sim: Simulation) -> None:
    for _ in range(4):
        sim.wait(25.0)
        sim.tick()


def figures(sim: Simulation) -> dict[int, dict[str, float]]:
    return {
        unit.index: {key.removeprefix("trainer/"): value for key, value in row.values.items()}
        for unit, row in sorted(sim.final().items())
    }


@pytest.mark.parametrize("longer", [False, True], ids=["shorter", "grown past what was read"])
@pytest.mark.parametrize("seen", [True, False], ids=["watched", "unwatched"])
def test_the_later_life_supersedes_metric_by_metric(longer: bool, seen: bool) -> None:
    """A run that goes on from step 3 rewrites the file: steps 1 and 2 stay, 3 and 4 are done again and get a metric
    more, what only the former life has of them stays; without a dead letter, and with data that are whole.
    """
    last = 40 if longer else 4
    with reading(CUT), simulation() as sim:
        path = sim.directory / "0.cut.jsonl"
        path.write_bytes(lines(1, 4, loss=1.0) + lines(4, 4, val=7.0) + lines(5, 5, loss=1.0))
        settle(sim)
        if not seen:
            sim.finish()
            sim.stop()
        path.write_bytes(lines(3, last, loss=2.0, lr=0.5))
        if not seen:
            sim._start()
        settle(sim)
        if not longer:
            with open(path, "ab") as file:
                file.write(lines(5, 5, loss=2.0, lr=0.5))
        settle(sim)
        sim.finish()
        new = {"loss": 2.0, "lr": 0.5}
        expected = {1: {"loss": 1.0}, 2: {"loss": 1.0}, 3: new, 4: {**new, "val": 7.0}}
        assert figures(sim) == expected | dict.fromkeys(range(5, max(last, 5) + 1), new)
        assert not sim.dead()
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert told.complete
        assert sorted(writer.file for writer in told.writers) == ["./0.cut.jsonl", "./0.cut.jsonl (replaced 1)"]


def test_a_row_names_the_lives_that_it_mixes() -> None:
    """Step 2 was done by three lives, each with a metric of its own; a later line of the last one changes no number."""
    with reading(CUT), simulation() as sim:
        path = sim.directory / "0.cut.jsonl"
        for life, name in enumerate(("a", "bb", "ccc")):
            path.write_bytes(lines(1 + life // 2, 3, **{"loss": float(life), name: 1.0}))
            settle(sim)
        with open(path, "ab") as file:
            file.write(lines(2, 2, late=1.0))
        settle(sim)
        sim.finish()
        rows = {unit.index: row for unit, row in sim.final().items()}
        assert figures(sim)[2] == {"loss": 2.0, "a": 1.0, "bb": 1.0, "ccc": 1.0, "late": 1.0}
        assert {step: row.coverage.attempts for step, row in rows.items()} == {1: (0, 1), 2: (0, 1, 2), 3: (0, 1, 2)}
        assert not sim.dead()


def test_a_row_of_several_ranks_stays_where_it_would_need_what_is_gone() -> None:
    """What rank 0 had of the step cannot be taken out of a figure of both: the row stays, and a dead letter says so."""
    with reading(CUT), simulation() as sim:
        for rank in (0, 1):
            (sim.directory / f"{rank}.cut.jsonl").write_bytes(lines(1, 3, loss=float(rank)))
        settle(sim)
        (sim.directory / "0.cut.jsonl").write_bytes(lines(2, 3, loss=8.0))
        settle(sim)
        sim.finish()
        assert figures(sim) == {step: {"loss": 0.5} for step in (1, 2, 3)}
        assert {(name, reason) for name, _, reason, _ in sim.dead()} == {
            ("./0.cut.jsonl (replaced 1)", "file gone before a revision")
        }


def test_a_row_of_one_rank_of_several_is_exact() -> None:
    """Where only the rank that was started again made the row, the other's being there changes nothing."""
    with reading(CUT), simulation() as sim:
        (sim.directory / "0.cut.jsonl").write_bytes(lines(1, 3, loss=1.0))
        (sim.directory / "1.cut.jsonl").write_bytes(lines(4, 6, loss=5.0))
        settle(sim)
        sim.wait(700.0)  # step 3 has waited long enough for rank 0, which says nothing more
        settle(sim)
        (sim.directory / "0.cut.jsonl").write_bytes(lines(2, 3, loss=8.0))
        settle(sim)
        row: Row = sim.final()[Unit("trainer", "step", 2)]
        assert row.values == {"trainer/loss": 8.0}
        assert row.coverage.ranks == ("0.0",)
        assert not sim.dead()
