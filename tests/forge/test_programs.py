"""Programs with Forge's calls, of which only the import is another: what comes of them in files and rows.

The figures and keys are those that Forge's documentation prints for such programs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.wandb.file import history
from tests.kit.verbs import run_here
from tests.writer.reading import CLEAN, MORTAL, files, kinds, merged, metrics, program, whole

BEGIN = """
import asyncio, os, sys
from rlship.forge import record_metric, Reduce, Tracer, trace, get_or_create_metric_logger

def run(main):
    asyncio.run(main(sys.argv[1]))
"""
FIGURES = (
    BEGIN
    + """
def anywhere(number):
    record_metric("my_sum_metric", number, Reduce.SUM)
    record_metric("my_max_metric", number, reduction=Reduce.MAX)
    record_metric("my_min_metric", number, reduce_type=Reduce.MIN)
    record_metric(key="my_std_metric", value=number, reduction=Reduce.STD)
    record_metric("my_mean_metric", number, Reduce.MEAN)
    record_metric("my_default_metric", number)

async def main(folder):
    os.environ["RLSHIP_DIR"] = folder
    mlogger = await get_or_create_metric_logger(process_name="Controller")
    assert await get_or_create_metric_logger(None, "Controller") is mlogger
    await mlogger.init_backends.call_one({
        "console": {"logging_mode": "global_reduce"},
        "wandb": {"project": "p", "group": "g", "name": "n", "logging_mode": "global_reduce"},
    })
    for step, flush in enumerate([mlogger.flush.call_one, mlogger.flush, mlogger.flush.call]):
        for number in range(1, 4):
            anywhere(number * 10**step)
        record_metric("rollouts", {"prompt": "a", "reward": 0.5}, Reduce.SAMPLE)
        record_metric("scored", {"prompt": "b", "reward": 0.5, "score": 2}, Reduce.SAMPLE)
        await (flush(step) if step else flush(global_step=0))
    await mlogger.shutdown.call_one()

run(main)
"""
)
WORKERS = """
import subprocess
WORKER = '''
import sys
from rlship.forge import record_metric, Reduce
for _ in range(2):
    record_metric("my_sum_rank_metric", int(sys.argv[1]), Reduce.SUM)
'''

async def main(folder):
    mlogger = await get_or_create_metric_logger(process_name="Controller")
    await mlogger.init_backends.call_one({"console": {"logging_mode": "global_reduce"}})
    ranks = [0, 1, 0, 1]  # two replicas of two processes
    started = [subprocess.Popen([sys.executable, "-c", WORKER, str(rank)]) for rank in ranks]
    assert [process.wait(60) for process in started] == [0] * 4
    record_metric("loss", 0.5)
    await mlogger.flush.call_one(global_step=0)
    await mlogger.shutdown.call_one()

run(main)
"""
TIMED = """
import time
async def main(folder):
    mlogger = await get_or_create_metric_logger(process_name="Controller")
    tracer = Tracer(prefix="loop", track_memory=False, timer="cpu")

    @trace(prefix="reward_fn", track_memory=False, timer="cpu")
    async def reward(x):
        await asyncio.sleep(0)
        return x + 1

    @trace("plain")
    def plain(x):
        return x + 1

    for _ in range(2):
        tracer.start()
        for _ in range(3):
            tracer.step("matmul")
        tracer.stop()
    with trace(prefix="train_step", timer="cpu") as t:
        t.step("fwd")
        t.step("bwd")
    with Tracer("whole"):
        pass
    assert (await reward(1), plain(2), reward.__name__) == (2, 3, "reward")
    await mlogger.flush(global_step=7)

