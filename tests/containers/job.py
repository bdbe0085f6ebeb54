"""A job of several processes for a container: `job.py FOLDER RANKS STEPS PAUSE_S`. It ends when all of them have."""

from __future__ import annotations

import os
import random
import sys
import time

import rlship


def train(folder: str, rank: int, ranks: int, steps: int, pause_s: float) -> None:
    """Log as a trainer does."""
    dice = random.Random(rank)
    rlship.init(folder, "trainer", rank=rank, world=ranks)
    for step in range(steps):
        rlship.log({"reward": dice.random(), "loss": dice.gauss(1, 0.3), "lengths": [dice.randrange(900)] * 3}, step)
        rlship.barrier(step)
        time.sleep(pause_s)
    rlship.close()


def main() -> int:
    """The number of processes that failed."""
    folder, ranks, steps, pause_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            train(folder, rank, ranks, steps, pause_s)
            os._exit(0)
        children.append(child)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main())
