"""Parses what a job declares about metrics, and makes its `define` records."""

from __future__ import annotations

from .encode import why_not_a_name
from .jsondata import json_value
from .records import define_line
from .reduce import reduction_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    # A metric's entry: `reduce` (a list of names), `unit`, `per_rank`, `stream`; each may be absent.
    Entries: TypeAlias = dict[str, dict[str, Any]]

# The end of a message about a reduction that cannot be used.
INSTEAD = ". Until then the metric is reduced as if nothing was declared: as the catalogue states, else by its mean"
_FIELDS = ("reduce", "unit", "per_rank", "stream")
# Far below the limit of a line, whatever one name adds.
_LINE_BYTES = 64 << 10
_MAX_STRAYS = 1000  # names without a definition; a job that logs more of them builds its names
_MAX_TYPO = 2  # characters


def parse(
    metrics: str | Mapping[str, Any],
    reduce: str | Iterable[str] | None,
    unit: str | None,
    per_rank: bool | None,
    stream: bool | None,
    report: Callable[[str, str], object],
) -> Entries:
    """The entries that a call of `define` declares. Calls `report(name, message)` for anything that cannot be used."""
    entries: Entries = {}
    if not isinstance(metrics, str) and not hasattr(metrics, "items"):
        report("", f"define() takes a name, or a dict of names and reductions, not {metrics!r:.200}; it is left out")
        return entries
    for key, spec in ({metrics: reduce} if isinstance(metrics, str) else dict(metrics)).items():
        name = str(key)
        own = dict(spec) if isinstance(spec, dict) else {"reduce": spec}
        unknown = sorted(str(field) for field in own if field not in _FIELDS)
        if unknown:
            report(name, f"define({name[:200]!r}): {unknown} is not known: use {', '.join(_FIELDS)}")
        if (wrong := why_not_a_name(name)) is not None:
            report(name, f"define({name[:40]!r}): {wrong}; it is left out")
            continue
        entry: dict[str, Any] = {}
        own_reduce = own.get("reduce")
        if own_reduce is None:
            own_reduce = reduce
        try:
            if own_reduce is not None:
                entry["reduce"] = reduction_names(own_reduce)
        except ValueError as error:
            report(name, f"define({name[:200]!r}): {error}{INSTEAD}")
        for field, common in (("unit", unit), ("per_rank", per_rank), ("stream", stream)):
            given = own.get(field, common)
            if given is not None:
                entry[field] = str(given) if field == "unit" else bool(given)
        entries[name] = entry
    return entries


def lines(entries: Entries) -> list[str]:
    """The `define` records of these entries, each far shorter than the longest allowed line."""
    found: list[str] = []
    parts: list[str] = []
    size = 0
    for name, entry in entries.items():
        shown = dict(entry)
        if len(shown.get("reduce", ())) == 1:
            (shown["reduce"],) = shown["reduce"]
        part = f"{json_value(name)}:{json_value(shown)}"
        if parts and size + len(part) > _LINE_BYTES:
            found.append(define_line(parts))
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        found.append(define_line(parts))
    return found


def with_more(entry: dict[str, Any], reduce: str | Iterable[str]) -> dict[str, Any] | None:
    """`entry` with the reductions of `reduce` added to its own; None if it has them all. Raises ValueError."""
    known = entry.get("reduce", [])
    more = [name for name in reduction_names(reduce) if name not in known]
    return {**entry, "reduce": known + more} if more else None


def disagreements(before: Entries, entries: Entries) -> list[tuple[str, list[str], list[str]]]:
    """The metrics for which `entries` has other reductions than `before`: name, earlier ones, later ones."""
    found = []
    for name, entry in entries.items():
        earlier, later = before.get(name, {}).get("reduce"), entry.get("reduce")
        if earlier and later and set(earlier) != set(later):
            found.append((name, earlier, later))
    return found


def clashes(entries: Entries, logged: set[str]) -> list[tuple[str, str, str]]:
    """The metrics that are logged under the key of another one's further reduction: metric, reduction, other's name.

    The metric has the key, and the reduction is in no row.
    """
    found = []
    for name, entry in entries.items():
        if name in logged:
            found += [(name, more, f"{name}/{more}") for more in entry.get("reduce", ())[1:]]
    return [one for one in found if one[2] in logged]


def misspelt(defined: Iterable[str], logged: set[str]) -> list[tuple[str, str]]:
    """The names that are defined but not logged, each with a name that is logged, not defined, and nearly the same.

    A name without such a twin may well be logged later, or by another process.
    """
    known = set(defined)
    strays = sorted(logged - known)
    if not strays or len(strays) > _MAX_STRAYS:
        return []
    found = []
    for name in sorted(known - logged):
        twin = next((stray for stray in strays if _is_typo(name, stray)), None)
        if twin is not None:
            found.append((name, twin))
    return found


def _is_typo(one: str, other: str) -> bool:
    """True if two names differ in one place by few characters. Numbers do not count: `r0` and `r1` are a family."""
    if abs(len(one) - len(other)) > _MAX_TYPO:
        return False
    parts, others = one.lower().split("/"), other.lower().split("/")
    if len(parts) == len(others):
        pairs = [(part, twin) for part, twin in zip(parts, others) if part != twin]
    else:
        pairs = [(one.lower(), other.lower())]
    if len(pairs) != 1:
        return not pairs  # equal but for the case of letters
    left, right = pairs[0]
    shortest = min(len(left), len(right))
    before = next((i for i in range(shortest) if left[i] != right[i]), shortest)
    after = next((i for i in range(shortest - before) if left[-1 - i] != right[-1 - i]), shortest - before)
    here, there = left[before : len(left) - after], right[before : len(right) - after]
    size = max(len(here), len(there))
    return size <= _MAX_TYPO and 2 * size < max(len(left), len(right)) and not (here + there).isdigit()
