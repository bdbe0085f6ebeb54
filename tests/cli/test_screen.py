"""What a folder looks like on a terminal: it fits, and what matters most stays."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.report.screen import Screen, StyledLine, fit, lines, number, short_names, span, sparkline
from rlship_sidecar.report.status import AlertStatus, LackingStatus, NonFiniteStatus, ShortStatus, Status, TrendStatus
from tests.cli.sample import a_dead_letter, a_sink, a_status, a_writer, an_actor
from tests.guards.tree import ROOT
from tests.kit.cases import statistical

T = 1763600000.0
MISUSE = "log: 'x' has a value of type list that is no metric"


def a_trend(key: str, actor: str, points: list[float | None]) -> TrendStatus:
    return TrendStatus(key, actor, "step", len(points) - 1, points[-1], points)


REWARD = a_trend("reward/score", "reward", [i / 8 for i in range(8)])
LOSS = a_trend("trainer/loss", "trainer", [2.0, 1.0, 0.5, None, 0.25])
TOKENS = a_trend("trainer/tokens_per_s", "trainer", [18000.0, 18250.0])


def running(name: str, **changes: Any) -> Status:
    """An experiment that began 72 minutes ago and writes."""
    values: dict[str, Any] = {
        "t": T,
        "lead": "trainer",
        "began": T - 4320,
        "newest_t": T,
        "trends": [REWARD, LOSS, TOKENS],
        "sinks": [a_sink(next_row=120)],
        "writers": [a_writer(beats=True)],
    }
    return a_status(experiment=f"/outputs/{name}", **(values | changes))


def finished(name: str, **changes: Any) -> Status:
    """An experiment that ended an hour ago."""
    values: dict[str, Any] = {
        "actors": [an_actor(open_units=0)],
        "writers": [a_writer(closed=True, unread=0)],
        "finished": True,
        "newest_t": T - 3600,
    }
    return running(name, **(values | changes))


def shown(*statuses: Status, width: int = 80, height: int = 24, watched: bool = True) -> list[str]:
    screen = Screen("outputs/", statuses, T, watched, time.gmtime)
    return [line.text for line in lines(screen, width, height)]


def test_ten_experiments_fit_24_by_80() -> None:
    """Running experiments come first, with their metrics, ranks and sinks; a finished one has a line."""
    trainer = an_actor(step=1204, steps_per_s=0.45, ranks_seen=64, ranks_expected=64, missing=["0.17"])
    big = running(
        "grpo-10",
        actors=[an_actor(actor="generator", step=None, open_units=0), trainer],
        writers=[a_writer(rank=17, host="n07", pid=4121)],
        misuse={MISUSE: 2},
        misuse_t={MISUSE: T - 60},
        notes=["reads 2 files of verl"],
    )
    slow = running("grpo-2", actors=[an_actor(steps_per_s=0.03)])
    assert shown(big, slow, *(finished(f"sft-{i}") for i in range(8))) == [
        "outputs/  2025-11-20 00:53:20  2 running, 8 finished",
        "grpo-2   running 1 h 12 min, step 12, 33.33 s/step, score 0.875, loss 0.25",
        "  score             0.875  ▁▂▃▄▅▆▇█",
        "  loss               0.25  █▄▂ ▁",
        "  tokens_per_s     18.25k  ▁█",
        "  trainer  4/4 ranks, step 12",
        "  wandb shipping, 120 of 120 rows -> wandb/x",
        "grpo-10  running 1 h 12 min, step 1204, trainer lacks r17, 0.45 steps/s",
        "  score             0.875  ▁▂▃▄▅▆▇█",
        "  loss               0.25  █▄▂ ▁",
        "  tokens_per_s     18.25k  ▁█",
        "  trainer  63/64 ranks, step 1204, missing r17 (n07 pid 4121)",
        "  generator  4/4 ranks",
        "  wandb shipping, 120 of 120 rows -> wandb/x",
        f"  reported to the job: {MISUSE}",
        "  reads 2 files of verl",
        *(f"sft-{i}    finished 2025-11-19 23:53 in 12 min 00 s  step 12  score 0.875" for i in range(8)),
    ]


def test_much_that_is_not_read_yet_stands_behind_the_step() -> None:
    """A sidecar that catches up shows an old step as the newest: so much is left to read."""
    late = running("a", writers=[a_writer(beats=True, unread=17_000_000)])
    assert shown(late)[1] == "a  running 1 h 12 min, step 12, 17.0 MB not read yet, score 0.875, loss 0.25"


def test_the_documents_show_a_real_screen() -> None:
    """The picture in docs/cli.md is what the renderer draws."""
    picture = "\n".join(shown(*a_day(), watched=True))
    assert picture in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), picture


def a_day() -> list[Status]:
    """Two runs at work, one of which lost a rank, one that hangs, and two of yesterday."""

    def curve(key: str, actor: str, value: Callable[[int], float]) -> TrendStatus:
        return replace(a_trend(key, actor, [value(i) for i in range(40)]), index=1204, first=0)

    trends = [
        curve("reward/score", "reward", lambda i: 0.97 - 0.74 * math.exp(-i / 12)),
        curve("trainer/loss", "trainer", lambda i: 0.02 + 1.9 * math.exp(-i / 9)),
        curve("trainer/tokens_per_s", "trainer", lambda i: 18200 + 300 * math.sin(i)),
    ]
    actors = [
        an_actor(step=1204, steps_per_s=0.45, ranks_seen=64, ranks_expected=64, missing=["0.17"]),
        an_actor(actor="generator", step=None, ranks_seen=8, ranks_expected=8, open_units=0),
    ]
    lost = [a_writer(rank=17, host="n07", pid=4121)]
    misuse = {"log: 'prompts' has a value of type list that is no metric": 2}
    wandb = a_sink(next_row=4812, where="https://wandb.ai/lab/rl/runs/8f2c")
    return [
        running(
            "grpo-7b",
            actors=actors,
            writers=lost,
            trends=trends,
            misuse=misuse,
            misuse_t=dict.fromkeys(misuse, T),
            rows=4812,
            sinks=[wandb],
        ),
        running(
            "grpo-10",
            began=T - 400,
            actors=[an_actor(steps_per_s=0.03)],
            trends=[replace(trend, index=12, points=trend.points[:13], value=trend.points[12]) for trend in trends[:2]],
        ),
        running("ppo-3", writers=[a_writer(silent_s=7200.0, beats=True)], trends=trends[:2]),
        *(finished(f"sft-{i}", began=T - 9000, trends=trends[1:2]) for i in (1, 2)),
    ]


def test_more_experiments_than_lines_are_counted() -> None:
    """Where not every experiment has a line, the last line counts the others by state, finished ones first."""
    many = [running(f"run-{i}") for i in range(30)] + [finished(f"old-{i}") for i in range(500)]
    found = shown(*many, height=10)
    assert found[0] == "outputs/  2025-11-20 00:53:20  30 running, 500 finished"
    assert [line.split()[0] for line in found[1:9]] == [f"run-{i}" for i in range(8)]
    assert found[9:] == ["and 522 more: 22 running, 500 finished"]
    assert len(shown(*many)) == 24


def test_processes_that_an_error_ended_are_trouble() -> None:
    """Each error has a line, as long as they are few, while the others go on."""
    writers = [a_writer(rank=0, awaited=True)] + [
        a_writer(file=f"{rank}.jsonl", rank=rank, step=20, awaited=True, failure=f"RuntimeError: {rank}")
        for rank in (1, 2)
    ]
    found = [line for line in shown(running("run", writers=writers)) if "ended with" in line]
    assert found == [f"  trainer r{rank} ended with RuntimeError: {rank} at step 20" for rank in (1, 2)]
    writers += [replace(writers[1], file=f"{n}.jsonl", rank=n, failure=str(n)) for n in range(3, 6)]
    found = [line.strip() for line in shown(running("run", writers=writers))]
    assert "and 3 more errors that ended processes: rlship status --json" in found


def test_a_low_terminal_keeps_the_trouble() -> None:
    """Missing ranks, a sink that cannot deliver, dead letters and misuse stay when metrics and notes have no room."""
    status = running(
        "run",
        actors=[an_actor(missing=["0.1"])],
        sinks=[a_sink(name="jsonl"), a_sink(state="refused", error="the file is another store's")],
        dead_letters=[a_dead_letter()],
        dead_letter_count=3,
        claims=["2 writers claim trainer/0/r0 at one time: set rank or replica"],
        notes=["a note"],
    )
    others = [finished(f"old-{i}") for i in range(9)]
    assert shown(status, *others, height=8) == [
        "outputs/  2025-11-20 00:53:20  1 running, 9 finished",
        "run    running 1 h 12 min, step 12, trainer lacks r1, wandb refused, 1 claim",
        "  trainer  3/4 ranks, step 12, missing r1",
        "  wandb refused, 118 of 120 rows: the file is another store's -> wandb/x",
        "  2 writers claim trainer/0/r0 at one time: set rank or replica",
        "  3 dead letters",
        "old-0  finished 2025-11-19 23:53 in 12 min 00 s  step 12  score 0.875  loss 0.25",
        "and 8 more: 8 finished",
    ]


def test_a_wide_detail_is_wrapped_where_rows_are_free() -> None:
    """Trouble first; words stay whole, and a path breaks at the last cell. Where no row is free it is cut."""
    note = "step 35 has waited 3 s for r1 (vm pid 4121); goes on without it after 30 s of silence"
    where = "wandb sync /tmp/a/folder/far/down/grpo-7b/rlship/state/wandb/offline-run-20251120_005320-abc"
    status = running("run", trends=[], actors=[an_actor(note=note)], sinks=[a_sink(next_row=120, where=where)])
    assert shown(status)[2:] == [
        "  trainer  4/4 ranks, step 12, step 35 has waited 3 s for r1 (vm pid 4121); goes",
        "    on without it after 30 s of silence",
        "  wandb shipping, 120 of 120 rows -> wandb sync /tmp/a/folder/far/down/grpo-7b/r",
        "lship/state/wandb/offline-run-20251120_005320-abc",
    ]
    found = lines(Screen("o", [status], T), 80, 24)
    assert [line.goes_on for line in found[2:]] == [False, False, True, False]
    assert shown(status, height=5)[2:] == [
        "  trainer  4/4 ranks, step 12, step 35 has waited 3 s for r1 (vm pid 4121); goes",
        "    on without it after 30 s of silence",
        "  wandb shipping, 120 of 120 rows -> wandb sync /tmp/a/folder/far/down/grpo-7b/…",
    ]
    status.sinks[0].state = "refused"
    assert shown(status, height=5)[2].endswith("goe…") and shown(status, height=5)[4].endswith("abc")
    assert [len(line) <= 80 for line in shown(status, height=4)] == [True] * 4


def test_a_rank_that_holds_rows_back_is_named_beside_healthy_experiments() -> None:
    """Its line stays and theirs give way, once it has held rows back for some seconds and while a sidecar waits."""

    def held(lag_s: float, t: float = T) -> Status:
        note = f"step 13 has waited {lag_s:.0f} s for r1; goes on without it after 30 s of silence"
        return running("held", t=t, actors=[an_actor(note=note, waiting="0.1", lag_s=lag_s)])

    healthy = [running(f"run-{i}") for i in range(9)]
    found = shown(held(13.0), *healthy)
    assert len(found) <= 24 and begins(found, "  trainer  4/4 ranks, step 12, lag 13 s, step 13 has waited 13 s for r1")
    assert begins(found, "held ")[0].endswith("step 12, trainer step 13 has waited 13 s for r1")
    for other in (shown(held(4.0), *healthy), shown(held(13.0, t=T - 900), *healthy, watched=False)):
        assert not any("has waited" in line for line in other)


def test_no_experiment_is_left_out_for_a_note() -> None:
    """Where all experiments fit, notes, sinks, actors and curves give way to them; trouble does not."""
    status = running("run", actors=[an_actor(missing=["0.1"])], notes=[f"note {i}" for i in range(9)])
    for count in (1, 5, 11, 17, 20):
        found = shown(status, *(finished(f"old-{i}") for i in range(count)))
        assert len(begins(found, "old-")) == count
        assert begins(found, "  trainer  3/4 ranks, step 12, missing r1")
    both = shown(*(running(f"run-{i}") for i in range(10)), *(finished(f"old-{i}") for i in range(10)))
    assert len(begins(both, "run-", "old-")) == 20 and len(both) == 24
    assert [line.split()[0] for line in begins(both, "run-", "old-")[:10]] == [f"run-{i}" for i in range(10)]


def begins(found: list[str], *words: str) -> list[str]:
    return [line for line in found if line.startswith(words)]


def test_each_metric_has_a_column_of_its_own() -> None:
    """Of experiments with one line, also where some lack a metric; not where a column would take one's only metric."""
    some = [
        finished("a", trends=[REWARD, LOSS], began=T - 3610),
        finished("b", trends=[LOSS], began=T - 3605),
        finished("c", trends=[], began=T - 3600),
        finished("d", trends=[REWARD], began=T - 3600, dead_letter_count=1),
        running("e", t=T - 9000),
    ]
    assert shown(*some, watched=False, width=90)[1:4] == [
        "e  no sidecar since 2025-11-19 22:23  step 12  score 0.875  loss 0.25  tokens_per_s 18.2k",
        "a  finished 2025-11-19 23:53 in 10 s  step 12  score 0.875  loss 0.25",
        "b  finished 2025-11-19 23:53 in 5 s   step 12               loss 0.25",
    ]
    assert shown(*some[:4])[1:] == [
        "a  finished 2025-11-19 23:53 in 10 s  step 12  score 0.875  loss 0.25",
        "b  finished 2025-11-19 23:53 in 5 s   step 12               loss 0.25",
        "c  finished 2025-11-19 23:53 in 0 s   step 12",
        "d  finished 2025-11-19 23:53 in 0 s, step 12, 1 dead letter, score 0.875",
    ]
    assert shown(*some[:2], width=65)[2] == "b  finished 2025-11-19 23:53 in 5 s   step 12  loss 0.25"


