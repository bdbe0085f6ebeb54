"""Random experiments with streams: hosts whose clocks differ, a lead that goes back, writers that come late or die."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.reference.building import T0

Item = TypeVar("Item")

HOSTS = {"a": 0.0, "b": 35.0, "c": -7.5, "": 0.0}
DEFINE = {
    "kind": "define",
    "m": {
        "reward": {"reduce": ["mean", "max"]},
        "policy_version": {"reduce": "min", "unit": "global_step"},
        "ping": {"reduce": "last", "stream": True},
        "tokens": {"reduce": ["sum", "rate"], "per_rank": True},
    },
}

WHATS = (
    *("reward", "reward", "lists", "ping", "clock", "step", "beat", "gap", "span", "event", "sample", "sample"),
    "nothing",
)
PRIS = (0, 0.25, 0.5, 1)


def pick(draw: st.DrawFn, pool: Sequence[Item]) -> Item:
    return pool[draw(st.integers(0, len(pool) - 1))]


@st.composite
def streamed_experiments(draw: st.DrawFn) -> dict[str, bytes]:
    """File names and contents: up to two lives of two ranks of a trainer, and up to four generators' writers."""
    files = {}
    for rank in range(pick(draw, (1, 1, 2))):
        host = pick(draw, tuple(HOSTS))
        for attempt in range(pick(draw, (1, 1, 2))):
            files[f"trainer-{rank}-{attempt}.jsonl"] = trainer(draw, rank, attempt, host)
    for number in range(pick(draw, (1, 2, 2, 4))):
        files[f"generator-{number}.jsonl"] = generator(draw, number)
    return files


def trainer(draw: st.DrawFn, rank: int, attempt: int, host: str) -> bytes:
    """A writer of the lead: steps with barriers, now and then a rollback, and stream lines of its own."""
    t = T0 + 40.0 * attempt + rank
    lines = [opened(draw, "trainer", f"t{rank}{attempt}", rank, attempt, host, t)]
    step, adopts = 3 * attempt, pick(draw, (False, True))
    for _ in range(pick(draw, (1, 2, 3, 4))):
        what = pick(draw, ("step", "step", "step", "rollback", "stream", "clock", "barrier"))
        t += pick(draw, (0.25, 4.0, 9.0, 31.0))
        if what == "rollback":
            step = max(0, step - 2)
            lines.append({"kind": "rollback", "step": step, "t": t + HOSTS[host]})
        elif what == "stream":
            on_purpose = {"stream": True} if pick(draw, (False, False, True)) else {}
            lines.append({"t": t + HOSTS[host], "m": {"gpu": 0.5, "loss": 2.0}} | on_purpose)
        elif what == "clock":
            lines.append(clock(draw, host, t))
        else:
            if what == "step":
                lines.append({"t": t + HOSTS[host], "step": step, "m": {"loss": step / 7, "policy_version": step}})
            barrier = {"kind": "barrier", "step": step, "t": t + HOSTS[host] + 0.5}
            lines.append(barrier | {"adopts": True} if adopts else barrier)
            step += 1
    return encoded(draw, lines)


def generator(draw: st.DrawFn, number: int) -> bytes:
    """A writer of streams, which may be another one's child, or its rank once more."""
    host, rank = pick(draw, tuple(HOSTS)), pick(draw, (0, 0, 1))
    t = T0 + pick(draw, (0.0, 2.0, 30.0, 75.0))
    lines = [opened(draw, "generator", f"g{number}", rank, pick(draw, (0, 0, 1)), host, t)]
    parent = pick(draw, (None, None, None, "g0", "g1"))
    if parent is not None:
        lines[0]["parent"] = parent
    again = pick(draw, (None, None, "a", "b"))
    if again is not None:  # a job that names itself, with replicas of its own or with the same
        lines[0] |= {"job": again, "replica": pick(draw, ("0", again))}
    if pick(draw, (True, True, False)):
        lines.append(DEFINE)
    for _ in range(pick(draw, (1, 3, 6, 9))):
        t += pick(draw, (0.0, 0.5, 3.0, 9.0, 24.0, -6.0))
        lines.append(line(draw, host, t))
    if pick(draw, (False, False, True)):
        lines.append({"kind": "barrier", "step": pick(draw, (0, 3)), "t": t + HOSTS[host] + 1.0, "adopts": True})
        lines.append(line(draw, host, t + 2.0))
    if pick(draw, (False, True)):
        lines.append({"kind": "close", "reason": pick(draw, ("exit", "roll")), "t": t + HOSTS[host]})
    return encoded(draw, lines)


def line(draw: st.DrawFn, host: str, t: float) -> dict[str, Any]:
    """One line of a stream, at `t` of the common clock."""
    ahead = 1e6 if draw(st.integers(0, 24)) == 24 else 0.0
    stamp = {"t": t + HOSTS[host] + ahead} if pick(draw, (True, True, True, False)) else {}
    what = pick(draw, WHATS)
    if what == "clock":
        return clock(draw, host, t)
    if what == "step":
        return stamp | {"step": pick(draw, (0, 3)), "m": {"reward": 3.0, "policy_version": 1}}
    if what == "beat":
        return stamp | {"kind": "beat"}
    if what == "gap":
        return {"kind": "gap", "n": 3}
    if what == "span":
        return stamp | {"kind": "span", "name": "rollout", "dur": pick(draw, (0.5, 12.0))}
    if what == "event":
        return stamp | {"kind": "event", "name": "pushed"}
    if what == "sample":
        body = {"kind": "sample", "table": "rollouts", "pri": pick(draw, PRIS), "row": {"n": draw(st.integers(0, 9))}}
        return stamp | body | {"score": pick(draw, (0.5, -1, 2))}
    if what == "lists":
        return stamp | {"m": {"tokens": [1, 2.5, "NaN"], "reward": {"n": 2, "sum": 3.0}}}
    if what == "ping":
        return stamp | {"m": {"ping": pick(draw, (1.0, 2.0)), "other": 1.0}}
    if what == "nothing":
        return stamp | {"m": pick(draw, ({}, {"reward": None}))}
    return stamp | {"m": {"reward": pick(draw, (0.1, 0.7)), "tokens": 5, "policy_version": pick(draw, (0, 2))}}


def clock(draw: st.DrawFn, host: str, t: float) -> dict[str, Any]:
    """What the host's clock is off by, nearly, or by much more: a clock that was set anew."""
    offset = HOSTS[host] + pick(draw, (0.0, 0.0, 0.01, -11.0, 900.0))
    return {"kind": "clock", "t": t + HOSTS[host], "offset": offset, "err": pick(draw, (0.01, 0.5))}


def opened(draw: st.DrawFn, actor: str, id: str, rank: int, attempt: int, host: str, t: float) -> dict[str, Any]:
    """The first line of a file."""
    body: dict[str, Any] = {"kind": "open", "rlship": 1, "id": id, "actor": actor, "rank": rank, "attempt": attempt}
    return body | {"t": t + HOSTS[host], "host": host, "beat": 10, "world": pick(draw, (2, 2, 64, 1))}


def encoded(draw: st.DrawFn, lines: Sequence[dict[str, Any]]) -> bytes:
    """The lines as a file holds them, the last one perhaps torn."""
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return whole[:-3] if pick(draw, (False, False, False, True)) else whole
