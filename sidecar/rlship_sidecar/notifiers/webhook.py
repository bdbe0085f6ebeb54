"""Any receiver of JSON over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rlship_sidecar.notifiers.contract import AlertNotifier, Message, NotSent, WrongNotifierOption
from rlship_sidecar.notifiers.options import check_names, check_secret, check_url, secret
from rlship_sidecar.notifiers.post import post


class Webhook(AlertNotifier):
    """Posts each message as a JSON object to `url`, or to the address in `url_env` or `url_file` if it is a secret.

    `token_env` or `token_file`: a bearer token. The header `Idempotency-Key` is the same in every try of a message.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_names(options, ("url", "url_env", "url_file", "token_env", "token_file"))
        if "url" in options:
            check_url(options["url"])
        check_secret("url", options, needed="url" not in options)
        if "url" in options and options.keys() & {"url_env", "url_file"}:
            raise WrongNotifierOption("url", "is given beside url_env or url_file", "one of them")
        check_secret("token", options, needed=False)
        self._options = dict(options)

    def send(self, message: Message) -> None:
        """Post the message."""
        token = secret("token", self._options)
        headers = {"Idempotency-Key": f"{message.id}-{message.what}"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        post(address(self._options), {"version": 1, **msgspec.to_builtins(message)}, headers)


def address(options: Mapping[str, Any]) -> str:
    """Where to post to. Raises NotSent if the source of the address has none that can be used."""
    if "url" in options:
        return str(options["url"])
    try:
        return check_url(secret("url", options))
    except WrongNotifierOption as wrong:
        raise NotSent(f"what url_env or url_file names is no address of HTTP: allowed is {wrong.allowed}") from None
