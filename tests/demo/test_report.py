"""What the demo says at its end follows from rows and status alone."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from rlship_sidecar.demo import report
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.straggler import Straggler
from rlship_sidecar.report.status import SinkStatus, Status
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit, name_ranks
from tests.guards.tree import ROOT

PLAN = JobPlan(steps=20)


def row(actor: str, step: int, ranks: int, **figures: float) -> Row:
    """A whole row of `ranks` ranks."""
    names = name_ranks([("0", 0, ranks - 1)])
    keyed = {f"{actor}/{name}": value for name, value in figures.items()}
    return Row(Unit(actor, "step", step), 1763600000.0 + step, {"global_step": step}, keyed, Coverage(names, ranks))


def whole_job() -> dict[Unit, Row]:
    """The rows of a job of 20 steps whose reward rises from 0.2 to 0.77."""
    rows = [row("trainer", step, 4, reward=0.2 + 0.03 * step, loss=0.1) for step in range(20)]
    rows += [row("generator", step, 2, reward=0.5) for step in range(20)]
    rows += [row("reward", step, 1, score=0.5) for step in range(20)]
    streamed = row("verifier", 0, 1, answers=96.0)
    rows.append(replace(streamed, unit=Unit("verifier", "clock", 0), x={"clock/elapsed_s": 2.0}))
    return {each.unit: each for each in rows}


def status(**changes: object) -> Status:
    """The status of a sidecar that shipped everything."""
    sinks = [SinkStatus("jsonl", "idle", 60, 60)]
    whole = Status("demo", 1763600030.0, "store", "local", 60, True, [], [], sinks, [], 0, 0)
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_a_whole_job_that_learned_has_no_problems() -> None:
    """All rows whole, a risen reward, no dead letter and nothing left to ship: nothing to complain of."""
    assert report.problems(whole_job(), status(), PLAN) == []


def test_a_reward_that_does_not_rise_is_a_problem() -> None:
    """Learning has to be visible in the rows, from the first tenth of the steps to the last."""
    rows = {unit: replace(each, values={"trainer/reward": 0.4}) for unit, each in whole_job().items()}

    assert report.problems(rows, status(), PLAN) == [
        "trainer/reward went from 0.40 to 0.40: a rise of 0.3 was expected"
    ]


def test_a_lacking_row_is_a_problem() -> None:
    """A step without a row is reported, and without the first steps nothing shows the learning."""
    rows = whole_job()
    for step in range(3):
        del rows[Unit("trainer", "step", step)]

    assert report.problems(rows, status(), PLAN) == [
        "trainer: no row for 3 of 20 steps, the first is step 0",
        "trainer/reward is not in the rows of the first and last steps, so nothing shows that the job learned",
    ]


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        (Coverage(("0.0",), 2, missing=("0.1",)), "ranks r0, missing r1, absent none, lines dropped 0"),
        (Coverage(("0.0",), 1, absent=("0.1",)), "ranks r0, missing none, absent r1, lines dropped 0"),
        (Coverage(("0.0",), 1), "ranks r0, missing none, absent none, lines dropped 0"),
        (Coverage(("0.0-1",), 2, gap=3), "ranks r0-1, missing none, absent none, lines dropped 3"),
    ],
)
def test_an_incomplete_row_is_a_problem(coverage: Coverage, said: str) -> None:
    """A row that lacks a rank or lines is reported, with what it lacks."""
    rows = whole_job()
    unit = Unit("generator", "step", 7)
    rows[unit] = replace(rows[unit], coverage=coverage)

    assert report.problems(rows, status(), PLAN) == [f"generator: 1 row is incomplete, the first is of step 7: {said}"]


def test_a_value_that_cannot_be_derived_lacks_no_data() -> None:
    """The rate of a window during which the verifier hardly ran is underivable; its row is complete."""
    rows = whole_job()
    unit = Unit("verifier", "clock", 0)
    rows[unit] = replace(rows[unit], coverage=Coverage(("0.0",), 1, underivable=("clock/verifier/answers/rate",)))

    (line,) = [line for line in report.summary(rows, status(), None, PLAN) if line.startswith("verifier")]
    assert line.split() == ["verifier", "1", "1", "1", "of", "1"]


def test_what_the_sidecar_could_not_use_or_ship_is_a_problem() -> None:
    """Dead letters, dead values, and a sink that lacks rows are reported; so is a sidecar that never wrote a status."""
    sinks = [SinkStatus("jsonl", "idle", 60, 60), SinkStatus("wandb", "waiting", 12, 12, error="no answer")]

    assert report.problems(whole_job(), status(dead_letter_count=2, dead_value_count=1, sinks=sinks), PLAN) == [
        "2 dead letters and 1 dead values",
        "sink wandb (waiting) has 12 of 60 rows: no answer",
    ]
    assert report.problems(whole_job(), None, PLAN) == ["the sidecar has written no status"]


def test_a_stream_without_rows_is_a_problem() -> None:
    """The actor without steps has rows of its own kinds; that it has no steps is reported."""
    rows = {unit: each for unit, each in whole_job().items() if unit.actor != "verifier"}

    assert report.problems(rows, status(), PLAN) == ["verifier: no rows of what it logged without steps"]


def test_the_newest_revision_of_a_row_counts() -> None:
    """Of several lines of one unit the one with the highest revision is used, and a torn line is passed over."""
    first = row("trainer", 0, 4, reward=0.1)
    second = replace(first, values={"trainer/reward": 0.3}, arrival=Arrival(1, 1, ("trainer/reward",), "revision"))
    lines = [first.to_json(), second.to_json(), b'{"row":2,"act']

    assert report.series(report.final_rows(lines), "trainer/reward") == {0: 0.3}


def test_an_episode_is_named_by_both_of_its_steps() -> None:
    """Lines about alerts while the job runs say since when, so the table says that as well as when the rule fired."""
    metric = "correctness/rollout_train_logp_diff"
    rows = [row("trainer", step, 4, **{metric: 0.5 if step >= 60 else 0.02}) for step in range(90)]

    said = list(report.episodes(each.to_json() for each in rows))

    assert [line.partition(":")[0] for line in said] == ["since 60, fired 62      warning   mismatch"]


def test_the_picture_shows_the_words_of_today() -> None:
    """The straggler's line in docs/images/demo.svg is written as the demo writes it."""
    picture = html.unescape((ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")).replace("\xa0", " ")
    drawn = [line for line in re.findall(r">([^<]*)</text>", picture) if line.startswith("straggler: ")]
    (whole,) = re.findall(r"([0-9]+) of ([0-9]+) steps, ([0-9]+) ms", drawn[0])
    last, steps, later_ms = map(int, whole)
    assert drawn == [report._verdict(Straggler("trainer r2", later_ms / 1000, last / steps, steps))]


def test_summary_shows_the_change_the_coverage_and_the_straggler() -> None:
    """The summary has the means of the first and last tenth, how many ranks were seen, the curve, and who was slow."""
    lines = report.summary(whole_job(), status(), Straggler("trainer r2", 0.0625, 0.95, 20), PLAN)

    assert lines[0].split("  ")[-1].strip() == "last 2 steps"
    assert lines[1].split() == ["trainer/reward", "0.215", "0.755"]
    assert ["trainer", "20", "20", "4", "of", "4"] in [line.split() for line in lines]
    assert "dead letters 0, dead values 0" in lines
    assert lines[-3] == "▁▁▂▂▂▃▃▄▄▄▅▅▅▆▆▇▇▇██"
    assert lines[-1] == (
        "straggler: trainer r2, last at the barrier in 19 of 20 steps, 62 ms (median) later than the others"
    )


def test_summary_of_nothing_is_still_a_summary() -> None:
    """Without rows, status or straggler the summary says so and does not fail."""
    lines = report.summary({}, None, None, PLAN)

    assert lines[1].split() == ["trainer/reward", "-", "-"]
    assert "trainer/reward: no rows" in lines
    assert lines[-1] == "straggler: none; no trainer rank was last in most of the steps"


def test_sparkline_spans_lowest_to_highest() -> None:
    """Bars reach from the lowest to the highest value; many values are averaged down to the width."""
    assert report.sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert report.sparkline([2.0, 2.0]) == "▁▁"
    assert report.sparkline([]) == ""
    assert report.sparkline([0.0, 0.0, 1.0, 1.0], width=2) == "▁█"
    assert len(report.sparkline([float(value) for value in range(1000)])) == 60
