"""systemd's notification protocol: datagrams of NAME=value lines to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Protocol

# wait this long for room in the socket: a service manager kills a process whose READY=1 never arrives
READY_WAIT_S = 5.0


class Send(Protocol):
    """Sends a text, and waits at most `wait_s` seconds for room in the socket. Returns True if it was sent."""

    def __call__(self, text: str, wait_s: float = 0.0) -> bool: ...


_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Reports the state of this process to the service manager that started it.

    `watchdog_s` is the interval in seconds within which the manager expects a sign of life; None: it expects none.
    Without a socket nothing is sent.
    """

    def __init__(self, send: Send, watchdog_s: float | None = None) -> None:
        self._send = send
        self._every_s = None if watchdog_s is None else watchdog_s / 3
        self._alive_at: float | None = None
        self._status = ""

    def ready(self) -> None:
        """Report that the process works now."""
        self._send("READY=1", READY_WAIT_S)

    def status(self, line: str) -> None:
        """Set the line that `systemctl status` shows; an unchanged line is not sent again."""
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def alive(self, now: float) -> None:
        """Report that the loop completed a round at `now` (monotonic seconds). Sends three signs of life per expected
        interval.
        """
        due = self._every_s is not None and (self._alive_at is None or now - self._alive_at >= self._every_s)
        if due and self._send("WATCHDOG=1"):
            self._alive_at = now

    def stopping(self) -> None:
        """Report that the process is ending."""
        self._send("STOPPING=1", READY_WAIT_S)


def from_environment(env: MutableMapping[str, str]) -> Notifier:
    """Return the notifier that `env` configures, and remove its variables: they are not for child processes.

    A missing socket, or an address of another kind, counts as no socket, because the sidecar works without
    notifications.
    """
    address, period_us, pid = (env.pop(name, "") for name in _VARIABLES)
    if not address.startswith(("/", "@")):
        return Notifier(send_nothing)
    mine = not pid or pid == str(os.getpid())
    watched = mine and period_us.isascii() and period_us.isdigit() and int(period_us) > 0
    return Notifier(_to(address), int(period_us) / 1e6 if watched else None)


def send_nothing(text: str, wait_s: float = 0.0) -> bool:
    """Send nothing."""
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
            return False  # no process listens now; the next datagram may arrive
        return True

    return send
