"""`/metrics`, `/healthz` and `/readyz` over HTTP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.observe.exposition import Exposition
from rlship_sidecar.observe.pulse import Pulse

METRICS, HEALTH, READY = "/metrics", "/healthz", "/readyz"

MAX_AT_ONCE = 8  # expected are a probe and a scraper or two; each further client replaces the oldest
MAX_THREADS = 4 * MAX_AT_ONCE  # replaced clients need a moment to end
_BREATH_S = 0.1  # a pause after a failed accept, which would otherwise be retried without end
PATIENCE_S = 5.0  # for a client that sends or takes nothing
MAX_REQUEST_S = 15.0  # for one request, however slowly its bytes arrive
_PLAIN = "text/plain; charset=utf-8"


class _Answers(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "rlship", ""
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        status, body, content_type = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _answer(self) -> tuple[int, bytes, str]:
        pulse, path = self.server.pulse, self.path.partition("?")[0]
        if path == METRICS:
            text, content_type = self.server.exposition.text(self.headers.get("Accept", ""))
            return 200, text, content_type
        if path in (HEALTH, READY):
            wrong = pulse.unhealthy() if path == HEALTH else pulse.unready()
            return (503 if wrong else 200), f"{wrong or 'ok'}\n".encode("utf-8", "replace"), _PLAIN
        return 404, f"there are {METRICS}, {HEALTH} and {READY}\n".encode(), _PLAIN

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because probes come every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * MAX_AT_ONCE  # beyond it a connection takes a second longer

    def __init__(self, address: str, port: int, pulse: Pulse) -> None:
        self.pulse = pulse
        self.exposition = Exposition(pulse)
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, None] = {}  # the oldest first
        self._running = 0
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Answers)

    def server_bind(self) -> None:
        # Not HTTPServer's own method: it asks the name service for this host's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:  # no file descriptor is left
            time.sleep(_BREATH_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        # A full server replaces its oldest client. If it rejected new ones, a few silent clients would keep probes out,
        # and the failing probes would end a working sidecar.
        with self._lock:
            if self._running >= MAX_THREADS:
                self.shutdown_request(request)
                return
            if len(self._clients) >= MAX_AT_ONCE:
                oldest = next(iter(self._clients))
                del self._clients[oldest]
                _cut(oldest)
            self._clients[request] = None
            self._running += 1
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread is available
            self._ended(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            cut = threading.Timer(MAX_REQUEST_S, _cut, (request,))
            cut.daemon = True
            cut.start()
            try:
                super().process_request_thread(request, client_address)
            finally:
                cut.cancel()
        except RuntimeError:  # no second thread is available
            self.shutdown_request(request)
        finally:
            self._ended(request)

    def _ended(self, request: socket.socket) -> None:
        with self._lock:
            self._clients.pop(request, None)
            self._running -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away or fell silent."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it may already be closed
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(address: str, port: int, pulse: Pulse) -> Iterator[int]:
    """Answer on `address` (numeric, or localhost) and `port` (0: any free one) in a thread; yield the port.

    Raises RlshipError if the address cannot be used.
    """
    try:
        server = _Server(address, port, pulse)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise RlshipError(
            f"cannot answer on {address} port {port}: {why}",
            "give another one: --metrics-port 0 takes any that is free; or a file instead: --metrics-file PATH",
        ) from problem
    thread = threading.Thread(target=server.serve_forever, name="rlship-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
