"""The planner: what a seed decides."""

from __future__ import annotations

from collections import Counter

from tests.soak.plan import DISKS, KINDS, SECONDS, SERVER, SETTLED_S, SIGKILLS, THEMES, how_many_rounds, plan_round


def test_a_seed_and_a_number_are_a_round() -> None:
    """The same seed and number give the same strikes, whatever was planned before; another seed or number gives
    others.
    """
    plan = plan_round(7, 3)
    plan_round(7, 0)
    assert plan_round(7, 3) == plan
    assert plan_round(8, 3).strikes != plan.strikes
    assert plan_round(7, 3 + len(THEMES)).strikes != plan.strikes


def test_strikes_come_in_order_after_the_first_rows() -> None:
    """Every strike has its time within the round, one after the other, and what it needs."""
    for number in range(2 * len(THEMES)):
        strikes = plan_round(1, number).strikes
        times = [strike.at_s for strike in strikes]
        assert times == sorted(times) and times[0] > SETTLED_S and times[-1] < SECONDS
        for strike in strikes:
            assert 0 <= strike.pick < 1 and strike.hold_s >= 0
            assert strike.number > 0 or strike.kind not in SERVER or strike.kind == "server down"
            assert strike.kind in str(strike)


def test_every_kind_has_its_turn() -> None:
    """Each fault is in some theme, and one turn through the themes of many seeds strikes with all of them."""
    assert {kind for theme in THEMES.values() for kind in theme.weights} == KINDS.keys()
    planned = Counter(
        strike.kind for seed in range(20) for n in range(len(THEMES)) for strike in plan_round(seed, n).strikes
    )
    assert planned.keys() == KINDS.keys()
    assert min(planned.values()) >= 10
    assert {*SIGKILLS, *SERVER, *DISKS} <= KINDS.keys()


def test_disks_are_there_where_they_are_filled() -> None:
    """A round gets disks of its own exactly if its theme fills them."""
    for number, (name, theme) in enumerate(THEMES.items()):
        plan = plan_round(1, number)
        assert plan.theme == name
        assert plan.disks == any(kind in theme.weights for kind in DISKS)


def test_as_many_rounds_as_fit() -> None:
    """Minutes become whole rounds, at least one."""
    assert how_many_rounds(10, 35) == 17
    assert how_many_rounds(0.1, 35) == 1
