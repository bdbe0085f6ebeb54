"""TRL's calls of W&B under `rlship run`, with `kill -9` at random moments: what had been logged is in rows."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

from rlship_sidecar.rows import CLOCK, STEP, Row, Unit
from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import RLSHIP, environment, rlship

JOB = Path(__file__).with_name("jobs") / "grpo_killed.py"
LIMIT_S = 1500.0
TIMES = 50
SAFE_S = 0.6  # older calls are in a file, if the process' threads get to run
BEAT_S, WATCHED_S = 0.05, 3.0  # of the thread beside rlship's; how long before the signal its pauses count
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
    paused: list[float] = []
    for number in range(times):
        signalled = float((trials / f"{number}.killed").read_text())
        noted = [json.loads(line) for line in (trials / f"{number}.log").read_text().splitlines()]
        pause = longest_pause(signalled, [float(line) for line in (trials / f"{number}.beats").read_text().split()])
        paused.append(pause)
        calls = [figures for t, figures in noted if t <= signalled - SAFE_S - pause]
        count += len(calls)
        rows = newest(stored(trials / str(number))) if calls else {}
        wrong += [f"seed {seed}, training {number}: {what}" for what in missing(calls, rows)]
    return wrong, (
        f"{count} calls older than {SAFE_S} s, of {times} killed trainings; beyond that, threads had to wait for"
        f" {max(paused):.2f} s at most and {statistics.median(paused):.2f} s in the middle before the signal"
    )


def longest_pause(signalled: float, beats: list[float]) -> float:
    """For how long, shortly before the signal, a thread of the process did not get to run though it asked for it."""
    late = [t for t in beats if t > signalled - WATCHED_S]
    return max(0.0, max((after - t for t, after in pairwise([*late, signalled])), default=0.0) - 2 * BEAT_S)


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
