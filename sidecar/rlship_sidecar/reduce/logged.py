"""Which ranks logged which metrics at a step. Pure.

The terms are those of docs/semantics.md, "Ranks that are short of a metric".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import orjson

from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Schema
from rlship_sidecar.rows import RankName

Ranks: TypeAlias = "frozenset[RankName]"
Logged: TypeAlias = "dict[str, Ranks]"  # by metric

EVENTS = "event/"  # an event happens to one rank at one time, so its metric is not expected of others


def who_logged(window: UnitLines) -> Logged:
    """The ranks that have each metric in a window, in superseded segments too."""
    by_names: dict[tuple[str, ...], set[RankName]] = {}
    for schema, block in window.blocks.items():
        by_names.setdefault(schema.names, set()).update([segment.writer.rank for segment in block.owners])
    for segment, line in window.sparse:
        by_names.setdefault(tuple([value.metric for value in line.values]), set()).add(segment.writer.rank)
    groups = [frozenset(ranks) for ranks in by_names.values()]
    of_metric: dict[str, list[int]] = {}  # the groups
    for group, names in enumerate(by_names):
        for name in names:
            of_metric.setdefault(name, []).append(group)
    found: Logged = {}
    for name, places in of_metric.items():
        if not name.startswith(EVENTS):
            first, *more = [groups[place] for place in places]
            found[name] = first.union(*more) if more else first
    return found


PlainKey: TypeAlias = "tuple[tuple[Schema, tuple[str, ...]], ...]"


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
        found.append((schema, order.ranks))
    return tuple(found)


def encode_ranks(ranks: Iterable[RankName]) -> str:
    """Ranks as JSON: runs (replica, first, last) in merge order."""
    of_replica: dict[str, list[int]] = {}
    for replica, rank in ranks:
        of_replica.setdefault(replica, []).append(rank)
    runs: list[list[str | int]] = []
    for replica in sorted(of_replica, key=replica_key):
        last = None
        for rank in sorted(of_replica[replica]):
            if last is not None and rank == last + 1:
                runs[-1][2] = rank
            else:
                runs.append([replica, rank, rank])
            last = rank
    return orjson.dumps(runs).decode()


def decode_ranks(text: str) -> Ranks:
    """The inverse of `encode_ranks`."""
    return frozenset(
        RankName(replica, rank) for replica, first, last in orjson.loads(text) for rank in range(first, last + 1)
    )


def encode_logged(logged: Logged, numbers: Mapping[str, int]) -> str:
    """JSON that is equal for equal contents: for each set of ranks, the ranks and the runs of numbers of its metrics.

    Metrics that are logged together have neighbouring numbers, so this is short however many they are.
    """
    by_ranks: dict[Ranks, list[int]] = {}
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
        groups.append([runs, encode_ranks(ranks)])
    return orjson.dumps(sorted(groups)).decode()


def decode_logged(text: str, names: Mapping[int, str]) -> Logged:
    """The inverse of `encode_logged`."""
    found: Logged = {}
    for runs, ranks in orjson.loads(text):
        alike = decode_ranks(ranks)
        for first, last in runs:
            found.update((names[number], alike) for number in range(first, last + 1))
    return found
