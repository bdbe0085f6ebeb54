"""The way to the W&B server, with the real client, measured where the server stands."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.endtoend.evidence import check_rows, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import watching
from tests.loopback.backend import LoopbackBackend

STEPS = 8


def test_a_row_is_at_the_server_within_two_seconds_of_its_last_barrier(tmp_path: Path) -> None:
    """From the moment when the last rank's barrier is in its file until the server has the row: median under 2 s. In
    the end the server has each row once, as the store does.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with (
        LoopbackBackend() as backend,
        crew(experiment, "trainer", 2) as workers,
        watching(experiment, "wandb", home=home, settings=backend.environment(home)) as sidecar,
    ):
        last_barrier = []
        for step in range(STEPS):
            for worker in workers:
                worker.log({"loss": float(step)}, step)
                worker.barrier(step)
            for worker in workers:
                worker.flush()
            last_barrier.append(time.time())
            sidecar.until(
                lambda step=step: bool(backend.runs) and len(next(iter(backend.runs.values())).history) > step
            )
        (run,) = backend.runs.values()
        # The first row also waits for the client to start.
        seconds = [arrived - barrier for arrived, barrier in zip(run.arrived, last_barrier)][1:]
        assert statistics.median(seconds) < 2.0, seconds
        for worker in workers:
            worker.end()
        assert sidecar.stop() == 0, sidecar.said()
        assert run.finished

        rows = stored(experiment)
        check_rows(experiment, rows)
        assert run.value("store_id") in run.name
        assert [
            (line["_step"], line["_timestamp"], line["global_step"], line["trainer/loss"]) for line in run.rows()
        ] == [(row.arrival.row_number, row.t, row.unit.index, row.values["trainer/loss"]) for row in rows]
        assert run.rewritten == [] and run.resent == 0
