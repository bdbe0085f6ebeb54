"""The row of the episodes that fire or end at one step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlship_sidecar.alerts.episodes import CRITICAL, FIRING, Episode
from rlship_sidecar.rows import ALERT, ALERT_KEYS, Coverage, Row, Sample, Unit

TABLE = "episodes"
_SEVERITIES = {CRITICAL: 2.0}


def steps_of(episode: Episode) -> set[int]:
    """The steps whose rows say something of an episode."""
    return {episode.fired.step} | (set() if episode.ended is None else {episode.ended.step})


def alert_row(step: int, axis: str, t: float, episodes: Sequence[Episode]) -> Row:
    """The row of a step, of the episodes that fire or end there; `t` counts if there is no episode.

    A rule's value is 1 where it fires, 2 where that is critical, and 0 where the episode is over. The episode itself
    is in the row of the step where it fired. While it goes on, the row leaves out what changes with every frame.
    """
    values: dict[str, float] = {}
    times = []
    samples = []
    for one in sorted(episodes, key=lambda one: (one.fired.step, one.rule, one.lineage, one.id)):
        key = f"{ALERT_KEYS}/{one.rule}"
        if one.ended is not None and one.ended.step == step:
            values.setdefault(key, 0.0)
            times.append(one.ended.t)
        if one.fired.step == step:
            severity = _SEVERITIES.get(one.severity, 1.0)
            values[key] = max(severity, values.get(key, 0.0))
            times.append(one.fired.t)
            samples.append(Sample((ALERT,), one.place, one.fired.t, severity, form(one)))
    return Row(
        Unit("", ALERT, step),
        max(times, default=t),
        {axis: step},
        dict(sorted(values.items())),
        Coverage((), 0),
        samples={TABLE: samples} if samples else {},
    )


def form(one: Episode) -> dict[str, Any]:
    """An episode as rows and messages have it: plain data."""
    over = one.ended is not None
    return {
        "id": one.id,
        "rule": one.rule,
        "severity": one.severity,
        "state": one.state if over else FIRING,
        "place": one.place,
        "lineage": list(one.lineage),
        "first_step": one.first.step,
        "first_t": one.first.t,
        "fired_step": one.fired.step,
        "fired_t": one.fired.t,
        "last_step": one.last.step if over else None,
        "last_t": one.last.t if over else None,
        "ended_step": None if one.ended is None else one.ended.step,
        "ended_t": None if one.ended is None else one.ended.t,
        "evidence": dict(one.evidence),
    }
