"""Sinks by name: ours and those of installed packages, through the entry-point group `rlship.sinks`."""

from __future__ import annotations

from importlib.metadata import entry_points

from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.sinks.contract import Sink

GROUP = "rlship.sinks"


def make_sink(name: str) -> Sink:
    """A new sink, not opened; imports its module only now. Raises UsageProblem for a name that nothing provides."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise UsageProblem(
            f"there is no sink {name!r}", f"Sinks that are installed: {', '.join(sorted(found)) or 'none'}."
        )
    sink: Sink = found[name].load()()
    return sink
