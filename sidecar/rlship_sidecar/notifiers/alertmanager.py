"""Prometheus' Alertmanager, by version 2 of its API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from rlship_sidecar.notifiers.contract import FIRING, OVER, AlertNotifier, Message, WrongNotifierOption
from rlship_sidecar.notifiers.options import check_names, check_secret, check_url, secret
from rlship_sidecar.notifiers.post import post

REPEAT_S = 120.0
LASTS_S = 3 * REPEAT_S  # for so long an alert fires of which nothing more is heard


class Alertmanager(AlertNotifier):
    """Posts alerts to `url`, such as http://127.0.0.1:9093. `token_env` or `token_file`: a bearer token.

    An episode is one alert by its labels, so what is sent twice is one alert. One that goes on is sent again every two
    minutes: it ends by itself six minutes after the last time.
    """

    repeat_s = REPEAT_S

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_names(options, ("url", "token_env", "token_file"))
        if "url" not in options:
            raise WrongNotifierOption(
                "url", "is not given", "the address of Alertmanager, such as http://127.0.0.1:9093"
            )
        check_secret("token", options, needed=False)
        self._url = check_url(options["url"]).rstrip("/") + "/api/v2/alerts"
        self._options = dict(options)

    def send(self, message: Message) -> None:
        """Post the alert."""
        token = secret("token", self._options)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        post(self._url, [alert_of(message, time.time())], headers)


def alert_of(message: Message, now: float) -> dict[str, Any]:
    """A message as Alertmanager has alerts."""
    ends = now + LASTS_S
    if message.what == OVER:
        ends = min(now, max(message.ended_t or now, 0.0))
    begins = min(max(message.fired_t, 0.0), now, ends)
    labels = {
        "alertname": message.rule,
        "severity": message.severity,
        "experiment": message.experiment,
        "place": message.place,
        "episode": message.id,
    }
    annotations = {
        "summary": message.title,
        "description": message.text,
        "state": message.state if message.what == OVER else FIRING,
        "steps": f"first {message.first_step}, fired {message.fired_step}",
    }
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": annotations,
        "startsAt": _date(begins),
        "endsAt": _date(max(ends, begins + 0.001)),
    }


def _date(t: float) -> str:
    return datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
