"""A job's W&B run by the sidecar, beside the one that the same job makes by itself: the same names, axes and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.wandb.file import RecordReader, history
from tests.endtoend.sidecar import rlship
from tests.facade.jobs import run

TRL = """
wandb.init(project="p", name="n", config={"lr": 1e-6})
wandb.define_metric("train/global_step")
wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
for step in range(1, 5):
    for name in ("generate", "reward"):
        wandb.log({f"profiling/Time taken: {name}": 0.25 * step})
    wandb.log({"train/loss": 1 / step, "train/reward": step * 0.5, "train/epoch": step / 10, "train/global_step": step})
wandb.log({"train/train_runtime": 12.5, "train/global_step": 4})
wandb.finish()
"""

SLIME = """
wandb.init(id="one", settings=wandb.Settings(mode="offline", console="off"), resume="allow", reinit=True, group="g")
axes = {"train/step": ["train/*"], "rollout/step": ["rollout/*", "perf/*"], "eval/step": ["eval/*"]}
for axis, names in axes.items():
    wandb.define_metric(axis)
    for name in names:
        wandb.define_metric(name, step_metric=axis)
for step in range(3):
    wandb.log({"rollout/reward": 0.1 * step, "perf/tokens": 100 + step, "rollout/step": step})
    wandb.log({"train/loss": 3.0 - step, "train/grad_norm": 1.5, "train/step": 2 * step})
    wandb.log({"train/loss": 2.5 - step, "train/grad_norm": 1.25, "train/step": 2 * step + 1})
wandb.log({"eval/aime": 0.5, "eval/step": 2})
wandb.finish()
"""

STEPS = """
run = wandb.init(project="p", entity=None)
for step in range(5):
    run.log(data={"actor/pg_loss": 0.1 * step, "critic/score/mean": 1.0 * step}, step=step)
run.finish()
"""

COUNTED = """
wandb.init()
for n in range(4):
    wandb.log({"a": n}, commit=False)
    wandb.log({"b": {"c": n * n}})
wandb.finish()
"""


def by_axis(rows: Iterator[dict[str, Any]], axes: dict[str, str]) -> dict[tuple[str, float], dict[str, float]]:
    """Of rows of a run: the values at each value of their axis. `axes` maps the beginnings of names to axes."""
    found: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        for key, value in row.items():
            axis = next((axis for start, axis in axes.items() if key.startswith(start)), None)
            if axis is not None and axis in row and key != axis and isinstance(value, int | float):
                found.setdefault((axis, row[axis]), {})[key] = value
    return found


def definitions(file: Path) -> dict[str, str]:
    """The step metric of each name that has one."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = {}
    for data in RecordReader(file).read():
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "metric" and record.metric.step_metric:
            found[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    return found


@pytest.mark.parametrize(
    ("code", "axes", "ours"),
    [
        (TRL, {"train/": "train/global_step"}, {}),
        pytest.param(
            SLIME,
            {"train/": "train/step", "rollout/": "rollout/step", "perf/": "rollout/step", "eval/": "eval/step"},
            {},
            marks=pytest.mark.long,
        ),
        pytest.param(
            STEPS, {"actor/": "_step", "critic/": "_step"}, {"_step": "zz_rlship/_step"}, marks=pytest.mark.long
        ),
        pytest.param(COUNTED, {"a": "_step", "b": "_step"}, {"_step": "zz_rlship/_step"}, marks=pytest.mark.long),
    ],
    ids=["trl", "slime", "steps", "counted"],
)
def test_reports_go_on_working(tmp_path: Path, code: str, axes: dict[str, str], ours: dict[str, str]) -> None:
    """The sidecar's run has every value of the job's own one under the same name, at the same value of the same axis,
    and charts it over that axis. (`_step` is the row's number there, so the job's has a name of rlship's.)
    """
    for name in ("real", "job"):
        (tmp_path / name).mkdir()
    run(tmp_path / "real", code, patched=False, WANDB_MODE="offline")
    (file,) = (tmp_path / "real" / "wandb").glob("offline-run-*/*.wandb")
    wanted = by_axis(history(file), axes)
    assert wanted
    job = run(tmp_path / "job", code)
    done = rlship(
        tmp_path / "home", "watch", job.experiment, "--once", "--sink", "wandb", settings={"WANDB_MODE": "offline"}
    )
    assert done.returncode == 0, done.stderr
    (file,) = (job.experiment / "rlship" / "state" / "wandb").glob("offline-run-*/*.wandb")
    shown = by_axis(history(file), {start: ours.get(axis, axis) for start, axis in axes.items()})
    assert shown == {(ours.get(axis, axis), x): values for (axis, x), values in wanted.items()}
    charted = definitions(file)
    for (axis, _), values in shown.items():
        assert {charted[name] for name in values} == {axis}


def test_calls_without_a_step_are_charted_at_their_step(tmp_path: Path) -> None:
    """TRL's profiling calls are under their names too, at the step during which they were made; further reductions of
    them begin with the actor.
    """
    job = run(tmp_path, TRL)
    rlship(tmp_path / "home", "watch", job.experiment, "--once", "--sink", "wandb", settings={"WANDB_MODE": "offline"})
    (file,) = (job.experiment / "rlship" / "state" / "wandb").glob("offline-run-*/*.wandb")
    name = "profiling/Time taken: generate"
    found = {row["train/global_step"]: row for row in history(file) if name in row}
    assert {step: row[name] for step, row in found.items()} == {step: 0.25 * step for step in range(1, 5)}
    assert found[2][f"trainer/{name}/max"] == 0.5
    assert any(key.startswith(f"trainer/{name}/hist") for key in found[2])


def test_a_histogram_is_one_at_wandb(tmp_path: Path) -> None:
    """`wandb.Histogram` has its own edges and counts in the sidecar's run, under its own name."""
    code = """
wandb.init()
wandb.log({"grads": wandb.Histogram(np_histogram=([2, 0, 1], [0.0, 1.0, 2.0, 3.0])), "loss": 0.5}, step=3)
wandb.finish()
"""
    job = run(tmp_path, code)
    done = rlship(
        tmp_path / "home", "watch", job.experiment, "--once", "--sink", "wandb", settings={"WANDB_MODE": "offline"}
    )
    assert done.returncode == 0, done.stderr
    (file,) = (job.experiment / "rlship" / "state" / "wandb").glob("offline-run-*/*.wandb")
    (row,) = (row for row in history(file) if "loss" in row)
    shown = {key: value for key, value in row.items() if key.startswith("grads")}
    assert shown == {"grads._type": "histogram", "grads.values": [2, 0, 1], "grads.bins": [0, 1, 2, 3]}
    assert row["trainer/grads/mean"] == 3.5 / 3
