"""A worker process that follows orders: an order is a line of JSON on stdin, the answer a line on stdout.

An order is `[call, arguments, keywords]`: `["log", [{"loss": 1.0}], {"step": 3}]`. Besides the calls of `rlship` there
are `start` (init, with a quicker beat where `beat` is given) and `run` (many steps on its own).
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import rlship
from rlship.flusher import Timing
from rlship.identity import detect
from rlship.logger import Logger


def start(folder: str, actor: str, *, beat: float | None = None, **facts: Any) -> Logger:
    """The writer as a job makes it; a beat of other than ten seconds is no public setting."""
    if beat is None:
        return rlship.init(folder, actor, **facts)
    axis = facts.pop("axis", "global_step")
    logger = Logger(folder, detect(actor, **facts), axis=axis, timing=Timing(beat=beat))
    logger.start()
    return logger


def run(
    logger: Logger, first: int, last: int, *, seed: int, pause: float, late: bool = False, barriers: bool = True
) -> float:
    """Log steps `first` to `last` inclusive; `late`: now and then a line for a step long promised. Returns the seconds
    that the slowest call took.
    """
    dice = random.Random(seed)
    slowest = 0.0
    for step in range(first, last + 1):
        began = time.perf_counter()
        logger.log(
            {"loss": dice.gauss(1, 0.3), "lr": 0.01, "lengths": [dice.randrange(1, 900) for _ in range(3)]}, step
        )
        logger.log({"kl": [dice.random(), dice.random()]}, step, weight=[dice.randrange(9), 1 + dice.randrange(9)])
        if dice.random() < 0.1:
            logger.log({"loss": float("nan"), "seldom": dice.random()}, step)
        if late and step >= 10 and dice.random() < 0.2:
            logger.log({"evaluation": dice.random(), "loss": dice.random()}, step - dice.randrange(3, 10))
        if barriers:
            logger.barrier(step)
        slowest = max(slowest, time.perf_counter() - began)
        if pause:
            time.sleep(pause * dice.random())
    return slowest


def main() -> None:
    """Obey until stdin ends, then end as a job does: by falling off the end of the program."""
    logger: Logger | None = None
    for line in sys.stdin:
        call, arguments, keywords = json.loads(line)
        answer: Any = None
        if call == "start":
            logger = start(*arguments, **keywords)
        elif call == "run":
            assert logger is not None
            answer = run(logger, *arguments, **keywords)
        else:
            answer = getattr(logger, call)(*arguments, **keywords)
        print(json.dumps(answer if isinstance(answer, (bool, float)) else None), flush=True)


if __name__ == "__main__":
    main()
