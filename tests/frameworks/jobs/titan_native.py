"""TorchTitan's structured log and MetricsProcessor in two ranks, as its trainer calls them, with rlship's handler in
the environment: `python titan_native.py DIR TRUTH` writes to TRUTH what was logged: step -> metric -> value.

Both are TorchTitan's own. The monitor of a GPU's memory is a stand-in, as is the peak of a GPU that is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

STEPS, RANKS = 4, 2
HANDLER = "rlship.integrations.torchtitan.register"


def rank(folder: str, truth: str) -> None:
    """The calls of one rank."""
    import torch
    from torchtitan.components import metrics
    from torchtitan.observability import structured_logger as sl

    from rlship.integrations import torchtitan as ours

    number = int(os.environ["RANK"])
    sl.init_structured_logger(source="training", output_dir=folder)
    torch.distributed.init_process_group("gloo", init_method=f"file://{truth}.group", rank=number, world_size=RANKS)
    memory = metrics.DeviceMemStats(1.0 + number, 10.0, 2.0 + number, 20.0, number, 0)
    metrics.build_device_memory_monitor = lambda: SimpleNamespace(
        device_name="none", get_peak_stats=lambda: memory, reset_peak_stats=lambda: None
    )
    metrics.utils.get_peak_flops = lambda name: 1e12
    dims = SimpleNamespace(pp_enabled=False, non_data_parallel_size=1, world_size=RANKS, pp=1)
    # The second is for jobs without the structured log; with it, nothing is written twice.
    kind = ours.MetricsProcessor if number else metrics.MetricsProcessor
    processor = kind.Config(log_freq=2).build(
        parallel_dims=dims, dump_folder=folder, pp_schedule="1F1B", config_dict={"seed": 1}
    )
    processor.num_flops_per_token = 6
    seen: dict[int, dict[str, float]] = {}
    recorder = SimpleNamespace(log=lambda found, step: seen.setdefault(step, {}).update(found), close=lambda: None)
    processor.logger.add_logger(recorder)
    sl.log_trace_instant("training_start")
    for step in range(1, STEPS + 1):
        sl.set_step(step)
        with sl.log_trace_span("step"):
            with sl.log_trace_span("fwd_bwd"):
                processor.ntokens_since_last_log += 100
                processor.data_loading_times.append(0.25 + number)
            sl.log_trace_scalar({"local_valid_tokens": float(100 * step + number)})
            if step == 2:
                sl.add_step_tag("gc")
                try:
                    with sl.log_trace_span("optim"):
                        raise MemoryError("no room")
                except MemoryError:
                    sl.log_trace_instant("went_on")
            if processor.should_log(step):
                processor.log(step, 1.0 / step, 2.0 / step, 0.5, extra_metrics={"n_tokens_seen": 200 * step})
        if step == STEPS:
            processor.log_validation(0.125, step)
    processor.close()
    Path(f"{truth}.{number}").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def check(folder: Path) -> None:
    """Each rank has one file, with spans, tags, the error, and no structured log beside it."""
    assert not (folder / "structured_logs").exists()
    files = [
        [json.loads(line) for line in path.read_bytes().splitlines()] for path in (folder / "rlship").glob("*.jsonl")
    ]
    opened = sorted(
        (lines[0]["actor"], lines[0]["rank"], lines[0]["world"], lines[0]["labels"]["source"]) for lines in files
    )
    assert opened == [("trainer", number, RANKS, "torchtitan") for number in range(RANKS)], opened
    for lines in files:
        spans = [(one["name"], one["step"]) for one in lines if one.get("kind") == "span" and "step" in one]
        wanted = [(name, step) for step in range(1, STEPS + 1) for name in ("fwd_bwd", "step")]
        assert sorted(spans) == sorted([*wanted, ("optim", 2)]), spans
        assert [one["err"] for one in lines if one.get("name") == "optim" and one.get("kind") == "span"] == [
            "MemoryError"
        ]
        events = {(one["name"], one.get("step")) for one in lines if one.get("kind") == "event"}
        assert events == {("training_start", None), ("step_tag", 2), ("optim_error", 2), ("went_on", 2)}, events
        assert [one["step"] for one in lines if one.get("kind") == "barrier"] == list(range(1, STEPS + 1))


def main(folder: str, truth: str) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "rank", folder, truth],
            env={
                **os.environ,
                "TITAN_STRUCT_LOGGER_HANDLERS": HANDLER,
                "RANK": str(number),
                "WORLD_SIZE": str(RANKS),
                "LOCAL_RANK": str(number),
            },
        )
        for number in range(RANKS)
    ]
    codes = [process.wait() for process in ranks]
    assert not any(codes), codes
    check(Path(folder))
    told = [json.loads(Path(f"{truth}.{number}").read_text()) for number in range(RANKS)]
    logged: dict[int, dict[str, float]] = {
        step: {"local_valid_tokens": 100 * step + sum(range(RANKS)) / RANKS} for step in range(1, STEPS + 1)
    }
    for step, found in told[0].items():
        for name, value in found.items():
            values = [one[step][name] for one in told]
            if name.endswith(("(GiB)", "(s)", "loading(%)", "active(%)", "reserved(%)")):
                value = max(values)
            elif name.endswith(("(tps)", "tflops", "mfu(%)")):
                value = sum(values) / RANKS
            elif name.endswith(("retries", "ooms")):
                value = sum(values)
            logged[int(step)][name] = value
    Path(truth).write_text(json.dumps(logged))


if __name__ == "__main__":
    rank(*sys.argv[2:]) if sys.argv[1] == "rank" else main(*sys.argv[1:])
