"""Episodes over the rows of a store: divergence, rollback, revisions, and what one late row costs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.evaluation import Evaluation, History, withdrawn
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import Rule, each_rule, rules_of
from rlship_sidecar.rows import Row
from tests.alerts.healthy import healthy
from tests.alerts.rows import row
from tests.kit.cases import few

ABOVE: tuple[Rule, ...] = tuple(
    each_rule(
        {
            "high": {
                "warning": "it",
                "need": [2, 3],
                "clear": 2,
                "signals": {"it": {"kind": "above", "metric": "trainer/x", "high": 10}},
            }
        }
    )
)


def history(rows: Iterable[Row], rules: tuple[Rule, ...] = ABOVE) -> History:
    made = History(rules, "trainer")
    made.take(rows)
    made.settle()
    return made


def steps(values: Sequence[float], first: int = 0, **more: object) -> list[Row]:
    return [row(first + at, {"x": value}, **more) for at, value in enumerate(values)]  # type: ignore[arg-type]


def forms(episodes: Iterable[Episode]) -> list[tuple[object, ...]]:
    return [(one.state, one.lineage, one.first.step, one.fired.step, one.ended and one.ended.step) for one in episodes]


def test_an_episode_from_beginning_to_end() -> None:
    """It begins with the first breach, fires when it holds in two of three frames, and is over after two calm ones."""
    found = history(steps([1, 20, 1, 20, 20, 1, 1, 1]))
    assert forms(found.episodes()) == [("resolved", (0, 0, 0), 1, 3, 6)]
    (episode,) = found.episodes()
    assert (episode.last.step, episode.evidence, episode.severity) == (4, (("it", 20.0),), "warning")
    assert forms(history(steps([1, 20, 1, 1, 1, 20])).episodes()) == []
    assert forms(history(steps([1, 20, 20])).episodes()) == [("firing", (0, 0, 0), 1, 2, None)]
    assert forms(history(steps([1, 20, 20, 1])).episodes()) == [("clearing", (0, 0, 0), 1, 2, None)]


def test_a_divergence_that_was_rolled_back_stays() -> None:
    """Diverge at step 3, go back to 2, do it again healthy: the episode is superseded, and none of the new lineage."""
    diverged = steps([1, 1, 1, 20, 20, 20])
    again = steps([1, 1, 1, 1, 1, 1], first=2, lineage=(0, 0, 1))
    found = history([*diverged, *again])
    assert forms(found.episodes()) == [("superseded", (0, 0, 0), 3, 4, 5)]
    assert found.last() is not None and found.last().step == 7  # type: ignore[union-attr]


def test_an_episode_below_a_rollback_goes_on() -> None:
    """It is common to both lineages, so it is one, with one id, and ends in the newer one."""
    diverged = history(steps([1, 20, 20, 20, 20]))
    found = history([*steps([1, 20, 20, 20, 20]), *steps([20, 1, 1], first=3, attempts=[0, 1])])
    assert forms(found.episodes()) == [("resolved", (0, 0, 0), 1, 2, 5)]
    assert [one.id for one in found.episodes()] == [one.id for one in diverged.episodes()]


def test_the_same_fault_again_is_another_episode() -> None:
    """A lineage that diverges at the same step has an episode of its own."""
    found = history([*steps([1, 1, 20, 20]), *steps([20, 20], first=2, lineage=(0, 0, 1))])
    assert forms(found.episodes()) == [("superseded", (0, 0, 0), 2, 3, 3), ("firing", (0, 0, 1), 2, 3, None)]
    assert len({one.id for one in found.episodes()}) == 2


(LOST,) = [rule for rule in rules_of() if rule.name == "lost_or_slow_place"]


def coverages(
    count: int,
    missing: Mapping[str, Collection[int]],
    short: Mapping[str, Collection[int]],
    first: int = 0,
    **more: Any,
) -> list[Row]:
    """Rows of steps, by rank the steps at which it is missing, and those at which it is short of a metric."""
    return [
        row(
            step,
            {"x": 1.0},
            coverage={
                "missing": tuple(rank for rank, steps in missing.items() if step in steps),
                "short": {"trainer/y": tuple(rank for rank, steps in short.items() if step in steps)},
            },
            **more,
        )
        for step in range(first, count)
    ]


def at_places(found: History) -> list[tuple[object, ...]]:
    return [(one.place, *form) for one, form in zip(found.episodes(), forms(found.episodes()))]


def test_each_rank_that_is_missing_or_short_has_an_episode_of_its_own() -> None:
    """What another rank did before neither hides a rank that is lost nor counts as its first frame."""
    lost = {"0.1": range(15, 60)}
    found = history(coverages(60, lost, {"0.0": (10, 11, 12)}), (LOST,))
    whole, dead = ("trainer/0.0", "resolved", (0, 0, 0), 10, 11, 17), ("trainer/0.1", "firing", (0, 0, 0), 15, 16, None)
    assert at_places(found) == [whole, dead]
    assert [one.evidence for one in found.episodes()] == [(("short", 1.0),), (("missing", 1.0),)]
    assert len({one.id for one in found.episodes()}) == 2
    assert at_places(history(coverages(60, lost, {"0.0": (8, 12)}), (LOST,))) == [dead]
    one_by_one = {"0.1": range(15, 60), "0.2": range(30, 60), "0.0": range(40, 42)}
    assert [(one.place, one.first.step) for one in history(coverages(60, one_by_one, {}), (LOST,)).episodes()] == [
        ("trainer/0.1", 15),
        ("trainer/0.2", 30),
        ("trainer/0.0", 40),
    ]


def test_a_rank_that_is_lost_after_a_restart_has_an_episode_of_the_new_lineage() -> None:
    """That of another rank, which the new lineage has from the frames below it, does not stand for it."""
    before = coverages(18, {"0.1": range(15, 18)}, {"0.0": (10, 11, 12)})
    again = coverages(40, {"0.1": range(15, 24)}, {}, first=14, lineage=(0, 1, 0))
    assert at_places(history([*before, *again], (LOST,))) == [
        ("trainer/0.0", "resolved", (0, 0, 0), 10, 11, 17),
        ("trainer/0.1", "superseded", (0, 0, 0), 15, 16, 17),
        ("trainer/0.1", "resolved", (0, 1, 0), 15, 16, 28),
    ]


def test_more_ranks_than_a_frame_names_are_one_episode() -> None:
    """It has the first of them as its place; the episodes of ranks that fired before stay as they are."""
    lost = {"0.7": range(5, 60), "0.0-19": range(20, 30)}
    found = history(coverages(60, lost, {}), (LOST,))
    assert at_places(found) == [
        ("trainer/0.7", "firing", (0, 0, 0), 5, 6, None),
        ("trainer/0.7", "resolved", (0, 0, 0), 20, 21, 34),
    ]
    (_, many) = found.episodes()
    assert many.evidence == (("missing", 21.0),) and not many.apart
    lost = {"0.1": range(5, 60), "0.2": range(5, 60)}
    assert len(history(coverages(9, lost, {}), (LOST,)).episodes()) == 2
    asks_for_two = replace(LOST, signals=tuple(replace(one, high=2) for one in LOST.signals))
    assert at_places(history(coverages(9, lost, {}), (asks_for_two,))) == [
        ("trainer/0.1", "firing", (0, 0, 0), 5, 6, None)
    ]


def test_an_error_of_a_gpu_is_not_taken_for_that_of_a_rank_that_is_short() -> None:
    """It fires by itself, as critical, and leaves the other episode a warning."""
    rows = coverages(30, {}, {"0.0": range(10, 30)})
    rows[20] = replace(rows[20], values={"trainer/x": 1.0, "trainer/node/xid": 79.0})
    found = history(rows, (LOST,)).episodes()
    assert [(one.place, one.severity, one.first.step, one.evidence) for one in found] == [
        ("trainer/0.0", "warning", 10, (("short", 1.0),)),
        ("", "critical", 20, (("gpu", 79.0),)),
    ]


def test_a_revision_may_withdraw_an_episode() -> None:
    """A late row that makes a frame healthy takes the episode back; comparing two evaluations says so."""
    found = History(ABOVE, "trainer")
    found.take(steps([1, 20, 20, 1, 1, 1]))
    found.settle()
    before = found.episodes()
    found.take([row(2, {"x": 2.0})])
    found.settle()
    assert found.episodes() == []
    assert forms(withdrawn(before, found.episodes())) == [("withdrawn", (0, 0, 0), 1, 2, 4)]
    assert withdrawn(before, before) == []


@example([1.0], [(0, [*[1.0] * 15, 20.0, 20.0]), (17, [1.0])], [], [1, 1, 1, 4, 5, 5])
@given(
    values=st.lists(st.sampled_from([1.0, 20.0]), min_size=1, max_size=40),
    back=st.lists(st.tuples(st.integers(0, 39), st.lists(st.sampled_from([1.0, 20.0]), max_size=20)), max_size=3),
    late=st.lists(st.tuples(st.integers(0, 39), st.sampled_from([1.0, 20.0])), max_size=5),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=30),
)
@settings(max_examples=few(300), deadline=None)
def test_rows_in_pieces_are_rows_at_once(
    values: list[float], back: list[tuple[int, list[float]]], late: list[tuple[int, float]], pieces: list[int]
) -> None:
    """However many rows are taken at a time, with rollbacks and revisions among them, the episodes are the same."""
    rows = steps(values)
    for number, (first, again) in enumerate(back, 1):
        rows += steps(again, first=first, lineage=(0, 0, number))
    rows += [row(step, {"x": value}) for step, value in late if step < len(values)]
    whole = history(rows)
    bit = History(ABOVE, "trainer")
    at = 0
    for count in [*pieces, len(rows)]:
        bit.take(rows[at : at + count])
        at += count
        bit.settle(1)
    while not bit.settle(1):
        pass
    assert bit.episodes() == whole.episodes()


def test_without_a_lead_there_is_nothing() -> None:
    """Rows of other actors alone make no frame, and the history says that it has no lead."""
    found = history([row(1, {"x": 20.0}, actor="generator")])
    assert (found.episodes(), found.has_lead, found.last()) == ([], False, None)


def test_one_late_row_costs_little() -> None:
    """A row that changes step 10 of 2,000 has 144 frames evaluated again, by the two rules that look at it."""
    evaluation = Evaluation(rules_of())
    frames = list(healthy(1, 2000))
    for frame in frames:
        evaluation.put(frame)
    assert evaluation.settle() == 2000 * len(rules_of())
    changed = frames[10]
    values = {**changed.values, "train/grad_norm": changed.values["train/grad_norm"] * 1.01}
    evaluation.put(StepFrame(changed.lineage, changed.index, changed.t, values, changed.ranks))
    began = time.process_time()
    again = evaluation.settle()
    assert 0 < again <= 144 and evaluation.settled
    assert time.process_time() - began < 0.5