run(main)
"""
DURATIONS = ("loop/matmul", "train_step/fwd", "train_step/bwd")
TOTALS = ("loop", "reward_fn", "plain", "train_step", "whole")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows that the sidecar makes of the files."""
    done = run_here("watch", "--once", "--sink", "jsonl", folder, cwd=folder, env=CLEAN)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "rlship/state/rows.jsonl").read_bytes().splitlines()]


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of the only file there."""
    (path,) = files(folder)
    return [json.loads(line) for line in whole(path)]


def test_each_flush_is_a_step_with_the_figures_of_the_documentation(tmp_path: Path) -> None:
    """What was recorded before a flush is reduced into its step, in every spelling of the calls."""
    program(FIGURES, tmp_path)
    rows = rows_of(tmp_path)
    assert [(row["actor"], row["kind"], row["index"]) for row in rows] == [("trainer", "step", n) for n in range(3)]
    for step, row in enumerate(rows):
        scale = 10.0**step
        assert row["m"] == {
            "trainer/my_sum_metric": 6.0 * scale,
            "trainer/my_max_metric": 3.0 * scale,
            "trainer/my_min_metric": 1.0 * scale,
            "trainer/my_std_metric": pytest.approx((2 / 3) ** 0.5 * scale),
            "trainer/my_mean_metric": 2.0 * scale,
            "trainer/my_default_metric": 2.0 * scale,
        }
        assert row["coverage"]["missing"] == []


def test_a_sample_has_the_score_or_the_reward_of_its_dict(tmp_path: Path) -> None:
    """A dict with `Reduce.SAMPLE` is a row of the table of that key."""
    program(FIGURES, tmp_path)
    found = [(one["table"], one["score"], one["row"]) for one in read(tmp_path) if one.get("kind") == "sample"]
    assert found[:2] == [
        ("rollouts", 0.5, {"prompt": "a", "reward": 0.5}),
        ("scored", 2, {"prompt": "b", "reward": 0.5, "score": 2}),
    ]


def test_the_file_says_what_the_backends_were_told(tmp_path: Path) -> None:
    """Project, group and name of W&B's settings are run data; the first line names the source of the file."""
    program(FIGURES, tmp_path)
    found = read(tmp_path)
    assert found[0]["actor"] == "trainer"
    assert found[0]["labels"] == {"source": "forge", "process_name": "Controller"}
    run = merged(found)
    assert (run["project"], run["group"], run["name"]) == ("p", "g", "n")
    assert kinds(found)[-1] == "close"


