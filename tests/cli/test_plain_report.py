"""How `watch` tells what it does."""

from __future__ import annotations

import io
import os
import time
from dataclasses import replace

import pytest

from rlship_sidecar.cli.live import report
from rlship_sidecar.cli.plain_report import PlainReport, is_terminal
from tests.cli.sample import a_sink, a_status, an_actor


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A terminal that was closed after its first line."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0

    def write(self, text: str) -> int:
        self.attempts += 1
        raise BrokenPipeError


def test_progress_comes_at_most_every_30_seconds() -> None:
    """However often the state changes, one line of progress in 30 s is reported, and none if nothing moved."""
    now = 0.0
    told: list[str] = []
    plain = PlainReport(told.append, clock=lambda: now)
    plain([a_status()])
    del told[:]
    for second in range(1, 301):
        now = float(second)
        plain([a_status(rows=120 + second, sinks=[a_sink(next_row=120 + second)])])
    assert len(told) == 10
    assert told[0] == "trainer step 12, ranks 4/4, lag 0.8 s; rows 150"
    del told[:]
    for second in range(301, 601):
        now = float(second)
        plain([a_status(rows=420, sinks=[a_sink(next_row=420)])])
    assert told == []


def test_a_refusal_is_told_once_for_all_experiments() -> None:
    """One key lacks for all of them: one line, also when further experiments find that out later."""
    told: list[str] = []
    plain = PlainReport(told.append)
    statuses = [a_status(experiment=f"/o/exp{number}") for number in range(3)]
    plain(statuses)
    del told[:]
    statuses[:2] = [replace(one, sinks=[a_sink(state="refused", error="no key: log in")]) for one in statuses[:2]]
    plain(statuses)
    statuses[2] = replace(statuses[2], sinks=[a_sink(state="refused", error="no key: log in")])
    plain(statuses)
    plain(statuses)
    assert told == ["2 experiments: sink wandb: refused: no key: log in"]
    statuses[2] = replace(statuses[2], sinks=[a_sink(state="refused", error="another store")])
    plain(statuses)
    assert told[1:] == ["exp2: sink wandb: refused: another store"]


def test_whom_a_step_waits_for_is_told_when_it_changes_or_goes_on() -> None:
    """Steps and seconds change all the time and a wait comes and goes; only another rank, or 30 s, make a line."""
    now = 0.0
    told: list[str] = []
    plain = PlainReport(told.append, clock=lambda: now)
    plain([a_status()])
    del told[:]
    for second in range(70):
        now = float(second)
        whom = ("0.1" if second < 65 else "0.2") if second % 2 else ""
        note = f"step {second} waits for {whom} for 3 s" if whom else ""
        plain([a_status(actors=[an_actor(waiting=whom, note=note)])])
    assert [line for line in told if "waits" in line] == [
        "trainer: step 1 waits for 0.1 for 3 s",
        "trainer: step 31 waits for 0.1 for 3 s",
        "trainer: step 61 waits for 0.1 for 3 s",
        "trainer: step 65 waits for 0.2 for 3 s",
    ]


def test_experiments_of_a_folder_are_named() -> None:
    """Lines about one of several experiments begin with its name, and progress stays one line."""
    now = 0.0
    told: list[str] = []
    plain = PlainReport(told.append, clock=lambda: now)
    many = [a_status(experiment=f"/o/run-{i}", rows=i, sinks=[]) for i in range(50)]
    plain(many)
    assert told[:2] == ["run-0: watching /o/run-0 on ext4", "run-0: trainer: 4/4 ranks"]
    del told[:]
    now = 31.0
    plain(many)
    assert told == ["run-49: trainer step 12, ranks 4/4, lag 0.8 s; rows 49 (and 49 more experiments)"]


def test_the_end_is_told() -> None:
    """When the daemon is done, the last state is reported even if 30 s have not gone by."""
    stream = io.StringIO()
    with report(stream, {}, title="o", quiet=False, table=True) as (on_status, _):
        assert on_status
        on_status([a_status()])
    lines = stream.getvalue().splitlines()
    assert lines[-1].endswith("rows 120; wandb 118 (shipping)")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_the_screen() -> None:
    """On a capable terminal the statuses are drawn as a screen that redraws itself."""
    stream = Terminal()
    with report(stream, {"TERM": "xterm"}, title="o", quiet=False, table=True) as (on_status, _):
        assert on_status
        on_status([a_status(t=time.time())])
        on_status([a_status(t=time.time(), actors=[an_actor(actor="reward")])])
    assert "\x1b[" in stream.getvalue()
    assert "reward" in stream.getvalue()


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_dumb_terminal_gets_plain_lines(env: dict[str, str]) -> None:
    """TERM=dumb and no TERM at all mean plain lines."""
    stream = Terminal()
    assert not is_terminal(stream, env)
    with report(stream, env, title="o", quiet=False, table=True) as (on_status, _):
        assert on_status
        on_status([a_status()])
    assert "\x1b" not in stream.getvalue()


def test_no_table_means_plain_lines() -> None:
    """With --no-table a terminal gets plain lines too."""
    stream = Terminal()
    with report(stream, {"TERM": "xterm"}, title="o", quiet=False, table=False) as (on_status, _):
        assert on_status
        on_status([a_status()])
    assert "\x1b" not in stream.getvalue()
    assert "watching /outputs/grpo-7b" in stream.getvalue()


def test_quiet_tells_nothing() -> None:
    """With --quiet there is nothing to call."""
    stream = io.StringIO()
    with report(stream, dict(os.environ), title="o", quiet=True, table=True) as (on_status, _):
        assert on_status is None
    assert stream.getvalue() == ""


def test_a_terminal_that_is_gone_does_not_stop_the_shipping() -> None:
    """Once a line could not be written, the report goes silent instead of raising into the daemon."""
    stream = Gone()
    with report(stream, {}, title="o", quiet=False, table=False) as (on_status, _):
        assert on_status
        on_status([a_status()])
        on_status([a_status(rows=500)])
    assert stream.attempts == 1
