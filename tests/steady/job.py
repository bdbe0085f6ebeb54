"""The job: ranks that each log and end a step at the same moments of the clock. `python -m tests.steady.job`."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import rlship

JITTER_S = 0.02  # by which ranks end a step later than others
METRICS = tuple(f"loss/{name}" for name in "abcdefgh")


def main() -> int:
    """FOLDER RANKS STEPS_A_SECOND STEPS: fork the ranks, wait for all, and fail if one does."""
    folder, ranks, rate, steps = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    begin = time.time() + 1.0 + ranks / 50
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            _work(folder, rank, ranks, begin, rate, steps)
            os._exit(0)
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]  # all of them
    return int(any(ended))


def _work(folder: Path, rank: int, ranks: int, begin: float, rate: float, steps: int) -> None:
    dice = random.Random(rank)
    logger = rlship.init(folder, actor="trainer", rank=rank, world=ranks)
    for step in range(steps):
        time.sleep(max(0.0, begin + step / rate + dice.uniform(0.0, JITTER_S) - time.time()))
        logger.log({name: dice.random() for name in METRICS}, step=step)
        logger.barrier(step)
    logger.close()


if __name__ == "__main__":
    raise SystemExit(main())
