"""Loggers of frameworks that call W&B, as the packages have them, each in a process whose calls rlship takes:
`python wandb_loggers.py FOLDER`. What each logs is kept by a recorder beside it, and compared with the lines of its
experiment FOLDER/NAME. `RLSHIP_SITE` is the folder that `rlship run` puts on PYTHONPATH.

Frameworks that no package index has are in tests/facade/test_frameworks.py, as programs of our own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

STEPS = 4
Recorded = dict[int, dict[str, float]]


def figures(step: int) -> dict[str, float]:
    """What is logged at a step."""
    return {"loss": 1.0 / step, "reward/mean": 0.125 * step, "lr": 1e-6}


def verl(told: Recorded, folder: str) -> None:
    from verl.utils.tracking import Tracking

    os.environ["VERL_USE_EXTERNAL_PLUGINS"] = "none"
    tracking = Tracking("project", "tiny", ["wandb"], {"trainer": {}, "lr": 1e-6})
    for step in range(1, STEPS + 1):
        told[step] = figures(step)
        tracking.log(data=figures(step), step=step)
    tracking.finish(exit_code=0)


def accelerate(told: Recorded, folder: str) -> None:
    from accelerate import Accelerator

    made = Accelerator(cpu=True, log_with="wandb")
    made.init_trackers("project", config={"lr": 1e-6})
    for step in range(1, STEPS + 1):
        told[step] = figures(step)
        made.log(figures(step), step=step)
    made.end_training()


def lightning(told: Recorded, folder: str) -> None:
    from lightning.pytorch.loggers import WandbLogger

    logger = WandbLogger(project="project", save_dir=folder)
    logger.log_hyperparams({"lr": 1e-6})
    for step in range(1, STEPS + 1):
        told[step] = figures(step)
        logger.log_metrics(figures(step), step=step)
    logger.finalize("success")
    import wandb

    wandb.finish()


def torchtitan(told: Recorded, folder: str) -> None:
    from torchtitan.components.metrics import WandBLogger

    logger = WandBLogger(f"{folder}/tb", config_dict={"lr": 1e-6}, tag="train")
    for step in range(1, STEPS + 1):
        told[step] = {f"train/{name}": value for name, value in figures(step).items()}
        logger.log(figures(step), step)
    logger.close()


def tinker(told: Recorded, folder: str) -> None:
    from tinker_cookbook.utils.ml_log import WandbLogger

    logger = WandbLogger(project="project", config={"lr": 1e-6}, log_dir=folder, wandb_name="tiny")
    for step in range(1, STEPS + 1):
        told[step] = figures(step)
        logger.log_metrics(figures(step), step=step)
    logger.close()


def openrlhf(told: Recorded, folder: str) -> None:
    from types import SimpleNamespace

    from openrlhf.utils.logging_utils import WandbLogger

    wandb = SimpleNamespace(key="k" * 40, org=None, project="project", group=None, run_name="tiny")
    logger = WandbLogger(SimpleNamespace(logger=SimpleNamespace(wandb=wandb), lr=1e-6))
    for step in range(1, STEPS + 1):
        told[step] = {f"train/{name}": value for name, value in figures(step).items()}
        logger.log_train(step, {**figures(step), "generated_samples": ["text", 0.5], "none": None})
    logger.close()


def skyrl(told: Recorded, folder: str) -> None:
    from skyrl.train.utils.tracking import Tracking

    tracking = Tracking("project", "tiny", "wandb", {"lr": 1e-6}, tags=["a"])
    for step in range(1, STEPS + 1):
        told[step] = figures(step)
        first, *others = figures(step).items()
        tracking.log(dict([first]), step=step)
        tracking.log(dict(others), step=step, commit=True)
    tracking.finish()


LOGGERS = {one.__name__: one for one in (verl, accelerate, lightning, torchtitan, tinker, openrlhf, skyrl)}
# The axis of a row is its step; whether it is a metric beside that is the facade's matter.
AXES = ("train/global_step", "trainer/global_step")


def wrong(folder: Path, told: Recorded) -> list[str]:
    """What differs between a logger's experiment and its recorder."""
    found: Recorded = {}
    config: dict[str, Any] = {}
    for path in (folder / "rlship").glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            one = json.loads(line)
            config.update(one.get("config", {}))
            if "m" in one and "step" in one and one.get("kind", "metrics") == "metrics":
                for name, value in one["m"].items():
                    if found.setdefault(one["step"], {}).setdefault(name, value) != value:
                        return [f"step {one['step']}: {name} is there twice"]
    if config.get("lr") != 1e-6:
        return [f"the configuration is {config}"]
    return [
        f"step {step}: {values} is {found.get(step)}"
        for step, values in told.items()
        if {k: v for k, v in values.items() if k not in AXES}
        != {k: v for k, v in found.get(step, {}).items() if k not in AXES}
    ]


def main(folder: str) -> int:
    site = os.environ["RLSHIP_SITE"]
    failed = 0
    for name in LOGGERS:
        experiment = Path(folder) / name
        environ = {"RLSHIP_DIR": str(experiment), "PYTHONPATH": site, "WANDB_API_KEY": "", "HOME": folder}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, folder, name],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=200,
        )
        truth = Path(folder) / f"{name}.json"
        told = {int(step): values for step, values in json.loads(truth.read_text()).items()} if truth.exists() else {}
        faults = [done.stderr[-1500:]] if done.returncode or not told else wrong(experiment, told)
        print(f"{'FAILED' if faults else 'ok    '}  {name}'s logger: {len(told)} steps", *faults, sep="\n    ")
        failed += bool(faults)
    return 1 if failed else 0


def one(folder: str, name: str) -> None:
    """Run one logger, and write what its recorder has."""
    told: Recorded = {}
    LOGGERS[name](told, f"{folder}/{name}.d")
    Path(f"{folder}/{name}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    one(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(main(*sys.argv[1:]))
