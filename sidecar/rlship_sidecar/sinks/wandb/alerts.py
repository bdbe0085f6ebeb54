"""Which episodes in rows become W&B's own alerts, and their words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from rlship_sidecar.report.terminal import clean
from rlship_sidecar.rows import ALERT, Row, Sample

SEVERITIES = ("warning", "critical")
MAX_AGE_S = 3600.0
MAX_TITLE = 63  # W&B takes fewer than 64 characters
MAX_TEXT = 500
MAX_AN_HOUR = 10


class AlertWords(TypedDict):
    """One alert: `level` is W&B's."""

    title: str
    text: str
    level: str


class NewEpisodes:
    """The episodes that are new, `severity` (or a graver one) and no older than an hour.

    A row comes again to a new child only if the server lacks it, so an alert is repeated only beside a kill.
    """

    def __init__(self, severity: str) -> None:
        self._least = SEVERITIES.index(severity)
        self._known: set[str] = set()
        self._told: list[float] = []

    def of(self, row: Row, now: float) -> list[AlertWords]:
        """The alerts that a row asks for."""
        if row.unit.kind != ALERT:
            return []
        found = []
        for sample in (one for samples in row.shipped_samples.values() for one in samples):
            if self._is_new(row, sample.row) and now - sample.t <= MAX_AGE_S:
                self._told = [t for t in self._told if now - t < 3600]
                if len(self._told) < MAX_AN_HOUR:
                    self._told.append(now)
                    found.append(_words(sample))
        return found

    def _is_new(self, row: Row, episode: Mapping[str, Any]) -> bool:
        severity, id = episode.get("severity"), episode.get("id")
        if severity not in SEVERITIES[self._least :] or not isinstance(id, str) or id in self._known:
            return False
        self._known.add(id)
        return row.arrival.revision == 0 or episode.get("state") == "firing"


def _words(sample: Sample) -> AlertWords:
    one = sample.row
    place = f" at {sample.rank}" if sample.rank else ""
    values = ", ".join(f"{name} {value:.4g}" for name, value in dict(one.get("evidence") or {}).items())
    return {
        "title": clean(f"{one.get('rule')} {one.get('severity')}{place}", MAX_TITLE),
        "text": clean(f"since step {one.get('first_step')}{': ' * bool(values)}{values}", MAX_TEXT),
        "level": "ERROR" if one.get("severity") == "critical" else "WARN",
    }
