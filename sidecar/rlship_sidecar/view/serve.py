"""Runs the server until it is stopped."""

from __future__ import annotations

import ctypes
import errno
import logging
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.scratch import scratch
from rlship_sidecar.tail import discover
from rlship_sidecar.view.front import Front
from rlship_sidecar.view.guard import Guard, host_name
from rlship_sidecar.view.making import Making
from rlship_sidecar.view.punctual import Punctual
from rlship_sidecar.view.settings import load_settings

if TYPE_CHECKING:
    from rlship_sidecar.config import Config
    from rlship_sidecar.view.app import PageServer

USUAL_PORT = 8470
TOKEN_BYTES = 32
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
CLOSES_S = 2  # seconds that open streams get at the end


def bind(address: str, port: int | None) -> socket.socket:
    """A listening socket. Without a port the usual one, or any free one if that is taken. Raises RlshipError."""
    try:
        return _bound(address, USUAL_PORT if port is None else port)
    except OSError as problem:
        if port is None and problem.errno == errno.EADDRINUSE:
            return bind(address, 0)
        if problem.errno == errno.EADDRINUSE:
            raise RlshipError(
                f"port {port} of {address} is in use", "choose another one: --port N, or --port 0 for any free one"
            ) from problem
        raise RlshipError(
            f"the server cannot listen at {address}, port {port}: {problem.strerror}",
            "--host takes an address of this machine, such as 127.0.0.1; ports below 1024 need a right",
        ) from problem


def _bound(address: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as problem:
        raise OSError(problem.errno, f"{address} is no address: {problem.strerror}") from problem
    # asyncio sends at once only on a socket that says it is TCP; else each answer waits 40 ms for the other end.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def names_of(hosts: Collection[str]) -> list[str]:
    """The names by which the server is known beside those of loopback. Raises UsageProblem."""
    found = []
    for host in hosts:
        name = host_name(host)
        if name is None:
            raise UsageProblem(f"--allow-host {host}: that is no name of a host", "such as --allow-host node7.lab")
        found.append(name)
    return found


def link(listening: socket.socket, token: str) -> str:
    """The address to open. The token stands after the #, which no browser sends."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/#token={token}"


@contextmanager
def prepared(
    directory: Path,
    *,
    listening: socket.socket,
    allowed: Collection[str],
    state_dir: str | None,
    on_ready: Callable[[str], None],
) -> Iterator[RunningServer]:
    """A server of the experiments of a folder, to be run with the listening socket. `on_ready` gets the link once it
    answers. Raises RlshipError.
    """
    settings, any_owner = load_settings(directory, state_dir)
    if not discover.experiments(directory):
        raise discover.nothing_in(directory)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with scratch("view") as folder:
        making = Making(folder)
        try:
            front = Front(partial(_made, directory, settings, making, any_owner=any_owner))
            config = _config(Guard(front, token, allowed))
            yield RunningServer(config, front, lambda: on_ready(link(listening, token)))
        finally:
            making.close()


def _made(directory: Path, settings: Config, making: Making, *, any_owner: bool) -> PageServer:
    from rlship_sidecar.view.app import PageServer
    from rlship_sidecar.view.folder import ViewedFolder

    return PageServer(ViewedFolder(directory, settings, making, any_owner=any_owner))


def keep_memory_small() -> None:
    """Have large matrices given back to the system when they are dropped, and threads share their memory.

    glibc keeps what was freed for the next request, by thread, and what is large too once it was freed before.
    """
    with suppress(OSError, AttributeError):  # another C library
        allocator = ctypes.CDLL(None).mallopt
        allocator(_M_MMAP_THRESHOLD, 1 << 20)
        allocator(_M_ARENA_MAX, 2)


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # any ASGI application
        http=Punctual,
        ws="none",
        lifespan="on",
        log_level="error",  # the client hears what it did wrong
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSES_S,
        limit_concurrency=500,
    )


class RunningServer(uvicorn.Server):
    """A server that says when it answers, and ends in order at the first signal."""

    def __init__(self, config: uvicorn.Config, front: Front, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._front = front
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._front.end_streams()
        # A page that takes no data, as that of a laptop that sleeps, is cut off: no error to be told on the terminal.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while it runs. uvicorn would raise them once more at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        former = {number: signal.signal(number, self.handle_exit) for number in caught}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
