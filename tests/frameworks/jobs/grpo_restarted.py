"""GRPO with TRL and `report_to="wandb"`, six steps and a checkpoint after three of them. `python grpo_restarted.py DIR
TRUTH` goes on at the checkpoint if DIR has one; else it stops after step 4, to be killed. It adds to TRUTH what each
step logs, a line of JSON each, and before that its process id.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import grpo
import tiny
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

STOPS_AT = 4


class Notes(TrainerCallback):  # type: ignore[misc]  # the package is not installed where types are checked
    """Stands behind W&B's callback."""

    def __init__(self, path: Path, stops: bool) -> None:
        self._file = path.open("a", buffering=1)
        self._stops = stops

    def on_log(self, _: object, state: Any, *__: object, logs: dict[str, float], **___: object) -> None:
        self._file.write(json.dumps([state.global_step, logs]) + "\n")
        if self._stops and state.global_step == STOPS_AT:
            threading.Event().wait()


if __name__ == "__main__":
    folder, truth = (Path(argument) for argument in sys.argv[1:])
    checkpoint = folder / "checkpoint-3"
    goes_on = checkpoint.exists()
    arguments = GRPOConfig(
        output_dir=str(folder),
        run_name="tiny",
        max_steps=6,
        logging_steps=1,
        save_steps=3,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        report_to="wandb",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny.model(),
        reward_funcs=grpo.many_a,
        train_dataset=grpo.data(),
        processing_class=tiny.tokenizer(),
        args=arguments,
        callbacks=[Notes(truth, stops=not goes_on)],
    )
    trainer.train(str(checkpoint) if goes_on else None)
