"""Spans, events, tags and samples in step units: the reference on cases worked out by hand."""

from __future__ import annotations

from typing import Any

from tests.reference.building import T0, barrier, define, event, figures, file, log, row, sample, span, tag
from tests.reference.settings import Settings

# --- spans and events ---


def test_a_span_is_its_duration() -> None:
    """A span's metric is the name with `_s`; its time is its end."""
    found = row(file(span("rollout", 0.5, after=3, step=1), span("rollout", 1.5, after=1, step=1)))
    assert found.values == {"trainer/rollout_s": 1.0, "trainer/rollout_s/max": 1.5}
    assert found.t == T0 + 3.5
    assert found.coverage.ranks == ("0.0",)


def test_times_of_spans() -> None:
    """A following line without a time takes the span's own t, not its end; an absurd end is passed over."""
    assert row(file(span("a", 9, after=1, step=1), log(2, x=1)), step=2).t == T0 + 1
    late = span("a", 5, after=4102444800 - T0 - 1, step=1)
    assert row(file(late)).t == 4102444799.0
    untimed = {name: value for name, value in span("a", 2, step=1).items() if name != "t"}
    assert row(file(log(0, x=1), untimed)).t == T0 + 2


def test_a_span_is_as_late_as_its_end() -> None:
    """A span that ends more than 60 s after a newer writer's open shows two writers side by side."""
    new = file(log(1, x=3), t=T0 + 10, id="b")
    assert figures(file(log(1, x=1), span("a", 70, after=0.5)), new)["x"] == 2.0
    assert figures(file(log(1, x=1), span("a", 60, after=0.5)), new)["x"] == 3.0


def test_events_are_counted() -> None:
    """Events of one name add up over lines and ranks; a `define` may ask for something else."""
    zero = file(event("pushed", step=1, attrs={"bytes": 3}), event("pushed", step=1), event("other", step=1))
    one = file(event("pushed", step=1), rank=1, id="b")
    assert figures(zero, one) == {"event/pushed": 3.0, "event/other": 1.0}
    asked = file(define(**{"event/pushed": "count"}), event("pushed", step=1))
    assert figures(asked) == {"event/pushed": 1.0}


def test_newer_attempts_supersede_spans_and_events() -> None:
    """They are metrics like others: the newer attempt's counts."""
    old = file(span("a", 1, step=1), event("e", step=1), event("e", step=1), tag("eval", step=1))
    new = file(span("a", 2, step=1), event("e", step=1), tag("warmup", step=1), attempt=1, id="b")
    found = row(old, new)
    assert (found.values["trainer/a_s"], found.values["trainer/event/e"], found.tags) == (2.0, 1.0, ["warmup"])


def test_tags() -> None:
    """A step's tags are sorted, each once; the events that gave them make no figure of no use."""
    zero = file(tag("eval", step=1), tag("checkpoint", step=1), log(2, x=1))
    one = file(tag("eval", step=1), rank=1, id="b")
    assert row(zero, one).tags == ["checkpoint", "eval"]
    assert row(zero, one).values == {}
    assert row(zero, one, step=2).tags == []


def test_a_logged_count_of_tags_has_no_tag() -> None:
    """A metric called event/step_tag gives no tag, and supersedes those of older attempts."""
    old = file(tag("eval", step=1))
    new = file(log(1, **{"event/step_tag": 1}), attempt=1, id="b")
    assert row(old, new).tags == []


# --- samples ---


EACH = Settings(samples_every=1)


def scores(*files: bytes, most: int = 4) -> list[tuple[Any, str]]:
    """Score and reasons of the chosen samples of the table `rollouts`."""
    found = row(*files, settings=Settings(samples=most, samples_every=1)).samples.get("rollouts", [])
    return [(one["score"], " ".join(one["why"])) for one in found]


