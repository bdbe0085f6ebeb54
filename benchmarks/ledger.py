"""CPU time of the ledger: what all workers of a job take in a step to record its groups, from arrays and from lists."""

from __future__ import annotations

import random
import shutil
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Finding, Result, median
from benchmarks.rounds import Figures, column, in_child, in_turn

if TYPE_CHECKING:
    from rlship.logger import Logger

SEQUENCES, LENGTH, GROUP = 1_024, 8_192, 8
HOPS = ("generated", "rewarded", "buffered", "trained")
MOST_MS = 10.0
FORMS = ("int32 arrays", "int64 arrays", "int64 arrays, padded", "lists", "array('i'), no numpy")

METHOD = (
    f"{SEQUENCES:,} sequences of {LENGTH:,} tokens a step in groups of {GROUP}, four hops, share 1/8: the keys that a "
    "share of an eighth keeps. CPU = user + system time of one process that makes all calls of a step, its writing "
    "thread included, until the lines are in the file; median of {rounds} rounds of {steps} steps, each round in a "
    "fresh process. Rewards, advantages and versions are recorded beside the tokens; keys that are not kept are called "
    "for, too. With a mask: the trainer's mask of one byte a token, which another pass goes through."
)


def measure(folder: Path, quick: bool) -> Result:
    """Record in `folder`."""
    rounds, steps = (1, 2) if quick else (5, 20)
    place = iter(range(1_000_000))

    def run(form: str, *, masked: bool) -> Figures:
        own = folder / f"ledger-{next(place)}"
        own.mkdir()
        given = {"folder": str(own), "form": form, "steps": steps, "masked": masked}
        try:
            return in_child("benchmarks.ledger", "step_cpu", given)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    subjects: dict[str, Callable[[], Figures]] = {form: partial(run, form, masked=False) for form in FORMS}
    subjects["int32 arrays and a mask"] = partial(run, FORMS[0], masked=True)
    found = in_turn(subjects, rounds)
    findings = []
    for name, figures in found.items():
        cost = median(column(figures, "ms"))
        aim = name in ("int32 arrays", "int64 arrays")
        aimed = f"at most {MOST_MS:g} ms" if aim else ""
        reached = cost <= MOST_MS if aim else None
        findings.append(Finding(f"all hops of a step, {name}", cost, "ms", aim=aimed, reached=reached))
    return Result("CPU of the ledger per step", METHOD.format(rounds=rounds, steps=steps), findings)


def step_cpu(folder: str, form: str, steps: int, masked: bool) -> Figures:
    """In a fresh process: the CPU of the hops of a step, in milliseconds."""
    from rlship.flusher import Timing
    from rlship.identity import Identity
    from rlship.logger import Logger

    logger = Logger(folder, Identity("trainer", "0", 0, 1, 0, "none", ""), timing=Timing())
    groups = groups_of(form)
    advance = partial(step_of, logger, groups, masked=masked)
    advance(0)
    logger.flush(60.0)
    began = time.process_time()
    for step in range(1, steps + 1):
        advance(step)
    logger.flush(60.0)
    spent = time.process_time() - began
    logger.close()
    return {"ms": 1000 * spent / steps}


def groups_of(form: str) -> list[dict[str, Any]]:
    """One step's groups of sequences."""
    chance = random.Random(1)
    if "numpy" not in form:
        import numpy as np
    found = []
    for _ in range(SEQUENCES // GROUP):
        rows = [[chance.randrange(150_000) for _ in range(LENGTH)] for _ in range(GROUP)]
        tokens: Any = rows
        if form.endswith("no numpy"):
            tokens = [array("i", row) for row in rows]
        elif "array" in form:
            tokens = np.array(rows, np.int32 if "int32" in form else np.int64)
        group = {"tokens": tokens, "reward": [chance.random() for _ in range(GROUP)]}
        if "padded" in form:
            group["lengths"] = [LENGTH - 1] * GROUP
        found.append(group)
    return found


def step_of(logger: Logger, groups: list[dict[str, Any]], step: int, *, masked: bool) -> None:
    """Record every hop of every group once."""
    mask = None
    if masked:
        import numpy as np

        mask = np.ones((GROUP, LENGTH), np.uint8)
    for number, group in enumerate(groups):
        key = f"{step}-{number}"
        tokens = {name: group[name] for name in ("tokens", "lengths") if name in group}
        logger.ledger("generated", key, version=step, **tokens)
        logger.ledger("rewarded", key, reward=group["reward"], **tokens)
        logger.ledger("buffered", key, reward=group["reward"], version=step, **tokens)
        own = {"reward": group["reward"], "advantage": group["reward"], "version": step, "mask": mask}
        logger.ledger("trained", key, step=step, **own, **tokens)
