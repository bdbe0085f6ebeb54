"""GRPO with TRL on each rank of torchrun. `python grpo_ranks.py DIR TRUTH NAME` trains with `report_to=NAME`, and rank
0 writes to TRUTH what the trainer says that it logged: step -> metric -> value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import grpo
import tiny
from trl import GRPOConfig, GRPOTrainer

if __name__ == "__main__":
    folder, truth, name = sys.argv[1:]
    arguments = GRPOConfig(
        output_dir=folder,
        max_steps=4,
        logging_steps=1,
        save_strategy="no",
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        report_to=name,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        ddp_backend="gloo",
    )
    trainer = GRPOTrainer(
        model=tiny.model(),
        reward_funcs=grpo.many_a,
        train_dataset=grpo.data(),
        processing_class=tiny.tokenizer(),
        args=arguments,
    )
    trainer.train()
    logged: dict[int, dict[str, float]] = {}
    for entry in trainer.state.log_history:
        if "train_runtime" not in entry:  # a result, which belongs to no step
            logged.setdefault(int(entry.pop("step")), {}).update(entry)
    if trainer.is_world_process_zero():
        Path(truth).write_text(json.dumps(logged))
