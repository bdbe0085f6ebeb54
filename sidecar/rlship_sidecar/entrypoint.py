"""The first process of a container: it runs `rlship`, forwards signals to it, and reaps orphans.

A container's process 1 is the parent of every orphan, and ignores each signal that it has no handler for. A process of
its own handles both. In the sidecar itself, a wait for any child would take the exit codes that its sinks wait for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from rlship_sidecar.child_process import module_command

FORWARDED = frozenset(
    (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
    )
)
# Python ignores these signals, and a child inherits what is ignored.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_STOPPED_FROM_BEHIND = (signal.SIGTTIN, signal.SIGTTOU)
_PR_SET_CHILD_SUBREAPER = 36


def supervise(command: Sequence[str]) -> int:
    """Run `command` (a program and its arguments) and return its exit code, 128 + n if signal n ended it.

    Meanwhile, forward signals to it and reap orphans. As process 1 these are all orphans of the PID namespace, else the
    command's descendants. Raises OSError if the command cannot be started.
    """
    if os.getpid() != 1:
        _adopt_orphans()
    # With SIGCHLD ignored, as a parent may have set it, the kernel would discard the exit codes of children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited = {*FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, {*waited, *_STOPPED_FROM_BEHIND})
    # A process group of its own: otherwise Ctrl-C would reach the child twice, from the terminal and from here.
    child = os.posix_spawnp(command[0], list(command), os.environ, setpgroup=0, setsigmask=(), setsigdef=_IGNORED)
    if os.isatty(0):
        os.tcsetpgrp(0, child)
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            os.kill(child, number)  # the child is not reaped yet, so its number is still valid
        elif (code := _reap(child)) is not None:
            return code


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


if __name__ == "__main__":
    sys.exit(supervise(module_command("rlship", *sys.argv[1:])))