@pytest.mark.parametrize(("state", "width"), [("finished 2025-11-19 23:53", 80), ("finished", 60)])
def test_finished_experiments_of_which_one_has_a_long_name_are_compared_by_a_metric(state: str, width: int) -> None:
    """Its first column is one that most of them have, of three digits; for it the duration and the date give way."""
    accuracy, loss = a_trend("trainer/accuracy", "trainer", [0.0]), a_trend("trainer/loss", "trainer", [0.04567])
    some = [finished(name, trends=[loss]) for name in ("a-very-long-name-of-an-experiment", "b")]
    assert shown(*some, finished("c", trends=[accuracy, loss]), width=width)[1:] == [
        f"a-very-long…n-experiment  {state}  step 12  loss 0.0457",
        f"b                         {state}  step 12  loss 0.0457",
        f"c                         {state}  step 12  loss 0.0457",
    ]


def test_experiments_that_an_error_ended_are_counted_apart() -> None:
    """Neither they nor those that ended without a close are silent ones. The date gives way to the counts."""
    error = a_writer(awaited=True, failure="RuntimeError: out of memory")
    killed = a_writer(silent_s=90.0, beats=True, awaited=True, gone=True)
    quiet = a_writer(silent_s=720.0)
    some = [running(name, writers=[writer]) for name, writer in (("a", error), ("b", killed), ("c", quiet))]
    counts = "1 running, 1 crashed, 1 ended without a close, 1 silent, 1 finished"
    assert shown(*some, running("d"), finished("e"), width=120)[0] == f"outputs/  2025-11-20 00:53:20  {counts}"
    assert shown(*some, running("d"), finished("e"), width=90)[0] == f"outputs/  00:53:20  {counts}"
    assert shown(*some, running("d"), finished("e"))[0] == f"outputs/  {counts}"