def test_one_sample() -> None:
    """A sample shows what it held, and that it is the top, the bottom and chosen by chance, all at once."""
    data = file({"t": T0 + 4, **sample(2, row={"prompt": "hi"}, cut={"prompt": 99})}, rank=3)
    found = row(data, settings=EACH)
    assert found.samples == {
        "rollouts": [
            {
                "why": ["top", "bottom", "random"],
                "rank": "0.3",
                "t": T0 + 4,
                "score": 2.0,
                "row": {"prompt": "hi"},
                "cut": {"prompt": 99},
            }
        ]
    }
    assert (found.t, found.coverage.ranks, found.values) == (T0 + 4, ("0.3",), {})


def test_which_samples_are_chosen() -> None:
    """Of each table the highest, the lowest and those with the lowest `pri`; in merge order, then file order."""
    zero = file(sample(5, 0.5), sample(1, 0.4), sample(9, 0.9), rank=1)
    one = file(sample(7, 0.8), sample(3, 0.1), sample(0, 0.7, table="other"), rank=0, id="b")
    assert scores(zero, one, most=1) == [(3.0, "random"), (1.0, "bottom"), (9.0, "top")]
    assert scores(zero, one, most=2) == [
        (7.0, "top"),
        (3.0, "bottom random"),
        (1.0, "bottom random"),
        (9.0, "top"),
    ]
    assert scores(zero, one, most=0) == []
    assert list(row(zero, one, settings=EACH).samples) == ["other", "rollouts"]


def test_ties_among_samples() -> None:
    """Of equals the first in merge order, then in file order, is taken, by score and by `pri`."""
    one = file(sample(5, 0.5, row={"i": 2}), rank=1, id="b")
    zero = file(sample(5, 0.5, row={"i": 0}), sample(5, 0.5, row={"i": 1}))
    found = row(one, zero, settings=Settings(samples=1, samples_every=1)).samples["rollouts"]
    assert [(entry["row"]["i"], entry["why"]) for entry in found] == [(0, ["top", "bottom", "random"])]


def test_scores_that_are_none() -> None:
    """A sample without a finite score is chosen only by chance, and keeps its word."""
    data = file(sample(None, 0.1), sample("NaN", 0.2), sample("Infinity", 0.9), sample(1, 0.8))
    assert scores(data, most=1) == [(None, "random"), (1.0, "top bottom")]
    assert scores(data, most=2)[1] == ("NaN", "random")


def test_newer_samples_count() -> None:
    """Of a rank's segments with samples of a table the newest counts; other tables and metrics do not matter."""
    old = file(sample(1), sample(2, table="other"), log(1, x=1))
    new = file(log(1, **{"x": 5, "sample/other": 1}), sample(3), attempt=1, id="b")
    assert scores(old, new) == [(3.0, "top bottom random")]
    assert [one["score"] for one in row(old, new, settings=EACH).samples["other"]] == [2.0]
    assert row(old, new).coverage.attempts == (0, 1)


def test_only_some_steps_show_samples() -> None:
    """Of each stretch of `samples_every` steps the first one that has a table shows it; lines count at all steps."""
    often, seldom = (0, 1, 2, 4), (1, 5)
    data = file(*(sample(1, step=step) for step in often), *(sample(1, step=step, table="eval") for step in seldom))
    found = {step: row(data, step=step, settings=Settings(samples_every=2)) for step in (*often, 5)}
    assert [step for step, one in found.items() if "rollouts" in one.samples] == [0, 2, 4]
    assert [step for step, one in found.items() if "eval" in one.samples] == [1, 5]
    assert found[1].coverage.ranks == ("0.0",)


def test_samples_of_a_step_without_metrics() -> None:
    """Samples alone make a row; its time, axis and attempts are theirs."""
    found = row(file(sample(1), axis="episode", attempt=2), file(barrier(1)))
    assert (found.x, found.coverage.attempts, found.coverage.ranks) == ({"episode": 1}, (2,), ("0.0",))
