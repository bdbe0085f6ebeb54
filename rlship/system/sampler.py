"""Combines all looks at this machine; those that may hang run on threads of their own."""

from __future__ import annotations

import time

from . import devices
from .background import Repeated
from .host import Host, Place
from .readings import GpuReading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Lock
    from typing import Any

    from .readings import Reading

# A call that has not returned after this time is reported.
HANGS_S = 10.0
# The delay of the host's look after that at the GPUs, so that the values on one line are of about one time.
_PHASE = 0.25
_PLACE_EVERY_S = 10.0


def packages() -> dict[str, Any]:
    """The modules that sampling may use, None for one that is not here."""
    found: dict[str, Any] = {"psutil": None, "pynvml": None}
    try:
        import psutil

        found["psutil"] = psutil
    except Exception:  # noqa: BLE001 - a broken installation may raise anything
        found["psutil"] = None
    try:
        import pynvml

        found["pynvml"] = pynvml
    except Exception:  # noqa: BLE001
        found["pynvml"] = None
    return found


def lacking(*, host: bool, gpus: bool) -> str:
    """What is left out, and the command that installs what it needs."""
    without = [*["the host's"] * host, *["the GPUs'"] * gpus]
    needed = [*["psutil"] * host, *["nvidia-ml-py"] * gpus]
    return f"without {' and '.join(without)} metrics; to have them: pip install {' '.join(needed)}"


class Sampler:
    """Looks at this machine once in `interval_s` seconds.

    Args:
        interval_s: seconds between two looks at the GPUs; call `host` as often.
        gpus: which GPUs (see `visible.wanted`); None: the visible ones.
        report: called as `report(topic, line)` with messages for people. Each topic need be shown once, but "" always.
        event: called as `event(name, attrs)` with facts for the job's record. Several threads call both.
        looking: a lock held while a library such as NVML is in use; default: a lock of its own.
        local_rank: this process's number on its host, for `gpus` "local"; None: unknown.
    """

    def __init__(
        self,
        interval_s: float,
        gpus: Sequence[str] | None,
        report: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
        looking: Lock | None = None,
        local_rank: int | None = None,
    ) -> None:
        self.phase_s = interval_s * _PHASE
        self._report = report
        modules = packages()
        wants_gpus = gpus is None or len(gpus) > 0
        readers = devices.installed(modules["pynvml"], local_rank, report) if wants_gpus else {}
        self._psutil = modules["psutil"]
        if self._psutil is None or (wants_gpus and not readers):
            report("packages", lacking(host=self._psutil is None, gpus=wants_gpus and not readers))
        self._host = Host(self._psutil) if self._psutil is not None else None
        self._devices: devices.Devices | None = None
        self._reader: Repeated | None = None
        if readers:
            self._devices = devices.Devices(readers, gpus, report, event, looking)
            self._reader = Repeated(self._devices.sample, interval_s, self._failed)
        self._hangs = False

    @property
    def looked(self) -> bool:
        """True once the first look at the GPUs is over, or if there is nothing to look at."""
        return self._reader is None or self._reader.returned

    def start(self) -> None:
        """Start looking at the GPUs. Raises RuntimeError if no thread can be started."""
        if self._reader is not None:
            self._reader.start()

    def place(self, folder: str) -> Repeated | None:
        """A look at a folder's filesystem, to be started by the caller; None without psutil."""
        psutil = self._psutil
        if psutil is None:
            return None
        made: list[Place] = []

        def look() -> Reading:
            if not made:
                made.append(Place(psutil, folder))
            return made[0].sample(time.monotonic())

        return Repeated(look, _PLACE_EVERY_S, lambda error: self._report(f"place {folder}", f"{folder}: {error}"))

    def host(self, *, rare: bool) -> Reading:
        """The host's current values; with `rare` also those that hardly ever change."""
        if self._host is None:
            return {}
        found = self._host.sample(time.monotonic())
        if rare:
            found.update(self._host.limits())
        return found

    def gpus(self) -> GpuReading | None:
        """The last reading of the GPUs; None if it was returned before or they do not answer."""
        if self._reader is None or self._devices is None:
            return None
        hangs = self._reader.hangs_s > HANGS_S
        if hangs != self._hangs:
            self._hangs = hangs
            name = self._devices.name
            self._report(
                "",
                f"{name} has not answered for {HANGS_S:.0f} s: GPU metrics are left out until it does"
                if hangs
                else f"{name} answers again",
            )
        found = self._reader.take()
        return found if isinstance(found, GpuReading) else None

    def close(self) -> None:
        """Stop. A call that hangs is left behind."""
        if self._reader is not None and self._devices is not None:
            self._reader.stop()
            if self._reader.ended(0.2):
                self._devices.close()

    def _failed(self, error: Exception) -> None:
        self._report(f"gpus {type(error).__name__}", f"GPU metrics: {type(error).__name__}: {error}")
