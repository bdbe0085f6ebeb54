"""Which ranks logged which metrics at a step. Pure.

The terms are those of docs/semantics.md, "Ranks that are short of a metric".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TypeAlias, TypeVar

import orjson

from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Schema
from rlship_sidecar.reduce.rank_sets import RankSet, RankSets
from rlship_sidecar.rows import RankName

Logged: TypeAlias = "dict[str, RankSet]"  # by metric
_Ranks = TypeVar("_Ranks")

EVENTS = "event/"  # an event happens to one rank at one time, so its metric is not expected of others


def ranks_of(window: UnitLines) -> set[RankName]:
    """The ranks that have a line in a window."""
    found = {segment.writer.rank for block in window.blocks.values() for segment in block.owners}
    return found.union(segment.writer.rank for segment, _ in window.sparse)


def who_logged(window: UnitLines, sets: RankSets) -> Logged:
    """The ranks that have each metric in a window, in superseded segments too. All of them were met."""
    found: Logged = {}
    for schema, block in window.blocks.items():
        ranks = [segment.writer.rank for segment in block.owners]
        each = sets.of_columns(ranks, block.filled()) if schema.loose else [sets.of(ranks)] * len(schema.names)
        for name, those in zip(schema.names, each):
            found[name] = found.get(name, 0) | those
    for segment, line in window.sparse:
        for value in line.values:
            found[value.metric] = found.get(value.metric, 0) | sets.of([segment.writer.rank])
    return {name: those for name, those in found.items() if those and not name.startswith(EVENTS)}


PlainKey: TypeAlias = "tuple[tuple[Schema, tuple[str, ...], bytes], ...]"


def plain_key(window: UnitLines, roster: Roster) -> PlainKey | None:
    """A key that is equal only for windows with equal `who_logged`, found without a look at each metric or rank.

    None for a window of other lines than plain numbers, or with a rank twice in one block.
    """
    if window.sparse:
        return None
    found = []
    for schema, block in window.blocks.items():
        order = roster.order(tuple(block.owners))
        if order is None:
            return None
        filled = b""
        if schema.loose:
            lines = block.filled()
            # Many windows' keys are kept, and there may be thousands of lines.
            filled = sha256((lines if order.places is None else lines[list(order.places)]).tobytes()).digest()
        found.append((schema, order.ranks, filled))
    return tuple(found)


def encode_logged(logged: Logged, numbers: Mapping[str, int], sets: RankSets) -> str:
    """JSON that is equal for equal contents: for each set of ranks, the ranks and the runs of numbers of its metrics.

    Metrics that are logged together have neighbouring numbers, so this is short however many they are.
    """
    by_ranks: dict[RankSet, list[int]] = {}
    for metric, ranks in logged.items():
        by_ranks.setdefault(ranks, []).append(numbers[metric])
    groups = []
    for ranks, members in by_ranks.items():
        runs: list[list[int]] = []
        for number in sorted(members):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        groups.append([runs, sets.encode(ranks)])
    return orjson.dumps(sorted(groups)).decode()


def decode_logged(text: str, names: Mapping[int, str], decode: Callable[[str], _Ranks]) -> dict[str, _Ranks]:
    """The inverse of `encode_logged`; `decode` gives the ranks of a metric in the form that is wanted."""
    found: dict[str, _Ranks] = {}
    for runs, ranks in orjson.loads(text):
        alike = decode(ranks)
        for first, last in runs:
            found.update((names[number], alike) for number in range(first, last + 1))
    return found
