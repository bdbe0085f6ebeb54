"""A replay gives the final rows of those who watched, whatever happened meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.rows import ALERT, Unit
from rlship_sidecar.steps import Steps
from tests.kit.cases import statistical
from tests.pipeline.simulated import scratch, simulation
from tests.pipeline.streamed import streamed_experiments
from tests.pipeline.test_against_reference import arrive, check_numbering
from tests.reference.building import barrier, file, log, sample
from tests.reference.experiments import configurations, experiments
from tests.reference.reduction import Settings, differing, exactly, final_rows
from tests.replay.replaying import again, make, newest_rows, rows_in, without_empty

CASES = statistical(60)
EVERY = st.sampled_from((1, 3))  # `samples_every`


@pytest.mark.parametrize("restarts", [False, True], ids=["one sidecar", "restarts"])
@pytest.mark.parametrize("kind", [experiments, streamed_experiments], ids=["jobs", "streams"])
@CASES
@given(data=st.data())
def test_replayed_equals_watched(kind: st.SearchStrategy, restarts: bool, data: st.DataObject) -> None:  # type: ignore[type-arg]
    """Figures, coverage, attempts and x of every unit have equal bits, however the lines arrived for the sidecar that
    watched, and so have the rows of alerts; the others are those of the reference.
    """
    files = data.draw(kind())  # type: ignore[operator]
    overrides, every = data.draw(configurations()), data.draw(EVERY)
    with simulation(overrides=overrides, samples=SampleChoice(4, every), alerts=rules_of()) as sim:
        arrive(data, sim, files, restarts=restarts)
        sim.finish()
        out = sim.directory / "again"
        found = again(sim.directory, out, reductions=overrides, samples_every=every)
        assert found.finished
        rows = rows_in(out)
        replayed, watched = newest_rows(out), sim.final()
        assert exactly(without_empty(replayed, watched)) == exactly(without_empty(watched, replayed))
        of_files = {unit: row for unit, row in replayed.items() if unit.kind != ALERT}
        assert not differing(final_rows(files, overrides, Settings(samples_every=every)), of_files)
        check_numbering(rows)


@CASES
@given(data=st.data(), files=st.one_of(experiments(), streamed_experiments()))
def test_a_range_of_steps(data: st.DataObject, files: dict[str, bytes]) -> None:
    """With a range there are exactly those rows of the whole that have a step in it, bit by bit."""
    first, every = data.draw(st.integers(0, 6)), data.draw(EVERY)
    steps = Steps(first, first + data.draw(st.integers(0, 4)))
    with scratch() as folder:
        experiment = make(folder / "job", files)
        again(experiment, folder / "all", samples_every=every)
        again(experiment, folder / "some", steps, samples_every=every)
        whole = newest_rows(folder / "all")
        wanted = {unit: row for unit, row in whole.items() if _has_step(unit) and unit.index in steps}
        some = newest_rows(folder / "some")
        assert exactly(without_empty(some, wanted)) == exactly(without_empty(wanted, some))


def _has_step(unit: Unit) -> bool:
    return unit.kind in ("step", "aligned")


@pytest.mark.parametrize("short_window", [20, 0])
def test_a_range_shows_no_table_that_a_step_before_it_shows(tmp_path: Path, short_window: int) -> None:
    """Of ten steps the first with a table shows it, and only it, though a replay of some steps has no row of it."""
    records = [record for step in range(3, 8) for record in (log(step, loss=1.0), sample(1, step=step))]
    records += [sample(2, step=6, table="eval"), barrier(7)]
    experiment = make(tmp_path / "job", {"a.jsonl": file(*records)})
    again(experiment, tmp_path / "some", Steps(5, 7), samples_every=10, short_window=short_window)
    found = newest_rows(tmp_path / "some")
    assert {unit.index: list(row.samples) for unit, row in found.items()} == {5: [], 6: ["eval"], 7: []}
