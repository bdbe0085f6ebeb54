"""A transformers training under the callbacks of ms-swift, which write `logging.jsonl`: four steps, then six from the
checkpoint of step 2, into the same folder; each ends in ms-swift's summary. `python swift_train.py DIR TRUTH` writes
to TRUTH what the trainer says that it logged: step -> metric -> value.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import swift.trainers.patcher  # noqa: F401 - puts the callbacks in place
import tiny
import transformers
from datasets import Dataset
from swift.utils import append_to_jsonl


def train(folder: str, steps: int, checkpoint: str | None) -> list[dict[str, float]]:
    rows = [[3 + (first + word) % 10 for word in range(8)] for first in range(32)]
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        logging_steps=1,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    arguments.max_epochs = None  # an argument of ms-swift's, which a callback asks for
    trainer = transformers.Trainer(
        model=tiny.model(), args=arguments, train_dataset=data, eval_dataset=data.select(range(4))
    )
    trainer.train(checkpoint)
    state = trainer.state
    summary = {
        "last_model_checkpoint": f"checkpoint-{steps}",
        "best_model_checkpoint": state.best_model_checkpoint,
        "best_metric": state.best_metric,
        "global_step": state.global_step,
        "log_history": state.log_history,
        "memory": getattr(state, "max_memory", None),
    }
    append_to_jsonl(os.path.join(folder, "logging.jsonl"), summary, strict=False)
    return state.log_history


if __name__ == "__main__":
    folder, truth = sys.argv[1:]
    logged: dict[int, dict[str, float]] = {}
    for steps, checkpoint in ((4, None), (6, f"{folder}/checkpoint-2")):
        if checkpoint:
            tiny.pause()
        for entry in train(folder, steps, checkpoint):
            figures = {name: round(value, 8) for name, value in entry.items() if name != "step"}
            logged.setdefault(int(entry["step"]), {}).update(figures)
    Path(truth).write_text(json.dumps(logged))
