"""GRPO with TRL and `report_to="wandb"`, killed again and again. `python grpo_killed.py DIR COUNT SEED` forks COUNT
trainings, one after the other, and ends each with SIGKILL at a random moment. Training n writes to `DIR/n`; `DIR/n.log`
has each of its calls of `wandb.log`, with the time at which it had returned, and `DIR/n.killed` the time of the signal.
`DIR/n.turns` has the times at which a thread of the process got to run that asks for it each 10 ms.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpo
import tiny
import torch
import trl.extras.profiling
import wandb
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

LONGEST_S = 5.0  # from the first call to the signal


class Journal(TrainerCallback):  # type: ignore[misc]  # the package is not installed where types are checked
    """Notes each call that has returned. A line in the page cache outlives the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def on_train_begin(self, *_: object, **__: object) -> None:
        wandb.log = self._noted(wandb.log)

    def _noted(self, log: Callable[..., None]) -> Callable[..., None]:
        def call(data: dict[str, Any], *args: Any, **options: Any) -> None:
            log(data, *args, **options)
            figures = {name: value for name, value in data.items() if isinstance(value, int | float)}
            os.write(self._file, json.dumps([time.time(), figures]).encode() + b"\n")

        return call


def note_turns(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        os.write(file, f"{time.time()!r}\n".encode())
        time.sleep(0.01)


def train(folder: str, journal: Path) -> None:
    torch.set_num_threads(1)
    threading.Thread(target=note_turns, args=[journal.with_suffix(".turns")], daemon=True).start()
    trl.extras.profiling.wandb = wandb
    arguments = GRPOConfig(
        output_dir=f"{folder}.out",
        max_steps=10_000,
        logging_steps=1,
        save_strategy="no",
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
        callbacks=[Journal(journal)],
    )
    trainer.train()


if __name__ == "__main__":
    home, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    for number in range(count):
        folder, journal = home / str(number), home / f"{number}.log"
        os.environ["RLSHIP_DIR"] = str(folder)
        child = os.fork()
        if child == 0:
            train(str(folder), journal)
            os._exit(1)
        while not journal.exists() or not journal.stat().st_size:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, LONGEST_S))
        at = time.time()
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
        (home / f"{number}.killed").write_text(repr(at))
