"""The demo's processes talk to each other without rlship: one JSON line per message over a socket pair."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterable
from typing import Any


class PeerGoneError(Exception):
    """The process at the other end has ended; the message names it."""


class PeerLink:
    """One end of a connection to the process called `peer`."""

    def __init__(self, peer: str, end: socket.socket) -> None:
        self.peer = peer
        self._socket = end
        self._lines = end.makefile("rb")

    def fileno(self) -> int:
        """The descriptor, so that `select` accepts a link."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Raises PeerGoneError."""
        try:
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerGoneError(f"{self.peer} has ended") from error

    def receive(self) -> dict[str, Any]:
        """Wait for one message. Raises PeerGoneError."""
        try:
            line = self._lines.readline()
        except ConnectionResetError as error:
            raise PeerGoneError(f"{self.peer} has ended") from error
        if not line.endswith(b"\n"):
            raise PeerGoneError(f"{self.peer} has ended")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._lines.close()
        self._socket.close()


def waiting(links: Iterable[PeerLink]) -> list[PeerLink]:
    """Wait until some of the links have a message, and return those links in the order given.

    Use it only for peers that wait for an answer after each message: it does not see a message that is buffered
    already.
    """
    return select.select(list(links), [], [])[0]
