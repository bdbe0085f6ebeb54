"""How far the hosts' clocks are off: section "Clock offsets" of docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.reference.records import Writer


@dataclass(frozen=True)
class Clocks:
    """The clock records (t, offset, err) of each host that has a name."""

    records: Mapping[str, Sequence[tuple[float, float, float]]]

    def offset(self, host: str, t: float) -> tuple[float, float | None]:
        """The offset of the host at a time of its own, and its error bound, None if unknown."""
        of_host = self.records.get(host, ())
        if not of_host:
            return 0.0, None
        earlier = [record for record in of_host if record[0] <= t]
        if earlier:
            newest = max(at for at, _, _ in earlier)
        else:
            newest = min(at for at, _, _ in of_host)
        err, offset = min((err, offset) for at, offset, err in of_host if at == newest)
        return offset, err

    def server_time(self, writer: Writer, t: float) -> float:
        """A time of the writer's host on the file server's clock."""
        return t - self.offset(writer.host, t)[0]


def clocks_of(writers: Iterable[Writer]) -> Clocks:
    records: dict[str, list[tuple[float, float, float]]] = {}
    for writer in writers:
        if writer.host:
            records.setdefault(writer.host, []).extend(writer.clocks)
    return Clocks(records)
