"""A job is submitted again while its first submission goes on for a while, or after it was killed: what counts, who is
awaited, and what the status shows.
"""

from __future__ import annotations

import pytest

from rlship_sidecar.report.status import Status
from rlship_sidecar.report.survey import survey
from rlship_sidecar.report.trends import Trends
from rlship_sidecar.rows import Row, Unit
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, barrier, define, file, log, stream
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import Settings

SUMS = define(x=["sum", "mean"])
FIRST = {"actor": "generator", "id": "a", "replica": "a", "job": "one"}
SECOND = {"actor": "generator", "id": "b", "replica": "b", "job": "two", "t": T0 + 20}
NAMELESS = ({"actor": "generator", "id": "a"}, {"actor": "generator", "id": "b", "t": T0 + 20})


def more(*records: object) -> bytes:
    """Lines without an `open` before them."""
    return b"".join(file(*records).splitlines(keepends=True)[1:])


def windows(sim: Simulation) -> dict[int, Row]:
    """The clock rows by the seconds from the start to the window's."""
    return {round(row.x["clock/elapsed_s"]): row for unit, row in sim.final().items() if unit.kind == "clock"}


def sums(sim: Simulation) -> dict[int, float | None]:
    return {start: row.values.get("clock/generator/x") for start, row in windows(sim).items()}


def status_of(sim: Simulation) -> Status:
    trends = Trends(lead="trainer")
    trends.note(sim.rows())
    return survey(sim.experiment, (), now=sim.now, wall=T0 + 1000, trends=trends)


def equals_reference(sim: Simulation) -> bool:
    folder = sim.directory / "rlship"
    files = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    return not differing(final_rows(files, settings=Settings(samples_every=1)), sim.final())


def test_a_restart_takes_nothing_from_the_attempt_before_it() -> None:
    """A killed attempt's lines count though clocks let them seem later than the open of the next one."""
    with simulation() as sim:
        sim.write("a.jsonl", file(SUMS, *(stream(t, x=1) for t in (1, 12, 21, 22)), actor="generator", id="a"))
        later = {"actor": "generator", "id": "b", "attempt": 1, "t": T0 + 20}
        sim.write("b.jsonl", file(SUMS, *(stream(t, x=10) for t in (23, 31)), CLOSE, **later))
        sim.finish()
        assert sum(value or 0 for value in sums(sim).values()) == 24
        assert equals_reference(sim)


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), NAMELESS], ids=["jobs", "one rank"])
def test_streams_of_two_submissions_do_not_mix(first: dict[str, object], second: dict[str, object]) -> None:
    """Once the second one began, what the first one still logs counts nowhere; before, all of it does. It is so live,
    over a restart of the sidecar, and by the reference.
    """
    with simulation() as sim:
        sim.write("a.jsonl", file(SUMS, *(stream(t, x=1) for t in (1, 12, 19, 20)), **first))
        sim.tick()
        sim.write("a.jsonl", more(*(stream(t, x=1) for t in (23, 31, 41))))
        sim.write("b.jsonl", file(SUMS, **second))
        sim.finish()
        assert sums(sim) == {0: 1, 10: 2, 20: 2, 30: 1, 40: 1}, "the second one has logged nothing yet"
        sim.restart()
        sim.write("b.jsonl", more(*(stream(t, x=100) for t in (21, 22, 33, 55))))
        sim.finish()
        assert sums(sim) == {0: 1, 10: 2, 20: 201, 30: 100, 40: None, 50: 100}
        assert windows(sim)[30].values["clock/generator/x/mean"] == 100
        assert (windows(sim)[20].coverage.lives, windows(sim)[30].coverage.lives) == (2, 1)
        assert equals_reference(sim)
        assert not [claim for claim in status_of(sim).claims if "jobs log" in claim]


@pytest.mark.parametrize(
    ("first", "second", "claim"),
    [(FIRST, SECOND, "2 jobs log as generator at one time"), (*NAMELESS, "2 writers claim generator/0/r0 at one time")],
    ids=["jobs", "one rank"],
)
def test_streams_that_go_on_for_over_a_minute_count_and_are_claimed(
    first: dict[str, object], second: dict[str, object], claim: str
) -> None:
    """As with steps: up to 60 s the second submission counts alone, beyond that both do, and the status says so."""
    with simulation() as sim:
        sim.write("a.jsonl", file(SUMS, stream(1, x=1), stream(25, x=1), **first))
        sim.write("b.jsonl", file(SUMS, stream(26, x=100), stream(180, x=100), **second))
        sim.write("a.jsonl", more(stream(80, x=1)))
        sim.finish()
        assert sums(sim) == {0: 1, 20: 100, 80: None, 180: 100}
        assert status_of(sim).claims == []
        sim.write("a.jsonl", more(stream(80.5, x=1)))
        sim.finish()
        assert sums(sim) == {0: 1, 20: 101, 80: 2, 180: 100}
        [said] = status_of(sim).claims
        assert said.startswith(claim) and not status_of(sim).complete
        assert equals_reference(sim)


