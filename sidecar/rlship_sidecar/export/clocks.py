"""Times as whole microseconds of the file server's clock. Pure."""

from __future__ import annotations

from rlship_formats.clocks import HostClocks


def microseconds(seconds: float) -> int:
    """`seconds` in the nearest whole microsecond. A Unix time in a double is right to a quarter of one."""
    return round(seconds * 1e6)


def aligned(clocks: HostClocks, host: str, t: int) -> int:
    """A time of a host's clock as the file server's, both in microseconds."""
    return t - microseconds(clocks.offset(host, t / 1e6).offset)
