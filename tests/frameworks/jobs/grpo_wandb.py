"""GRPO with TRL, six steps, logged to W&B as TRL does it. `python grpo_wandb.py DIR TRUTH` writes to TRUTH what the
trainer says that it logged, and TRL's profiling calls with the step during which each was made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import grpo
import tiny
import trl.extras.profiling
import wandb
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Profiling(TrainerCallback):  # type: ignore[misc]  # the package is not installed where types are checked
    """Stands before the module `wandb` where TRL's profiling calls it."""

    def __init__(self) -> None:
        self.step = 1
        self.calls: list[tuple[int, dict[str, float]]] = []

    def on_step_begin(self, _: object, state: Any, *__: object, **___: object) -> None:
        self.step = state.global_step + 1

    def log(self, data: dict[str, float]) -> None:
        self.calls.append((self.step, data))
        wandb.log(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(wandb, name)


if __name__ == "__main__":
    folder, truth = sys.argv[1:]
    profiling = trl.extras.profiling.wandb = Profiling()
    data = grpo.data()
    arguments = GRPOConfig(
        output_dir=folder,
        run_name="tiny",
        max_steps=6,
        logging_steps=1,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        report_to="wandb",
        log_completions=True,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny.model(),
        reward_funcs=grpo.many_a,
        train_dataset=data,
        eval_dataset=data.select(range(4)),
        processing_class=tiny.tokenizer(),
        args=arguments,
        callbacks=[profiling],
    )
    trainer.train()
    config = sorted(key for key in wandb.config if key != "_wandb")
    found = {"history": trainer.state.log_history, "profiling": profiling.calls, "config": config}
    Path(truth).write_text(json.dumps(found))
