"""Servers on loopback for what an endpoint may do, well or ill."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.kit.waiting import wait_until

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Answer:
    """What a server says; `headers` beside or in place of the usual ones, `status` the HTTP one."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Server:
    """Answers the request of number n, from 0, with `answers(n)`. `arrivals` and `requests` are what came when."""

    def __init__(self, answers: Callable[[int], Answer | str], port: int = 0) -> None:
        self.arrivals: list[float] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    number = len(outer.arrivals)
                    outer.arrivals.append(time.monotonic())
                    outer.requests.append((self.path, dict(self.headers.items())))
                found = answers(number)
                answer = Answer(found.encode()) if isinstance(found, str) else found
                self.send_response(answer.status)
                told = {"Content-Type": TEXT, "Content-Length": str(len(answer.body)), **answer.headers}
                for name, value in told.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:
                """No server listens."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def wait_for(self, requests: int) -> None:
        """Until so many requests came."""
        wait_until(lambda: len(self.arrivals) >= requests, lambda: f"{len(self.arrivals)} of {requests} requests")

    def close(self) -> None:
        """Answer no client any more; the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(answers: Callable[[int], Answer | str], port: int = 0) -> Iterator[Server]:
    """A Server, closed at the end."""
    server = Server(answers, port)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def raw(talk: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of a server that does `talk` with each connection, whatever was asked."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    threads = []

    def one(client: socket.socket) -> None:
        with client:
            try:
                client.recv(65536)
                talk(client)
            except OSError:
                return  # the client has had enough

    def serve() -> None:
        while not ended.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(client,), daemon=True))
            threads[-1].start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        server.join()
