"""The questions of docs/query.md, as they stand there, about real small jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from tests.demo.test_examples import EXAMPLES, LAUNCHER
from tests.guards.tree import ROOT

SLOW, KILLED, STEPS, CHECKPOINT, DEATH = 1, 2, 20, 10, 12  # of examples/killed_rank.py
PAGE = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")


def watched(folder: Path, example: str, *options: str) -> Path:
    """An example's experiment, once its rows are made."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER)}
    job = [sys.executable, str(EXAMPLES / example), str(folder), *options]
    subprocess.run(job, env=environment, check=True, timeout=300)
    watch = [sys.executable, "-m", "rlship", "watch", "--once", "--sink", "jsonl", str(folder)]
    done = subprocess.run(watch, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    return folder


def rows(folder: Path, actor: str, kind: str) -> dict[int, dict[str, Any]]:
    """An actor's rows of a kind by index, as the jsonl sink wrote them."""
    lines = (folder / "rlship/state/rows.jsonl").read_bytes().splitlines()
    found = [one for one in map(json.loads, lines) if (one["actor"], one["kind"]) == (actor, kind)]
    return {one["index"]: one for one in sorted(found, key=lambda one: int(one["index"]))}


def answers(heading: str, folder: Path) -> list[list[dict[str, Any]]]:
    """What the questions under a heading of the page give."""
    (section,) = re.findall(rf"^### {re.escape(heading)}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    told = []
    for sql in re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        done = subprocess.run(
            [sys.executable, "-m", "rlship", "query", "--json", sql, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        told.append([json.loads(line) for line in done.stdout.splitlines()])
    return told


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job with a slow rank and one that was killed, in two attempts."""
    return watched(tmp_path_factory.mktemp("killed"), "killed_rank.py")


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The asynchronous example, at four times its usual pace."""
    return watched(tmp_path_factory.mktemp("async"), "async_rl.py", "--steps", "60", "--step-s", "0.1")


def test_the_straggler(killed: Path) -> None:
    """The slow rank is named first, with how often it was last and how far behind, as the rows say."""
    ((first, *others),) = answers("Which rank was the straggler over the last 100 steps?", killed)
    last = [one["m"] for one in rows(killed, "trainer", "step").values()]
    slow = [m["trainer/barrier/spread_s"] for m in last if m.get("trainer/barrier/last_rank") == SLOW]
    assert first == {"rank": SLOW, "times_last": len(slow), "behind_s": median(slow)}
    assert sum(one["times_last"] for one in (first, *others)) == STEPS


@pytest.mark.long
def test_reward_and_policy_lag(asynchronous: Path) -> None:
    """The steps at which lag and reward left what was usual are those worked out here, and the lag was first."""
    ((told),) = answers("When did reward and policy lag part ways?", asynchronous)
    lags = {
        step: one["m"]["generator/policy_lag"]
        for step, one in rows(asynchronous, "generator", "aligned").items()
        if "generator/policy_lag" in one["m"]
    }
    rewards = {step: one["m"]["trainer/reward"] for step, one in rows(asynchronous, "trainer", "step").items()}
    steps = sorted(rows(asynchronous, "generator", "aligned").keys() & rewards.keys())
    lag: dict[int, float] = {}
    reward: dict[int, float] = {}
    for place, step in enumerate(steps):
        window = steps[max(0, place - 7) : place + 1]
        lag[step] = max(lags[one] for one in window if one in lags)
        reward[step] = mean(rewards[one] for one in window)
    first = [step for step in steps if step < max(steps) / 2]
    usual_lag, usual_reward = median(lag[one] for one in first), median(reward[one] for one in first)
    rises = min(step for step in steps if lag[step] >= usual_lag + 3)
    falls = min(step for step in steps if reward[step] < 0.8 * usual_reward)
    assert told == [{"lag_rises": rises, "reward_falls": falls, "usual_lag": usual_lag, "worst_lag": max(lag.values())}]
    assert rises < falls


def test_the_killed_rank(killed: Path) -> None:
    """Its last words are reported; rows hold the figures of the attempt that did the step again."""
    last, attempts = answers("What did the killed rank do last, and which attempt's values stand?", killed)
    assert {(one["rank"], one["attempt"]) for one in last} == {(KILLED, 0)}
    words = {one["what"] for one in last if one["step"] == DEATH}
    figures = {f"loss = {1 / (DEATH + 1)}", "lr = 0.3", f"tokens = {100.0 + KILLED}"}
    assert words == {'event allocating {"bytes":68719476736}', "span backward", *figures}
    final = rows(killed, "trainer", "step")
    assert [one["step"] for one in attempts] == list(range(9, 14))
    for one in attempts:
        row = final[one["step"]]
        assert (one["lr"], one["tokens"]) == (0.3 if one["step"] < CHECKPOINT else 0.1, 303.0)
        assert (one["attempts"], one["missing"]) == (row["coverage"]["attempts"], row["coverage"]["missing"])
        assert (one["lr"], one["revision"]) == (row["m"]["trainer/lr"], row["arrival"]["revision"])
    assert next(one["attempts"] for one in attempts if one["step"] == DEATH) == [0, 1]
