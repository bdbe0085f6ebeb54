"""Three ranks that step together; one is slow, another is killed, and the job starts again from its checkpoint.

    python examples/killed_rank.py outputs/killed        # a few seconds
    rlship watch outputs/killed --once

Rank 1 takes longer than the others in each step. In step 12 the kernel kills rank 2 while it asks for memory; the
others find out at their next collective and end. The second attempt begins again at step 10 with another learning rate,
so that steps 10 to 12 were done twice. docs/query.md asks what happened.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier

import rlship

WORLD, STEPS = 3, 20
SLOW, KILLED = 1, 2  # ranks
CHECKPOINT, DEATH = 10, 12  # steps


def rank(directory: str, rank: int, attempt: int, together: Barrier) -> None:
    """One rank of one attempt. `together` stands for the collectives of a real job."""
    rlship.init(directory, actor="trainer", rank=rank, world=WORLD, attempt=attempt)
    rlship.define("tokens", "sum")
    with contextlib.suppress(threading.BrokenBarrierError):
        for step in range(CHECKPOINT if attempt else 0, STEPS):
            rlship.set_step(step)
            with rlship.span("backward"):
                time.sleep(0.05 if rank == SLOW else 0.01)
            rlship.log({"loss": 1.0 / (step + 1), "lr": 0.1 if attempt else 0.3, "tokens": 100 + rank})
            if (step, rank, attempt) == (DEATH, KILLED, 0):
                rlship.event("allocating", bytes=1 << 36)
                time.sleep(1.5)
                os.kill(os.getpid(), signal.SIGKILL)
            rlship.barrier(step)
            together.wait()
    rlship.close()


def run(directory: str, attempt: int) -> bool:
    """Run one attempt; returns whether all ranks got to the end."""
    context = get_context("spawn")
    together = context.Barrier(WORLD)
    ranks: list[BaseProcess] = [
        context.Process(target=rank, args=(directory, number, attempt, together)) for number in range(WORLD)
    ]
    for process in ranks:
        process.start()
    while any(process.is_alive() for process in ranks):
        if any(process.exitcode for process in ranks):
            together.abort()
        time.sleep(0.02)
    return not any(process.exitcode for process in ranks)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "outputs/killed"
    if run(target, attempt=0) or not run(target, attempt=1):
        sys.exit("the first attempt should have failed, and the second one not")