@pytest.mark.parametrize("watched", [True, False])
def test_a_rank_that_leaves_out_a_metric_is_named(watched: bool) -> None:
    """With the metric, as trouble while it is new, then as a note; several are folded."""
    short = ShortStatus("trainer", 4, 9, 12, {"trainer/grad_norm": ["0.1"]})
    status = running("run", short=[short], running=True)
    found = shown(status, watched=watched)
    assert found[1].startswith("run  running 1 h 12 min, step 12, trainer r1 left out grad_norm")
    assert "  trainer r1 left out grad_norm (4 rows up to step 12)" in found
    short.metrics = {f"trainer/m{i}": ["0.1", "0.3"] for i in range(9)} | {"trainer/kl": ["0.2"]}
    assert any("trainer r1, r3 left out m0 and 8 more; and 1 more" in line for line in shown(status, width=120)[1:2])
    (line,) = begins(shown(status, width=120), "  trainer r1")
    assert line == "  trainer r1, r3 left out m0, m1, m2 and 6 more; r2 left out kl (4 rows up to step 12)"
    status.actors[0].step = 112
    found = shown(status, width=120)
    assert "left out" not in found[1] and "left out" in found[-1]
    assert not any("left out" in line for line in shown(status, *(finished(f"old-{i}") for i in range(18))))


