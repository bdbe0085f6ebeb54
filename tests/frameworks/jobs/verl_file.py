"""verl's `file` logger, loaded alone, as its trainers use it: validation before training, three steps, then a restart
from the checkpoint of step 2, which truncates the file. `python verl_file.py DIR TRUTH`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np

CLOSES_S = 120.0  # a step closes 10 s after its last line, on an idle machine


def lines(path: Path) -> list[str]:
    """The whole lines of a file that another process appends to."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def closed(folder: str, step: int) -> None:
    """Wait until the sidecar beside this job has a row of a step. If the file is truncated before, a dead letter says
    so.
    """
    rows, end = Path(folder, "rlship", "state", "rows.jsonl"), time.monotonic() + CLOSES_S
    while not any(json.loads(row)["index"] == step for row in lines(rows)):
        assert time.monotonic() < end, f"no row of step {step} within {CLOSES_S:g} s"
        time.sleep(0.1)


def logger(folder: str) -> object:
    """A new logger; the package's own __init__ would ask for all of what verl needs."""
    os.environ["VERL_FILE_LOGGER_ROOT"] = str(Path(folder).parent)
    spec = importlib.util.spec_from_file_location(
        "tracking", sysconfig.get_paths()["purelib"] + "/verl/utils/tracking.py"
    )
    tracking = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tracking)
    return tracking.FileLogger(Path(folder).name, "tiny")


def figures(step: int) -> dict[str, object]:
    return {
        "training/global_step": step,
        "actor/entropy": np.float32(0.5 / step),
        "actor/grad_norm": math.nan if step == 2 else 1.5,
        "critic/rewards/mean": 0.125 * step,
        "critic/rewards/max": np.float64(1.0),
        "response_length/mean": 96 + step,
        "timing_s/gen": 41.25,
        "perf/mfu/actor": math.inf if step == 1 else 0.25,
    }


if __name__ == "__main__":
    folder, truth = sys.argv[1:]
    first = logger(folder)
    first.log({"val-core/gsm8k/acc/mean@1": 0.25}, 0)
    for step in (1, 2, 3):
        first.log(figures(step) | {"critic/rewards/mean": 9.0}, step)
    first.finish()
    closed(folder, 3)
    second = logger(folder)
    second.log({"val-core/gsm8k/acc/mean@1": 0.5}, 2)
    for step in (3, 4):
        second.log(figures(step), step)
    second.finish()
    logged = {step: figures(step) for step in (1, 2, 3, 4)}
    for step in (1, 2):
        logged[step]["critic/rewards/mean"] = 9.0  # what was not done again
    logged[0], logged[2]["val-core/gsm8k/acc/mean@1"] = {"val-core/gsm8k/acc/mean@1": 0.25}, 0.5
    shortest = {float(np.float32(0.5 / step)): float(str(np.float32(0.5 / step))) for step in (1, 2, 3, 4)}
    said = {
        step: {name: shortest.get(float(x), float(x)) for name, x in of.items() if math.isfinite(x)}
        for step, of in logged.items()
    }
    Path(truth).write_text(json.dumps(said))
