"""Device readers that run a vendor's command: what it prints is parsed elsewhere."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress

from .nvml import Device
from .readings import GpuReading
from .visible import choose, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from .readings import GpuProcess

    Run: TypeAlias = Callable[..., str]
    Figures: TypeAlias = dict[str, float | int]

# A command that has not ended by then is killed.
DEADLINE_S = 8.0
_GRACE_S = 1.0
# A look at least so many seconds after the one before, and later if it took long: the command starts a process.
EVERY_S = 5.0
_SHARE = 0.05
# Where the vendors install their commands, if PATH does not lead there.
_FOLDERS = ("/usr/local/bin", "/usr/local/sbin", "/opt/rocm/bin")
_MAX_BYTES = 4 << 20  # of its answer; it cannot print more
# What the job set for its own Python and for rlship does not concern the command.
_NOT_PASSED = ("PYTHON", "RLSHIP_", "LD_PRELOAD")


class CommandFailed(Exception):
    """The command gave no usable answer; the text gives the reason."""


class Printed:
    """What one look found: devices, their values by key as in `GpuReading.figures`, and processes on them."""

    __slots__ = ("devices", "figures", "processes")

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.figures: dict[str, Figures] = {}
        self.processes: list[GpuProcess] = []


class CommandReader:
    """Looks at devices by a command. `ask(run)` returns what it printed; `run(*arguments)` runs it.

    `explicit`: the entries of `requested` were given by name, so that each of them should be here.
    """

    uses_library = False  # forks need not wait for it

    def __init__(
        self,
        path: str,
        ask: Callable[[Run], Printed],
        requested: Sequence[str] | None,
        report: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
        explicit: bool = False,
    ) -> None:
        self._path = path
        self._name = os.path.basename(path)
        self._ask = ask
        self._requested = requested
        self._report = report
        self._event = event
        self._explicit = explicit
        self._known: list[str] | None = None
        self._due = float("-inf")

    def sample(self, t: float) -> GpuReading | None:
        """One look; None if the next one is not due at `t`, or if the command failed."""
        if t < self._due:
            return None
        began = time.monotonic()
        try:
            printed = self._ask(self._run)
        except CommandFailed as error:
            self._report(f"{self._name} failed", f"{self._name} {error}: no GPU metrics until it answers")
            return None
        finally:
            self._due = t + max(EVERY_S, (time.monotonic() - began) / _SHARE)
        chosen = choose(printed.devices, self._requested, ends=not self._explicit)
        keys = [device.key for device in chosen]
        if keys != self._known:
            self._announce(printed.devices, chosen)
            self._known = keys
        reading = GpuReading()
        reading.known = bool(printed.devices)
        reading.figures = {key: printed.figures[key] for key in keys if key in printed.figures}
        reading.processes = [one for one in printed.processes if one.device in keys]
        return reading

    def close(self) -> None:
        """Nothing is held between two looks."""

    def _announce(self, devices: Sequence[Device], chosen: Sequence[Device]) -> None:
        named = {device.key: f"{device.name} {device.uuid}".strip() for device in chosen}
        self._event("gpus", {**named, "reader": self._name})
        missing = unknown(devices, self._requested or ()) if self._explicit else ""
        if missing:
            self._report("unknown", f"{missing}; the others are looked at")
        elif not chosen and devices and self._requested is not None:
            what = f"none of the GPUs {','.join(self._requested)!r} is here: no GPU metrics"
            self._report("none", f"{what}; name them by their index in {self._name}")

    def _run(self, *arguments: str) -> str:
        return run(self._path, *arguments)


def find(name: str, environ: dict[str, str] | None = None) -> str | None:
    """The path of a vendor's command, or None."""
    path = (os.environ if environ is None else environ).get("PATH", "")
    for folder in [*path.split(os.pathsep), *_FOLDERS]:
        if os.path.isabs(folder):  # what lies in the current folder is not run
            full = os.path.join(folder, name)
            if os.path.isfile(full) and os.access(full, os.X_OK):
                return full
    return None


def run(path: str, *arguments: str, deadline_s: float = DEADLINE_S) -> str:
    """What the command prints. Raises CommandFailed if it cannot be run, fails, or takes too long."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
    # A file in memory instead of a pipe: a child that the job forks meanwhile would keep a pipe open. It cannot grow.
    output = os.memfd_create("rlship", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(output, _MAX_BYTES)
        fcntl.fcntl(output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        began = time.monotonic()
        limit = find("timeout")  # it ends a command that hangs also when the job has ended before
        try:
            process = subprocess.Popen(
                [*([limit, "-s", "KILL", f"{deadline_s:g}"] if limit else []), path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**environment, "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C is for the job
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CommandFailed(f"cannot be run: {error}") from None
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(deadline_s + _GRACE_S)
        if code is None:
            with suppress(OSError, subprocess.TimeoutExpired):  # a driver may keep it from ending
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(_GRACE_S)
        if code is None or (code != 0 and time.monotonic() - began >= deadline_s):
            raise CommandFailed(f"has not answered for {deadline_s:g} s and was ended")
        if code != 0:
            raise CommandFailed(f"ended with code {code}")
        return os.pread(output, _MAX_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace")
    finally:
        os.close(output)
