"""systemd's notification protocol: datagrams of NAME=value lines to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping

Send = Callable[[str], None]

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
        self._send("READY=1")

    def status(self, line: str) -> None:
        """What `systemctl status` shows; the same again is not sent."""
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self, now: float) -> None:
        """The loop went round at `now` (monotonic seconds). Three signs of life go out in the time of one."""
        if self._every_s is not None and (self._alive_at is None or now - self._alive_at >= self._every_s):
            self._alive_at = now
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """It was told to end, or ends."""
        self._send("STOPPING=1")


def from_environment(env: MutableMapping[str, str]) -> Notifier:
    """The notifier that `env` asks for. The variables are removed from it: they are for this process, not for those it
    starts. A socket that is not there, or an address of another kind, is like none: telling is no part of the work.
    """
    address, period_us, pid = (env.pop(name, "") for name in _VARIABLES)
    if not address.startswith(("/", "@")):
        return Notifier(lambda text: None)
    mine = not pid or pid == str(os.getpid())
    watched = mine and period_us.isascii() and period_us.isdigit() and int(period_us) > 0
    return Notifier(_to(address), int(period_us) / 1e6 if watched else None)


def _to(address: str) -> Send:
    # An abstract socket's name begins with NUL, which a variable cannot hold.
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.setblocking(False)
                to.sendto(text.encode("utf-8", "replace"), place)
        except OSError:
            return  # nobody listens, or not now: the next one may arrive

    return send
