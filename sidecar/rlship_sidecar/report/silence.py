"""For how long a process has been silent: since its last line or beat, whenever this sidecar read that.

Only reports use this. Which rows are given up goes by the sidecar's own clock (`align/`), because lines that it has
just read may belong to a process that lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlship_formats.clocks import HostClocks
from rlship_sidecar.pipeline.source import Source


@dataclass(frozen=True, slots=True)
class Present:
    """The present: `now` on this sidecar's monotonic clock, `server_t` in Unix seconds of the file server's clock."""

    now: float
    server_t: float
    clocks: HostClocks

    def silent_s(self, source: Source) -> float:
        """Seconds since the newest line of a file was written; 0 for a file without an `open`."""
        writer = source.writer
        if writer is None:
            return 0.0
        by_its_time = self.server_t - self.clocks.corrected(writer.open.host, writer.newest_t)
        return source.sightings.silent_s(self.now, by_its_time if writer.newest_t else 0.0)

    def by_clock_of(self, sources: Iterable[Source]) -> float | None:
        """What the clock of the writer with the newest line says now, in Unix seconds; None without any line."""
        found = max(
            (source for source in sources if source.writer is not None and source.writer.newest_t),
            key=lambda source: source.writer.newest_t if source.writer is not None else 0.0,
            default=None,
        )
        if found is None or found.writer is None:
            return None
        return found.writer.newest_t + self.silent_s(found)
