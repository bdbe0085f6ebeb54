"""One POST of JSON over HTTP: bounded in time and size, followed nowhere."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from rlship_sidecar.notifiers.contract import NotSent, Refused

ANSWERS_WITHIN_S = 5.0
MAX_SAID = 200
MAX_WAIT_S = 600.0
_LATER = (408, 425, 429)


class _StayHandler(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Follow nowhere: what is sent is meant for the address in the settings."""


def post(url: str, body: Any, headers: Mapping[str, str] | None = None) -> None:
    """Send JSON. Raises NotSent where another try may help, and Refused where the receiver says that none will."""
    data = json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        # What else it says makes no difference: where the rest of a good answer is cut off, the message was taken.
        urllib.request.build_opener(_StayHandler).open(request, timeout=ANSWERS_WITHIN_S).close()
    except urllib.error.HTTPError as problem:
        with problem:
            words = f"{_host(url)} answers {problem.code}: {_plain(_said(problem) or str(problem.reason))}"
            if problem.code >= 500 or problem.code in _LATER:
                raise NotSent(words, _seconds(problem.headers.get("Retry-After"))) from None
            raise Refused(words) from None
    except urllib.error.URLError as problem:
        raise NotSent(f"{_host(url)} cannot be reached: {problem.reason}") from None
    except (OSError, HTTPException, ValueError) as problem:
        raise NotSent(f"{_host(url)}: {type(problem).__name__}: {problem}") from None


def _said(answer: urllib.error.HTTPError) -> str:
    """The beginning of what an answer says, as far as it comes."""
    try:
        return "" if answer.fp is None else answer.read(MAX_SAID).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return ""


def _host(url: str) -> str:
    """The host: the rest of an address may be a secret."""
    return urlsplit(url).hostname or "the receiver"


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)


def _seconds(text: str | None) -> float:
    return min(MAX_WAIT_S, float(text)) if text is not None and text.isascii() and text.isdigit() else 0.0
