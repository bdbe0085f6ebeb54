"""The engine says what the slow definition says, however frames come: in pieces, late, again, and in lineages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.alerts.episodes import Episode, RuleSteps, start, step
from rlship_sidecar.alerts.evaluation import Evaluation
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.kept import pack_state
from rlship_sidecar.alerts.rules import Rule, each_rule
from rlship_sidecar.alerts.signals import Signal, apart, median
from tests.alerts.definition import episodes_of
from tests.kit.cases import few

T0 = 1_763_600_000.0
NAMES = ("a", "b", "c")


def rule(signals: dict[str, dict[str, Any]], **keys: Any) -> Rule:
    """One rule, by default a warning if any of its signals is true."""
    table = {"warning": " or ".join(signals), "signals": signals, "clear": 3} | keys
    (made,) = each_rule({"it": table})
    return made


RULES = (
    rule({"s": {"kind": "invariant", "metric": "a", "low": -1, "high": 2}}, need=[2, 3]),
    rule({"s": {"kind": "above", "metric": ["a", "b"], "of": "c", "high": 2}}, need=[1, 1], clear=2),
    rule({"s": {"kind": "above", "metric": ["a", "b"], "high": 2, "same": [2, 4]}}, need=[1, 2], clear=2),
    rule({"s": {"kind": "above", "metric": "coverage/missing", "high": 1, "same": [2, 3]}}, need=[1, 2], clear=2),
    rule({"s": {"kind": "above", "metric": ["coverage/short", "a"], "high": 1, "same": [2, 3], "hold": 1}}),
    rule({"s": {"kind": "above", "metric": "coverage/missing", "high": 2, "same": [2, 3]}}, clear=2),
    rule({"s": {"kind": "equal", "metric": "a", "to": "b", "size": 1}}, need=[2, 2]),
    rule({"s": {"kind": "level", "metric": ["a", "b"], "ratio": 1.5, "z": 3, "window": 8, "warmup": 4}}),
    rule({"s": {"kind": "level", "metric": "b", "direction": "both", "ratio": 2, "window": 6, "warmup": 5, "hold": 2}}),
    rule({"s": {"kind": "level", "metric": "a", "direction": "down", "ratio": 1.2, "z": 2, "window": 9, "warmup": 4}}),
    rule({"s": {"kind": "break", "metric": "a", "direction": "both", "size": 1, "z": 2, "window": 8, "warmup": 5}}),
    rule({"s": {"kind": "growth", "metric": "a", "less": "b", "size": 1, "window": 8}}),
    rule({"s": {"kind": "growth", "metric": "a", "beside": "b", "size": 0.2, "window": 6}}),
    rule({"s": {"kind": "growth", "metric": "a", "size": 0.5, "window": 8, "direction": "down", "ratio": 1.5, "z": 1}}),
    rule({"s": {"kind": "growth", "metric": "b", "size": 0.1, "window": 9, "direction": "both", "bend": 1.5}}),
    rule({"s": {"kind": "shift", "metric": "a", "direction": "both", "ratio": 1.1, "z": 1, "window": 10, "warmup": 4}}),
    rule({"s": {"kind": "shift", "metric": ["a", "b"], "ratio": 1.2, "floor": 0.1, "z": 0, "window": 8, "warmup": 5}}),
    rule({"s": {"kind": "shift", "ratio": 1.3, "z": 1, "window": 10, "warmup": 4}}),
    rule({"s": {"kind": "stalled", "size": 3, "ratio": 2, "window": 6, "warmup": 3}}),
    rule({"s": {"kind": "stalled", "metric": ["a", "b"], "size": 3, "ratio": 2, "window": 6, "warmup": 3}}),
    rule({"s": {"kind": "peer", "metric": "a", "ratio": 1.5, "floor": 0.5, "ranks": 3, "same": [2, 4]}}),
    rule({"s": {"kind": "peer", "metric": "a", "ratio": 1.5, "floor": 0.5, "ranks": 3, "direction": "both"}}),
    rule(
        {
            "x": {"kind": "above", "metric": "a", "high": 2, "hold": 1},
            "y": {"kind": "above", "metric": "b", "high": 2, "missing": "false"},
            "z": {"kind": "above", "metric": "c", "low": 0},
        },
        warning="atleast(2, x, y, z)",
        critical="x and y and not z",
        calm="not x and not y",
        need=[2, 4],
        critical_need=[1, 2],
    ),
    rule(
        {
            "x": {"kind": "above", "metric": "a", "high": 2},
            "y": {"kind": "above", "metric": "b", "high": 2},
            "z": {"kind": "above", "metric": "c", "high": 2, "missing": "false"},
        },
        warning="atleast(2, x, y, not z)",
        critical="x or not (y or z)",
        need=[2, 4],
    ),
    rule(
        {
            "missing": {"kind": "above", "metric": "coverage/missing", "high": 1},
            "short": {"kind": "above", "metric": "coverage/short", "high": 1, "missing": "false", "hold": 1},
            "x": {"kind": "above", "metric": "a", "high": 2},
        },
        warning="missing or short",
        critical="(missing and short) or x",
        need=[2, 3],
    ),
    rule(
        {
            "missing": {"kind": "above", "metric": "coverage/missing", "high": 1},
            "slow": {"kind": "peer", "metric": "a", "ratio": 1.5, "floor": 0.5, "ranks": 3, "same": [2, 4]},
            "x": {"kind": "above", "metric": "b", "high": 2},
        },
        warning="atleast(2, missing, slow, x)",
        critical="x and not missing",
        calm="not slow and not x",
        critical_need=[2, 2],
    ),
)

VALUES = st.sampled_from([-2.0, 0.0, 0.5, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 40.0])


@st.composite
def frames(draw: st.DrawFn, most: int = 60) -> list[StepFrame]:
    """Frames with gaps between their steps, values that come and go, and at times another lineage."""
    made, step, t, lineage = [], 0, T0, (0, 0, 0)
    seed = draw(st.integers(0, 2**32))
    calm = random.Random(seed)
    for _ in range(draw(st.integers(1, most))):
        step += calm.choice((1, 1, 1, 1, 2, 20))
        t += calm.choice((1.0, 1.0, 1.0, 1.5, 9.0))
        if calm.random() < 0.03:
            lineage = (0, lineage[1] + 1, 0)
        wild = calm.random() < 0.2
        values = {
            name: draw(VALUES) if wild else calm.choice((1.0, 1.0, 1.1, 0.9)) for name in NAMES if calm.random() < 0.93
        }
        ranks = tuple((f"t/0.{rank}", draw(VALUES) if wild else 1.0) for rank in range(calm.choice((2, 3, 4, 4, 5))))
        made.append(StepFrame(lineage, step, t, values, {"a": ranks}))
        for name in ("coverage/missing", "coverage/short"):
            out = [place for place, _ in ranks if calm.random() < (0.3 if wild else 0.06)]
            crowd = 20 if calm.random() < 0.02 else 0  # of which a frame does not name all
            values[name] = float(len(out) + crowd)
            made[-1].ranks[name] = tuple((place, 1.0) for place in out)
    return made


def forms(episodes: Sequence[Episode]) -> list[tuple[Any, ...]]:
    return [
        (
            one.place if one.apart else "",
            one.severity,
            one.state,
            one.lineage,
            one.first.step,
            one.fired.step,
            one.last.step,
            None if one.ended is None else one.ended.step,
        )
        for one in episodes
    ]


def from_scratch(rules: tuple[Rule, ...], given: Sequence[StepFrame]) -> list[Episode]:
    evaluation = Evaluation(rules)
    for frame in given:
        evaluation.put(frame)
    evaluation.settle()
    return evaluation.episodes()


@pytest.mark.parametrize("one", RULES, ids=lambda one: f"{one.signals[0].kind}-{len(one.signals)}")
@given(given_frames=frames())
@settings(max_examples=few(40), deadline=None)
def test_the_engine_says_what_the_definition_says(one: Rule, given_frames: list[StepFrame]) -> None:
    """Of every kind of signal, with values that are missing, odd steps and restarts."""
    assert sorted(forms(from_scratch((one,), given_frames)), key=str) == sorted(episodes_of(one, given_frames), key=str)


QUIET = (
    rule(
        {
            "x": {"kind": "above", "metric": "a", "high": 2, "hold": 2, "missing": "false"},
            "y": {"kind": "growth", "metric": "b", "size": 1, "window": 8, "missing": "true", "hold": 1},
            "z": {"kind": "level", "metric": ["b", "c"], "ratio": 1.5, "window": 8, "warmup": 4, "missing": "true"},
        },
        warning="x or (y and z)",
        critical="y and not x",
        need=[2, 3],
    ),
    rule({"s": {"kind": "above", "metric": "a", "high": 2, "missing": "true"}}, warning="not s", need=[3, 3]),
)


@given(given_frames=frames(), data=st.data())
@settings(max_examples=few(100), deadline=None)
def test_a_rule_taken_over_many_frames_says_what_it_says_one_by_one(
    given_frames: list[StepFrame], data: st.DataObject
) -> None:
    """Bit for bit, in stretches of any length, some of which lack metrics from their first frame to their last."""
    stretches, states = [], {rule: start(rule) for rule in (*RULES, *QUIET)}
    while given_frames:
        count = data.draw(st.integers(1, 16))
        lacking = data.draw(st.sets(st.sampled_from((*NAMES, "coverage/missing", "coverage/short"))))
        stretches.append(
            [
                StepFrame(
                    *(one.lineage, one.index, one.t),
                    {name: value for name, value in one.values.items() if name not in lacking},
                    {name: ranks for name, ranks in one.ranks.items() if name not in lacking},
                )
                for one in given_frames[:count]
            ]
        )
        given_frames = given_frames[count:]
    for one, before in states.items():
        steps, state, other = RuleSteps(one), before, before
        for stretch in stretches:
            for frame, (after, ended) in zip(stretch, steps.over(stretch, other), strict=True):
                state, expected = step(one, frame, state)
                assert pack_state(after) == pack_state(state) and repr(ended) == repr(expected)
                other = after


RANKS = st.lists(VALUES | st.sampled_from((-0.0, 5e-324, -5e-324, 1e300)), min_size=2, max_size=12)


@given(values=RANKS, direction=st.sampled_from(("up", "down", "both")), data=st.data())
@settings(max_examples=few(300), deadline=None)
def test_ranks_that_are_apart_are_those_that_differ_from_the_others(
    values: list[float], direction: str, data: st.DataObject
) -> None:
    """Each rank beside the median of all others, worked out by itself."""
    ratio, floor = (data.draw(st.sampled_from(one)) for one in ((1.0, 1.2, 2.0), (0.0, 0.3, 2.0)))
    found = []
    for at, value in enumerate(values):
        middle = median(sorted(values[:at] + values[at + 1 :]))
        up = value - middle >= floor and value >= ratio * middle
        down = middle - value >= floor and value * ratio <= middle
        if (up and direction != "down") or (down and direction != "up"):
            found.append(str(at))
    signal = Signal("s", "peer", ("a",), direction=direction, ratio=ratio, floor=floor)
    assert apart(signal, [(str(at), value) for at, value in enumerate(values)]) == tuple(found)


@given(given_frames=frames(), data=st.data())
@settings(max_examples=few(150), deadline=None)
def test_any_order_and_any_pieces_give_the_same(given_frames: list[StepFrame], data: st.DataObject) -> None:
    """Frames come late, again with other values, or not at all in the end; the verdicts are those of what is there."""
    evaluation = Evaluation(RULES)
    order = list(range(len(given_frames)))
    late = data.draw(st.lists(st.sampled_from(order), unique=True, max_size=6))
    stale = data.draw(st.lists(st.sampled_from(order), unique=True, max_size=6))
    gone = data.draw(st.lists(st.sampled_from(order), unique=True, max_size=3))
    for at in order:
        frame = given_frames[at]
        if at in stale:
            evaluation.put(StepFrame(frame.lineage, frame.index, frame.t, {"a": 40.0}))
        elif at not in late:
            evaluation.put(frame)
        evaluation.settle(data.draw(st.integers(0, 2)))
    for at in data.draw(st.permutations([*late, *stale, *gone])):
        evaluation.put(given_frames[at])
        evaluation.settle(data.draw(st.integers(0, 2)))
    for at in gone:
        evaluation.drop(given_frames[at].index)
        evaluation.settle(data.draw(st.integers(0, 2)))
    evaluation.settle()
    left = [frame for at, frame in enumerate(given_frames) if at not in gone]
    assert evaluation.episodes() == from_scratch(RULES, left)


@given(given_frames=frames(), data=st.data())
@settings(max_examples=few(60), deadline=None)
def test_a_fork_has_what_is_below_it(given_frames: list[StepFrame], data: st.DataObject) -> None:
    """A lineage goes on from the frames below its first step, and the one before it stays what it was."""
    first = data.draw(st.integers(0, given_frames[-1].index + 1))
    old = Evaluation(RULES)
    for frame in given_frames:
        old.put(frame)
    old.settle(data.draw(st.integers(0, 5)))
    new = old.fork(first)
    old.settle()
    again = [
        StepFrame((0, 9, 0), frame.index, frame.t + 500, frame.values, frame.ranks)
        for frame in given_frames
        if frame.index >= first
    ]
    for frame in again:
        new.put(frame)
        new.settle(data.draw(st.integers(0, 1)))
    new.settle()
    below = [frame for frame in given_frames if frame.index < first]
    assert new.episodes() == from_scratch(RULES, [*below, *again])
    assert old.episodes() == from_scratch(RULES, given_frames)
