"""Starting the job's command as this process would have been: its signals, its descriptors, its end."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from rlship_sidecar.errors import RlshipError

NOT_FOUND, NOT_RUN = 127, 126  # as shells, `env` and `nohup` end
_WAYS = {
    NOT_FOUND: "give a program that is on PATH, or the path of one",
    NOT_RUN: "make the file a program (chmod +x, and a first line such as #!/bin/sh), or name what runs it",
}
# Python ignores these signals, and a program inherits what is ignored.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_PDEATHSIG = 1


class CannotStart(RlshipError):
    """The command cannot be run. Exit code 127 if there is no such program, else 126."""

    def __init__(self, command: Sequence[str], error: OSError) -> None:
        self.exit_code = NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_RUN
        way = _WAYS[self.exit_code]
        super().__init__(
            f"{command[0]} cannot be run: {os.strerror(error.errno or 0)}",
            f"nothing ran, and no new folder is left; {way}",
        )


def require(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise CannotStart where no file that may be run has the command's name. Whether it is a program shows later."""
    name = command[0]
    places = [""] if os.path.dirname(name) else os.get_exec_path(dict(environ))
    found = [path for place in places if os.path.exists(path := os.path.join(place, name))]
    if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in found):
        raise CannotStart(command, OSError(errno.EACCES if found else errno.ENOENT, ""))


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command. Raises CannotStart."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except OSError as error:
        raise CannotStart(command, error) from error


def start(command: Sequence[str], environ: Mapping[str, str], mask: Iterable[int]) -> int:
    """Start the command as a child with the signal mask `mask`, and return its process id. Raises CannotStart.

    It stays in this process' group, with its terminal. If this process is killed, so is the command: a signal that
    ends one ends the other, as if they were one process.
    """
    die_with = death_signal(signal.SIGKILL)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            die_with()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            become(command, environ)
        except CannotStart as failed:
            cause = failed.__cause__
            os.write(write, str(getattr(cause, "errno", 0) or 0).encode())
        finally:
            os._exit(NOT_RUN)
    os.close(write)
    with open(read, "rb") as failure:
        number = failure.read()
    if number:
        os.waitpid(child, 0)
        raise CannotStart(command, OSError(int(number), ""))
    return child


class _DeathSignal:
    """Called in a child right after the fork, asks the kernel for a signal once the parent ends."""

    def __init__(self, number: int) -> None:
        # Loaded before the fork: a child of a process with threads must not load anything.
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._number = number
        self._parent = os.getpid()

    def __call__(self) -> None:
        self._prctl(_PR_SET_PDEATHSIG, self._number, 0, 0, 0)
        if os.getppid() != self._parent:
            os._exit(NOT_RUN)  # it ended in between


def death_signal(number: int) -> _DeathSignal:
    """What a child calls right after the fork to get the signal `number` once this process ends."""
    return _DeathSignal(number)


def end_as(status: int) -> int:
    """The exit code of a command that ended with this `status` of waitpid; a signal that ended it ends this process."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)
    return 128 - code
