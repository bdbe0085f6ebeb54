"""A host's clock is set back while the job runs."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.endtoend.evidence import check_rows, files_of, shipped
from tests.endtoend.job import CLEAN
from tests.endtoend.sidecar import watching

BACK_S = 7200.0
STEPS = 40
# `time.time` is what a worker asks; a clock that all processes share cannot be set in a test.
JOB = f"""
import signal, sys, time
signal.alarm(60)
rank, jump = int(sys.argv[2]), float(sys.argv[3])
real, back = time.time, 0.0
time.time = lambda: real() - back
import rlship
rlship.init(sys.argv[1], "trainer", rank=rank, world=2)
for step in range({STEPS}):
    if step == {STEPS} // 2:
        back = jump
    rlship.set_step(step)
    rlship.log({{"loss": step / 3 + rank}})
    rlship.record_metric("tokens", step, rlship.Reduce.SUM)
    rlship.barrier()
    time.sleep(0.02)
"""


def test_rows_do_not_mind_a_clock_that_goes_back(tmp_path: Path) -> None:
    """Times in one rank's file go back by two hours in the middle while the other rank's clock is right: every step is
    complete at once, in order, and with the figures of both.
    """
    experiment = tmp_path / "job"
    (experiment / "rlship").mkdir(parents=True)
    with watching(experiment, home=tmp_path / "home") as sidecar:
        job = [
            subprocess.Popen([sys.executable, "-c", JOB, experiment, str(rank), str(jump)], env=CLEAN)
            for rank, jump in enumerate((0.0, BACK_S))
        ]
        assert [rank.wait(60) for rank in job] == [0, 0]
        sidecar.until(lambda: len(shipped(experiment)) >= STEPS)
        assert sidecar.stop() == 0, sidecar.said()
    rows = shipped(experiment)
    check_rows(experiment, rows)
    assert [(row.unit.index, row.arrival.closed) for row in rows] == [(step, "complete") for step in range(STEPS)]
    assert all(row.coverage.ranks == ("0.0-1",) and not row.coverage.missing for row in rows)
    times = [
        [record["t"] for record in map(json.loads, data.splitlines()) if record.get("kind") == "barrier"]
        for data in files_of(experiment).values()
    ]
    back = [max(earlier - later for earlier, later in pairwise(of)) > BACK_S - 60 for of in times]
    assert sorted(back) == [False, True]
