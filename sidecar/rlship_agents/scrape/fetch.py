"""One look at an endpoint: its text, within bounds of time and size, or the reason for a failure."""

from __future__ import annotations

import http.client
import re
import ssl
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from urllib.parse import urljoin

from rlship_agents.scrape.connection import Deadline, TimedConnection, TooMuch
from rlship_agents.scrape.endpoints import AddressProblem, Endpoint, parse

MAX_REDIRECTS = 3
_PIECE = 64 << 10
_MAX_TOKEN = 64 << 10
# The size of headers, of which http.client accepts 100 lines of 64 KiB, and of the sizes of chunks.
_FRAME = 8 << 20
# For OpenMetrics, prometheus_client 0.26 writes names with a colon in two ways, which separates samples from their
# types. Its parser of that format is also stricter and slower.
_ACCEPT = "text/plain;version=0.0.4,*/*;q=0.1"


class ScrapeProblem(Exception):
    """A failed look at an endpoint; the text gives the reason in a few words."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to connect, without a byte, and for everything; bytes of a body, as sent and as unpacked."""

    connect_s: float = 3.0
    silent_s: float = 5.0
    total_s: float = 10.0
    most_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Access:
    """How to request endpoints. `token_file` is read for each request; `proxy` is (host, port), given explicitly."""

    token_file: str | None = None
    tls: ssl.SSLContext | None = None
    proxy: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A body, and whether its headers declare OpenMetrics."""

    text: str
    openmetrics: bool


def fetch(endpoint: Endpoint, limits: Limits, access: Access, deadline: Deadline) -> Fetched:
    """The answer of an endpoint. Raises ScrapeProblem.

    Follows a redirect only to the same scheme, host and port. Nothing, and above all no token, goes anywhere else.
    """
    try:
        for _ in range(MAX_REDIRECTS + 1):
            found = _request(endpoint, limits, access, deadline)
            if isinstance(found, Fetched):
                return found
            endpoint = found
    except ScrapeProblem:
        raise
    except TimeoutError:
        raise ScrapeProblem("no whole answer in time") from None
    except ssl.SSLCertVerificationError as problem:
        raise ScrapeProblem(f"its certificate is not trusted: {problem.verify_message}") from None
    except TooMuch:
        raise ScrapeProblem(_too_long(limits.most_bytes)) from None
    except http.client.IncompleteRead:
        raise ScrapeProblem("the answer broke off") from None
    except http.client.HTTPException as problem:
        raise ScrapeProblem(f"no HTTP answer: {type(problem).__name__} {problem!s:.100}".rstrip()) from None
    except (OSError, UnicodeError) as problem:  # UnicodeError: a host name that cannot be encoded
        raise ScrapeProblem(getattr(problem, "strerror", None) or f"{problem!s:.200}") from None
    raise ScrapeProblem(f"more than {MAX_REDIRECTS} redirects")


def _request(endpoint: Endpoint, limits: Limits, access: Access, deadline: Deadline) -> Fetched | Endpoint:
    secure = endpoint.scheme == "https"
    connection = TimedConnection(
        endpoint.host,
        endpoint.port,
        deadline=deadline,
        connect_s=limits.connect_s,
        silent_s=limits.silent_s,
        most_bytes=2 * limits.most_bytes + _FRAME,
        tls=(access.tls or _system_tls()) if secure else None,
        proxy=access.proxy,
    )
    headers = {
        "Host": endpoint.authority,
        "Accept": _ACCEPT,
        "Accept-Encoding": "identity",  # compression would take the server's time from its requests
        "Connection": "close",
        "User-Agent": "rlship",
        **_authorization(access.token_file),
    }
    try:
        connection.request("GET", endpoint.url if access.proxy and not secure else endpoint.target, headers=headers)
        answer = connection.getresponse()
        if 300 <= answer.status < 400:
            return _followed(endpoint, answer)
        if answer.status != 200:
            raise ScrapeProblem(f"HTTP {answer.status} {answer.reason!s:.60}".rstrip())
        body = _read(answer, limits.most_bytes)
        kind = (answer.getheader("Content-Type") or "").lower()
    finally:
        connection.hang_up()
    return Fetched(body.decode("utf-8", "replace"), kind.startswith("application/openmetrics-text"))


def _followed(endpoint: Endpoint, answer: http.client.HTTPResponse) -> Endpoint:
    place = answer.getheader("Location") or ""
    elsewhere = ScrapeProblem(f"HTTP {answer.status}, a redirect to {place[:100]!r}: give that address if it is right")
    try:
        found = parse(urljoin(endpoint.url, place))
    except (AddressProblem, ValueError):
        raise elsewhere from None
    if (found.scheme, found.host, found.port) != (endpoint.scheme, endpoint.host, endpoint.port):
        raise elsewhere
    return found


def _read(answer: http.client.HTTPResponse, limit: int) -> bytes:
    encoding = (answer.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise ScrapeProblem(f"its encoding {encoding[:40]!r} is not understood")
    if (answer.length or 0) > limit:
        raise ScrapeProblem(_too_long(limit))
    pieces = _pieces(answer, limit)
    body = bytearray()
    for piece in _unpacked(pieces) if "gzip" in encoding else pieces:
        body += piece
        if len(body) > limit:
            raise ScrapeProblem(_too_long(limit))
    return bytes(body)


def _pieces(answer: http.client.HTTPResponse, limit: int) -> Iterator[bytes]:
    sent = 0
    while piece := answer.read(_PIECE):
        sent += len(piece)
        if sent > limit:
            raise ScrapeProblem(_too_long(limit))
        yield piece
    if answer.length:
        raise http.client.IncompleteRead(b"")


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack `pieces`, never much more than 64 KiB at once. They may consist of several gzip members, followed by NUL
    bytes.
    """
    unpack = zlib.decompressobj(31)
    try:
        for piece in pieces:
            while piece := piece.lstrip(b"\0") if unpack.eof else piece:
                unpack = zlib.decompressobj(31) if unpack.eof else unpack
                yield unpack.decompress(piece, _PIECE)
                piece = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    except zlib.error as problem:
        raise ScrapeProblem(f"its gzip is damaged: {problem}") from None
    if not unpack.eof:
        raise ScrapeProblem("the answer broke off")


def _too_long(limit: int) -> str:
    return f"the answer is longer than {limit} bytes (--max-bytes)"


@cache
def _system_tls() -> ssl.SSLContext:
    """The system's certificates, cached: reading them takes longer than an answer."""
    return ssl.create_default_context()


def _authorization(token_file: str | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        with open(token_file, encoding="ascii") as file:
            token = file.read(_MAX_TOKEN).strip()
    except (OSError, ValueError) as problem:
        raise ScrapeProblem(f"the token in {token_file} cannot be read: {getattr(problem, 'strerror', None)}") from None
    if not re.fullmatch(r"[!-~]+", token):
        raise ScrapeProblem(f"{token_file} does not hold one token without spaces")
    return {"Authorization": f"Bearer {token}"}
