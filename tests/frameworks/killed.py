"""TRL's calls of W&B under `rlship run`, with `kill -9` at random moments: what had been logged is in rows."""

from __future__ import annotations

import bisect
import json
import random
import statistics
import subprocess
from collections import Counter
from pathlib import Path

from rlship_sidecar.rows import CLOCK, STEP, Row, Unit
from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import RLSHIP, environment, rlship

JOB = Path(__file__).with_name("jobs") / "grpo_killed.py"
LIMIT_S = 1500.0
TIMES = 50
# What is older is in a file: rlship's thread ends the round that it is in (the first one makes the file), waits, and
# writes in its next round. In both it has to get to run, so often at most: on a quiet machine that takes 0.1 s.
WAIT_S = 0.5
TURNS_OF_ROUND, TURNS_TO_WRITE = 8, 4
AXIS = "train/global_step"

Call = dict[str, float]


def killed(folder: Path, venv: Path, times: int = TIMES) -> tuple[list[str], str]:
    """What is missing in the rows of `times` killed trainings, and how many calls were looked for."""
    home, trials, seed = folder / "home", folder / "trials", random.randrange(1 << 16)
    home.mkdir()
    trials.mkdir()
    command = [*RLSHIP, "run", "--dir", str(trials / "0"), "--", str(venv / "bin" / "python"), str(JOB), str(trials)]
    done = subprocess.run(
        [*command, str(times), str(seed)],
        cwd=folder,
        env=environment(home, {}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode:
        return [f"seed {seed}: the job failed: {done.stderr[-2000:]}"], "not compared"
    rlship(home, "watch", trials, "--once", "--sink", "jsonl")
    wrong, count = [], 0
    ages: list[float] = []
    for number in range(times):
        signalled = float((trials / f"{number}.killed").read_text())
        noted = [json.loads(line) for line in (trials / f"{number}.log").read_text().splitlines()]
        turns = [float(line) for line in (trials / f"{number}.turns").read_text().split()]
        safe = last_safe(signalled, turns)
        calls = [figures for t, figures in noted if t <= safe]
        if calls:
            ages.append(signalled - safe)
        count += len(calls)
        rows = newest(stored(trials / str(number))) if calls else {}
        wrong += [f"seed {seed}, training {number}: {what}" for what in missing(calls, rows)]
    return wrong, (
        f"{count} calls of {times} killed trainings, older than {statistics.median(ages):.2f} s in the middle,"
        f" {max(ages):.2f} s at most, as threads got to run"
    )


def last_safe(signalled: float, turns: list[float]) -> float:
    """The time up to which calls have to be in a file. `turns` are the times at which a thread beside rlship's got to
    run, which asked for it each 10 ms.

    On a busy machine each wait for a turn may be long, and a thread that writes has several on its way: so they all
    count, and not only the longest.
    """
    before = [t for t in turns if t < signalled]
    if len(before) <= TURNS_OF_ROUND + TURNS_TO_WRITE:
        return float("-inf")
    woken = before[-TURNS_TO_WRITE] - WAIT_S
    return before[max(0, bisect.bisect_right(before, woken) - TURNS_OF_ROUND)]


def missing(calls: list[Call], rows: dict[Unit, Row]) -> list[str]:
    """The calls that are in no row: figures of a step by their value, others by how many of them there are."""
    wrong = []
    at = {unit.index: row.values for unit, row in rows.items() if unit.kind == STEP}
    wanted: Counter[str] = Counter()
    for call in calls:
        if AXIS not in call:
            wanted.update(call.keys())
            continue
        found = at.get(int(call[AXIS]), {})
        wrong += [
            f"step {call[AXIS]}: {name} was {value!r} and is {found.get(f'trainer/{name}')!r}"
            for name, value in call.items()
            if name != AXIS and found.get(f"trainer/{name}") != value
        ]
    # Of the windows of time: a training that was killed in its first step has no other rows.
    for name, n in wanted.items():
        hists = [row.hists.get(f"clock/trainer/{name}/hist") for unit, row in rows.items() if unit.kind == CLOCK]
        shown = sum(sum(hist.counts) for hist in hists if hist is not None)
        if shown < n:
            wrong.append(f"{shown} of {n} calls of {name} are there")
    return wrong