def test_actors_that_never_closed_are_not_awaited_in_the_next_job() -> None:
    """Actors of Ray are killed with their driver. Those of the job before are missing nowhere once the next one began,
    in rows over time and beside the lead's steps, and in the status they do not count.
    """
    with simulation() as sim:
        for name, job, t in (("a", "one", 0.0), ("b", "two", 100.0)):
            steps = [line for step in range(3) for line in (log(step, loss=1), barrier(step, t + 10 * step + 9))]
            sim.write(f"t{name}.jsonl", file(*steps, CLOSE, id=f"t{name}", job=job, t=T0 + t))
            lines = [stream(t + 10 * step + 5, x=1) for step in range(3)]
            for number in range(2):
                opened = {"actor": "generator", "id": f"{name}{number}", "replica": f"{name}{number}", "job": job}
                sim.write(f"{name}{number}.jsonl", file(SUMS, *lines, **opened, t=T0 + t))
        sim.wait(100.0)
        sim.finish()
        found = [row.coverage for unit, row in sim.final().items() if unit.actor == "generator"]
        assert {(one.expected, one.missing, one.ranks) for one in found} == {
            (2, (), ("a0.0", "a1.0")),
            (2, (), ("b0.0", "b1.0")),
        }
        assert equals_reference(sim)
        [generator] = [stream for stream in status_of(sim).streams if stream.actor == "generator"]
        assert (status_of(sim).lacking, generator.missing) == ([], ["b0.0", "b1.0"]), "these were killed as well"


def test_steps_that_the_next_job_has_not_reached_are_the_first_ones() -> None:
    """What the first job finished stays complete, though the second one was killed before; and the status is that of
    the second one: its step, its value, its ranks.
    """
    with simulation() as sim:
        for name, job, last, t in (("a", "one", 9, 0.0), ("b", "two", 7, 100.0)):
            for number in range(2):
                steps = [line for step in range(last + 1) for line in logged(step, t, last)]
                opened = {"actor": "trainer", "id": f"{name}{number}", "replica": f"{name}{number}", "job": job}
                sim.write(f"{name}{number}.jsonl", file(*steps, **opened, t=T0 + t))
            sim.wait(100.0)
            sim.finish()
        rows = {unit.index: row for unit, row in sim.final().items() if unit.kind == "step"}
        assert {(row.coverage.expected, row.coverage.missing) for row in rows.values()} == {(2, ())}
        assert [rows[step].coverage.ranks[0] for step in (7, 8)] == ["b0.0", "a0.0"]
        assert equals_reference(sim)
        status = status_of(sim)
        [trainer], [loss] = status.actors, status.trends
        assert (trainer.step, trainer.ranks_seen, trainer.ranks_expected, trainer.missing) == (7, 2, 2, [])
        assert (loss.index, loss.value, loss.rows_since, loss.points) == (7, 7.0, 0, [7.0] * 8)
        assert status.complete
        # One line of the second job, and the step is its own.
        sim.write("b0.jsonl", more(log(8, loss=5) | {"t": T0 + 180}))
        sim.finish()
        row = sim.final()[Unit("trainer", "step", 8)]
        assert (row.coverage.expected, row.coverage.missing) == (2, ("b0.0", "b1.0"))
        assert equals_reference(sim)


def logged(step: int, t: float, last: int) -> tuple[dict[str, object], ...]:
    """A step whose loss is the last step of its job."""
    return log(step, loss=last) | {"t": T0 + t + step}, barrier(step, t + step)


def test_a_metric_that_only_the_first_submission_logged_stays_and_the_row_says_so() -> None:
    """The row has values of two submissions, or of two processes of a rank, though both are of attempt 0."""
    jobs = ({"job": "one", "replica": "a"}, {"job": "two", "replica": "b"})
    for first, second in (jobs, ({}, {})):
        files = {
            "a.jsonl": file(log(1, x=1, only_first=7), barrier(1, 1.0), CLOSE, id="a", **first),
            "b.jsonl": file(log(1, x=2), barrier(1, 101.0), CLOSE, id="b", t=T0 + 100, **second),
        }
        with simulation() as sim:
            for name, data in files.items():
                sim.write(name, data)
            sim.finish()
            [row] = sim.final().values()
            assert (row.values["trainer/x"], row.values["trainer/only_first"]) == (2, 7)
            assert (row.coverage.attempts, row.coverage.lives) == ((0,), 2)
            assert Row.from_json(row.to_json()) == row and b'"lives":2' in row.to_json()
            assert equals_reference(sim)
        assert final_rows({"b.jsonl": files["b.jsonl"]})[Unit("trainer", "step", 1)].coverage.lives == 1
