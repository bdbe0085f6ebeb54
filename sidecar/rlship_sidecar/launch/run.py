"""`rlship run`: the job's command with the hook, and with --watch the sidecar beside it.

Without --watch this process becomes the command. With it, it stays as the command's parent until the rows are
delivered: a container or a batch step ends with its first process, and the last rows would wait for another sidecar.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rlship.hook.environment import with_hook
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.launch import command as starting
from rlship_sidecar.launch.beside import RARELY_S, Beside, Say, nothing, outcome, runs_of
from rlship_sidecar.launch.ended import by_signal, ended_at
from rlship_sidecar.launch.folder import kept_if_started, make
from rlship_sidecar.launch.relay import Relay

SETTLE_S = 10.0  # for so long the other nodes' last lines are waited for
DRAIN_S = 60.0  # where the settings cannot be read, which the sidecar reports
CLOCK_S = 1.0  # by which a file's time may be behind the clock's
PATIENT_S = 2.0  # a delivery that takes longer is announced
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_watched(
    command: Sequence[str], folder: Path, actor: str, environ: Mapping[str, str], say: Say, *, alone: bool
) -> int:
    """Run the command with a sidecar beside it; returns the command's exit code, or ends as the command ended.

    The sidecar ends at most `drain_s` after the command. `alone`: no other node writes into `folder`. Raises
    RlshipError if the folder or the command cannot be used.
    """
    with kept_if_started(make(folder)):
        return _run(command, folder, actor, environ, say, alone=alone)


def _run(command: Sequence[str], folder: Path, actor: str, environ: Mapping[str, str], say: Say, *, alone: bool) -> int:
    began = time.time() - CLOCK_S
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        relay = Relay()
    except OSError as problem:
        say(f"no process can be started beside the job: {problem.strerror}; it runs without a sidecar")
        starting.become(command, with_hook(environ, str(folder), actor))
    try:
        child = starting.start(command, with_hook(environ, str(folder), actor), relay.mask)
        beside = Beside(folder, began, relay.mask, say, lambda run: _settings(run)[1])
        status = _attend(child, relay, beside, say)
        _deliver(folder, began, relay, beside, say, alone=alone, code=os.waitstatus_to_exitcode(status))
    finally:
        relay.close()
    return starting.end_as(status)


def _attend(child: int, relay: Relay, beside: Beside, say: Say) -> int:
    """Pass signals on until the command ends; returns its status. Meanwhile, have the sidecar run."""
    due_s = 0.0
    while True:
        info = relay.wait(due_s)
        if info is not None and info.si_signo != signal.SIGCHLD:
            if relay.is_for_us_alone(info, child):
                os.kill(child, info.si_signo)  # the child is not reaped yet, so its number is still valid
            continue
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        try:
            due_s = beside.look(time.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the sidecar is no matter of the job
            due_s = RARELY_S
            say(f"the sidecar: {type(error).__name__}: {error}; the job goes on")


def _deliver(folder: Path, began: float, relay: Relay, beside: Beside, say: Say, *, alone: bool, code: int) -> None:
    """Let the sidecar deliver what is there, for `drain_s` at most, and print the outcome of each run.

    `code` is the command's exit code, negative for the signal that ended it.
    """
    ended = time.monotonic()
    try:
        from rlship_sidecar.report.status import read_status

        drain_s, _ = _settings(folder)
        deadline = ended + drain_s

        def is_finished() -> bool:
            return all(_is_finished(_settings(run)[1]) for run in runs_of(folder, began))

        if not alone:
            _wait(relay, min(deadline, ended + min(SETTLE_S, drain_s / 2)), is_finished)
        # On other nodes the job may go on.
        beside.begin_end(deadline, lambda: not alone or is_finished())
        stopped = _wait(relay, min(deadline, time.monotonic() + PATIENT_S), beside.has_ended)
        if not stopped and not beside.has_ended():
            say(f"the job ended; delivering its last rows, for {drain_s:g} s at most (Ctrl-C leaves the rest)")
            _wait(relay, deadline, beside.has_ended)
        beside.end_at_once()
        runs = {run: read_status(_settings(run)[1]) for run in runs_of(folder, began)}
        for run, status in runs.items():
            for line in outcome(run, status):
                say(line)
        if not runs:
            say(nothing(folder))
        if cause := by_signal(code):
            say(cause)
            known = {run: status for run, status in runs.items() if status is not None}
            cut = {run: status for run, status in known.items() if not status.finished}
            for run, status in (cut or known).items():
                say(ended_at(run, status))
    except Exception as error:  # noqa: BLE001 - the job has ended well or badly, whatever happens here
        beside.end_at_once()
        say(f"the sidecar's end: {type(error).__name__}: {error}")


def _is_finished(state_dir: Path) -> bool:
    from rlship_sidecar.report.status import read_status

    status = read_status(state_dir)
    return status is not None and status.finished


def _wait(relay: Relay, deadline: float, done: Callable[[], bool]) -> bool:
    """Wait until `done()` or `deadline`; returns True if a signal ended the wait."""
    while not done() and (left := deadline - time.monotonic()) > 0:
        info = relay.wait(min(left, 0.5))
        if info is not None and info.si_signo in _ENDING:
            return True
    return False


def _settings(folder: Path) -> tuple[float, Path]:
    """`drain_s` and the state folder, as the sidecar has them."""
    from rlship_sidecar import config

    try:
        found = config.load(folder, {}, os.environ)
    except RlshipError:
        return DRAIN_S, folder / "rlship" / "state"
    return found.drain_s, config.state_dir_for(folder, found)
