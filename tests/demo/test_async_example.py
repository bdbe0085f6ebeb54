"""The asynchronous example, and what its rows tell: which generator is slow, since when, and what came of it.

Everything is read from rows.jsonl. Nothing here counts seconds: the job's own steps say when something has to show.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import pytest

from rlship_sidecar.rows import Row as SinkRow
from rlship_sidecar.sinks.names import DEFAULT_NAMES, flatten
from rlship_sidecar.sinks.tensorboard.sink import CHARTS, TensorBoardSink
from tests.demo.test_examples import EXAMPLES, LAUNCHER
from tests.kit import browser
from tests.kit.board import board
from tests.sinks.rows import make_run

STEPS, WINDOW_S = 60, 0.5
TURN = STEPS // 2  # the version of the policy from which on replica 2 is slow
CYCLE = 8  # steps that one of its slow rollouts takes, about

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of the example, run at four times its usual pace, as the sidecar leaves them in rows.jsonl."""
    folder = tmp_path_factory.mktemp("async")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER)}
    job = [sys.executable, str(EXAMPLES / "async_rl.py"), str(folder), "--steps", str(STEPS), "--step-s", "0.1"]
    subprocess.run(job, env=environment, check=True, timeout=300)
    watch = [sys.executable, "-m", "rlship", "watch", "--once", "--sink", "jsonl", str(folder)]
    done = subprocess.run(
        watch, env={**environment, "RLSHIP_CLOCK_WINDOW_S": str(WINDOW_S)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "rlship/state/rows.jsonl").read_bytes().splitlines()]


def by_index(rows: list[Row], actor: str, kind: str) -> dict[int, Row]:
    """An actor's rows of one kind, in order."""
    chosen = {row["index"]: row for row in rows if (row["actor"], row["kind"]) == (actor, kind)}
    return dict(sorted(chosen.items()))


def figures(rows: dict[int, Row], key: str) -> dict[int, float]:
    """A figure of each row that has it."""
    return {index: row["m"][key] for index, row in rows.items() if key in row["m"]}


