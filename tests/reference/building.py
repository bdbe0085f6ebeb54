"""Small experiments built record by record, for cases worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.reduction import final_rows
from tests.reference.rows import ReferenceRow
from tests.reference.settings import DEFAULTS, NO_OVERRIDES, Settings

T0 = 1763600000.0
ALL = ["mean", "sum", "min", "max", "first", "last", "std", "count"]
CLOSE = {"kind": "close", "reason": "exit"}


def file(*records: dict[str, Any], **identity: Any) -> bytes:
    """A file's bytes: an `open` (trainer, 0.0, attempt 0, T0, id "a" unless `identity` differs), then the records."""
    first = {"kind": "open", "rlship": 1, "id": "a", "actor": "trainer", "t": T0} | identity
    return b"".join(json.dumps(record).encode() + b"\n" for record in (first, *records))


def log(step: int, **m: Any) -> dict[str, Any]:
    return {"step": step, "m": m}


def barrier(step: int, after: float | None = None) -> dict[str, Any]:
    """`after`: seconds after T0; the time of the line before, if it is None."""
    return {"kind": "barrier", "step": step} | ({} if after is None else {"t": T0 + after})


def define(**reduce: Any) -> dict[str, Any]:
    return {"kind": "define", "m": {metric: {"reduce": names} for metric, names in reduce.items()}}


def beat(after: float) -> dict[str, Any]:
    return {"kind": "beat", "t": T0 + after}


def rollback(step: int) -> dict[str, Any]:
    return {"kind": "rollback", "step": step}


def stream(after: float, **m: Any) -> dict[str, Any]:
    """A metrics record without a step."""
    return {"t": T0 + after, "m": m}


def span(name: str, dur: float, after: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"kind": "span", "t": T0 + after, "dur": dur, "name": name} | more


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "event", "name": name} | more


def tag(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "event", "name": "step_tag", "attrs": {"tag": text}} | more


def sample(score: float | str | None, pri: float = 0.5, table: str = "rollouts", **more: Any) -> dict[str, Any]:
    """A sample of step 1, unless `more` says otherwise; its row repeats the score."""
    body = {"kind": "sample", "step": 1, "table": table, "pri": pri, "row": {"is": score}} | more
    return body if score is None else body | {"score": score}


def stepless_sample(score: float, after: float) -> dict[str, Any]:
    """A sample without a step."""
    body = sample(score, t=T0 + after)
    del body["step"]
    return body


def clock(offset: float, err: float = 0.0, after: float = 0.0) -> dict[str, Any]:
    return {"kind": "clock", "t": T0 + after, "offset": offset, "err": err}


def rows(
    *files: bytes, settings: Settings = DEFAULTS, reductions: Mapping[str, Sequence[str]] = NO_OVERRIDES
) -> dict[Unit, ReferenceRow]:
    """All rows of files called f0, f1, …"""
    return final_rows({f"f{i}": data for i, data in enumerate(files)}, reductions, settings)


def row(
    *files: bytes,
    step: int = 1,
    reductions: Mapping[str, Sequence[str]] = NO_OVERRIDES,
    settings: Settings = DEFAULTS,
) -> ReferenceRow:
    """The trainer's row of one step."""
    return rows(*files, reductions=reductions, settings=settings)[Unit("trainer", "step", step)]


def figures(*files: bytes, **reductions: list[str]) -> dict[str, float]:
    """The figures of trainer's step 1, without the actor in their keys."""
    found = row(*files, reductions=reductions).figures
    return {key.removeprefix("trainer/"): figure for key, figure in found.items()}


def coverage(*files: bytes, step: int = 1) -> Coverage:
    return row(*files, step=step).coverage
