"""One writer process of the campaign: logs step after step until its standard input ends, then ends as a job does.

On standard output, a file, it says what its caller may count on: `file PATH`, `logged STEP`, and `flushed` once all
lines before are in the file.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable

from rlship.flusher import Timing
from rlship.identity import detect
from rlship.logger import Logger
from tests.soak import values

FLUSH_EVERY = 8
FLUSH_TIMEOUT_S = 0.4


def tell(line: str) -> None:
    """One line to the caller, whole, whenever this process may die."""
    os.write(1, line.encode() + b"\n")


def log_step(logger: Logger, crew: values.Crew, replica: str, rank: int, step: int, late: int | None) -> None:
    """All lines of one step; `late` is an older step that gets one more."""
    actor = crew.actor
    logger.log({"loss": values.loss(actor, replica, rank, step), "who": values.mark(crew, replica, rank)}, step)
    logger.log({"lengths": values.lengths(actor, replica, rank, step), "lr": 0.01}, step)
    observed, weights = values.divergence(actor, replica, rank, step)
    logger.log({"kl": observed}, step, weight=weights)
    if late is not None:
        logger.log({"evaluation": values.evaluation(actor, replica, rank, late)}, late)
    if crew.barriers:
        logger.barrier(step)


def work(
    logger: Logger,
    crew: values.Crew,
    replica: str,
    rank: int,
    step: int,
    pace_s: float,
    dice: random.Random,
    wait: Callable[[float], bool],
) -> None:
    """Log from `step` on until `wait` says that it is over; now and then for an older step, or going back."""
    path, logged = None, 0
    while True:
        late = max(0, step - dice.randrange(3, 12)) if dice.random() < 0.06 else None
        log_step(logger, crew, replica, rank, step, late)
        tell(f"logged {step}")
        logged += 1
        if logger.path != path:
            path = logger.path
            tell(f"file {path}")
        over = wait(pace_s * (0.5 + dice.random()))
        if (over or logged % FLUSH_EVERY == 0) and logger.flush(FLUSH_TIMEOUT_S):
            tell("flushed")
        if over:
            return
        step += 1
        if crew.barriers and step > 8 and dice.random() < 0.01:
            step -= dice.randrange(1, 8)
            logger.rollback(step)


def main() -> None:
    """Be the writer that the one argument, JSON, describes."""
    order = json.loads(sys.argv[1])
    crew = next(one for one in values.CREWS if one.actor == order["actor"])
    replica, rank = order["replica"], order["rank"]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    identity = detect(crew.actor, replica=replica, rank=rank, world=crew.world, attempt=order["attempt"], environ={})
    # A beat of other than ten seconds is no public setting; here a stopped writer must soon be seen to be silent.
    logger = Logger(order["folder"], identity, timing=Timing(beat=1.0))
    logger.start()
    logger.define({"loss": ["mean", "count"], "who": "sum", "lengths": ["max", "mean", "std"], "kl": "mean"})
    work(logger, crew, replica, rank, order["first"], order["pace_s"], random.Random(order["seed"]), over.wait)
    if not logger.close(20.0):
        sys.exit("the writer could not write what it had")


if __name__ == "__main__":
    main()
