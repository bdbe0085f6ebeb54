"""systemd's notification protocol: datagrams of NAME=value lines to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Protocol

READY_WAIT_S = 5.0  # for room in the socket: what waits for READY=1 would end a process that did not get it through


class Send(Protocol):
    """Sends a text, and waits for room for at most `wait_s` seconds. Returns whether it went out."""

    def __call__(self, text: str, wait_s: float = 0.0) -> bool: ...


_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Tells whoever started this process how it is. `watchdog_s` is how often a sign of life is wanted, in seconds;
    None: never. Without a socket nothing is sent.
    """

    def __init__(self, send: Send, watchdog_s: float | None = None) -> None:
        self._send = send
        self._every_s = None if watchdog_s is None else watchdog_s / 3
        self._alive_at: float | None = None
        self._status = ""

    def ready(self) -> None:
        """It does its work from now on."""
        self._send("READY=1", READY_WAIT_S)

    def status(self, line: str) -> None:
        """What `systemctl status` shows; the same again is not sent."""
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def alive(self, now: float) -> None:
        """The loop went round at `now` (monotonic seconds). Three signs of life go out in the time of one."""
        due = self._every_s is not None and (self._alive_at is None or now - self._alive_at >= self._every_s)
        if due and self._send("WATCHDOG=1"):
            self._alive_at = now

    def stopping(self) -> None:
        """It was told to end, or ends."""
        self._send("STOPPING=1", READY_WAIT_S)


def from_environment(env: MutableMapping[str, str]) -> Notifier:
    """The notifier that `env` asks for. The variables are removed from it: they are for this process, not for those it
    starts. A socket that is not there, or an address of another kind, is like none: telling is no part of the work.
    """
    address, period_us, pid = (env.pop(name, "") for name in _VARIABLES)
    if not address.startswith(("/", "@")):
        return Notifier(nobody)
    mine = not pid or pid == str(os.getpid())
    watched = mine and period_us.isascii() and period_us.isdigit() and int(period_us) > 0
    return Notifier(_to(address), int(period_us) / 1e6 if watched else None)


def nobody(text: str, wait_s: float = 0.0) -> bool:
    """Sends nothing."""
    return True


def _to(address: str) -> Send:
    # An abstract socket's name begins with NUL, which a variable cannot hold.
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(text: str, wait_s: float = 0.0) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.settimeout(wait_s)
                to.sendto(text.encode("utf-8", "replace"), place)
        except OSError:
            return False  # nobody listens, or not now: the next one may arrive
        return True

    return send
