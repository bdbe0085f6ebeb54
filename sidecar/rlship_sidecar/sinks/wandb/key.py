"""The W&B API key out of a file: where a service manager or a cluster hands over secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlship_sidecar.sinks.contract import SinkRefused

VARIABLE = "WANDB_API_KEY"
FILE_VARIABLE = "WANDB_API_KEY_FILE"
CREDENTIALS = "CREDENTIALS_DIRECTORY"  # systemd's, of LoadCredential=
CREDENTIAL = "wandb_api_key"

_LONGEST = 4096


def with_key(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with WANDB_API_KEY. In this order it is: the variable itself, the content of the file that
    WANDB_API_KEY_FILE names, that of `wandb_api_key` in $CREDENTIALS_DIRECTORY. Without any, or with an empty file, it
    is as it was: the client's own ways (netrc) are left.

    The file is read at each start of the client, so that a new key needs no restart. Raises SinkRefused where it cannot
    be read or is no key; what it holds is never told.
    """
    kept = dict(env)
    if kept.get(VARIABLE):
        return kept
    path = kept.get(FILE_VARIABLE, "")
    if not path and (folder := kept.get(CREDENTIALS)):
        path = os.path.join(folder, CREDENTIAL)
        if not os.path.exists(path):
            return kept
    key = _read(path) if path else ""
    if key:
        kept[VARIABLE] = key
    return kept


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST + 1).strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise SinkRefused(
            f"sink wandb: the API key in {path} cannot be read: {why}. Make it readable for the sidecar's user, "
            f"or unset {FILE_VARIABLE}"
        ) from None
    if len(text) > _LONGEST or any(not "!" <= character <= "~" for character in text):
        raise SinkRefused(
            f"sink wandb: {path} holds no API key: allowed is one word of printable ASCII, and nothing else"
        )
    return text
