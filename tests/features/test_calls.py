"""Two ranks of a job make the calls that docs/features.md names; each test looks at what comes of one in the rows."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RANK = """
import asyncio, sys, time
import rlship
from rlship import mlogger

folder, rank = sys.argv[1], int(sys.argv[2])
logger = rlship.init(folder, actor="trainer", rank=rank, world=2)
assert rlship.init(folder, actor="trainer", rank=rank, world=2) is logger
rlship.define({"length": ["mean", "max", "min", "std", "sum"], "answer": "first"})
rlship.define("busy_s", "max", per_rank=True)
rlship.define("temperature", stream=True)
rlship.log({"temperature": 50.0 + rank})  # before the first step: of no step

@rlship.span("score")
async def score():
    await asyncio.sleep(0)

def anywhere():
    rlship.record_metric("turns", rank + 1, rlship.Reduce.MAX)

def elsewhere():
    rlship.record_metric("turns", rank + 1, rlship.Reduce.SUM)

for step in range(2):
    rlship.set_step(step)
    rlship.log({"loss": 1.0 + rank}, weight=100 + 200 * rank)
    rlship.log({"loss_of_counts": {"n": 1 + rank, "sum": 6.0}})
    rlship.log({"length": [1 + rank, 5 + rank], "answer": 42 + rank, "busy_s": 2.0 - rank})
    mlogger.log({"norm": float("nan") if rank else 3.0})
    rlship.log({"lr": 0.001 * (1 + rank)})
    rlship.record_metric("tokens", 1000, ["sum", "rate"])
    anywhere()
    elsewhere()
    asyncio.run(score())
    tracer = rlship.Tracer("train")
    tracer.start()
    tracer.step("forward")
    tracer.step("backward")
    tracer.stop()
    rlship.event("checkpoint_saved", bytes=10)
    rlship.add_step_tag("warmup")
    rlship.clear_step_tags()
    if step:
        rlship.add_step_tag("eval")
    rlship.sample("rollouts", {"prompt": "1+1", "response": "2", "rank": rank}, score=float(rank))
    time.sleep(0.02)
    rlship.barrier(step)
rlship.close()
"""
LAUNCHER = ("RLSHIP_", "RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "JOB_COMPLETION_INDEX")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of both ranks, and the rows in rows.jsonl."""
    folder = tmp_path_factory.mktemp("calls") / "job"
    running = [subprocess.Popen([sys.executable, "-c", RANK, str(folder), str(rank)], env=plain()) for rank in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    rlship("watch", "--once", "--sink", "jsonl", str(folder))
    return folder


@pytest.fixture(scope="module")
def rows(experiment: Path) -> list[Row]:
    """The rows of the job."""
    return [json.loads(line) for line in (experiment / "rlship/state/rows.jsonl").read_bytes().splitlines()]


def plain() -> dict[str, str]:
    """The environment without what launchers say."""
    return {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER)}


