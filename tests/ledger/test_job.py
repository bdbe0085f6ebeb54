"""A healthy job of real processes has no breach, watched while it runs and replayed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards.tree import ROOT
from tests.kit.cases import long
from tests.ledger.groups import values
from tests.ledger.job import GROUPS, SAMPLES, group
from tests.pipeline.simulated import Simulation

PROCESSES = [("generator", 0), ("generator", 1), ("reward", 0), *(("trainer", rank) for rank in range(4))]
NORMAL = {"groups", "generated_samples", "trained_samples", "dropped_samples"}


@pytest.mark.parametrize("steps", [40, *long(500)])
def test_a_healthy_job_has_no_breach(tmp_path: Path, steps: int) -> None:
    """Padded batches, two epochs over the same prompts, dispatches that are done again, drops and a rollback, on two
    data-parallel ranks of two tensor ranks: every group is compared, without a breach.
    """
    started = [
        subprocess.Popen([sys.executable, "-m", "tests.ledger.job", tmp_path, actor, str(rank), str(steps)], cwd=ROOT)
        for actor, rank in PROCESSES
    ]
    live = Simulation(tmp_path)
    try:
        while any(process.poll() is None for process in started):
            live.tick()
            live.wait(0.5)
            for process in started:
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
        assert [process.returncode for process in started] == [0] * len(started)
        live.finish()
        found = values(live)
    finally:
        for process in started:
            process.kill()
        live.stop()
    check(found, steps)
    replayed = tmp_path / "again"
    (replayed / "rlship").mkdir(parents=True)
    for file in (tmp_path / "rlship").glob("*.jsonl"):
        (replayed / "rlship" / file.name).write_bytes(file.read_bytes())
    again = Simulation(replayed)
    again.finish()
    assert values(again) == found
    again.stop()


def check(found: dict[int, dict[str, float]], steps: int) -> None:
    """All groups are there, compared, and as they should be."""
    total: dict[str, float] = {}
    for row in found.values():
        for name, value in row.items():
            total[name] = total.get(name, 0) + value
    dropped = sum(group(step, number)["dropped"] for step in range(steps) for number in range(GROUPS))
    assert {name for name, value in total.items() if value} == NORMAL
    assert {"tokens_differs", "reward_differs"} <= total.keys()
    assert total["groups"] == steps * GROUPS
    assert total["generated_samples"] == steps * GROUPS * SAMPLES
    assert total["dropped_samples"] == dropped * SAMPLES
    assert total["trained_samples"] == (steps * GROUPS - dropped) * SAMPLES
