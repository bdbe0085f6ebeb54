"""GRPO with TRL: six steps, the first three of them by a trainer that ends there, the others by one that goes on at its
checkpoint. `python grpo.py DIR TRUTH` writes to TRUTH what the trainer says that it logged: step -> metric -> value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tiny
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def many_a(completions: list[str], **_: object) -> list[float]:
    """How often a completion says a."""
    return [float(completion.split().count("a")) for completion in completions]


def data() -> Dataset:
    """Prompts of three words."""
    return Dataset.from_dict({"prompt": ["a b c", "d e f", "g h i", "j a b"] * 8})


def train(folder: str, steps: int, checkpoint: str | None) -> list[dict[str, float]]:
    prompts = data()
    arguments = GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        logging_steps=1,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny.model(),
        reward_funcs=many_a,
        train_dataset=prompts,
        eval_dataset=prompts.select(range(4)),
        processing_class=tiny.tokenizer(),
        args=arguments,
    )
    trainer.train(checkpoint)
    trainer.save_state()
    return trainer.state.log_history


if __name__ == "__main__":
    folder, truth = sys.argv[1:]
    train(folder, 3, None)
    tiny.pause()
    logged: dict[int, dict[str, float]] = {}
    for entry in train(folder, 6, f"{folder}/checkpoint-3"):
        logged.setdefault(int(entry["step"]), {}).update({k: v for k, v in entry.items() if k != "step"})
    Path(truth).write_text(json.dumps(logged))