def rlship(*args: str) -> str:
    """What the command line prints."""
    done = subprocess.run(
        [sys.executable, "-m", "rlship", *args], env=plain(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def step(rows: list[Row], index: int = 1) -> Row:
    """The row of a step."""
    (row,) = (row for row in rows if (row["kind"], row["index"]) == ("step", index))
    return row


def figures(rows: list[Row], metric: str) -> dict[str, float]:
    """What the row of step 1 says of a metric, by what comes after its name."""
    key = f"trainer/{metric}"
    return {
        name.removeprefix(key): value for name, value in step(rows)["m"].items() if f"{name}/".startswith(f"{key}/")
    }


def test_a_mean_by_weights(rows: list[Row]) -> None:
    """`weight=` makes the mean one over tokens of all ranks, not a mean of their means."""
    assert figures(rows, "loss") == {"": (1.0 * 100 + 2.0 * 300) / 400}


def test_a_mean_of_sums_and_counts(rows: list[Row]) -> None:
    """A value may be what was added up elsewhere: a sum and how many there were."""
    assert figures(rows, "loss_of_counts") == {"": 12.0 / 3}


def test_several_figures_of_one_metric(rows: list[Row]) -> None:
    """Five reductions are five keys; the first has the metric's own."""
    length = figures(rows, "length")
    assert length == {"": 3.5, "/max": 6.0, "/min": 1.0, "/std": pytest.approx(math.sqrt(4.25)), "/sum": 14.0}


def test_the_first_entry_wins(rows: list[Row]) -> None:
    """`first` is what the lowest rank logged first."""
    assert figures(rows, "answer") == {"": 42.0}


def test_two_places_that_reduce_differently(rows: list[Row]) -> None:
    """Both get their figure, each of all that was recorded under the name."""
    assert figures(rows, "turns") == {"": 2.0, "/sum": 6.0}


def test_a_nan_is_counted_and_poisons_nothing(rows: list[Row]) -> None:
    """The mean is that of the finite values, and how many were not is said beside it."""
    assert figures(rows, "norm") == {"": 3.0, "/nonfinite": 1.0}


def test_a_known_name_needs_no_definition(rows: list[Row]) -> None:
    """The catalogue knows `lr`: the last one of the lowest rank, not the mean over ranks."""
    assert figures(rows, "lr") == {"": 0.001}


def test_throughput(rows: list[Row]) -> None:
    """`rate` is what all ranks did in a second, each between its own barriers; before the second one there is no
    rate.
    """
    tokens = figures(rows, "tokens")
    assert tokens[""] == 2000.0
    assert tokens["/rate"] > 2000.0
    assert "trainer/tokens/rate" in step(rows, 0)["coverage"]["underivable"]


def test_which_rank_is_the_greatest(rows: list[Row]) -> None:
    """A metric declared per_rank keeps each rank's value, and names the rank of the greatest."""
    assert step(rows)["per_rank"]["trainer/busy_s"] == {"0.0": 2.0, "0.1": 1.0}
    assert figures(rows, "busy_s") == {"": 2.0, "/max": 2.0, "/min": 1.0, "/argmax_rank": 0.0}


@pytest.mark.parametrize("name", ["score", "train", "train/forward", "train/backward"])
def test_spans_are_metrics(rows: list[Row], name: str) -> None:
    """A span, here of a coroutine and by a Tracer, is a metric in seconds: the mean and the greatest over ranks."""
    took = figures(rows, f"{name}_s")
    assert set(took) == {"", "/max"}
    assert 0.0 <= took[""] <= took["/max"] < 60.0


def test_spans_are_a_trace(experiment: Path) -> None:
    """The same spans, with the events, make a file for Perfetto and chrome://tracing."""
    trace = json.loads(rlship("export", "--chrome-trace", "-o", "-", str(experiment)))["traceEvents"]
    named = {(event["ph"], event["name"]) for event in trace}
    assert named >= {("X", "score"), ("X", "train"), ("X", "train/forward"), ("i", "checkpoint_saved")}


def test_events_are_counted(rows: list[Row]) -> None:
    """How often something happened in the step, over both ranks."""
    assert figures(rows, "event/checkpoint_saved") == {"": 2.0}


def test_tags_of_a_step(rows: list[Row]) -> None:
    """A step has its own tags: one of step 1 is not one of step 0."""
    assert [step(rows, index)["tags"] for index in range(2)] == [["warmup"], ["eval", "warmup"]]


def test_every_observation_with_its_time(rows: list[Row]) -> None:
    """Of a metric declared `stream`, an observation without a step is a row of its own, over time."""
    points = [row for row in rows if row["kind"].startswith("point:")]
    assert sorted(row["m"]["point/trainer/temperature"] for row in points) == [50.0, 51.0]
    assert all(0.0 <= row["x"]["clock/elapsed_s"] < 60.0 for row in points)


def test_the_ranks_of_a_row(rows: list[Row]) -> None:
    """A row says which ranks are in it, and that no rank is missing."""
    for index in range(2):
        coverage = step(rows, index)["coverage"]
        assert (coverage["ranks"], coverage["expected"], coverage["missing"]) == (["0.0-1"], 2, [])


def test_one_line_on_the_console(experiment: Path, tmp_path: Path) -> None:
    """The console shows a row in a line, by actor, step and figures."""
    shown = rlship("watch", "--once", "--sink", "console", "--state-dir", str(tmp_path), str(experiment))
    (line,) = (line for line in shown.splitlines() if "  loss=1.75  " in line and "global_step=1 " in line)
    assert line.startswith("trainer global_step=1 ")
