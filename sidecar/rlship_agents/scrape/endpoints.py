"""Parses endpoints: addresses as people write them, and lists of them in files. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson

DEFAULT_PATH = "/metrics"
MAX_NAME = 200  # of a replica, in the contract on disk
_NAMED = re.compile(r"([A-Za-z0-9_.:\[\]-]{1,200})=")
_HOST = re.compile(r"[A-Za-z0-9_.:%-]+")
# Spaces and control characters, which no address may hold: they could break a request in two.
_UNUSABLE = re.compile(r"[^!-~]")


class AddressProblem(ValueError):
    """An address that cannot be used; the text gives the reason and an example."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One exporter. `name` is the replica under which it is logged: the given name, or one made from its address.

    `target` is the requested path and query.
    """

    name: str
    scheme: str
    host: str
    port: int
    target: str

    @property
    def url(self) -> str:
        """The complete address."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def authority(self) -> str:
        """Host and port, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(text: str) -> Endpoint:
    """An endpoint from `[NAME=]URL`, where URL may be short: `host:port` is `http://host:port/metrics`.

    Raises AddressProblem.
    """
    text = text.strip()
    named = _NAMED.match(text)
    name, address = (named[1], text[named.end() :]) if named else ("", text)
    if not address or _UNUSABLE.search(address):
        raise AddressProblem(f"{address[:100]!r} is not an address; one looks like http://10.0.0.7:8000/metrics")
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise AddressProblem(f"{_safe(address)!r}: {problem}; an address looks like http://10.0.0.7:8000") from None
    if parts.scheme not in ("http", "https"):
        raise AddressProblem(f"{_safe(address)!r}: only http:// and https:// can be read")
    if parts.username is not None or parts.password is not None:
        raise AddressProblem(
            f"{_safe(address)!r} holds a password, which others could see; put a token into a file: --bearer-token-file"
        )
    if not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise AddressProblem(f"{_safe(address)!r} names no host; an address looks like http://10.0.0.7:8000/metrics")
    if port == 0:
        raise AddressProblem(
            f"{_safe(address)!r}: no server answers at port 0; an address looks like http://10.0.0.7:8000"
        )
    return _made(name, parts, port or (443 if parts.scheme == "https" else 80))


def from_text(text: str) -> tuple[list[Endpoint], list[str]]:
    """The endpoints of a file, and a message for each mistake in it.

    A file has an address on each line, with `#` before comments. Or it is JSON in the form of Prometheus' file-based
    service discovery and of Ray:
    `[{"targets": ["10.0.0.7:8000"], "labels": {"__metrics_path__": "/metrics"}}]`.
    """
    return _gathered(_of_json(text) if text.lstrip()[:1] in ("[", "{") else _of_lines(text))


def distinct(endpoints: Iterable[Endpoint]) -> tuple[list[Endpoint], list[str]]:
    """The endpoints with a name of their own, in order, and a message for each of the others."""
    found: dict[str, Endpoint] = {}
    problems = []
    for endpoint in endpoints:
        before = found.setdefault(endpoint.name, endpoint)
        if before != endpoint:
            problems.append(f"{endpoint.url} is left out: {before.url} has the name {endpoint.name} too")
    return list(found.values()), problems


def _made(name: str, parts: SplitResult, port: int) -> Endpoint:
    host = (parts.hostname or "").rstrip(".")
    path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
    target = f"{path}?{parts.query}" if parts.query else path
    endpoint = Endpoint(name, parts.scheme, host, port, target)
    if name:
        return endpoint
    own = endpoint.authority if target == DEFAULT_PATH else endpoint.authority + target
    return Endpoint(own[:MAX_NAME], parts.scheme, host, port, target)


def _safe(address: str) -> str:
    """An address without the part that may hold a secret."""
    return re.sub(r"//[^/@]*@", "//…@", address)[:100]


def _gathered(found: Iterator[Endpoint | str]) -> tuple[list[Endpoint], list[str]]:
    endpoints: list[Endpoint] = []
    problems: list[str] = []
    for one in found:
        if isinstance(one, Endpoint):
            endpoints.append(one)
        else:
            problems.append(one)
    return endpoints, problems


def _of_lines(text: str) -> Iterator[Endpoint | str]:
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            yield from _tried(f"line {number}", line)


def _of_json(text: str) -> Iterator[Endpoint | str]:
    try:
        groups: Any = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        yield f"it is not JSON: {problem}"
        return
    for number, group in enumerate(groups if isinstance(groups, list) else [groups], 1):
        targets = group.get("targets") if isinstance(group, dict) else None
        if not isinstance(targets, list):
            yield f'group {number} has no list of "targets"'
            continue
        labels = group.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", DEFAULT_PATH)
        for target in targets:
            where = f"group {number}"
            if not isinstance(target, str) or not isinstance(path, str):
                yield f"{where}: {target!r:.100} is not an address"
            elif "://" in target:
                yield from _tried(where, target)
            else:
                yield from _tried(where, f"{scheme}://{target}{path if path.startswith('/') else '/' + path}")


def _tried(where: str, text: str) -> Iterator[Endpoint | str]:
    try:
        yield parse(text)
    except AddressProblem as problem:
        yield f"{where}: {problem}"
