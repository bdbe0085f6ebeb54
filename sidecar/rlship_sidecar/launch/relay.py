"""Passing signals on to the command, each one once.

The command is in this process' group, so a terminal's signals (Ctrl-C) reach both, and so does a signal to the group or
to every process of a container or batch step. Only what was sent to this process alone is passed on. A third process,
the witness, tells the two apart: it has the same group and does nothing but report which signals it got as well.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from contextlib import suppress

from rlship_sidecar.launch.command import death_signal

PASSED = frozenset(
    (
        *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH, signal.SIGPWR, signal.SIGIO, signal.SIGURG),
        *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
    )
)
# Signals to many processes are sent within microseconds to milliseconds of each other.
WITNESS_S = 0.1
_REPORT = struct.Struct("<id")


class Relay:
    """Blocks the signals that are passed on, and receives them. `mask` is the signal mask from before.

    Make it before any other child process and thread; `close` ends the witness. Raises OSError if there is no room for
    another process; signals are then as before.
    """

    def __init__(self) -> None:
        # With SIGCHLD ignored, as a parent may have set it, the kernel would discard the exit codes of children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED, signal.SIGCHLD}))
        self._seen: dict[int, float] = {}
        try:
            self._reports, self._witness = _start_witness()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            raise

    def wait(self, timeout_s: float) -> signal.struct_siginfo | None:
        """The next signal that arrives within `timeout_s` seconds, or SIGCHLD."""
        return signal.sigtimedwait({*PASSED, signal.SIGCHLD}, max(0.0, timeout_s))

    def is_for_us_alone(self, info: signal.struct_siginfo, command: int) -> bool:
        """True if `command`, the process id of the command, did not get the signal itself, and did not send it."""
        if info.si_code > 0 or info.si_pid == command:  # of the kernel, such as the terminal's
            return False
        deadline = time.monotonic() + WITNESS_S
        while True:
            self._read()
            if abs(time.monotonic() - self._seen.pop(info.si_signo, float("-inf"))) < 2 * WITNESS_S:
                return False
            if time.monotonic() > deadline:
                return True
            time.sleep(WITNESS_S / 20)

    def close(self) -> None:
        """End the witness. Signals stay blocked."""
        with suppress(ProcessLookupError):
            os.kill(self._witness, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._witness, 0)
        os.close(self._reports)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._reports, _REPORT.size):
                number, at = _REPORT.unpack(data)
                self._seen[number] = at


def _start_witness() -> tuple[int, int]:
    """Start the witness; returns the descriptor with its reports, and its process id."""
    die_with = death_signal(signal.SIGKILL)
    read, write = os.pipe()
    witness = os.fork()
    if witness == 0:
        try:
            die_with()
            # A pipe that the command's output goes to must close with the command.
            for name in os.listdir("/proc/self/fd"):
                if int(name) != write:
                    with suppress(OSError):  # that of the list itself
                        os.close(int(name))
            while True:
                info = signal.sigwaitinfo(PASSED)
                if info.si_code <= 0:
                    os.write(write, _REPORT.pack(info.si_signo, time.monotonic()))
        finally:
            os._exit(1)
    os.close(write)
    os.set_blocking(read, False)
    return read, witness
