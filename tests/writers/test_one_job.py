"""One job whose workers are of all languages."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.endtoend.evidence import check_rows, shipped
from tests.endtoend.sidecar import rlship
from tests.writers.commands import command, init
from tests.writers.driver import Driver, files
from tests.writers.languages import LANGUAGES

pytestmark = pytest.mark.toolchain

STEPS = 5


def test_workers_of_all_languages_land_in_one_run(tmp_path: Path) -> None:
    """Rank i is a worker in the language i and logs i + 0.1 * step: rows hold mean, weighted mean, sum and maximum over
    all ranks, spans and events of all, and miss no rank.
    """
    experiment, world = tmp_path / "job", len(LANGUAGES)
    with ExitStack() as stack:
        drivers = [stack.enter_context(Driver(language, tmp_path)) for language in LANGUAGES]
        for rank, driver in enumerate(drivers):
            driver.tell(init(experiment, "trainer", rank=rank, world=world))
            driver.tell(
                command("define", "tokens", "sum", "tokens", "", ""), command("define", "top", "max", "", "", "")
            )
            for step in range(STEPS):
                driver.tell(
                    command("log", step, "", "loss", rank + 0.125 * step, "tokens", 1000 + rank, "top", rank),
                    command("log", step, rank + 1, "reward", rank),
                    command("span", step, "rollout", 0.25 * (rank + 1), ""),
                    command("event", step, "pushed", "bytes", "n:123"),
                    command("barrier", step),
                )
            driver.tell(command("close"))
        assert [driver.end() for driver in drivers if driver.end().code] == []
    assert len(files(experiment)) == world
    done = rlship(tmp_path / "home", "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    rows = shipped(experiment)
    check_rows(experiment, rows)
    assert [row.unit.index for row in rows] == list(range(STEPS))
    ranks = range(world)
    for step, row in enumerate(rows):
        assert (row.coverage.expected, row.coverage.missing, row.coverage.gap) == (world, (), 0)
        assert row.values["trainer/loss"] == sum(rank + 0.125 * step for rank in ranks) / world
        assert row.values["trainer/tokens"] == sum(1000 + rank for rank in ranks)
        assert row.values["trainer/top"] == world - 1
        weights = sum(rank + 1 for rank in ranks)
        assert abs(row.values["trainer/reward"] - sum((rank + 1) * rank for rank in ranks) / weights) < 1e-12
        assert abs(row.values["trainer/rollout_s"] - sum(0.25 * (rank + 1) for rank in ranks) / world) < 1e-3
        assert row.values["trainer/event/pushed"] == world