def test_a_wrong_call_has_one_line_and_ages() -> None:
    """The newest report of several stands for all; after a while it is a note, and then not on the screen."""
    notes = [
        f"reported to the job {words}" for words in ("by 2 processes: one", "by 1 process: two", "in 7 more reports")
    ]
    status = running("run", misuse={"one": 2, "two": 1}, misuse_t={"one": T - 30, "two": T - 90}, notes=notes)
    old = [finished(f"old-{i}") for i in range(21)]
    line = "  reported to the job (and 1 more): one"
    assert [one for one in shown(status) if "reported" in one] == [line]
    assert line in shown(status, *old)
    status.misuse_t = {"one": T - 700, "two": T - 900}
    assert [one for one in shown(status) if "reported" in one] == [line]
    assert line not in shown(status, *old)
    for known in ({"one": T - 3600}, {}):
        status.misuse_t = known
        assert [one for one in shown(status) if "reported" in one] == []


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["0.17"], "1,023/1,024 ranks, step 12, missing r17"),
        (["0.17", "0.400", "0.512-514"], "1,019/1,024 ranks, step 12, missing r17, r400, r512-514"),
        ([f"0.{i}" for i in range(0, 1024, 2)], "512/1,024 ranks, step 12, missing r0, r2, r4, r6, r8, r10 +506"),
    ],
)
def test_a_thousand_ranks_have_one_line(missing: list[str], words: str) -> None:
    """It names as many missing ranks as fit, in their natural order, and counts the rest."""
    writers = [a_writer(rank=rank) for rank in range(1024)]
    status = running("run", actors=[an_actor(ranks_seen=1024, ranks_expected=1024, missing=missing)], writers=writers)
    assert f"  trainer  {words}" in shown(status)
    (narrow,) = (line for line in shown(status, width=60) if line.startswith("  trainer"))
    assert narrow.startswith("  trainer  ") and len(narrow) <= 60 and "…" not in narrow


