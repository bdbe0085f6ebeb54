"""Combines all looks at this machine; those that may hang run on threads of their own."""

from __future__ import annotations

import time

from .. import threads
from .background import Repeated
from .gpu import Gpus
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


def packages() -> tuple[dict[str, Any], str]:
    """The modules that sampling needs, None for a missing one, and a message about missing ones, or ""."""
    found: dict[str, Any] = {"psutil": None, "pynvml": None}
    missing, without = [], []
    try:
        import psutil

        found["psutil"] = psutil
    except Exception:  # noqa: BLE001 - a broken installation may raise anything
        missing.append("psutil")
        without.append("the host's")
    try:
        import pynvml

        found["pynvml"] = pynvml
    except Exception:  # noqa: BLE001
        missing.append("nvidia-ml-py")
        without.append("the GPUs'")
    if not missing:
        return found, ""
    return found, f"without {' and '.join(without)} metrics; to have them: pip install {' '.join(missing)}"


class Sampler:
    """Looks at this machine once in `interval_s` seconds.

    Args:
        interval_s: seconds between two looks at the GPUs; call `host` as often.
        gpus: which GPUs (see `visible.choose`); None: all.
        report: called as `report(topic, line)` with messages for people. Each topic need be shown once, but "" always.
        event: called as `event(name, attrs)` with facts for the job's record. Several threads call both.
        looking: a lock held while NVML is in use; default: a lock of its own.
    """

    def __init__(
        self,
        interval_s: float,
        gpus: Sequence[str] | None,
        report: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
        looking: Lock | None = None,
    ) -> None:
        self.phase_s = interval_s * _PHASE
        self._report = report
        modules, missing = packages()
        if missing:
            report("packages", missing)
        self._psutil = modules["psutil"]
        self._host = Host(self._psutil) if self._psutil is not None else None
        self._gpus = Gpus(modules["pynvml"], gpus, report, event) if modules["pynvml"] is not None else None
        self._reader: Repeated | None = None
        if self._gpus is not None:
            watched, held = self._gpus, looking or threads.lock()

            def look() -> GpuReading:
                with held:
                    return watched.sample(time.monotonic())

            self._reader = Repeated(look, interval_s, self._failed)
        self._hangs = False

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
        if self._reader is None:
            return None
        hangs = self._reader.hangs_s > HANGS_S
        if hangs != self._hangs:
            self._hangs = hangs
            self._report(
                "",
                f"NVML has not answered for {HANGS_S:.0f} s: GPU metrics are left out until it does"
                if hangs
                else "NVML answers again",
            )
        found = self._reader.take()
        return found if isinstance(found, GpuReading) else None

    def close(self) -> None:
        """Stop. A call that hangs is left behind."""
        if self._reader is not None:
            self._reader.stop()
            if self._gpus is not None and self._reader.ended(0.2):
                self._gpus.close()

    def _failed(self, error: Exception) -> None:
        self._report(f"gpus {type(error).__name__}", f"GPU metrics: {type(error).__name__}: {error}")
