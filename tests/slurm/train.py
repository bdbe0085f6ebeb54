"""A training of several ranks, as the documented batch script starts it: `python train.py`.

Its ranks do their steps together. On SIGTERM they save a checkpoint, which takes SAVE_S, log how long it took as the
last figure of the step, and end; a later start goes on BACK steps before it. PACE_S and STEPS are in the environment.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from pathlib import Path

import rlship

SAVE_S = 3.0
BACK = 2
FAILED_S = 100.0
NOT_YET, GOES_ON, STOPS = 0, 1, 2


class Crowd:
    """What a collective is to a real training: a byte for each step and rank, in memory that the ranks share."""

    def __init__(self, file: Path, rank: int, world: int, steps: int) -> None:
        with open(file, "a+b") as shared:
            os.ftruncate(shared.fileno(), steps * world)
            self._bytes = mmap.mmap(shared.fileno(), steps * world)
        self._rank = rank
        self._world = world

    def stops(self, step: int, asked: bool) -> bool:
        """Wait until all ranks have done the step; True if one of them was asked to stop by then."""
        first, limit = step * self._world, time.monotonic() + FAILED_S
        self._bytes[first + self._rank] = STOPS if asked else GOES_ON
        while NOT_YET in (said := self._bytes[first : first + self._world]):
            if time.monotonic() > limit:
                sys.exit(f"rank {self._rank}: the other ranks have not done step {step} within {FAILED_S:g} s")
            time.sleep(0.002)
        return STOPS in said


def main() -> None:
    """Train."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    steps, pace_s = int(os.environ["STEPS"]), float(os.environ["PACE_S"])
    logger = rlship.init(actor="trainer")
    rlship.define("who", "sum")
    rlship.define("checkpoint_s", "min")
    folder = Path(os.environ["RLSHIP_DIR"])
    checkpoint = folder / f"checkpoint-{logger.rank}"
    begin = max(int(checkpoint.read_text()) - BACK, 0) if checkpoint.exists() else 0
    crowd = Crowd(folder / f"crowd-{logger.attempt}", logger.rank, int(os.environ["SLURM_NTASKS"]), steps)
    for step in range(begin, steps):
        rlship.log({"who": 10**logger.rank, "attempt": logger.attempt, "loss": 1 / (step + 1)}, step=step)
        time.sleep(pace_s)
        if crowd.stops(step, bool(asked)):
            began = time.monotonic()
            time.sleep(SAVE_S)
            checkpoint.write_text(str(step + 1))
            rlship.log({"checkpoint_s": time.monotonic() - began}, step=step)
            sys.exit(0)
        rlship.barrier(step)


if __name__ == "__main__":
    main()
