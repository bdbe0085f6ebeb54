"""When a change began, which is before the frame in which a detector is sure of it. Pure.

A detector needs several frames, and one of slow changes a whole window. Looked back upon, a change begins where the sum
of what values lie beyond their former trend was zero for the last time: the estimate of E. S. Page (Continuous
inspection schemes, 1954) and D. V. Hinkley (Inference about the change-point, 1971).
"""

from __future__ import annotations

from collections.abc import Sequence

from rlship_sidecar.alerts.signals import trend_of

LEAST, USUAL = 20, 50  # values of a trend: at least, and at most
SLACK = 1.0  # spreads that a value may lie beyond the trend; half of the least change of interest, as Page has it
LARGE = 3.0  # that many, where the change is large
MOST = 3.0  # spreads that one value adds at most, so that one outlier is soon forgotten
MEAN = 1.2533  # the standard deviation of normal values is this times their mean absolute deviation


def began(values: Sequence[float], back: int, *, down: bool) -> int:
    """The place at which a change began that is there at the last of `values`, and that may have begun up to `back`
    values before. It is that of the last value where too few come before to say more.
    """
    last = len(values) - 1
    split = max(LEAST, last - back)
    if split >= last:
        return last
    usual = values[max(0, split - USUAL) : split]
    trend = trend_of(usual)
    level = trend.last
    begin = len(usual) - trend.half + (trend.half - 1) / 2
    away = 0.0
    for at, one in enumerate(usual):
        away += abs(one - (level + trend.slope * (at - begin)))
    spread = max(trend.scale, MEAN * away / len(usual))
    far = []
    for at in range(split, last + 1):
        ahead = trend.ahead(2 * (at - split) + 1)
        # A bend of a curve is no change: the value has to lie beyond the newest values too.
        far.append((min(ahead, level) - values[at] if down else values[at] - max(ahead, level)) / spread)
    slack = max(SLACK, min(LARGE, far[-1] / 4))
    beyond, found = 0.0, last
    for at, one in enumerate(far, split):
        before, beyond = beyond, max(0.0, beyond + min(MOST, one - slack))
        if beyond > 0 and before == 0:
            found = at
    return found if beyond > 0 else last
