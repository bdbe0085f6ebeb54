"""Barriers as a measurement: how far apart the ranks end a step, and which rank is last. Pure.

The terms are those of docs/semantics.md, "Barriers".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from rlship_formats.clocks import HostClocks
from rlship_sidecar.align.lineage import replica_key, still_in_world
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import Ended
from rlship_sidecar.rows import RankName

SPREAD, LAST_RANK, LAST_REPLICA = "barrier/spread_s", "barrier/last_rank", "barrier/last_replica"


class _End(NamedTuple):
    """A rank that ended a step, and the error of its host's clock."""

    rank: RankName
    host: str
    error_s: float | None


def measured(records: Collection[Ended], clocks: HostClocks, roster: Roster) -> dict[str, float]:
    """Values of a step's barrier records by key, without the actor. Empty if fewer than two ranks have a record."""
    order = roster.order(tuple([record[0] for record in records]))
    if order is None or not order.roots:  # otherwise every record counts
        records = newest_barriers(records)
    if len(records) < 2:
        return {}
    ends = [record[1] for record in records]
    if clocks.known:
        ends = [clocks.corrected(segment.writer.open.host, t) for segment, t, _, _ in records]
    spread = max(ends) - min(ends)
    found = {SPREAD: spread}
    if not spread:
        return found
    first, last = (_ended_at(at, ends, records, clocks) for at in (min(ends), max(ends)))
    if first.host and first.host == last.host:
        error: float | None = 0.0
    else:
        error = None if first.error_s is None or last.error_s is None else first.error_s + last.error_s
    if error is not None and spread > error:
        found[LAST_RANK] = float(last.rank.rank)
        replicas = {segment.writer.rank.replica for segment, *_ in records}
        if len(replicas) > 1 and all(replica_key(replica)[0] == 0 for replica in replicas):
            found[LAST_REPLICA] = float(int(last.rank.replica))
    return found


def newest_barriers(records: Collection[Ended]) -> list[Ended]:
    """The first barrier record of each rank's root writers, in the newest segment that has one.

    Ranks that are gone by newer barrier records are left out.
    """
    of_roots = [record for record in records if record[0].writer.root is record[0].writer]
    known = set(still_in_world(segment for segment, *_ in of_roots))
    chosen: dict[RankName, Ended] = {}
    for record in of_roots:
        if record[0] in known:
            held = chosen.setdefault(record[0].writer.rank, record)
            if held is not record and _precedence(record) > _precedence(held):
                chosen[record[0].writer.rank] = record
    return list(chosen.values())


def _precedence(record: Ended) -> tuple[object, ...]:
    # Copies of one file differ only in its name.
    segment, _, offset, _ = record
    return (*segment.age, segment.writer.file, -offset)


def _ended_at(at: float, ends: Iterable[float], records: Iterable[Ended], clocks: HostClocks) -> _End:
    """The first record in merge order whose time is `at`."""
    found = [record for end, record in zip(ends, records) if end == at]
    segment, t, _, _ = min(found, key=lambda record: record[0].merge_key)
    host = segment.writer.open.host
    return _End(segment.writer.rank, host, clocks.offset(host, t).err)
