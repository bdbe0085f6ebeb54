"""Slack, by an incoming webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlship_sidecar.notifiers.contract import AlertNotifier, Message
from rlship_sidecar.notifiers.options import check_names, check_secret
from rlship_sidecar.notifiers.post import post
from rlship_sidecar.notifiers.webhook import address

MAX_BLOCK = 3000  # characters that Slack takes in a section


class Slack(AlertNotifier):
    """Posts to the incoming webhook whose address is in `url_env` or `url_file`. It is a secret."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_names(options, ("url_env", "url_file"))
        check_secret("url", options, needed=True)
        self._options = dict(options)

    def send(self, message: Message) -> None:
        """Post the message."""
        post(address(self._options), body_of(message))


def body_of(message: Message) -> dict[str, Any]:
    """A message as Slack has it: blocks of plain text, in which nothing is markup, and an escaped text for previews."""
    parts = [message.title, *([message.text] if message.text else [])]
    blocks = [
        {"type": "section", "text": {"type": "plain_text", "text": part[:MAX_BLOCK], "emoji": False}} for part in parts
    ]
    return {"text": escaped(message.title), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def escaped(text: str) -> str:
    """A text without what Slack takes for a mention, a link or a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
