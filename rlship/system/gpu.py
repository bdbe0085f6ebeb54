"""What GPUs do, and which processes are on them, read through NVML."""

from __future__ import annotations

from .look import Look
from .nvml import Device, GpuLost, Nvml, Unusable
from .readings import GpuReading
from .visible import choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# How often it is looked whether other GPUs are there, MIG devices were made, or a lost one came back.
AGAIN_S = 60.0


class Gpus:
    """Looks at the GPUs that are asked for (None: all; see `visible.choose`).

    `said(line)` is told of what a person should know, `event(name, attrs)` of what belongs in the job's record.
    """

    def __init__(
        self,
        pynvml: Any,
        asked: Sequence[str] | None,
        said: Callable[[str, str], object],
        event: Callable[[str, dict[str, Any]], object],
    ) -> None:
        self._nvml = Nvml(pynvml, self._failed)
        self._module = pynvml
        self._asked = asked
        self._said = said
        self._event = event
        self._devices: list[Device] = []
        self._looks: dict[str, Look] = {}
        self._lost: set[str] = set()
        self._again_at = float("-inf")
        self._over = False
        self._turn = 0

    def sample(self, t: float) -> GpuReading:
        """One look at all of them. `t`: seconds of a clock that does not go back. Never raises what NVML says."""
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
            # Measuring takes 20 ms a direction where the bus has no counters: a GPU at a time.
            look.measure_bus = self._turn % len(self._devices) == place
            try:
                reading.figures[device.key] = look.figures(t)
                reading.processes += look.processes()
            except GpuLost as error:
                reading.figures.pop(device.key, None)
                self._lose(device, error)
                continue
            except Unusable as error:
                self._said("closed", f"{error}: GPU metrics are left out until it works again")
                self._again_at = t
                break
            except Exception as error:  # noqa: BLE001 - whatever a driver and pynvml make of each other
                self._failed(f"GPU {device.key}", error)
                continue
            if device.parent is not None:
                reading.parents[device.key] = device.parent
        return reading

    def close(self) -> None:
        """Let go of NVML."""
        for look in self._looks.values():
            look.release()
        self._nvml.close()

    @property
    def lost(self) -> int:
        """How many of them have fallen off the bus."""
        return len(self._lost)

    def _find(self) -> None:
        try:
            driver = self._nvml.open()
            found = choose(self._nvml.devices(), self._asked)
        except Unusable as error:
            self._devices = []
            self._over = error.for_good
            self._said("unusable", f"no GPU metrics: {error}")
            return
        found = [device for device in found if device.uuid not in self._lost or self._answers(device)]
        if [device.uuid for device in found] != [device.uuid for device in self._devices] and (driver or self._devices):
            self._tell(found, driver)
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
        """Whether a GPU that was lost is back."""
        try:
            back = self._nvml.ask(device, "nvmlDeviceGetMemoryInfo") is not None
        except GpuLost:
            return False
        if back:
            self._lost.discard(device.uuid)
            self._said("", f"GPU {device.key} ({device.uuid}) answers again")
        return back

    def _tell(self, found: Sequence[Device], driver: str) -> None:
        attrs: dict[str, Any] = {device.key: f"{device.name} {device.uuid}" for device in found}
        self._event("gpus", attrs | ({"driver": driver} if driver else {}))
        if not found and self._asked is not None:
            self._said("none", f"none of the GPUs {','.join(self._asked)!r} is here: no GPU metrics")

    def _lose(self, device: Device, error: Exception) -> None:
        self._lost.add(device.uuid)
        self._event("gpu_lost", {"gpu": device.key, "uuid": device.uuid, "error": str(error)})
        self._said("", f"GPU {device.key} ({device.uuid}) does not answer any more: {error}; the others go on")

    def _failed(self, what: str, error: Exception) -> None:
        self._said(f"{what} {error}", f"{what}: {error}; that is left out")
