"""Ctrl-C and SIGTERM: the first one asks a sidecar for a clean drain, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

STOPPING_WORDS = "stopping: delivering what is read; again to stop at once"
STOPPED_WORDS = "stopped without delivering the rest; the next `rlship watch` delivers it"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def tidied() -> Iterator[None]:
    """Make SIGTERM unwind the stack, as Ctrl-C does, so that temporary files go. Only the main thread may enter."""
    former = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def stop_on_signals(
    say: Callable[[str], None],
    stopping: str = STOPPING_WORDS,
    stopped: str = STOPPED_WORDS,
    others: Mapping[int, Callable[[], None]] | None = None,
) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets, with the message `stopping`.

    The next signal ends the process, with the message `stopped`. `others` are called at other signals. Only the main
    thread may enter.

    A thread sets the event and makes these calls, woken through a socket: a Python signal handler could interrupt the
    main thread while that holds the event's own lock.
    """
    stop = threading.Event()
    here, there = socket.socketpair()
    there.setblocking(False)
    # SIGHUP stays ignored if the parent ignored it (nohup).
    caught = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    calls = dict(others or {})
    former = {number: signal.signal(number, _noted) for number in (*caught, *calls)}
    former_fd = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(
        target=_listen,
        args=(here, stop, say, set(caught), stopping, stopped, calls),
        name="rlship-signals",
        daemon=True,
    )
    listener.start()
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(former_fd)
        for number, handler in former.items():
            signal.signal(number, handler)
        there.close()
        listener.join()
        here.close()


def _noted(number: int, frame: object) -> None:
    """Do nothing: Python writes a signal's number to the socket only if the signal has a Python handler."""


def _listen(
    here: socket.socket,
    stop: threading.Event,
    say: Callable[[str], None],
    caught: set[int],
    stopping: str,
    stopped: str,
    calls: Mapping[int, Callable[[], None]],
) -> None:
    while numbers := here.recv(64):
        for number in numbers:
            if number in calls:
                calls[number]()
            if number not in caught:
                continue
            if stop.is_set():
                say(stopped)
                os._exit(128 + number)
            stop.set()
            say(stopping)
