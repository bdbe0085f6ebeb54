"""An HTTP connection with a deadline for every part: lookup, connection, TLS handshake, each header and each byte.

`http.client` only limits each single read, so a server that sends a byte every few seconds can hold it forever. Nor
does it bound what it reads: for a chunk with the size -1 it reads everything that arrives.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

Clock = Callable[[], float]


class Deadline:
    """The time by which everything has to be done, by `clock` (monotonic seconds)."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.end = clock() + seconds

    def left(self, most: float) -> float:
        """Seconds left, at most `most`. Raises TimeoutError if no time is left."""
        left = self.end - self._clock()
        if left <= 0:
            raise TimeoutError("the time is over")
        return min(left, most)


class TooMuch(Exception):
    """The server sent more than the limit."""


class TimedConnection(http.client.HTTPConnection):
    """One request's connection. `silent_s` is the longest wait for the next byte. `most_bytes` is the most that is read
    in all, framing of the body included; TooMuch is raised beyond.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        deadline: Deadline,
        connect_s: float,
        silent_s: float,
        most_bytes: int,
        tls: ssl.SSLContext | None,
        proxy: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(*(proxy or (host, port)))
        if proxy and tls:
            self.set_tunnel(host, port)
        self._target = host
        self._deadline = deadline
        self._connect_s = connect_s
        self._silent_s = silent_s
        self._most_bytes = most_bytes
        self._tls = tls
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Connect, through the proxy if there is one, and with TLS if `tls` is given."""
        plain = self._socket = self._reached()
        try:
            self.sock = cast(Any, _Timed(plain, self._deadline, self._silent_s, self._most_bytes))
            if getattr(self, "_tunnel_host", None):
                cast(Any, self)._tunnel()
            if self._tls:
                plain.settimeout(self._deadline.left(self._connect_s))
                self._socket = self._tls.wrap_socket(plain, server_hostname=self._target)
                self.sock = cast(Any, _Timed(self._socket, self._deadline, self._silent_s, self._most_bytes))
        except BaseException:
            plain.close()
            raise

    def hang_up(self) -> None:
        """Close the socket after the answer was read. `close` does not, because `http.client` calls it earlier."""
        self.close()
        if self._socket is not None:
            self._socket.close()

    def _reached(self) -> socket.socket:
        """A socket to the first address of the host that accepts the connection."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        refused: OSError | None = None
        for family, kind, protocol, _, address in found:
            one = socket.socket(family, kind, protocol)
            try:
                one.settimeout(self._deadline.left(self._connect_s))
                one.connect(address)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return one
            except OSError as problem:
                one.close()
                refused = refused or problem
        raise refused or OSError("the host has no address")


class _Timed:
    """The part of a socket that `http.client` uses, with the deadline in every wait."""

    def __init__(self, sock: socket.socket, deadline: Deadline, silent_s: float, most_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._silent_s = silent_s
        self._most_bytes = most_bytes

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._deadline.left(self._silent_s))
        self._sock.sendall(data)

    def makefile(self, mode: str, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_Bytes(self._sock, self._deadline, self._silent_s, self._most_bytes))

    def close(self) -> None:
        """Do nothing, because the answer may still be read; `hang_up` closes the socket."""


class _Bytes(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline, silent_s: float, most_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._silent_s = silent_s
        self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left(self._silent_s))
        count = self._sock.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise TooMuch
        return count
