"""Readings of GPUs and of the processes on them, through NVML."""

from __future__ import annotations

from .look import Look
from .nvml import Device, GpuLost, Nvml, Unusable
from .readings import GpuReading
from .visible import choose, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Seconds between two searches for other GPUs, new MIG devices, and lost GPUs that came back.
AGAIN_S = 60.0


class Gpus:
    """Looks at the requested GPUs (None: all; see `visible.choose`). `explicit`: they were given by name, so that each
    of them should be here.

    Calls `report(topic, line)` with messages for people, and `event(name, attrs)` with facts for the job's record.
    """

    def __init__(
        self,
        pynvml: Any,
        requested: Sequence[str] | None,
        report: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
        explicit: bool = False,
    ) -> None:
        self._nvml = Nvml(pynvml, self._failed)
        self._module = pynvml
        self._requested = requested
        self._explicit = explicit
        self._report = report
        self._event = event
        self._devices: list[Device] = []
        self._looks: dict[str, Look] = {}
        self._lost: set[str] = set()
        self._again_at = float("-inf")
        self._over = False
        self._turn = 0

    def sample(self, t: float) -> GpuReading:
        """One look at all of them. `t`: seconds of a clock that does not go back. Never raises an error of NVML."""
        reading = GpuReading()
        if t >= self._again_at and not self._over:
            self._again_at = t + AGAIN_S
            self._find()
        self._turn += 1
        reading.known = bool(self._devices or self._lost)
        for place, device in enumerate(self._devices):
            if device.uuid in self._lost:
                continue
            look = self._looks[device.uuid]
            # Measuring takes 20 ms a direction where the bus has no counters: one GPU at a time.
            look.measure_bus = self._turn % len(self._devices) == place
            try:
                reading.figures[device.key] = look.figures(t)
                reading.processes += look.processes()
            except GpuLost as error:
                reading.figures.pop(device.key, None)
                self._lose(device, error)
                continue
            except Unusable as error:
                self._report("closed", f"{error}: GPU metrics are left out until it works again")
                self._again_at = t
                break
            except Exception as error:  # noqa: BLE001 - a driver that does not fit pynvml may cause any error
                self._failed(f"GPU {device.key}", error)
                continue
            if device.parent is not None:
                reading.parents[device.key] = device.parent
        return reading

    def close(self) -> None:
        """Release NVML."""
        for look in self._looks.values():
            look.release()
        self._nvml.close()

    @property
    def lost(self) -> int:
        """The number of GPUs that have fallen off the bus."""
        return len(self._lost)

    def _find(self) -> None:
        try:
            driver = self._nvml.open()
            every = self._nvml.devices()
            found = choose(every, self._requested, ends=not self._explicit)
        except Unusable as error:
            self._devices = []
            self._over = error.for_good
            self._report("unusable", f"no GPU metrics: {error}")
            return
        missing = unknown(every, self._requested or ()) if self._explicit else ""
        if missing:
            self._report("unknown", f"{missing}; the others are looked at")
        found = [device for device in found if device.uuid not in self._lost or self._answers(device)]
        if [device.uuid for device in found] != [device.uuid for device in self._devices] and (driver or self._devices):
            self._report_devices(found, driver)
        before, self._looks = self._looks, {}
        for device in found:
            look = before.pop(device.uuid, None)
            if look is None or look.device.key != device.key:
                look = Look(device, self._nvml)
            look.take_handles(device)
            self._looks[device.uuid] = look
        for look in before.values():
            look.release()
        self._devices = found

    def _answers(self, device: Device) -> bool:
        """True if a lost GPU is back."""
        try:
            back = self._nvml.ask(device, "nvmlDeviceGetMemoryInfo") is not None
        except GpuLost:
            return False
        if back:
            self._lost.discard(device.uuid)
            self._report("", f"GPU {device.key} ({device.uuid}) answers again")
        return back

    def _report_devices(self, found: Sequence[Device], driver: str) -> None:
        attrs: dict[str, Any] = {device.key: f"{device.name} {device.uuid}" for device in found}
        self._event("gpus", attrs | ({"driver": driver} if driver else {}))
        if not found and self._requested is not None:
            self._report("none", f"none of the GPUs {','.join(self._requested)!r} is here: no GPU metrics")

    def _lose(self, device: Device, error: Exception) -> None:
        self._lost.add(device.uuid)
        self._event("gpu_lost", {"gpu": device.key, "uuid": device.uuid, "error": str(error)})
        self._report("", f"GPU {device.key} ({device.uuid}) does not answer any more: {error}; the others go on")

    def _failed(self, what: str, error: Exception) -> None:
        self._report(f"{what} {error}", f"{what}: {error}; that is left out")