def test_processes_that_never_flush_are_reduced_together(tmp_path: Path) -> None:
    """Two replicas of two processes that record their rank twice sum to 4.0 at the controller's step."""
    program(BEGIN + WORKERS, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    assert len(files(tmp_path)) == 5
    found = {(row["actor"], row["kind"]): row for row in rows_of(tmp_path)}
    worker = found["worker", "aligned"]
    assert (worker["index"], worker["m"]["worker/my_sum_rank_metric"]) == (0, 4.0)
    assert found["trainer", "step"]["m"] == {"trainer/loss": 0.5}


@pytest.mark.long
def test_names_at_wandb_are_those_of_the_job(tmp_path: Path) -> None:
    """The sidecar's W&B run has what controller and workers recorded under the job's own names, as Forge's run does."""
    program(BEGIN + WORKERS, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    done = run_here(
        "watch", "--once", "--sink", "wandb", tmp_path, cwd=tmp_path, env={**CLEAN, "WANDB_MODE": "offline"}
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "rlship" / "state" / "wandb").glob("offline-run-*/*.wandb")
    shown = [row for row in history(file) if "global_step" in row]
    assert [row["loss"] for row in shown if "loss" in row] == [0.5]
    assert [row["my_sum_rank_metric"] for row in shown if "my_sum_rank_metric" in row] == [4.0]


def test_workers_find_the_folder_of_the_controller_that_started_them(tmp_path: Path) -> None:
    """Without RLSHIP_DIR the files are in `outputs/<process>-<time>`, those of processes started later too."""
    done = started(BEGIN + WORKERS, tmp_path)
    (folder,) = (tmp_path / "outputs").iterdir()
    assert folder.name.startswith("controller-20")
    assert len(files(folder)) == 5
    assert done.stderr.count("trainer writes to") == 1


@pytest.mark.parametrize(
    ("settings", "folder"),
    [({"project": "grpo", "name": "try 3"}, "outputs/grpo/try-3"), ({"name": "../up"}, "outputs/-up")],
)
def test_a_named_run_has_a_folder_of_that_name(tmp_path: Path, settings: dict[str, str], folder: str) -> None:
    """W&B's project and name give the folder, which a restart finds again. None of them leads out of `outputs`."""
    source = f"""
async def main(folder):
    mlogger = await get_or_create_metric_logger()
    await mlogger.init_backends.call_one({{"wandb": {settings!r}}})
run(main)
"""
    started(BEGIN + source, tmp_path)
    assert len(files(tmp_path / folder)) == 1


def observations(lines: list[dict[str, Any]], name: str) -> int:
    """How many of a metric there are. On a busy machine the writing thread comes between, and a step has several
    lines.
    """
    found = [line["m"][name] for line in lines if name in line["m"]]
    return sum(len(one) if isinstance(one, list) else 1 for one in found)


def test_durations_have_the_keys_of_the_documentation_and_no_others(tmp_path: Path) -> None:
    """A step has its mean and its greatest duration, the whole too; no span makes a second chart of them."""
    program(BEGIN + TIMED, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    (row,) = rows_of(tmp_path)
    wanted = {f"{name}/duration_{one}_s" for name in DURATIONS for one in ("avg", "max")}
    wanted |= {f"{name}/total_duration_{one}_s" for name in TOTALS for one in ("avg", "max")}
    assert row["m"].keys() == {f"trainer/{key}" for key in wanted}
    assert row["index"] == 7
    assert "span" not in kinds(read(tmp_path))
    lines = metrics(read(tmp_path))
    assert [observations(lines, f"loop/{key}_s") for key in ("matmul/duration_avg", "total_duration_max")] == [6, 2]


@pytest.mark.parametrize(
    ("flushed", "shown"),
    [([0, 1, 2, 3], [0, 1, 2, 3]), ([500, 501, 502], [500, 501, 502]), ([10, 20, 30, 40], [10, 11, 30, 40])],
)
def test_a_flush_of_each_tenth_step_is_shown_there(tmp_path: Path, flushed: list[int], shown: list[int]) -> None:
    """From the third flush on the distance of the steps is known; the second one is shown right after the first."""
    source = f"""
async def main(folder):
    mlogger = await get_or_create_metric_logger()
    for step in {flushed}:
        record_metric("loss", step)
        await mlogger.flush.call_one(step)
run(main)
"""
    program(BEGIN + source, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    rows = [(row["index"], row["m"]["trainer/loss"]) for row in rows_of(tmp_path) if row["m"]]
    assert rows == list(zip(shown, flushed))


def test_forge_disable_metrics_makes_every_call_a_no_op(tmp_path: Path) -> None:
    """The variable that turns Forge's metrics off does so here: no file, no folder, no word."""
    done = program(FIGURES + TIMED, tmp_path, env={"FORGE_DISABLE_METRICS": "true"})
    assert (list(tmp_path.iterdir()), done.stderr) == ([], "")


def test_the_jobs_own_init_wins(tmp_path: Path) -> None:
    """A process that called `rlship.init` writes one file: its own."""
    source = """
import rlship
async def main(folder):
    rlship.init(folder, actor="learner")
    mlogger = await get_or_create_metric_logger()
    await mlogger.init_backends.call_one({"console": {}})
    record_metric("loss", 1.0)
    await mlogger.flush.call_one(3)
run(main)
"""
    program(BEGIN + source, tmp_path)
    found = read(tmp_path)
    assert (found[0]["actor"], "labels" in found[0]) == ("learner", False)
    assert [one["step"] for one in found if one.get("kind") == "barrier"] == [3]


def test_calls_before_the_metric_logger_are_kept(tmp_path: Path) -> None:
    """A process that records before it asks for its metric logger has two files: a worker's, and then the lead's."""
    source = """
async def main(folder):
    record_metric("early", 1.0)
    mlogger = await get_or_create_metric_logger()
    record_metric("loss", 1.0)
    await mlogger.flush.call_one(0)
run(main)
"""
    program(BEGIN + source, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    found = {row["actor"]: (row["kind"], row["m"]) for row in rows_of(tmp_path)}
    assert found == {"worker": ("clock", {"clock/worker/early": 1.0}), "trainer": ("step", {"trainer/loss": 1.0})}


def test_wrong_use_is_said_and_never_raised(tmp_path: Path) -> None:
    """Steps, reductions, values and orders of calls that cannot be are reported once; the job goes on."""
    source = """
async def main(folder):
    mlogger = await get_or_create_metric_logger()
    for _ in range(2):
        await mlogger.flush.call_one("x")
        await mlogger.flush.call_one()
        await mlogger.init_backends.call_one({"wandb": None, "console": {"logging_mode": "per_rank_reduce"}})
        record_metric("a", object(), Reduce.MEAN)
        record_metric("b", 1.0, "average")
        record_metric("c", 1.0, Reduce.SAMPLE)
        tracer = Tracer("t", timer="tpu")
        tracer.stop()
        tracer.step("s")
        tracer.start()
        tracer.start()
        tracer.stop()
    mlogger.flush.broadcast(1).get()
    print("end")
run(main)
"""
    done = program(BEGIN + source, tmp_path, env={"RLSHIP_DIR": str(tmp_path)})
    assert done.stdout == "end\n"
    for word in (
        "step='x'",
        "flush: TypeError",
        "logging_mode",
        "'a'",
        "average",
        "'c'",
        "timer='tpu'",
        "stop() before",
    ):
        assert done.stderr.count(word) == 1, (word, done.stderr)


def started(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `source` in a folder, with no variable of rlship's."""
    done = subprocess.run(
        [sys.executable, "-c", MORTAL + source, str(folder)], cwd=folder, env=CLEAN, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done
