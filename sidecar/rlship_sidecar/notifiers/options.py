"""Settings of notifiers: where messages go, and secrets, which come from the environment or from files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from rlship_sidecar.notifiers.contract import NotSent, WrongNotifierOption
from rlship_sidecar.plainfiles import read_plain

MAX_SECRET = 4096


def check_names(options: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise WrongNotifierOption for an option that is not known, or no text."""
    for name, value in options.items():
        if name not in allowed:
            raise WrongNotifierOption(name, "is not known", ", ".join(allowed))
        if not isinstance(value, str) or not value:
            raise WrongNotifierOption(name, f"is {value!r}", "a text")


def check_url(url: str) -> str:
    """Raise WrongNotifierOption unless it is an address of HTTP."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:  # brackets or a port that make no sense
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise WrongNotifierOption(
            "url", f"is {url!r}", "an address that begins with http:// or https://, without a user or spaces"
        )
    return url


def check_secret(name: str, options: Mapping[str, Any], *, needed: bool) -> None:
    """Raise WrongNotifierOption unless the secret has one source: `<name>_env` or `<name>_file`."""
    given = [option for option in (f"{name}_env", f"{name}_file") if option in options]
    if len(given) > 1:
        raise WrongNotifierOption(given[1], f"is given beside {given[0]}", "one of the two")
    if needed and not given:
        raise WrongNotifierOption(f"{name}_env", "is not given", f"{name}_env or {name}_file: it is a secret")


def secret(name: str, options: Mapping[str, Any]) -> str:
    """The secret, read anew; "" without a source. Raises NotSent if its source has none."""
    if variable := options.get(f"{name}_env"):
        found = os.environ.get(variable, "").strip()
        if not found:
            raise NotSent(f"the environment has no {variable}")
        if not found.isprintable():  # the error of a request with it would show it
            raise NotSent(f"{variable} holds no {name}")
        return found
    if path := options.get(f"{name}_file"):
        try:
            from pathlib import Path

            found = read_plain(Path(path), MAX_SECRET).decode().strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise NotSent(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
        if not found or not found.isprintable():
            raise NotSent(f"{path} holds no {name}")
        return found
    return ""
