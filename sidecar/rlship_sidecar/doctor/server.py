"""Asks W&B's server, at the address and with the key that the sink finds, whether it answers and takes the key.

The answer is bounded by time, also where the resolver hangs. No client is started.
"""

from __future__ import annotations

import base64
import json
import netrc
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from rlship_sidecar.doctor.facts import Server
from rlship_sidecar.sinks.wandb.access import asked_mode, netrc_file, server_of
from rlship_sidecar.sinks.wandb.link import KEY_FILE_VARIABLE, KEY_VARIABLE, with_key

ANSWERS_WITHIN_S = 4.0
TOKEN_VARIABLE = "WANDB_IDENTITY_TOKEN_FILE"
_MAX_ANSWER = 1 << 16


def look(options: Mapping[str, Any], env: Mapping[str, str]) -> Server:
    """The server, and whether it answers; it is asked only where runs go to it. Raises SinkRefused for settings that
    the sink refuses.
    """
    mode = asked_mode(options.get("mode") or "auto", env)
    address = server_of(options, env)
    source, key = _key(address, env)
    server = Server(mode, address, source)
    if mode == "offline" or not source:
        return server
    answers: list[Server] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(server, key)), name="rlship-doctor", daemon=True)
    asking.start()
    asking.join(ANSWERS_WITHIN_S)
    return answers[0] if answers else replace(server, trouble=f"not within {ANSWERS_WITHIN_S:g} s")


def _key(address: str, env: Mapping[str, str]) -> tuple[str, str]:
    """The source of the key and the key itself; "" for a token, which only the client can use."""
    found = with_key(env).get(KEY_VARIABLE)
    if found:
        return (KEY_VARIABLE if env.get(KEY_VARIABLE) else KEY_FILE_VARIABLE), found
    if env.get(TOKEN_VARIABLE):
        return TOKEN_VARIABLE, ""
    file = netrc_file(env)
    try:
        known = netrc.netrc(file).hosts.get(urlsplit(address).hostname or "")
    except (OSError, netrc.NetrcParseError):
        known = None
    return (file, known[2] or "") if known else ("", "")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to the address of the settings, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(server: Server, key: str) -> Server:
    headers = {"Content-Type": "application/json", "User-Agent": "rlship"}
    if key:
        headers["Authorization"] = "Basic " + base64.b64encode(f"api:{key}".encode()).decode()
    query = json.dumps({"query": "query Viewer { viewer { id } }"}).encode()
    try:
        request = urllib.request.Request(f"{server.address.rstrip('/')}/graphql", query, headers)
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=ANSWERS_WITHIN_S) as answer:
            said = json.loads(answer.read(_MAX_ANSWER))
    except urllib.error.HTTPError as problem:
        if problem.code in (401, 403):
            return replace(server, is_rejected=bool(key))
        return replace(server, trouble=f"HTTP {problem.code} {problem.reason}")
    except urllib.error.URLError as problem:
        return replace(server, trouble=str(problem.reason))
    except (OSError, HTTPException, ValueError) as problem:
        return replace(server, trouble=f"{type(problem).__name__}: {problem}")
    data = said.get("data") if isinstance(said, dict) else None
    if not isinstance(data, dict):
        return replace(server, trouble="what answers is no W&B server")
    return replace(server, is_rejected=bool(key) and not data.get("viewer"))
