"""Times as whole microseconds of the file server's clock. Pure."""

from __future__ import annotations

from rlship_formats.clocks import HostClocks


def microseconds(seconds: float) -> int:
    """`seconds` rounded to whole microseconds. A double holds a Unix time to a quarter of a microsecond."""
    return round(seconds * 1e6)


def aligned(clocks: HostClocks, host: str, t: int) -> int:
    """A time of a host's clock as a time of the file server's, both in microseconds."""
    return t - microseconds(clocks.offset(host, t / 1e6).offset)
