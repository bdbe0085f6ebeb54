"""Whether a run is online, and at which server, as far as that is known without the client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlship_sidecar.sinks.contract import SinkRefused

SERVER = "https://api.wandb.ai"


def server_of(options: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """The address of the server."""
    return str(options.get("base_url") or env.get("WANDB_BASE_URL") or SERVER)


def netrc_file(env: Mapping[str, str]) -> str:
    """The path of the file in which `wandb login` keeps a key."""
    return env.get("NETRC") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".netrc")


def asked_mode(asked: str, env: Mapping[str, str]) -> str:
    """The mode that `[sink.wandb] mode` and WANDB_MODE ask for: "online", "offline" or "auto". Raises SinkRefused."""
    wanted = env.get("WANDB_MODE", "").lower()
    if asked != "auto" or not wanted:
        return asked
    if wanted == "disabled":
        raise SinkRefused('sink wandb: WANDB_MODE is "disabled": leave the sink out, or set [sink.wandb] mode')
    return "offline" if wanted in ("offline", "dryrun") else "online"


def expected_mode(mode: str, env: Mapping[str, str]) -> str:
    """The client's choice for "auto", as far as it is known without the client: a login is an entry in a netrc."""
    if mode != "auto":
        return mode
    named = env.get("WANDB_API_KEY") or env.get("WANDB_IDENTITY_TOKEN_FILE") or os.path.exists(netrc_file(env))
    return "online" if named else "offline"