def test_states_of_experiments() -> None:
    """Silent experiments, and those without a sidecar, are named as such; a note of how long ends each sentence."""
    silent = running("quiet", writers=[a_writer(silent_s=720.0)])
    assert shown(silent)[1:3] == [
        "quiet  silent for 12 min 00 s, step 12, score 0.875, loss 0.25",
        "  score             0.875  ▁▂▃▄▅▆▇█",
    ]
    silent.writers = [a_writer(silent_s=7200.0)]
    assert begins(shown(silent, finished("old")), "quiet  silent for 2 h 00 min        ") != []
    for seconds, beats, state in ((61.0, True, "silent"), (599.0, False, "running"), (601.0, False, "silent")):
        one = running("one", writers=[a_writer(silent_s=seconds, beats=beats)])
        assert shown(one)[0].endswith(f"  1 {state}")
    left = running("left", t=T - 86400)
    assert shown(left, watched=False)[:2] == [
        "outputs/  2025-11-20 00:53:20  1 not watched",
        "left  no sidecar since 2025-11-19 00:53, step 12, score 0.875, loss 0.25",
    ]
    left.actors[0].missing = ["0.1"]
    assert shown(left, watched=False)[1].startswith(
        "left  no sidecar since 2025-11-19 00:53, step 12, trainer lacks r1"
    )
    left.running = True
    assert shown(left, watched=False)[1].startswith("left  silent for 1 d 00 h")
    assert shown(running("new", actors=[], writers=[], trends=[]))[1] == "new  running 1 h 12 min, no lines yet"
    assert shown() == ["outputs/  2025-11-20 00:53:20  no experiment yet"]


def test_a_rank_that_ended_is_told_from_a_silent_experiment() -> None:
    """While others write, the experiment runs. Once they closed, the killed rank is named, not its own silence."""
    dead = a_writer(file="r1", rank=1, silent_s=118.0, beats=True, awaited=True)
    other = a_writer(file="g", actor="generator", silent_s=4.0, beats=True, awaited=True, unread=0)
    status = running("run", writers=[dead, other])
    assert shown(status)[1].startswith("run  running 1 h 12 min")
    other.closed, other.awaited = True, False
    assert shown(status)[0].endswith("  1 ended without a close")
    assert shown(status)[1] == "run  trainer r1 ended without a close, the others finished, step 12, score 0.875"
    other.silent_s = 7200.0
    status.writers.append(a_writer(file="r2", rank=2, silent_s=90.0, beats=True, awaited=True))
    assert shown(status)[1].startswith("run  trainer r1, r2 ended without a close, the others finished")
    status.writers[-1].actor = "reward"
    assert shown(status)[1].startswith("run  reward r2, trainer r1 ended without a close, the others finished")


def test_a_job_whose_processes_are_gone_is_not_running() -> None:
    """Its processes are named as soon as the last one is known to be gone; nothing waits for a minute of silence."""
    first = a_writer(file="r0", silent_s=6.0, beats=True, awaited=True, gone=True)
    second = a_writer(file="r1", rank=1, silent_s=6.0, beats=True, awaited=True)
    status = running("run", writers=[first, second])
    assert shown(status)[1].startswith("run  running 1 h 12 min")
    assert begins(shown(status), "  trainer r0 ended without a close")
    second.gone = True
    assert shown(status)[1].startswith("run  trainer r0, r1 ended without a close, step 12")


def test_a_crash_stays_visible_once_no_sidecar_runs() -> None:
    """With the ranks that ended, and for an hour with metrics; the files' own times say that a process goes on."""
    dead = a_writer(silent_s=118.0, beats=True, awaited=True)
    crashed = running("crashed", t=T - 600, writers=[dead])
    assert shown(crashed, watched=False)[1:4] == [
        "crashed  trainer r0 ended without a close, no sidecar since 2025-11-20 00:43",
        "  score             0.875  ▁▂▃▄▅▆▇█",
        "  loss               0.25  █▄▂ ▁",
    ]
    goes_on = Screen("o", [crashed], T, False, time.gmtime, {crashed.experiment: {dead.file: 1.0}})
    assert not any("ended" in line.text for line in lines(goes_on, 120, 24))
    crashed.t = T - 86400
    found = shown(crashed, finished("old"), watched=False)
    assert found[1] == "crashed  trainer r0 ended without a close, no sidecar since 2025-11-19 00:53"
    assert len(found) == 3


def test_a_crashed_job_does_not_run() -> None:
    """Once every process of a job ended with an error, or the others closed, it is not at work, at whatever age of its
    lines; as long as one process goes on, it is.
    """
    dead = a_writer(silent_s=0.3, beats=True, awaited=True, failure="RuntimeError: out of memory", step=12)
    status = running("run", writers=[dead], running=True)
    for watched in (True, False):
        found = shown(status, watched=watched, width=120)
        assert found[0].endswith("  1 crashed")
        assert found[1].startswith("run  trainer r0 ended with an error, step 12, trainer r0 ended with RuntimeError")
    status.writers.append(a_writer(file="r1", rank=1, closed=True, unread=0))
    assert shown(status)[1].startswith("run  trainer r0 ended with an error, the others finished")
    status.writers.append(a_writer(file="r2", rank=2, silent_s=90.0, beats=True, awaited=True))
    words = "run  trainer r2 ended without a close, trainer r0 ended with an error, the others finished"
    assert shown(status, width=120)[1].startswith(words)
    status.writers[-1].silent_s = 1.0
    assert shown(status)[1].startswith("run  running 1 h 12 min")


