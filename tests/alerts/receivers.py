"""A real HTTP server on loopback that takes messages, and can fail, hang or redirect."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What came in: (path, headers, body). `answers` are the codes of the next answers; then 200. Each answer promises
    a body of so many bytes as `promised` says, has none, and closes the connection.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[int] = []
        self.promised = 0
        self.hold = threading.Event()
        self.hold.set()
        self.came = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver.came:
                    receiver.taken.append((self.path, dict(self.headers), body))
                    code = receiver.answers.pop(0) if receiver.answers else 200
                    receiver.came.notify_all()
                receiver.hold.wait()
                self.send_response(code)
                if code in (301, 302, 307):
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.send_header("Content-Length", str(receiver.promised))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def wait(self, count: int, timeout_s: float = 20.0) -> list[Any]:
        """The bodies, once there are so many."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.taken) >= count, timeout_s), self.taken
            return [body for _, _, body in self.taken]

    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.taken]

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that runs."""
    made = Receiver()
    try:
        yield made
    finally:
        made.close()
