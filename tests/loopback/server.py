"""The HTTP side: one port on 127.0.0.1 whose connections can be cut."""

from __future__ import annotations

import contextlib
import gzip
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Answer:
    """The reply to a request, before it is sent."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False


class Server(ThreadingHTTPServer):
    """One listening port; remembers its connections so that they can be cut."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, respond: Callable[[str, bytes, dict[str, str]], Answer], port: int) -> None:
        self.respond = respond
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="loopback", daemon=True)
        super().__init__(("127.0.0.1", port), _Handler)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def connected(self, connection: socket.socket) -> Iterator[None]:
        with self._guard:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._guard:
                self._connections.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is daily business; anything else is a fault of this server and shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        with self.server.connected(self.connection):
            super().handle()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = self.server.respond(self.path, body, {k.lower(): v for k, v in self.headers.items()})
        if answer.cut:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_PUT = do_POST  # noqa: N815 - named by http.server
    do_GET = do_POST  # noqa: N815 - as above

    def log_message(self, format: str, *args: object) -> None:
        """Requests are remembered by the backend, not printed."""
