"""The calls that frameworks make, with their functions, keywords and order, by programs of our own: what the files hold
is what W&B's own file of the same program holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.wandb.file import history
from tests.facade.jobs import Job, events, rows_of, run, said, samples
from tests.facade.test_reports import by_axis


@dataclass(frozen=True)
class Framework:
    """A program, the axes of its metrics by the beginnings of their names, and what else its files hold."""

    code: str
    axes: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    events: tuple[str, ...] = ()


FRAMEWORKS = {
    "verl": Framework(
        """
        class Tracking:
            def __init__(self):
                wandb.init(project="proj", name="exp", entity=None, config={"trainer": {"lr": 1e-6}}, settings=None)
                self.logger = wandb
            def log(self, data, step):
                self.logger.log(data=data, step=step)
            def __del__(self):
                self.logger.finish(exit_code=0)
        tracking = Tracking()
        table = wandb.Table(columns=["step", "input_1", "output_1"], log_mode="INCREMENTAL")
        for step in range(1, 5):
            tracking.log(data={"actor/pg_loss": 0.5 / step, "timing_s/step": 2.0, "training/epoch": 0}, step=step)
            if step % 2 == 0:
                table.add_data(step, f"in {step}", f"out {step}")
                wandb.log({"val/generations": table}, step=step)
        del tracking
        """,
        {"actor/": "_step", "timing_s/": "_step", "training/": "_step"},
        {"trainer": {"lr": 1e-6}},
        {"val/generations": 2},
    ),
    "OpenRLHF": Framework(
        """
        if not wandb.api.api_key:
            wandb.login(key="k" * 40)
        wandb.login(key="k" * 40)
        wandb.init(entity=None, project="p", group="g", name="n", config={"a": 1}, reinit=True)
        wandb.define_metric("train/global_step")
        wandb.define_metric("train/*", step_metric="train/global_step", step_sync=True)
        wandb.define_metric("eval/epoch")
        wandb.define_metric("eval/*", step_metric="eval/epoch", step_sync=True)
        for step in range(1, 4):
            logs = {"policy_loss": 0.1 * step, "reward": step, "global_step": step}
            table = wandb.Table(columns=["global_step", "text", "reward"], data=[[step, "t", 0.5]])
            wandb.log({"train/generated_samples": table})
            wandb.log({f"train/{k}": v for k, v in logs.items()})
        wandb.log({"eval/acc": 0.75, "eval/epoch": 1})
        wandb.finish()
        """,
        {"train/": "train/global_step", "eval/": "eval/epoch"},
        {"a": 1},
        {"train/generated_samples": 3},
    ),
    "SkyRL": Framework(
        """
        wandb.init(project="p", name="exp", config={"a": 1})
        for step in range(3):
            wandb.log(data={"loss": 0.5 * step}, step=step, commit=False)
            wandb.log(data={"reward": 0.25 * step}, step=step, commit=True)
            assert wandb.run.step == step + 1 and wandb.run.name == "exp"
            wandb.run.summary["best"] = step
        wandb.log({"eval/table": wandb.Table(columns=["a"], data=[[1], [2]])}, step=3, commit=True)
        wandb.finish()
        """,
        {"loss": "_step", "reward": "_step"},
        {"a": 1},
        {"eval/table": 2},
    ),
    "NeMo-RL": Framework(
        """
        run = wandb.init(project="p", name="n", dir=".")
        run.config.update({"policy": {"lr": 1}})
        run.define_metric("ray/*", step_metric="ray/ray_step")
        run.log({"ray/mem": 1.0, "ray/ray_step": 0}, commit=False)
        for step in range(1, 4):
            run.log({"train/loss": 1.0 / step, "train/lr": 0.5}, step=step)
            run.log({"timing/train/step": 2.0 * step}, step=step)
            run.log({"ray/mem": float(step), "ray/ray_step": step}, commit=False)
        run.log({"train/token_mult": wandb.Histogram([1, 2, 3])}, step=4)
        run.log({"val/text": wandb.Table(columns=["q", "a"], data=[["1", "2"]])}, step=4)
        open("config.yaml", "w").write("a: 1")
        wandb.save("config.yaml", policy="live")
        artifact = wandb.Artifact("code", type="code")
        artifact.add_file("config.yaml")
        run.log_artifact(artifact)
        run.finish()
        """,
        {"train/l": "_step", "timing/": "_step", "ray/": "ray/ray_step"},
        {"policy": {"lr": 1}},
        {"val/text": 1},
        ("saved", "artifact"),
    ),
    "prime-rl": Framework(
        """
        import wandb.errors, wandb.sdk.mailbox
        settings = wandb.Settings(x_primary=True, x_label="trainer", console="off")
        wandb.init(id="abc", project="p", name="n", dir=".", resume="allow", config={"a": {"b": 1}}, settings=settings)
        wandb.define_metric("*", step_metric="step")
        wandb.define_metric("inference/*", step_metric="_timestamp")
        for step in range(3):
            wandb.log({"inference/queue": step})
            wandb.log({"loss/mean": 0.5 * step, "step": step})
            wandb.log({"perf/mfu": 0.25 * step, "step": step})
        wandb.finish(exit_code=0)
        """,
        {"loss/": "step", "perf/": "step"},
        {"a": {"b": 1}},
    ),
    "ROLL": Framework(
        """
        wandb.login(key="k" * 40)
        run = wandb.init(project="p", name="n", tags=["a"], notes="x", settings={"console": "off"}, dir=".")
        run.config.update({"a": 1}, allow_val_change=True)
        for step in range(3):
            run.log({"critic/kl": 0.1 * step}, step=step)
        run.finish()
        """,
        {"critic/": "_step"},
        {"a": 1},
    ),
    "AReaL": Framework(
        """
        wandb.login()
        wandb.init(entity=None, project="p", name="n", job_type="train", group="g", notes="x", tags=["a"],
                   config={"a": 1}, dir=".", force=True, id="n_train", resume="allow")
        for step in range(3):
            wandb.log({"ppo_actor/loss": 0.5 * step}, step=step)
            wandb.log({"rollout/reward": 1.0 * step}, step=step)
        wandb.finish()
        """,
        {"ppo_actor/": "_step", "rollout/": "_step"},
        {"a": 1},
    ),
    "tinker": Framework(
        """
        import os
        assert os.environ.get("WANDB_API_KEY")
        run = wandb.init(project="p", config=None, dir=".", name="n")
        wandb.config.update({"a": {"b": 1}}, allow_val_change=True)
        for step in range(3):
            run.log({"env/reward": 0.5 * step, "progress/batch": step}, step=step)
        print(run.url)
        wandb.finish()
        """,
        {"env/": "_step", "progress/": "_step"},
        {"a": {"b": 1}},
    ),
    "accelerate": Framework(
        """
        run = wandb.init(project="p", name="n")
        wandb.config.update({"lr": 0.5}, allow_val_change=True)
        for step in range(3):
            run.log({"train_loss": 0.5 * step}, step=step)
        run.log({"t": wandb.Table(columns=["a"], data=[[1]], dataframe=None)}, step=2)
        run.log({"pages": [wandb.Html("x", inject=False)]}, step=2)
        run.finish()
        """,
        {"train_loss": "_step"},
        {"lr": 0.5},
        {"t": 1},
        ("media",),
    ),
    "Lightning": Framework(
        """
        run = wandb.init(name=None, project="p", dir=".", id="v1", resume="allow")
        if getattr(run, "define_metric", None):
            run.define_metric("trainer/global_step")
            run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        run.config.update({"hidden": 8}, allow_val_change=True)
        for step in range(0, 30, 10):
            run.log(dict({"train_loss": 0.5 * step}, **{"trainer/global_step": step}))
            run.log(dict({"val_acc": 0.01 * step, "epoch": step // 10}, **{"trainer/global_step": step}))
        """,
        {"train_loss": "trainer/global_step", "val_acc": "trainer/global_step", "epoch": "trainer/global_step"},
        {"hidden": 8},
    ),
    "torchtitan": Framework(
        """
        wandb.init(entity=None, project="p", name="n", id="i", notes="x", tags=["a"], group="g", job_type="pretrain",
                   resume_from=None, fork_from=None, dir=".", config={"a": 1})
        for step in (1, 10, 20):
            wandb.log({"loss_metrics/global_avg_loss": 5.0 / step, "memory/max": 0.5}, step=step)
        if wandb.run is not None:
            wandb.finish()
        """,
        {"loss_metrics/": "_step", "memory/": "_step"},
        {"a": 1},
    ),
    "transformers": Framework(
        """
        wandb.init(project="huggingface", name="out")
        config = {"lr": 1e-5, "nested": {"a": None}, "_name_or_path": "org/model"}
        wandb.config.update(config, allow_val_change=True)
        wandb.define_metric("train/global_step")
        wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
        wandb.run._label(code="transformers_trainer")
        wandb.config["model/num_parameters"] = 1000
        for step in (1, 2, 3):
            wandb.log({"profiling/Time taken: x": 0.5})
            wandb.log({"train/loss": 1.0 / step, "train/epoch": step / 3, "train/global_step": step})
        for key, value in {"train_runtime": 1.5, "train_loss": 0.75}.items():
            wandb.run.summary[key] = value
        wandb.log({"train/total_flos": 10.0, "train/global_step": 3})
        wandb.finish()
        """,
        {"train/": "train/global_step"},
        {"lr": 1e-5, "nested": {"a": None}, "_name_or_path": "org/model", "model/num_parameters": 1000},
    ),
}


def rows(job: Job, wanted: dict[tuple[str, float], dict[str, float]]) -> dict[tuple[str, float], dict[str, float]]:
    """The values of the rows of steps by axis and step, of the names in `wanted`."""
    names = {name for values in wanted.values() for name in values}
    found: dict[tuple[str, float], dict[str, float]] = {}
    for unit, row in rows_of(job.experiment).items():
        ((axis, x),) = row.x.items() if unit.kind == "step" else [("", 0)]
        for key, value in row.values.items():
            if axis and (name := key.removeprefix(f"{unit.actor}/")) in names:
                found.setdefault((axis, x), {})[name] = value
    return found


# Those whose calls differ most; `make test-all` has the others.
SOON = ("verl",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOON else (pytest.mark.long,)) for name in FRAMEWORKS]
)
def test_calls_of(tmp_path: Path, name: str) -> None:
    """Every number that W&B's file has, the rows have: at the same value of the same axis, and no other. The config is
    there, the rows of tables are samples, and files are events.
    """
    compare(tmp_path, FRAMEWORKS[name])


def compare(tmp_path: Path, framework: Framework, **more: str) -> None:
    """Run the calls through the facade and by W&B's own client, with these variables, and compare what was written."""
    for folder in ("real", "job"):
        (tmp_path / folder).mkdir()
    run(tmp_path / "real", framework.code, patched=False, WANDB_MODE="offline", WANDB_API_KEY="k" * 40, **more)
    (file,) = (tmp_path / "real" / "wandb").glob("offline-run-*/*.wandb")
    inside = tuple(f"{table}." for table in framework.tables)  # what W&B's file says of a table
    logged = ({key: value for key, value in row.items() if not key.startswith(inside)} for row in history(file))
    wanted = by_axis(logged if inside else history(file), framework.axes)
    assert wanted
    job = run(tmp_path / "job", framework.code, **more)
    assert rows(job, wanted) == wanted
    records = [record for found in job.files() for record in found]
    assert said(records).get("config", {}) == framework.config
    assert {table: len(samples(records, table)) for table in framework.tables} == framework.tables
    assert all(events(records, event) for event in framework.events)
    assert all(found[0]["labels"]["source"] == "wandb" and found[-1]["kind"] == "close" for found in job.files())
