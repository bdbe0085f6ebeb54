"""Who may ask the server: a client with the token, by a name of this machine, from the page itself.

A page of another site can send requests to a port of this machine, by its number or by a name of its own that leads
here (DNS rebinding). So a request needs a Host that is known, an Origin that is known if it has one, and for data the
token, which the browser never sends by itself.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Sequence
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlship_sidecar.view.contract import Refusal
from rlship_sidecar.view.sending import encoded, json_response

LOOPBACK = ("localhost", "127.0.0.1", "::1")
API = "/api/"
MAX_QUERY = 60_000  # bytes
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)

# Scripts, styles and data come from the server alone; pictures may be in the page. No form, no frame, no other host.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Turned(Exception):
    """A request that is turned away, with the status and the refusal."""

    def __init__(self, status: int, code: str, error: str, hint: str) -> None:
        super().__init__(error)
        self.status = status
        self.refusal: Refusal = {"code": code, "error": error, "hint": hint}


def host_name(value: str) -> str | None:
    """The name in a Host header, without its port; None if it is no such header."""
    found = _HOST.fullmatch(value.lower())
    if found is None or int(found["port"] or 0) > 65535:
        return None
    return found["six"] or found["name"].rstrip(".")


def check(scope: Scope, token: str, hosts: Collection[str]) -> None:
    """Raise Turned unless a request may be answered."""
    headers = Headers(scope=scope)
    names = headers.getlist("host")
    if len(names) != 1 or host_name(names[0]) not in hosts:
        shown = ", ".join(names)[:100]
        raise Turned(
            403,
            "host",
            f"the server is not known as {shown!r}",
            "open the link that `rlship view` printed, or allow the name: --allow-host NAME",
        )
    for origin in headers.getlist("origin"):
        if not _is_known(origin, hosts):
            raise Turned(403, "origin", f"a page of {origin[:100]!r} may not ask this server", "open its own page")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and _is_data(scope):
        raise Turned(403, "origin", "another site's page may not ask this server", "open its own page")
    if scope["method"] not in ("GET", "HEAD"):
        raise Turned(405, "method", f"{scope['method'][:20]} is not allowed: the page only reads", "use GET")
    query: bytes = scope.get("query_string", b"")
    if len(query) > MAX_QUERY:
        raise Turned(414, "parameter", "the request is too long", "ask for fewer metrics at a time")
    if any("token" in name.lower() for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)):
        raise Turned(
            400, "token", "a token in an address is not taken: addresses are logged", "the header Authorization has it"
        )
    if _is_data(scope):
        _check_token(headers.getlist("authorization"), token)


def _is_data(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith(API)


def _is_known(origin: str, hosts: Collection[str]) -> bool:
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and not parts.path and (parts.hostname or "") in hosts
    except ValueError:
        return False


def _check_token(given: Sequence[str], token: str) -> None:
    scheme, _, said = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    # Compared in constant time: how long it takes says nothing of how many characters are right.
    right = hmac.compare_digest(said.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Turned(
            401, "token", "the token is missing or wrong", "open the link that `rlship view` printed when it started"
        )


class Guard:
    """Turns away requests that may not be answered, and puts the headers that bind the browser on every answer."""

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(name.lower().rstrip(".") for name in (*LOOPBACK, *hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a websocket gets no answer

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in HEADERS}
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        try:
            check(scope, self._token, self._hosts)
        except Turned as turned:
            await json_response(encoded(turned.refusal), turned.status)(scope, receive, sending)
            return
        await self._app(scope, receive, sending)
