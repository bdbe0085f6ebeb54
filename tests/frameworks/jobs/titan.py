"""TorchTitan's structured logger, as its trainer uses it, in two ranks: `python titan.py DIR TRUTH` writes to TRUTH
what was logged: step -> metric -> value, for the scalars.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from torchtitan.observability import structured_logger as sl

STEPS, RANKS = 4, 2


def rank(folder: str, number: int) -> None:
    sl.init_structured_logger(source="training", output_dir=folder, rank=number)
    for step in range(1, STEPS + 1):
        sl.set_step(step)
        sl.log_trace_instant("step_begins")
        with sl.log_trace_span("step"):
            with sl.log_trace_span("fwd_bwd"):
                sum(range(10_000))
            if step == 2:
                sl.add_step_tag("gc")
            sl.log_trace_scalar({"local_valid_tokens": float(100 * step + number)})


if __name__ == "__main__":
    folder, truth = sys.argv[1:3]
    if len(sys.argv) == 4:
        rank(folder, int(sys.argv[3]))
        sys.exit()
    ranks = [subprocess.Popen([sys.executable, __file__, folder, truth, str(number)]) for number in range(RANKS)]
    codes = [process.wait() for process in ranks]
    if any(codes):
        sys.exit(1)
    mean = sum(range(RANKS)) / RANKS
    logged = {step: {"local_valid_tokens": 100 * step + mean} for step in range(1, STEPS + 1)}
    Path(truth).write_text(json.dumps(logged))
