"""The sidecar and the agent of this node beside a job, as processes of their own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rlship_sidecar.child_process import module_command
from rlship_sidecar.errors import OK, OWNED, REFUSED, USAGE
from rlship_sidecar.launch.command import death_signal
from rlship_sidecar.report.status import Status
from rlship_sidecar.tail.discover import further_runs, is_experiment

RESTARTS = 5
RESTART_AFTER_S = 5.0
LOOK_EVERY_S = 0.5  # between looks for the job's first line
RARELY_S = 60.0  # otherwise the end of a child wakes this process
OWNER_EVERY_S = 1.0  # between looks whether another sidecar still owns the experiment
AGENT_ENDS_S = 3.0
_IMPORTED = ("msgspec", "numpy", "orjson", "watchdog")
# Starting again changes nothing about these.
_FINAL = (USAGE, REFUSED)

if TYPE_CHECKING:
    from rlship_sidecar.ownership.lease import Owner

Say = Callable[[str], None]


def require_packages() -> None:
    """Raise ModuleNotFoundError where a package is missing that `rlship watch` imports at once."""
    for name in _IMPORTED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class Beside:
    """The two processes, which start once the job writes into `folder` or into that of a further run. They print to
    stderr: standard output is the job's.

    They get SIGTERM if this process is killed. A sidecar that crashes is started again, up to `RESTARTS` times. One
    that finds another owner is started once that one has ended: where the job was killed and is started again at once,
    the sidecar of the first start still delivers. `mask` is the signal mask that they get, `began` the job's start in
    Unix seconds, `state_of(run)` an experiment's state folder.
    """

    def __init__(
        self, folder: Path, began: float, mask: Iterable[int], say: Say, state_of: Callable[[Path], Path]
    ) -> None:
        self._folder = folder
        self._began = began
        self._state_of = state_of
        self._mask = mask
        self._say = say
        self._die_with = death_signal(signal.SIGTERM)
        self._restarts = 0
        self._restart_at: float | None = None
        self._given_up = False
        self._waits = False
        self._is_last = False
        self._is_done: Callable[[], bool] = lambda: True
        self._sidecar: subprocess.Popen[bytes] | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._places: int | None = None  # where sidecars note which runs' places they have printed

    def look(self, now: float) -> float:
        """Start what is to run by now; returns the seconds until the next look is due. A failure is reported."""
        if self._sidecar is None:
            runs = [] if self._given_up else runs_of(self._folder, self._began)
            if not runs:
                return LOOK_EVERY_S
            self._sidecar = self._start_sidecar()
            self._agent = self._start("sysmon", str(runs[0]), "--quiet")
            self._given_up = self._sidecar is None
            return RARELY_S
        if self._agent is not None:
            self._agent.poll()
        if self._given_up or self._sidecar.poll() is None:
            return RARELY_S
        return self._start_again(self._sidecar.returncode, now)

    def _start_again(self, code: int, now: float) -> float:
        if code == OWNED:
            if not self._waits:
                self._say("that sidecar ships the rows of this job too; once it ends, one of this job's own starts")
                self._waits = True
            if not self._is_free():
                return OWNER_EVERY_S
            self._sidecar = self._start_sidecar()
            return RARELY_S
        if self._restart_at is None:
            if code in _FINAL or self._restarts == RESTARTS:
                self._given_up = True
                self._say(f"the sidecar {_how(code)}; the job goes on, and its lines stay in {self._folder}")
                return RARELY_S
            self._say(f"the sidecar {_how(code)}; starting it again")
            self._restart_at = now + RESTART_AFTER_S
        if now < self._restart_at:
            return self._restart_at - now
        self._restarts += 1
        self._restart_at = None
        self._sidecar = self._start_sidecar()
        return RARELY_S

    def _owners(self) -> list[Owner | None]:
        """The sidecar that owns each of the job's experiments; None for an experiment without one."""
        from rlship_sidecar.ownership.lease import owner  # slow to import, and seldom needed

        return [owner(self._state_of(run)) for run in runs_of(self._folder, self._began)]

    def _is_free(self) -> bool:
        """True if a sidecar that is started now finds an experiment without another owner."""
        return any(owner is None or owner.alive is False for owner in self._owners())

    def _owner_ends(self) -> bool:
        """True if the owner of an experiment is on this host and ends with a job: such as with an earlier start."""
        return any(owner is not None and owner.alive and _is_beside(owner.pid) for owner in self._owners())

    def begin_end(self, deadline: float, is_done: Callable[[], bool]) -> None:
        """Ask the agent and then the sidecar to end: the agent's last lines are part of the run.

        `is_done()` says of a sidecar that ended well whether all lines are in rows. They are not if the job was killed:
        its sidecar would wait for lines that never come.
        """
        self._is_done = is_done
        if self._agent is not None and self._agent.poll() is None:
            self._agent.terminate()
            try:
                self._agent.wait(max(0.1, min(AGENT_ENDS_S, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                self._agent.kill()
        if self._sidecar is not None and self._sidecar.poll() is None:
            self._sidecar.terminate()

    def has_ended(self) -> bool:
        """True if the sidecar runs no longer. Call it after `begin_end`: another one delivers what the job or the
        sidecar left when it was killed.

        The job may have been so short that the sidecar was not there yet, or had no handler of the signal.
        """
        if self._sidecar is not None and self._sidecar.poll() is None:
            return False
        code = None if self._sidecar is None else self._sidecar.returncode
        if self._is_last or code in _FINAL or (code == OK and self._is_done()):
            return True
        if code == OWNED and not self._is_free():
            return not self._owner_ends()
        if not runs_of(self._folder, self._began):
            return True
        self._is_last = True
        self._sidecar = self._start_sidecar("--once")
        return self._sidecar is None

    def end_at_once(self) -> None:
        """End what still runs: a second SIGTERM ends the sidecar without a further delivery."""
        for process in (self._agent, self._sidecar):
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start_sidecar(self, *more: str) -> subprocess.Popen[bytes] | None:
        if self._places is None:
            with suppress(OSError):  # then a further sidecar prints the places again
                self._places = os.memfd_create("rlship")
        places = () if self._places is None else ("--places", str(self._places))
        return self._start("watch", str(self._folder), "--beside", str(self._began), *places, *more)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes] | None:
        def in_child() -> None:
            self._die_with()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        try:
            return subprocess.Popen(
                module_command("rlship", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                pass_fds=() if self._places is None else (self._places,),
                start_new_session=True,  # a Ctrl-C is for the job: the sidecar ends after it
                preexec_fn=in_child,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._say(f"`rlship {shlex.join(arguments)}` did not start: {error}; the job goes on")
            return None


def _is_beside(pid: int) -> bool:
    """True if a process is a sidecar that `rlship run --watch` started."""
    try:
        return b"--beside" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def runs_of(folder: Path, began: float) -> list[Path]:
    """The experiments of a job that began then (Unix seconds): `folder`, once it is one, and those of further runs."""
    return [*([folder] if is_experiment(folder) else ()), *further_runs(folder, began)]


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def nothing(folder: Path) -> str:
    """What to do about a job that logged nothing."""
    return f"the job logged nothing into {folder}; docs/run.md says what is caught, and how to see why not"


def outcome(folder: Path, status: Status | None) -> list[str]:
    """What became of one run, and how to deliver what is not delivered; `status` is the sidecar's last one."""
    watch = f"rlship watch --once {_quoted(folder)}"
    if status is None:
        return [f"no row of {folder} was delivered; to deliver what is there: {watch}"]
    found = []
    for sink in status.sinks:
        if sink.next_row < status.rows:
            why = f" ({sink.error})" if sink.error else ""
            left = status.rows - sink.next_row
            found.append(f"{sink.name} lacks {left} of {status.rows} rows{why}; to deliver them: {watch}")
        elif sink.where.startswith("wandb sync "):
            found.append(f"{status.rows} rows are offline; to upload the run: {sink.where}")
        elif sink.name == "wandb":
            found.append(f"{status.rows} rows are at {sink.where}")
    if not status.complete:
        found.append(f"data are incomplete; what is missing: rlship status {_quoted(folder)}")
    return found or [f"{status.rows} rows of {folder} are delivered"]
