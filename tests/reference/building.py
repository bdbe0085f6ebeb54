"""Small experiments built record by record, for cases worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlship_sidecar.rows import Coverage, Row, Unit
from tests.reference.reduction import NO_OVERRIDES, final_rows

T0 = 1763600000.0
ALL = ["mean", "sum", "min", "max", "first", "last", "std", "count"]
CLOSE = {"kind": "close", "reason": "exit"}


def file(*records: dict[str, Any], **identity: Any) -> bytes:
    """A file's bytes: an `open` (trainer, 0.0, attempt 0, T0, id "a" unless `identity` differs), then the records."""
    first = {"kind": "open", "rlship": 1, "id": "a", "actor": "trainer", "t": T0} | identity
    return b"".join(json.dumps(record).encode() + b"\n" for record in (first, *records))


def log(step: int, **m: Any) -> dict[str, Any]:
    return {"step": step, "m": m}


def barrier(step: int) -> dict[str, Any]:
    return {"kind": "barrier", "step": step}


def define(**reduce: Any) -> dict[str, Any]:
    return {"kind": "define", "m": {metric: {"reduce": names} for metric, names in reduce.items()}}


def beat(after: float) -> dict[str, Any]:
    return {"kind": "beat", "t": T0 + after}


def rollback(step: int) -> dict[str, Any]:
    return {"kind": "rollback", "step": step}


def row(*files: bytes, step: int = 1, reductions: Mapping[str, Sequence[str]] = NO_OVERRIDES) -> Row:
    """The trainer's row of one step, of files called f0, f1, …"""
    return final_rows({f"f{i}": data for i, data in enumerate(files)}, reductions)[Unit("trainer", "step", step)]


def figures(*files: bytes, **reductions: list[str]) -> dict[str, float]:
    """The figures of trainer's step 1, without the actor in their keys."""
    found = row(*files, reductions=reductions).figures
    return {key.removeprefix("trainer/"): figure for key, figure in found.items()}


def coverage(*files: bytes, step: int = 1) -> Coverage:
    return row(*files, step=step).coverage
