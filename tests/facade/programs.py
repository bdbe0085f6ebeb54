"""Random programs of calls of W&B: `python programs.py FIRST END` makes a run of each seed, with the seed as its id."""

from __future__ import annotations

import random
import sys
from typing import Any

AXES = {"train/step": "train/*", "eval/step": "eval/*", "step": "*"}
NAMES = ("train/loss", "train/lr", "eval/acc", "misc", "other")


def program(seed: int) -> tuple[list[str], list[tuple[dict[str, float], int | None, bool | None]]]:
    """The axes that a program defines, and its calls of `log`: data, step, commit.

    No call is late, which W&B would drop, and all calls of one row have the same values of its axes.
    """
    draw = random.Random(seed)
    axes = draw.sample(sorted(AXES), draw.choice([0, 1, 1, 2]))
    counts = dict.fromkeys(axes, 0)
    passes = draw.choice([0.0, 0.4, 1.0])  # how often a call passes a step
    at, row, calls = 0, None, []
    for _ in range(draw.randint(3, 25)):
        step = None
        if draw.random() < passes:
            step = at + draw.choice([0, 1, 3])
            row = row if step == at else None
        if row is None:
            row = {}
            for axis in axes:
                counts[axis] += draw.randint(0, 2)
                if draw.random() < 0.7:
                    row[axis] = counts[axis]
        data = {name: draw.randint(0, 1000) / 8 for name in draw.sample(NAMES, draw.randint(1, 3))}
        commit = draw.choice([None, None, True, False])
        calls.append(({**data, **row}, step, commit))
        at = at if step is None else step
        if commit if commit is not None else step is None:
            at, row = at + 1, None
    return axes, calls


def main() -> None:
    """Run the programs with the imported `wandb`."""
    wandb: Any = sys.modules["wandb"]
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        axes, calls = program(seed)
        run = wandb.init(id=f"r{seed}", reinit=True, settings=wandb.Settings(console="off", x_disable_stats=True))
        for axis in axes:
            run.define_metric(axis)
            run.define_metric(AXES[axis], step_metric=axis, step_sync=False)
        for data, step, commit in calls:
            wandb.log(data, step=step, commit=commit)
    wandb.finish()
