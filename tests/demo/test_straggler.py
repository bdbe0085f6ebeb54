"""The straggler is found from barrier lines, and only where there is one."""

from __future__ import annotations

import json

import pytest

from rlship_sidecar.demo.straggler import barrier_times, find_straggler

START = 1763600000.0


def writer(actor: str, rank: int, barriers: dict[int, float], replica: str = "0") -> bytes:
    """A writer's file with barriers at START + the given seconds, by step."""
    opening = {"kind": "open", "rlship": 1, "id": f"{actor}{replica}{rank}", "actor": actor, "replica": replica}
    lines = [{**opening, "rank": rank, "world": 4, "t": START}]
    for step, seconds in barriers.items():
        lines.append({"t": START + seconds, "step": step, "m": {"loss": 0.5}})
        lines.append({"kind": "barrier", "step": step, "t": START + seconds})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_late_rank_is_named_with_its_delay_and_share() -> None:
    """The rank that is last in most steps is named, with the median delay against the median of the others."""
    files = {
        "a": writer("trainer", 0, {0: 1.00, 1: 2.00, 2: 3.00}),
        "b": writer("trainer", 1, {0: 1.02, 1: 2.02, 2: 3.50}),
        "c": writer("trainer", 2, {0: 1.12, 1: 2.22, 2: 3.32}),
    }

    found = find_straggler(files)

    assert found is not None
    assert found.name == "trainer r2"
    assert found.extra_s == pytest.approx(0.11, abs=1e-6)
    assert found.share == pytest.approx(2 / 3)
    assert found.steps == 3


def test_replicas_are_told_apart() -> None:
    """Ranks of equal number in two replicas are two ranks."""
    files = {
        "a": writer("trainer", 0, {0: 1.0, 1: 2.0}, replica="0"),
        "b": writer("trainer", 0, {0: 1.5, 1: 2.5}, replica="1"),
    }

    found = find_straggler(files)

    assert found is not None
    assert found.name == "trainer rep 1 r0"


def test_nobody_is_named_where_ranks_take_turns() -> None:
    """A rank that is last in just half of the steps is not a straggler."""
    files = {
        "a": writer("trainer", 0, {0: 1.0, 1: 2.1, 2: 3.0, 3: 4.1}),
        "b": writer("trainer", 1, {0: 1.1, 1: 2.0, 2: 3.1, 3: 4.0}),
    }

    assert find_straggler(files) is None


def test_nobody_is_named_for_noise() -> None:
    """A delay below `least_s` names no rank, even in every step."""
    files = {
        "a": writer("trainer", 0, {0: 1.0, 1: 2.0}),
        "b": writer("trainer", 1, {0: 1.002, 1: 2.002}),
    }

    assert find_straggler(files) is None
    assert find_straggler(files, least_s=0.001) is not None


def test_nobody_is_named_without_company() -> None:
    """One rank alone, or no file at all, has no straggler."""
    assert find_straggler({"a": writer("trainer", 0, {0: 1.0, 1: 2.0})}) is None
    assert find_straggler({}) is None


def test_other_actors_have_no_say() -> None:
    """Only the actor asked for is compared."""
    files = {
        "a": writer("trainer", 0, {0: 1.0}),
        "b": writer("trainer", 1, {0: 1.1}),
        "c": writer("generator", 2, {0: 9.0}),
    }

    found = find_straggler(files)

    assert found is not None
    assert found.name == "trainer r1"


def test_steps_without_all_ranks_are_passed_over() -> None:
    """A step that a rank has no barrier for says nothing about who was last."""
    files = {
        "a": writer("trainer", 0, {0: 1.0, 1: 2.9, 2: 3.9}),
        "b": writer("trainer", 1, {0: 1.1}),
    }

    found = find_straggler(files)

    assert found is not None
    assert (found.name, found.steps) == ("trainer r1", 1)


def test_rubbish_and_torn_lines_are_passed_over() -> None:
    """Lines that are not JSON objects, and bytes after the last line feed, change nothing."""
    whole = writer("trainer", 1, {0: 1.5})
    files = {"a": b"", "b": whole + b'nonsense\n[1]\n{"kind":"barrier","step":1,"t":1763600', "c": b'{"m":{}}\n'}

    assert barrier_times(files, "trainer") == {0: {"0.1": START + 1.5}}
