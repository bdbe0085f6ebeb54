"""Answers as bytes."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def encoded(answer: Any) -> bytes:
    """An answer as JSON; numbers that are not finite become null."""
    return orjson.dumps(answer, _as_list, _OPTIONS)


def _as_list(value: Any) -> Any:
    """What orjson cannot write by itself: a matrix's slice, a number of numpy."""
    return value.tolist()


def line(event: Any) -> bytes:
    """An event of a live stream."""
    return encoded(event) + b"\n"


def json_response(body: bytes, status: int = 200) -> Response:
    """A response with JSON."""
    return Response(body, status, media_type="application/json")