def test_a_job_that_ended_does_not_run_while_its_rows_are_delivered() -> None:
    """It has finished, without a rate; its sinks are shown until they have all rows."""
    status = finished("old", sinks=[a_sink(next_row=3)], actors=[an_actor(open_units=0, steps_per_s=0.04)])
    found = shown(status, finished("done"))
    assert found[0].endswith("  2 finished")
    assert not any("s/step" in line for line in found)
    (line,) = begins(found, "old")
    assert line.startswith("old   finished 2025-11-19 23:53 in 12 min 00 s")
    assert "  wandb shipping, 3 of 120 rows -> wandb/x" in found
    ended = finished("new", finished=False, writers=[a_writer(closed=True, unread=0, silent_s=480.0)])
    assert shown(ended)[1].startswith("new  silent for 8 min 00 s")


def test_an_only_experiment_has_its_details() -> None:
    """Also once it has finished: its curves, and the command that ships its offline run."""
    sync = "wandb sync /tmp/run/rlship/state/wandb"
    status = finished("run", sinks=[a_sink(next_row=120, state="closed", where=sync)])
    found = shown(status, height=30)
    assert found[1] == "run  finished 2025-11-19 23:53 in 12 min 00 s, step 12, score 0.875, loss 0.25"
    assert "  score             0.875  ▁▂▃▄▅▆▇█" in found and f"  wandb closed, 120 of 120 rows -> {sync}" in found
    assert len(shown(status, finished("other"))) == 3


def test_old_trouble_does_not_take_the_room_of_values() -> None:
    """A metric that a rank left out 34 steps ago is a detail; on the experiment's own line are its values."""
    short = ShortStatus("trainer", 4, 9, 12, {"trainer/entropy": ["0.1"]})
    status = finished("run", short=[short], actors=[an_actor(step=46, open_units=0)])
    assert shown(status)[1].endswith("step 46, score 0.875, loss 0.25")
    assert "  trainer r1 left out entropy (4 rows up to step 12)" in shown(status)
    assert "left out" in shown(finished("run", short=[short]), width=120)[1]


def test_rows_that_lack_ranks_are_trouble() -> None:
    """Also if the newest row has all ranks again, as after a rank was killed and the job was submitted again."""
    status = finished("killed", lacking=[LackingStatus("trainer", 92, 8, 99)])
    assert "92 rows lack ranks" in shown(status)[1]
    assert "  trainer: 92 rows lack ranks, steps 8..99" in shown(status)
    assert "1 row lacks ranks" in shown(finished("killed", lacking=[LackingStatus("trainer", 1, 8, 8)]))[1]


def test_a_file_that_cannot_be_read_is_trouble() -> None:
    """With its name and the reason."""
    lost = a_writer(file="r1.jsonl", actor="", note="Permission denied", unreadable=True)
    found = shown(running("run", writers=[a_writer(), lost]))
    assert "1 file cannot be read" in found[1] and "  r1.jsonl: Permission denied" in found


def test_what_fires_comes_first() -> None:
    """An episode that fires is in the experiment's own line and the first below it, red if it is critical; one that is
    calm by now is a note.
    """
    fires = AlertStatus("i", "mismatch", "critical", "firing", "", 5, 7, 0.0, 9, {"differ": 0.2}, "", "the last sync")
    calm = AlertStatus("j", "stall", "warning", "clearing", "", 1, 2, 0.0, 3)
    found = lines(Screen("x", [running("run", alerts=[fires, calm])], 1763600100.0), 100, 24)
    assert "mismatch firing" in found[1].text and "stall" not in found[1].text
    assert found[2] == StyledLine("  critical mismatch since step 5: differ 0.2; look at the last sync", "red")
    assert StyledLine("  warning stall since step 1, calm since step 3", "dim") in found


@pytest.mark.parametrize(("width", "height", "state"), [(80, 24, "finished, step 12,"), (52, 24, "finished,")])
def test_an_alert_of_a_finished_experiment_with_a_long_name_stays(width: int, height: int, state: str) -> None:
    """Its duration and then its date give way. An alert that lacks room even then ends with an ellipsis."""
    fires = AlertStatus("i", "mismatch", "critical", "firing", "", 5, 7, 0.0, 9)
    name = "a-very-long-name-of-an-experiment"
    many = [finished(name, alerts=[fires]), *(finished(f"old-{i}") for i in range(9))]
    (line,) = begins(shown(*many, width=width, height=height), "a-very-long…")
    assert line == f"a-very-long…n-experiment  {state} mismatch firing{', score 0.875' * (width == 80)}"
    (line,) = begins(shown(*many, width=45, height=height), "a-very-long…")
    assert line == "a-very-long…n-experiment  finished, mismatch…"
    (line,) = begins(shown(*many, width=120, height=40), name)
    assert line.startswith(f"{name}  finished 2025-11-19 23:53 in 12 min 00 s, step 12, mismatch firing")


