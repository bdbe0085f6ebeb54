"""Everything that a look at this machine finds, with what may hang on threads of its own."""

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

# A call that has not come back after so long is told of.
HANGS_S = 10.0
# So long after the GPUs the rest is looked at, so that a line holds what was found at about its time.
_PHASE = 0.25
_PLACE_EVERY_S = 10.0


def packages() -> tuple[dict[str, Any], str]:
    """The modules that sampling needs, None for one that is not there, and what to say of those, or ""."""
    found: dict[str, Any] = {"psutil": None, "pynvml": None}
    missing, without = [], []
    try:
        import psutil

        found["psutil"] = psutil
    except Exception:  # noqa: BLE001 - a broken installation fails in any way it likes
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
        interval_s: seconds between two looks at the GPUs; `host` is to be called as often.
        gpus: which GPUs (see `visible.choose`); None: all.
        said: told `(topic, line)` of what a person should know; once for each topic is enough, but always for "".
        event: told `(name, attrs)` of what belongs in the job's record. Both are called by several threads.
        looking: is held while NVML is in use; default: a lock of its own.
    """

    def __init__(
        self,
        interval_s: float,
        gpus: Sequence[str] | None,
        said: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
        looking: Lock | None = None,
    ) -> None:
        self.phase_s = interval_s * _PHASE
        self._said = said
        modules, missing = packages()
        if missing:
            said("packages", missing)
        self._psutil = modules["psutil"]
        self._host = Host(self._psutil) if self._psutil is not None else None
        self._gpus = Gpus(modules["pynvml"], gpus, said, event) if modules["pynvml"] is not None else None
        self._reader: Repeated | None = None
        if self._gpus is not None:
            watched, held = self._gpus, looking or threads.lock()

            def look() -> GpuReading:
                with held:
                    return watched.sample(time.monotonic())

            self._reader = Repeated(look, interval_s, self._failed)
        self._hangs = False

    def start(self) -> None:
        """Start looking at the GPUs. Raises RuntimeError where there is no thread to be had."""
        if self._reader is not None:
            self._reader.start()

    def place(self, folder: str) -> Repeated | None:
        """Looks at the filesystem of a folder, to be started; None without psutil."""
        psutil = self._psutil
        if psutil is None:
            return None
        made: list[Place] = []

        def look() -> Reading:
            if not made:
                made.append(Place(psutil, folder))
            return made[0].sample(time.monotonic())

        return Repeated(look, _PLACE_EVERY_S, lambda error: self._said(f"place {folder}", f"{folder}: {error}"))

    def host(self, *, rare: bool) -> Reading:
        """What the host uses now; with `rare` also what hardly ever changes."""
        if self._host is None:
            return {}
        found = self._host.sample(time.monotonic())
        if rare:
            found.update(self._host.limits())
        return found

    def gpus(self) -> GpuReading | None:
        """What the GPUs were found to do, unless that was returned before or they do not answer."""
        if self._reader is None:
            return None
        hangs = self._reader.hangs_s > HANGS_S
        if hangs != self._hangs:
            self._hangs = hangs
            self._said(
                "",
                f"NVML has not answered for {HANGS_S:.0f} s: GPU metrics are left out until it does"
                if hangs
                else "NVML answers again",
            )
        found = self._reader.take()
        return found if isinstance(found, GpuReading) else None

    def close(self) -> None:
        """Stop. What hangs is left behind."""
        if self._reader is not None:
            self._reader.stop()
            if self._gpus is not None and self._reader.ended(0.2):
                self._gpus.close()

    def _failed(self, error: Exception) -> None:
        self._said(f"gpus {type(error).__name__}", f"GPU metrics: {type(error).__name__}: {error}")