def window(rows: list[Row], step: int) -> int:
    """The clock window in which the trainer logged a step."""
    return int(by_index(rows, "trainer", "step")[step]["t"] // WINDOW_S)


def peaks(lags: dict[int, float], first: int, end: int) -> float:
    """The usual height of the greatest lag in a cycle, over the whole cycles from `first` to before `end`."""
    cycles = range(first, end - CYCLE + 1, CYCLE)
    return median(max(lags.get(step, 0.0) for step in range(start, start + CYCLE)) for start in cycles)


def onset(values: dict[int, float], there: Callable[[float], bool]) -> int:
    """The first step where something is there and from which on no cycle is without it."""
    found = [step for step, value in values.items() if there(value)]
    for place, step in enumerate(found):
        gaps = [after - before for before, after in zip(found[place:], [*found[place + 1 :], max(values)])]
        if max(gaps) <= CYCLE:
            return step
    raise AssertionError(f"it is nowhere to stay in {values}")


def rise(rows: list[Row]) -> tuple[int, float]:
    """The step at which the generators' policy lag rises, and the lag that it exceeds from then on."""
    lags = figures(by_index(rows, "generator", "aligned"), "generator/policy_lag")
    before, after = peaks(lags, TURN - 3 * CYCLE, TURN), peaks(lags, TURN + CYCLE, STEPS)
    assert after >= before + 3
    limit = (before + after) / 2
    return onset(lags, lambda lag: lag > limit), limit


def test_the_slow_replica_is_named(rows: list[Row]) -> None:
    """Clock rows show each replica's tokens, alike until the turn and not after it, and whose rollouts are longest."""
    clock = by_index(rows, "generator", "clock")
    turned, last = window(rows, TURN), window(rows, STEPS - 1)

    def share(row: Row) -> float:
        tokens = row["per_rank"]["clock/generator/tokens"]
        return float(tokens.get("2.0", 0.0) / max(tokens.get("0.0", 0.0), tokens.get("1.0", 0.0)))

    before = [share(clock[index]) for index in range(window(rows, 1) + 1, turned)]
    after = [share(clock[index]) for index in range(turned + 2, last)]
    assert median(before) > 0.7
    assert median(after) < 0.3
    halved = next(index for index in range(turned - 1, last) if share(clock[index]) < 0.5)
    assert halved <= turned + 2

    slow = [row for index, row in clock.items() if turned + 2 <= index <= last]
    slow = [row for row in slow if "2.0" in row["per_rank"].get("clock/generator/rollout_s", {})]
    assert len(slow) >= 2
    for row in slow:
        took = row["per_rank"]["clock/generator/rollout_s"]
        assert row["m"]["clock/generator/rollout_s/argmax_replica"] == 2.0
        assert took["2.0"] > 4 * min(took.values())


def test_policy_lag_rises_at_its_step_and_in_its_window(rows: list[Row]) -> None:
    """The lag rises within one slow rollout of the turn, in the aligned row and in the clock windows of that step."""
    step, limit = rise(rows)
    assert TURN < step <= TURN + CYCLE + 2

    lags = figures(by_index(rows, "generator", "clock"), "clock/generator/policy_lag")
    usual = median(lag for index, lag in lags.items() if window(rows, 1) < index < window(rows, TURN))
    assert max(lags[index] for index in range(window(rows, step - 1), window(rows, step) + 1)) >= max(usual, limit)
    assert median(lag for index, lag in lags.items() if window(rows, step) < index < window(rows, STEPS - 1)) > usual

    versions = by_index(rows, "generator", "aligned")[step]["per_rank"]["generator/policy_version"]
    assert min(versions, key=lambda rank: versions[rank]) == "2.0"


def test_reward_falls_later(rows: list[Row]) -> None:
    """The trainer's reward falls for good once the lag has risen; what the buffer hands out is stale before that."""
    rewards = figures(by_index(rows, "trainer", "step"), "trainer/reward")
    assert list(rewards) == list(range(STEPS))
    before = median(rewards[step] for step in range(TURN - CYCLE, TURN))
    assert median(rewards[step] for step in range(STEPS - CYCLE, STEPS)) < 0.7 * before
    fall = onset(rewards, lambda reward: reward < 0.7 * before)
    assert fall > rise(rows)[0] > TURN

    stale = figures(by_index(rows, "buffer", "aligned"), "buffer/async/staleness")
    fresh = median(value for step, value in stale.items() if TURN - CYCLE <= step < TURN)
    assert onset(stale, lambda value: value > 1.5 * fresh) <= fall


def test_the_rest_of_the_job_is_in_the_rows(rows: list[Row]) -> None:
    """Pushes stand at their steps, evictions beside the steps and over time, and all generators are in every window."""
    trainer = by_index(rows, "trainer", "step")
    pushed = figures(trainer, "trainer/event/weights_pushed")
    assert pushed == dict.fromkeys(range(0, STEPS, 2), 1.0)
    assert list(figures(trainer, "trainer/push_weights_s")) == list(pushed)

    beside = sum(figures(by_index(rows, "buffer", "aligned"), "buffer/event/evicted").values())
    over_time = sum(figures(by_index(rows, "buffer", "clock"), "clock/buffer/event/evicted").values())
    assert 0 < beside <= over_time
    sizes = figures(by_index(rows, "buffer", "aligned"), "buffer/buf/size")
    assert sizes and set(sizes.values()) <= set(range(6, 13))
    points = [row["m"]["point/buffer/async/staleness"] for row in rows if row["kind"].startswith("point:")]
    assert len(points) > 3 and max(points[-3:]) > min(points)

    clock = by_index(rows, "generator", "clock")
    for index in range(window(rows, 0), window(rows, STEPS - 1)):
        assert (clock[index]["coverage"]["expected"], clock[index]["coverage"]["missing"]) == (3, [])


CHART_KEYS = [
    "buffer/async/staleness",
    "buffer/async/staleness/max",
    "buffer/buf/size",
    "generator/policy_lag",
    "generator/policy_version",
    "generator/reward",
    "generator/rollout_s",
    "generator/tokens",
    "generator/tokens/rate",
    "trainer/distance",
    "trainer/push_weights_s",
    "trainer/reward",
    "trainer/train_s",
    "trainer/wait_batch_s",
]


def sink_rows(rows: list[Row]) -> list[SinkRow]:
    """The rows as the sinks get them."""
    return [SinkRow.from_json(orjson.dumps(row)) for row in rows]


def test_the_job_makes_a_dozen_charts(rows: list[Row]) -> None:
    """At W&B each metric has one chart, under its own key. At TensorBoard the rewards stand before the others. All else
    is under a prefix that sorts last.
    """
    rewards = [key for key in CHART_KEYS if key.endswith("/reward")]
    lifted = [*(f"aa_headline/{key}" for key in rewards), *(key for key in CHART_KEYS if key not in rewards)]
    for shown, charts in ((DEFAULT_NAMES, CHART_KEYS), (CHARTS, lifted)):
        names = sorted({name for row in sink_rows(rows) for name in flatten(row, shown)})
        assert names[: len(charts)] == charts
        assert all(name.startswith("zz_rlship/") for name in names[len(charts) :])


@pytest.mark.toolchain
def test_what_tensorboard_shows_first(rows: list[Row], tmp_path: Path) -> None:
    """In a browser the sections are in the order of their names, reward first and rlship's own last; the run is called
    like the experiment. The picture is beside the page, for people.
    """
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path, rows=len(rows)))
    sink.write(sink_rows(rows))
    sink.close()
    with board(Path(sink.where)) as server:
        page = browser.dom(server.address, tmp_path)
        browser.picture(server.address, tmp_path, tmp_path / "tensorboard.png")
    (tmp_path / "tensorboard.html").write_text(page)
    assert re.findall(r'class="[^"]*group-title[^"]*"[^>]*>([^<]+)<', page) == [
        "Pinned",  # a section for people's choice, empty here
        "aa_headline",
        "buffer",
        "generator",
        "trainer",
        "zz_rlship",
    ]
    assert page.index("aa_headline/generator/reward") < page.index("aa_headline/trainer/reward")
    assert re.search(r">\s*grpo\s*<", page)
    assert (tmp_path / "tensorboard.png").stat().st_size > 20_000  # an empty page has less