def test_values_that_were_not_finite_are_named() -> None:
    """With the rank and the steps; with the last finite value where the newest row lacks one."""
    one = NonFiniteStatus("trainer", "step", ["trainer/reward"], ["0.1"], 1, 7, 7)
    trend = TrendStatus("trainer/loss", "trainer", "step", 60, 0.5, [1.0, 0.5], nonfinite=1, first=0)
    status = running("run", nonfinite=[one], trends=[trend], actors=[an_actor(step=60)])
    assert "  trainer reward was not finite: r1 (step 7)" in shown(status)
    assert "not finite" not in shown(status)[1].partition("loss")[0]
    assert "  loss        0.5  █▁ (1 not finite)  steps 0..60" in shown(status)
    lasting = NonFiniteStatus("trainer", "step", ["trainer/kl", "trainer/loss"], ["0.0-1"], 56, 5, 60)
    gone = TrendStatus("trainer/loss", "trainer", "step", 60, None, [1.0, 0.5, None], first=0, nonfinite=2)
    gone.finite, gone.finite_index = 0.5, 4
    status = running("run", nonfinite=[lasting], trends=[gone], actors=[an_actor(step=60)])
    assert "trainer kl and 1 more were not finite: r0-1" in shown(status)[1]
    assert "  trainer kl, loss were not finite: r0-1 (56 rows, steps 5..60)" in shown(status)
    assert "  loss        nan  █▁   last finite 0.5 at step 4  steps 0..60" in shown(status)
    window = NonFiniteStatus("trainer", "clock", ["clock/trainer/x"], ["0.1"], 1, 176360000, 176360000, 10.0, 10.0)
    found = shown(running("run", nonfinite=[window]))
    assert "  trainer x was not finite: r1 (over time, 10.0 s after the start)" in found
    assert "not finite" not in found[1]


SEEDS = [f"qwen2.5-7b-instruct-grpo-lr1e-6-seed{seed}" for seed in range(1, 11)]


@pytest.mark.parametrize(("width", "first"), [(80, "qwen2.5-7b-…-1e-6-seed1"), (110, SEEDS[0])])
def test_long_names_are_told_apart(width: int, first: str) -> None:
    """By their ends, or whole where there is room; and seed2 stands before seed10."""
    found = shown(*(finished(name) for name in sorted(SEEDS)), width=width)[1:]
    assert len({line.split("  ")[0] for line in found}) == 10
    if width == 110:
        assert [line.split("  ")[0] for line in found] == SEEDS
    else:
        assert [line.split("  ")[0].rpartition("seed")[2] for line in found] == [str(seed) for seed in range(1, 11)]
        assert all(len(line.split("  ")[0]) <= 24 for line in found)


def test_what_names_have_in_common_is_left_out_where_they_differ_in_the_middle() -> None:
    """In whole words, and only where the ends alone do not tell them apart."""
    names = [f"a-very-long-project-name-lr{lr}-and-a-long-ending-of-it" for lr in (1, 2, 10)]
    assert short_names(names, 24) == ["…lr1…", "…lr2…", "…lr10…"]
    assert short_names(["x" * 30 + "1", "x" * 30 + "10"], 24) == [
        "x" * 11 + "…" + "x" * 11 + "1",
        "x" * 11 + "…" + "x" * 10 + "10",
    ]
    assert short_names(["a", "b" * 30], 24) == ["a", "b" * 11 + "…" + "b" * 12]
    assert short_names(["same", "same"], 24) == ["same", "same"] and short_names([], 24) == []
    assert [line.split("  ")[0] for line in shown(*map(finished, ("a/run", "b/run", "c")))[1:]] == [
        "a/run",
        "b/run",
        "c",
    ]


def test_an_experiment_is_silent_since_its_newest_line() -> None:
    """Also if that is of a process which has closed since, such as the last submission of the same rank."""
    dead = a_writer(silent_s=118.0, beats=True, awaited=True)
    status = running("run", writers=[dead, a_writer(file="b", closed=True, silent_s=4.0, unread=0)])
    assert shown(status)[0].endswith("  1 running")
    status.t -= 60
    assert shown(status)[1].startswith("run  silent for 1 min 04 s")
    foreign = a_writer(silent_s=900.0, awaited=True, format="verl")
    assert shown(running("run", writers=[foreign, a_writer(file="b", rank=1, closed=True, silent_s=700.0)]))[
        1
    ].startswith("run  silent for 11 min 40 s")


def test_what_matters_is_coloured() -> None:
    """Trouble is yellow, a refusal red, a finished experiment dim."""
    status = running("run", actors=[an_actor(missing=["0.1"])], sinks=[a_sink(state="refused")])
    found = lines(Screen("o", [status, finished("old")], T), 80, 24)
    styles = {line.text.split()[0]: line.style for line in found}
    assert styles["run"] == styles["trainer"] == "yellow"
    assert (styles["o"], styles["wandb"], styles["old"], styles["loss"]) == ("bold", "red", "dim", "")


