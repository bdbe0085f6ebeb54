"""A tunnel to a server, as ssh -L makes one, that a test cuts and mends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Tunnel:
    """Passes connections on to a port of this machine, until it is cut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._begin(self._accept, self._listening)

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """End all connections; new ones are refused."""
        with self._lock:
            for end in (self._listening, *self._ends):
                with suppress(OSError):  # it may have ended by itself
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._ends.clear()

    def mend(self, to: int | None = None) -> None:
        """Pass connections on again, at the same port; `to` another server."""
        self._to = to or self._to
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._begin(self._accept, self._listening)

    def _begin(self, act: object, *given: object) -> None:
        thread = threading.Thread(target=act, args=given)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()  # no server is there
                continue
            with self._lock:
                if listening.fileno() < 0:  # it was cut after this connection was taken: no one else would end it
                    near.close()
                    far.close()
                    return
                self._ends += [near, far]
            self._begin(_pass, near, far)
            self._begin(_pass, far, near)


def _pass(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # one of the two is cut
