"""verl with its plug-in, its file logger and W&B, whose calls rlship takes: `python verl_native.py DIR TRUTH` writes to
TRUTH what the driver logged: step -> metric -> value. `RLSHIP_DIR` is DIR.

The driver's Tracking and two ranks of a TrainingWorker with a real group of processes are verl's own. The engine that
would train a model is a stand-in which returns losses and metrics in the classes that verl's losses return.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

STEPS, RANKS, MINI_BATCHES = 3, 2, 2


def figures(step: int) -> dict[str, object]:
    """What verl's trainer logs at a step: numbers of Python and of numpy."""
    return {
        "training/global_step": step,
        "actor/entropy": np.float64(0.5 / step),
        "actor/grad_norm": 1.5,
        "critic/rewards/mean": np.float32(0.125 * step),
        "critic/rewards/max": 1.0,
        "response_length/clip_ratio": 0.25,
        "timing_s/gen": 41.25,
        "perf/mfu/actor": 0.25,
    }


def own(rank: int, step: int, part: int) -> float:
    """The loss of one rank in one mini-batch."""
    return step + rank / 4 + part / 8


def worker(port: str) -> None:
    """One rank: `train_batch` for each mini-batch, then `update_weights`, as verl's driver asks for them."""
    import torch
    from tensordict import TensorDict
    from verl.utils.metric.utils import AggregationType, Metric
    from verl.utils.profiler import DistProfiler, DistProfilerExtension
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)

    class Engine:
        """What `train_batch` asks of an engine."""

        def __init__(self) -> None:
            self.at = (0, 0)

        def train_mode(self, **_: object) -> object:
            return torch.no_grad()

        def is_mp_src_rank_with_outputs(self) -> bool:
            return True

        def get_data_parallel_group(self) -> object:
            return torch.distributed.group.WORLD

        def lr_scheduler_step(self) -> float:
            return 1e-6

        def get_per_tensor_param(self) -> tuple[object, object]:
            return iter(()), None

        def train_batch(self, data: object, loss_function: object) -> dict[str, object]:
            step, part = self.at
            loss = torch.tensor(own(rank, step, part))
            metrics = {
                "actor/pg_loss": Metric(value=loss, aggregation=AggregationType.SUM),
                "pg_clipfrac_max": [0.1 * rank, 0.2],
                "grad_norm": torch.tensor(1.5),
                "never read": loss,
            }
            return {"loss": [loss], "metrics": metrics, "model_output": {}}

    class Training(TrainingWorker):
        def __init__(self, engine: Engine) -> None:
            self._rank, self._world_size, self.engine = rank, RANKS, engine
            self.config = SimpleNamespace(model_type="language_model")
            self.model_config, self.device_name, self.flops_counter = {}, "cpu", None
            self.engine_config = SimpleNamespace(
                forward_only=False,
                use_dynamic_bsz=False,
                max_token_len_per_gpu=1,
                micro_batch_size_per_gpu=1,
                use_fused_kernels=False,
            )
            self.loss_fn = len
            DistProfilerExtension.__init__(self, DistProfiler(rank=rank))

    class Rollout(ActorRolloutRefWorker):
        def __init__(self, actor: Training) -> None:
            self.actor, self.role = actor, "actor_rollout"
            self.config = SimpleNamespace(
                rollout=SimpleNamespace(checkpoint_engine=SimpleNamespace(backend="elsewhere"))
            )
            self.checkpoint_engine = SimpleNamespace(send_weights=sent)

    async def sent(parameters: object, global_steps: int) -> None:
        """The weights go nowhere."""

    training = Training(Engine())
    rollout = Rollout(training)
    asyncio.run(rollout.update_weights(global_steps=0))
    for step in range(1, STEPS + 1):
        for part in range(MINI_BATCHES):
            training.engine.at = step, part
            data = TensorDict({"x": torch.zeros(1)}, batch_size=[1])
            from verl.utils import tensordict_utils as tu

            tu.assign_non_tensor(data, update_lr_scheduler=part == MINI_BATCHES - 1)
            result = training.train_batch(data)
            gathered = tu.get(result, "metrics")
            assert len(gathered["actor/pg_loss"]) == RANKS, gathered
        asyncio.run(rollout.update_weights(global_steps=step))
    torch.distributed.destroy_process_group()


def driver(folder: str) -> None:
    """Validation before training, then the steps, each to all three loggers."""
    os.environ["VERL_FILE_LOGGER_PATH"] = f"{folder}/metrics.jsonl"
    import verl.utils.tracking as verl_tracking

    config = {"trainer": {"default_local_dir": folder}, "algorithm": {"adv_estimator": "grpo"}}
    tracking = verl_tracking.Tracking("project", "tiny", ["wandb", "file", "rlship"], config)
    table = verl_tracking.ValidationGenerationsLogger("project", "tiny")
    table.log(["wandb", "rlship"], [("1+1=", "2", 1.0), ("2+2=", "5", 0.0)], 0)
    tracking.log(data={"val-core/gsm8k/acc/mean@1": 0.25}, step=0)
    for step in range(1, STEPS + 1):
        tracking.log(data=figures(step), step=step)
    tracking.finish()


def check(folder: Path) -> None:
    """The driver has one file, with samples and configuration, and each rank one with its own values."""
    files = [
        [json.loads(line) for line in path.read_bytes().splitlines()] for path in (folder / "rlship").glob("*.jsonl")
    ]
    opened = sorted(
        (lines[0]["actor"], lines[0]["rank"], lines[0]["world"], lines[0]["labels"]["source"]) for lines in files
    )
    assert opened == [("trainer", 0, 1, "verl"), *(("worker", rank, RANKS, "verl") for rank in range(RANKS))], opened
    for lines in files:
        logged = [
            (one["step"], name, value)
            for one in lines
            if "m" in one and "step" in one
            for name, value in one["m"].items()
        ]
        samples = [one["row"] for one in lines if one.get("kind") == "sample"]
        if lines[0]["actor"] == "trainer":
            assert any(one.get("config", {}).get("algorithm") for one in lines), lines[:3]
            assert [row["score"] for row in samples] == [1.0, 0.0], samples
            continue
        rank = lines[0]["rank"]
        found = [(step, value) for step, name, value in logged if name == "actor/pg_loss"]
        assert found == [(s, own(rank, s, part)) for s in range(1, STEPS + 1) for part in range(MINI_BATCHES)], found
        names = {name for _, name, _ in logged}
        assert {
            "actor/pg_clipfrac_max",
            "actor/grad_norm",
            "actor/lr",
            "actor/perf/max_memory_allocated_gb",
        } <= names, names
        assert "actor/never read" not in names, names
        spans = {one["name"] for one in lines if one.get("kind") == "span"}
        assert spans == {"train_batch"}, spans
        assert [one["step"] for one in lines if one.get("kind") == "barrier"] == list(range(1, STEPS + 1))


def main(folder: str, truth: str) -> None:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, port], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        )
        for rank in range(RANKS)
    ]
    codes = [process.wait() for process in ranks]
    assert not any(codes), codes
    driver(folder)
    import rlship

    rlship.close()
    check(Path(folder))
    logged = {0: {"val-core/gsm8k/acc/mean@1": 0.25}}
    for step in range(1, STEPS + 1):
        logged[step] = {name: float(value) for name, value in figures(step).items()}
    Path(truth).write_text(json.dumps(logged))


if __name__ == "__main__":
    worker(sys.argv[1]) if len(sys.argv) == 2 else main(*sys.argv[1:])