def test_metrics_of_one_name_are_told_apart() -> None:
    """Two metrics whose names differ only by the actor have the actor in front."""
    status = running("run", trends=[LOSS, a_trend("critic/loss", "critic", [1.0, 2.0])])
    assert [line for line in shown(status) if "loss  " in line] == [
        "  trainer/loss       0.25  █▄▂ ▁",
        "  critic/loss           2  ▁█",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(None, "nan"), (0.0, "0"), (0.03125, "0.03125"), (1204.0, "1204"), (-18250.0, "-18.25k"), (9999.0, "9999")],
        *[(1.5e-6, "1.50e-06"), (2.5e6, "2.5M"), (7e9, "7G"), (3e13, "30T"), (1e300, "1.00e+300"), (-0.5, "-0.5")],
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    """Four digits, with a suffix or an exponent."""
    assert number(value) == text


def test_a_number_of_three_digits_has_no_exponent_that_it_does_not_need() -> None:
    """1204 stays as it is, and so does what is rounded up to 1000."""
    values = [0.045678, 12.345, 999.96, 1204.4, 18250.0, 999_960.0, 1.5e-6]
    assert [number(value, 3) for value in values] == ["0.0457", "12.3", "1000", "1204", "18.2k", "1000k", "1.50e-06"]


def test_lengths_of_time() -> None:
    """Two units at most; nothing for a time that cannot be."""
    found = [span(seconds) for seconds in (0, 59.9, 60, 3599, 3600, 90000, 86400 * 40, -1, math.nan, math.inf)]
    assert found == ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "1 d 01 h", "40 d 00 h", "-", "-", "-"]


def test_sparklines() -> None:
    """The last points from the least to the greatest; a level line is level; a gap is a gap; one point is no line."""
    assert sparkline([0.0, 7.0, 3.0], 10) == "▁█▄"
    assert sparkline([0.0, 1.0, 2.0], 2) == "▁█"
    assert sparkline([5.0, 5.0], 10) == "▄▄"
    assert sparkline([1.0, None, 2.0], 10) == "▁ █"
    assert sparkline([1.0], 10) == sparkline([None, None], 10) == sparkline([1.0, 2.0], 0) == ""
    assert sparkline([-1.7e308, 1.7e308, 0.0], 10) == "▁█▅"


def cells(text: str) -> int:
    """How many cells a terminal gives a text, counted by Unicode's own tables."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


NAMES = st.text(st.sampled_from("ab/.- 0日本한🤖é\u0301אב\u202e\u200f\x1b[2J\n\r\t\x00\x9b\udc80｡"), max_size=50)


@st.composite
def statuses(draw: st.DrawFn) -> Status:
    """Any experiment, with names that were chosen by an enemy of terminals."""
    values = st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
    actor = an_actor(
        actor=draw(NAMES),
        missing=[f"{draw(NAMES)}.{rank}" for rank in draw(st.lists(st.integers(0, 2000), max_size=30))],
        step=draw(st.none() | st.integers(0, 2**53)),
        note=draw(NAMES),
        steps_per_s=draw(st.none() | st.floats(1e-9, 1e9)),
        ranks_expected=draw(st.integers(0, 10**6)),
    )
    sinks = [
        a_sink(name=draw(NAMES), state=state, where=draw(NAMES), error=draw(NAMES), trouble_s=60.0)
        for state in draw(st.lists(st.sampled_from(["waiting", "refused", "idle"]), max_size=3))
    ]
    trends = [
        a_trend(f"{actor.actor}/{draw(NAMES)}", actor.actor, draw(values)) for _ in range(draw(st.integers(0, 4)))
    ]
    return running(
        draw(NAMES),
        actors=[actor],
        sinks=sinks,
        trends=trends,
        writers=[a_writer(closed=draw(st.booleans()), unread=0, silent_s=draw(st.floats(0, 1e6)))],
        notes=[draw(NAMES)],
        misuse={(text := draw(NAMES)): 1},
        misuse_t={text: T - draw(st.floats(0, 1e5))},
        short=[ShortStatus(actor.actor, 2, 3, draw(st.integers(0, 2**53)), {draw(NAMES): [f"{draw(NAMES)}.1"]})],
        claims=draw(st.lists(NAMES, max_size=2)),
        began=draw(st.floats(0, 1e12)),
        newest_t=draw(st.floats(0, 1e300)),
    )


@statistical(2000)
@given(st.lists(statuses(), max_size=6), st.integers(0, 130), st.integers(0, 40), st.booleans(), NAMES)
def test_every_screen_fits(found: list[Status], width: int, height: int, watched: bool, title: str) -> None:
    """Whatever the names and numbers are: no line is too wide or moves a cursor, and there are not too many."""
    shown = lines(Screen(title, found, T, watched, time.gmtime), width, height)
    assert len(shown) <= height
    for line in shown:
        assert cells(line.text) <= width, line
        assert line.text.isprintable(), line
    if height > 1 and width:
        assert shown[0].style == "bold"


@given(NAMES, st.integers(0, 60))
def test_a_cut_text_fits(text: str, width: int) -> None:
    """A text that fits stays; any other has at most `width` cells."""
    found = fit(text.replace("\n", ""), width)
    assert isinstance(StyledLine(found), tuple)
    assert cells("".join(c for c in found if c.isprintable())) <= width
