"""Rows of small experiments by the reference, for cases worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlship_sidecar.rows import Coverage, Unit
from tests.kit.files import (
    CLOSE,
    T0,
    barrier,
    beat,
    clock,
    define,
    event,
    file,
    log,
    rollback,
    sample,
    span,
    stepless_sample,
    stream,
    tag,
)
from tests.reference.reduction import final_rows
from tests.reference.rows import ReferenceRow
from tests.reference.settings import DEFAULTS, NO_OVERRIDES, Settings

ALL = ["mean", "sum", "min", "max", "first", "last", "std", "count"]
__all__ = [
    "ALL",
    "CLOSE",
    "T0",
    "barrier",
    "beat",
    "clock",
    "coverage",
    "define",
    "event",
    "figures",
    "file",
    "log",
    "logged",
    "rollback",
    "row",
    "rows",
    "sample",
    "span",
    "stepless_sample",
    "stream",
    "tag",
]


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
    found = logged(row(*files, reductions=reductions))
    return {key.removeprefix("trainer/"): figure for key, figure in found.items()}


def logged(found: ReferenceRow) -> dict[str, float]:
    """The figures of what was logged: all but those of ranks that came back."""
    return {key: figure for key, figure in found.values.items() if "/svc/" not in key}


def coverage(*files: bytes, step: int = 1) -> Coverage:
    return row(*files, step=step).coverage
