"""One writer process of the campaign: logs step after step until its standard input ends, then ends as a job does.

On standard output, a file, it says what its caller may count on: `file PATH`, `logged STEP`, and `flushed` once all
lines before are in the file. A stream has no steps; what it counts stands in their place.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable

from rlship.file import Disk
from rlship.flusher import Timing
from rlship.identity import detect
from rlship.logger import Logger
from tests.soak import values

FLUSH_EVERY = 8
FLUSH_TIMEOUT_S = 0.4
DEFINED = {
    "loss": {"reduce": ["mean", "count"], "per_rank": True},
    "who": "sum",
    "lengths": ["max", "mean", "std", "count", "p50", "p99", "hist", "mypkg.trimmed_mean"],
    "kl": ["mean", "p90"],
    "turns": ["sum", "rate"],
    "work_s": {"reduce": ["count", "mean"], "per_rank": True},
    "policy_version": {"reduce": "min", "unit": "global_step", "per_rank": True},
    "event/pushed": {"reduce": "sum", "per_rank": True},
    "event/refilled": {"reduce": "sum", "per_rank": True},
    "ticks": {"reduce": ["sum", "rate"], "per_rank": True},
    "waits": ["hist", "p50", "mypkg.trimmed_mean"],
    "gauge": {"reduce": "last", "stream": True},
}


def tell(line: str) -> None:
    """One line to the caller, whole, whenever this process may die."""
    os.write(1, line.encode() + b"\n")


def log_step(
    logger: Logger, crew: values.Crew, replica: str, rank: int, step: int, late: int | None, part: int = 0
) -> None:
    """All lines of one step; `late` is an older step that gets one more."""
    actor = crew.actor
    who = (actor, replica, rank, step)
    with logger.step(step):
        with logger.span("work"):
            metrics = {"loss": values.loss(*who), "who": values.mark(crew, replica, rank)}
            logger.log({**metrics, "lengths": values.lengths(*who), "policy_version": values.policy(*who)}, step)
            logger.record_metric("turns", rank + 1)
        observed, weights = values.divergence(*who)
        logger.log({"kl": observed}, weight=weights)
        logger.log({"lr": 0.01})
        if values.tag(step):
            logger.add_step_tag(values.tag(step))
        if values.pushes(*who):
            logger.event("pushed", bytes=step, to="generator")
        for table, count in values.TABLES.items():
            for number in range(count):
                _sample(logger, table, values.sample_id(*who, logger.attempt, part, number))
    if late is not None:
        with logger.step(late):  # outside, it would be the implicit step of the stream's lines
            logger.log({"evaluation": values.evaluation(actor, replica, rank, late)}, late)
    if crew.barriers:
        logger.barrier(step)


def log_stream(logger: Logger, crew: values.Crew, replica: str, rank: int, tick: int) -> None:
    """All lines of a stream that count as one."""
    who = (crew.actor, replica, rank, tick)
    with logger.span("rollout"):
        gauge = values.gauge(crew.places().index((replica, rank)), logger.attempt, tick)
        logger.log({"ticks": 1, "gauge": gauge, "waits": values.lengths(*who)})
    if not crew.steps:
        logger.log({"policy_version": values.policy(*who)})
    if values.refills(tick):
        logger.event("refilled", tick=tick)
    if tick % 2 == 0:
        _sample(logger, values.STREAMED, values.sample_id(*who, logger.attempt, 0, 0))


def _sample(logger: Logger, table: str, name: str) -> None:
    logger.sample(table, values.sample_row(name), score=values.sample_score(name))


class Clock:
    """A clock that is wrong, and may be set."""

    def __init__(self, skew: float) -> None:
        self.skew = skew

    def __call__(self) -> float:
        """Unix seconds."""
        return time.time() + self.skew


def work(
    logger: Logger,
    clock: Clock,
    crew: values.Crew,
    replica: str,
    rank: int,
    step: int,
    pace_s: float,
    dice: random.Random,
    wait: Callable[[float], bool],
) -> None:
    """Log from `step` on until `wait` says that it is over; now and then for an older step, or going back, or after a
    wrong clock was set.
    """
    path, logged, part = None, 0, 0
    while True:
        late = max(0, step - dice.randrange(3, 12)) if dice.random() < 0.06 else None
        if crew.steps:
            log_step(logger, crew, replica, rank, step, late, part)
        if crew.streams:
            log_stream(logger, crew, replica, rank, step)
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
        if clock.skew and dice.random() < 0.003:
            clock.skew = dice.uniform(-1.5, 1.5)
        step += 1
        if crew.barriers and step > 8 and dice.random() < 0.01:
            step -= dice.randrange(1, 8)
            logger.rollback(step)
            part += 1


def main() -> None:
    """Be the writer that the one argument, JSON, describes."""
    order = json.loads(sys.argv[1])
    crew = next(one for one in values.CREWS if one.actor == order["actor"])
    replica, rank = order["replica"], order["rank"]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    identity = detect(crew.actor, replica=replica, rank=rank, world=crew.world, attempt=order["attempt"], environ={})
    identity.host = order["host"]
    clock = Clock(order["skew"])
    # A beat of other than ten seconds is no public setting; here a stopped writer must soon be seen to be silent. On a
    # network filesystem a writer measures its clock.
    disk = Disk()
    disk.network = lambda _: order["host"] != values.HOSTS[0]  # type: ignore[method-assign]
    logger = Logger(order["folder"], identity, timing=Timing(beat=1.0), clock=clock, disk=disk)
    logger.start()
    logger.define(DEFINED)
    dice = random.Random(order["seed"])
    work(logger, clock, crew, replica, rank, order["first"], order["pace_s"], dice, over.wait)
    if not logger.close(20.0):
        sys.exit("the writer could not write what it had")


if __name__ == "__main__":
    main()
