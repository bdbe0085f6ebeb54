"""The first process of a container: it runs `rlship`, forwards signals to it, and reaps orphans.

A container's process 1 is the parent of every orphan, and ignores each signal that it has no handler for. A process of
its own handles both. In the sidecar itself, a wait for any child would take the exit codes that its sinks wait for.

A `watch` that ends with what a person has to mend does not end the container. A sidecar that ends takes its pod's start
with it, or is started again minutes later. So it is started again here, and the probes are answered meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from rlship_sidecar.child_process import module_command
from rlship_sidecar.errors import FAILED, OWNED, REFUSED, USAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))
FORWARDED = frozenset((*_ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH))
# Python ignores these signals, and a child inherits what is ignored.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_STOPPED_FROM_BEHIND = (signal.SIGTTIN, signal.SIGTTOU)
_WAITED = frozenset((*FORWARDED, signal.SIGCHLD))
_PR_SET_CHILD_SUBREAPER = 36
# FAILED: a folder that is not there yet, a port that is taken.
MENDED_FROM_OUTSIDE = frozenset((FAILED, USAGE, REFUSED, OWNED))
PAUSE_S = 10.0
_KEPT_LINES, _KEPT_CHARS = 20, 2000


class Ended(NamedTuple):
    """How a command ended: its exit code, 128 + n if signal n ended it, and its last lines on standard error. `asked`:
    it had been sent a signal to end.
    """

    code: int
    said: str
    asked: bool


def supervise(command: Sequence[str]) -> int:
    """Run `command` (a program and its arguments) and return its exit code, 128 + n if signal n ended it.

    Meanwhile, forward signals to it and reap orphans. As process 1 these are all orphans of the PID namespace, else the
    command's descendants. Raises OSError if the command cannot be started.
    """
    _prepare()
    return _run(command).code


def watch_for_good(command: Sequence[str], pause_s: float = PAUSE_S) -> int:
    """The same, but a command that ends with what a person has to mend (`MENDED_FROM_OUTSIDE`) is started again after
    `pause_s`. Meanwhile `/healthz` is answered, and `/readyz` with its last words. Returns the exit code of a command
    that ended otherwise, or before the container was stopped.
    """
    _prepare()
    while True:
        ended = _run(command)
        if ended.asked or ended.code not in MENDED_FROM_OUTSIDE:
            return ended.code
        why = f"exit code {ended.code}; started again in {pause_s:.0f} s"
        _say(why)
        with _probes_answered(f"{ended.said}{why}\n"):
            if _is_stopped_within(pause_s):
                return ended.code


def _prepare() -> None:
    if os.getpid() != 1:
        _adopt_orphans()
    # With SIGCHLD ignored, as a parent may have set it, the kernel would discard the exit codes of children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_WAITED, *_STOPPED_FROM_BEHIND})


def _run(command: Sequence[str]) -> Ended:
    asked = False
    with _listening() as (said, error):
        # A process group of its own: otherwise Ctrl-C would reach the child twice, from the terminal and from here.
        child = os.posix_spawnp(
            command[0],
            list(command),
            os.environ,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_IGNORED,
            file_actions=() if error is None else ((os.POSIX_SPAWN_DUP2, error, 2),),
        )
        if error is not None:
            os.close(error)
        if os.isatty(0):
            os.tcsetpgrp(0, child)
        code = None
        while code is None:
            number = signal.sigwait(_WAITED)
            if number == signal.SIGCHLD:
                code = _reap(child)
            else:
                asked = asked or number in _ENDING
                os.kill(child, number)  # the child is not reaped yet, so its number is still valid
    return Ended(code, b"".join(said).decode("utf-8", "replace"), asked)


@contextmanager
def _listening() -> Iterator[tuple[deque[bytes], int | None]]:
    """Yields the last lines of a command's standard error, as they come, and what it has to write them to. They are
    passed on to ours. A terminal is left to the command.
    """
    said: deque[bytes] = deque(maxlen=_KEPT_LINES)
    if os.isatty(2):
        yield said, None
        return
    here, there = os.pipe()
    passing = threading.Thread(target=_pass_on, args=(here, said), daemon=True)
    passing.start()
    try:
        yield said, there
    finally:
        passing.join(1.0)  # a child of the command may have it open for longer


def _pass_on(here: int, said: deque[bytes]) -> None:
    with open(here, "rb") as lines:
        for line in lines:
            said.append(line[:_KEPT_CHARS])
            _write(line)


def _say(message: str) -> None:
    _write(f"rlship: {message}\n".encode())


def _write(line: bytes) -> None:
    with suppress(OSError):  # nothing can be said any more, and the command must not be held up
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()


def _is_stopped_within(seconds: float) -> bool:
    """Wait, reaping orphans. Returns whether a signal to end came."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        found = signal.sigtimedwait(_WAITED, left)
        if found is not None and found.si_signo == signal.SIGCHLD:
            _reap(-1)
        elif found is not None and found.si_signo in _ENDING:
            return True
    return False


@contextmanager
def _probes_answered(why: str) -> Iterator[None]:
    """Answer the probes where `watch` would: alive, and not ready, for which `why` says what a person has to mend."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Answers(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            healthy = self.path.partition("?")[0] == "/healthz"
            body = b"ok\n" if healthy else why.encode("utf-8", "replace")
            self.send_response(200 if healthy else 503)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, because probes come every few seconds."""

    port, address = os.environ.get("RLSHIP_METRICS_PORT", ""), os.environ.get("RLSHIP_METRICS_ADDRESS", "127.0.0.1")
    try:
        server = HTTPServer((address, int(port)), Answers)
    except (OSError, ValueError, OverflowError) as problem:
        if port:
            _say(f"the probes are not answered on {address}:{port}: {problem}")
        yield
        return
    with server:
        answering = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        answering.start()
        try:
            yield
        finally:
            server.shutdown()
            answering.join()


def _reap(child: int) -> int | None:
    """Reap all ended children. Returns the exit code of `child` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code


def _adopt_orphans() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(words: Sequence[str]) -> int:
    """Run `rlship` with these words. `watch` goes on until the container is stopped, but for `--once`."""
    command = module_command("rlship", *words)
    goes_on = words[:1] == ["watch"] and not {"--once", "--help", "-h"} & set(words)
    return watch_for_good(command) if goes_on else supervise(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
