"""Texts and values of jobs, made fit for an answer: valid Unicode, within bounds. Pure."""

from __future__ import annotations

import math
from typing import Any

from rlship_sidecar.view.contract import MAX_TEXT

MAX_DEPTH, MAX_ITEMS = 40, 2_000
TOO_DEEP, MORE = "(nested too deeply to be shown)", "…"


def text(value: object, most: int = MAX_TEXT) -> str:
    """A string of at most `most` characters, without halves of surrogate pairs."""
    found = value if isinstance(value, str) else str(value)
    if len(found) > most:
        found = found[: most - 1] + MORE
    return found.encode("utf-8", "replace").decode()


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def plain(value: Any, most: int = MAX_TEXT, depth: int = 0) -> Any:
    """Data as JSON has them, every text cut to `most` characters, every list to `MAX_ITEMS` items, no number that
    JSON or a double cannot hold.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, most)
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else text(value, most)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth == MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, dict):
        kept = list(value.items())[:MAX_ITEMS]
        more = {MORE: f"{len(value) - len(kept)} more"} if len(value) > len(kept) else {}
        return {text(name, most): plain(one, most, depth + 1) for name, one in kept} | more
    if isinstance(value, (list, tuple, set, frozenset)):
        items = list(value)
        kept = [plain(one, most, depth + 1) for one in items[:MAX_ITEMS]]
        return [*kept, f"{MORE} {len(items) - len(kept)} more"] if len(items) > len(kept) else kept
    return text(value, most)
