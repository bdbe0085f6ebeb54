"""GRPO with TRL and `report_to="rlship"`: `python grpo_native.py DIR TRUTH` writes to TRUTH what the trainer says that
it logged: step -> metric -> value. What it logs once at the end is checked in the file's summary.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import tiny
from datasets import Dataset
from grpo import many_a
from trl import GRPOConfig, GRPOTrainer

import rlship
from rlship.integrations.trainer import RESULTS


def main(folder: str, truth: str) -> None:
    os.environ["RLSHIP_LEDGER_SHARE"] = "1"
    data = Dataset.from_dict({"prompt": ["a b c", "d e f", "g h i", "j a b"] * 8})
    arguments = GRPOConfig(
        output_dir=folder,
        max_steps=6,
        logging_steps=1,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        report_to="rlship",
        log_completions=True,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=tiny.model(),
        reward_funcs=many_a,
        train_dataset=data,
        eval_dataset=data.select(range(4)),
        processing_class=tiny.tokenizer(),
        args=arguments,
    )
    trainer.train()
    rlship.close()
    logged: dict[int, dict[str, float]] = {}
    results: dict[str, float] = {}
    for entry in trainer.state.log_history:
        step = int(entry.pop("step"))
        results |= {name: entry.pop(name) for name in RESULTS if name in entry}
        logged.setdefault(step, {}).update(entry)
    check(Path(folder), arguments.to_dict(), results)
    Path(truth).write_text(json.dumps(logged))


def check(folder: Path, arguments: dict[str, object], results: dict[str, float]) -> None:
    """The file has all arguments, the results, the completions of six steps and two evaluations, and in the ledger the
    group of each step with the same tokens at each hop.
    """
    (path,) = (folder / "rlship").glob("*.jsonl")
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    runs = [record for record in records if record.get("kind") == "run"]
    config = {name for record in runs for name in record.get("config", {})}
    dropped = {name.partition(".")[2] for record in runs for name in record.get("dropped", [])}
    assert not arguments.keys() - config - dropped, arguments.keys() - config - dropped
    assert {name: value for record in runs for name, value in record.get("summary", {}).items()} == results
    ledger = [(one["key"], one["hop"], one["d"]["tokens"]) for one in records if one.get("kind") == "ledger"]
    hops = sorted((f"{n}.0.0", hop) for n in range(1, 7) for hop in ("generated", "rewarded", "trained"))
    assert sorted((key, hop) for key, hop, _ in ledger) == hops, ledger
    assert len({(key, *tokens) for key, _, tokens in ledger}) == 6, ledger
    tables = {(one["table"], one["step"]) for one in records if one.get("kind") == "sample"}
    assert tables == {("completions", n) for n in range(1, 7)} | {("eval_completions", n) for n in (3, 6)}, tables


if __name__ == "__main__":
    main(*sys.argv[1:])
