"""Episodes over the rows of a store: divergence, rollback, revisions, and what one late row costs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

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
