"""One look at one GPU or MIG device, through NVML."""

from __future__ import annotations

from .nvml import Device, Nvml
from .rates import Rates
from .readings import GpuProcess
from .series import RARELY_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Figures = dict[str, float | int]

# NVML reports each reason as one bit.
THROTTLE = {
    "app_clocks": 0x2,
    "sw_power": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display": 0x100,
}
# GPM metrics (Hopper and later), by NVML's numbers, in percent.
_GPM = {2: "sm_active", 5: "tensor_active", 10: "dram_active", 1: "graphics_active"}
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
# Fields of NVML: number, scope, name of the value, and the bytes in a counter's unit (0: it is not a counter).
_FIELDS = (
    (82, 0, "mem_temp", 0),
    (197, 0, "pcie_sent_per_s", 1),
    (198, 0, "pcie_recv_per_s", 1),
    (138, _ALL_LINKS, "nvlink_sent_per_s", _KIB),
    (139, _ALL_LINKS, "nvlink_recv_per_s", _KIB),
)
# More than any link or bus can carry in a second: a counter that seems to grow by more was reset.
_MAX_PER_S = 4e12
_PERCENT = 0.01
# All bits set means "not available", in calls that cannot express it otherwise.
_NOT_AVAILABLE = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))


class Look:
    """One device. Its counters are compared with their values at the look before."""

    def __init__(self, device: Device, nvml: Nvml) -> None:
        self.device = device
        self.measure_bus = False
        self._nvml = nvml
        self._module = nvml.module
        self._rates = Rates()
        self._gpm: list[Any] = []
        self._first_activity = True
        self._seen_us = 0
        self._rare: Figures = {}
        self._rare_at = float("-inf")

    def take_handles(self, device: Device) -> None:
        """Take over the handles by which NVML knows the device now."""
        self.device.handle, self.device.parent_handle = device.handle, device.parent_handle
        self.device.instance = device.instance

    def figures(self, t: float) -> Figures:
        """Every value that the device reports. Raises GpuLost, Unusable."""
        found: Figures = {}
        # Like nvidia-smi, the second version does not count the memory that the driver keeps for itself as used.
        second = getattr(self._module, "nvmlMemory_v2", None)
        memory = self._ask("nvmlDeviceGetMemoryInfo", second, name="memory v2") if second is not None else None
        if memory is None:
            memory = self._ask("nvmlDeviceGetMemoryInfo")
        if memory is not None:
            self._put(found, "mem", memory.used)
            self._put(found, "mem_limit", memory.total)
        self._activity(found)
        if self.device.parent is not None:
            return found  # the rest belongs to the whole GPU
        use = self._ask("nvmlDeviceGetUtilizationRates")
        if use is not None and use.gpu <= 100:
            found["util"] = round(use.gpu * _PERCENT, 4)
        self._put(found, "power", self._ask("nvmlDeviceGetPowerUsage"), 0.001)
        self._put(found, "temp", self._ask("nvmlDeviceGetTemperature", 0))
        self._put(found, "sm_clock", self._ask("nvmlDeviceGetClockInfo", 1, name="sm clock"))
        self._put(found, "mem_clock", self._ask("nvmlDeviceGetClockInfo", 2, name="memory clock"))
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # drivers before 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if reasons is not None:
            for name, bit in THROTTLE.items():
                found[f"throttle/{name}"] = int(bool(reasons & bit))
        if t >= self._rare_at:
            self._rare_at, self._rare = t + RARELY_S, self._rarely()
        found.update(self._rare)
        self._fields(found, t)
        return found

    def _rarely(self) -> Figures:
        """Values that hardly ever change; the caller keeps them for a while."""
        found: Figures = {}
        self._put(found, "power_limit", self._ask("nvmlDeviceGetEnforcedPowerLimit"), 0.001)
        for kind, name in ((0, "ecc_corrected"), (1, "ecc_uncorrected")):
            self._put(found, name, self._ask("nvmlDeviceGetTotalEccErrors", kind, 0, name=name))
        return found

    def processes(self) -> list[GpuProcess]:
        """The processes on this device. A GPU in MIG mode reports only those of its parts."""
        found: dict[int, GpuProcess] = {}
        for kind in ("Compute", "Graphics"):
            # By version: with an older driver, pynvml's call without a version raises another error.
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v3")
            if listed is None and self.device.never(f"nvmlDeviceGet{kind}RunningProcesses_v3"):
                listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v2")
            for one in listed or ():
                memory = None if one.usedGpuMemory is None else int(one.usedGpuMemory)
                found.setdefault(int(one.pid), GpuProcess(self.device.key, int(one.pid), memory, None))
        if found:
            self._process_use(found)
        return list(found.values())

    def _ask(self, what: str, *arguments: Any, name: str = "") -> Any:
        return self._nvml.ask(self.device, what, *arguments, name=name)

    @staticmethod
    def _put(found: Figures, name: str, value: Any, scale: float = 1) -> None:
        if value is not None and value not in _NOT_AVAILABLE:
            found[name] = round(value * scale, 3) if scale != 1 else int(value)

    def _fields(self, found: Figures, t: float) -> None:
        """Read values by their field numbers, all in one call; each of them has a status of its own."""
        wanted = [field for field in _FIELDS if not self.device.never(field[2])]
        values = self._ask("nvmlDeviceGetFieldValues", [one[:2] for one in wanted]) if wanted else None
        for (_, _, name, scale), field in zip(wanted, values or ()):
            if field.nvmlReturn != 0:
                if field.nvmlReturn in self._nvml.refusals:
                    self.device.give_up(name)
                continue
            value, bits = _value(field)
            if value is None or value in _NOT_AVAILABLE:
                continue
            if not scale:
                if value:  # some drivers report 0 for a missing sensor
                    found[name] = int(value)
                continue
            rate = self._rates.of(name, int(value), t, bits=bits, most=_MAX_PER_S / scale)
            if rate is not None:
                found[name] = round(rate * scale)
        self._measured_bus(found)

    def _measured_bus(self, found: Figures) -> None:
        """Measure PCIe traffic if the device has no counters: the driver watches the bus for 20 ms."""
        for name, counter in (("pcie_sent_per_s", 0), ("pcie_recv_per_s", 1)):
            counted = not self.device.never(name) and not self.device.never("nvmlDeviceGetFieldValues")
            if counted or not self.measure_bus:
                continue
            rate = self._ask("nvmlDeviceGetPcieThroughput", counter, name=f"measured {name}")
            if rate is not None:
                found[name] = int(rate) * _KIB

    def _activity(self, found: Figures) -> None:
        """Add the load of multiprocessors, tensor cores and memory since the last look."""
        if self.device.never("gpm") or (not self._gpm and not self._begin_activity()):
            return
        module, device = self._module, self.device
        before, now = self._gpm
        if device.parent is None:
            taken = self._ask("nvmlGpmSampleGet", now)
        else:
            taken = self._nvml.ask(device, "nvmlGpmMigSampleGet", device.instance, now, handle=device.parent_handle)
        if taken is None:
            if device.never("nvmlGpmSampleGet") or device.never("nvmlGpmMigSampleGet"):
                device.give_up("gpm")
            return
        self._gpm = [now, before]
        if self._first_activity:
            self._first_activity = False
            return
        request = module.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = module.NVML_GPM_METRICS_GET_VERSION, len(_GPM)
        request.sample1, request.sample2 = before, now
        for place, number in enumerate(_GPM):
            request.metrics[place].metricId = number
        answer = self._nvml.ask(device, "nvmlGpmMetricsGet", handle=request)
        if answer is None:
            return
        for place, name in enumerate(_GPM.values()):
            metric = answer.metrics[place]
            if metric.nvmlReturn == 0 and 0 <= metric.value <= 100.5:  # excludes NaN
                found[name] = round(min(1.0, metric.value * _PERCENT), 4)
        active = found.pop("graphics_active", None)
        if device.parent is not None and active is not None:
            found["util"] = active  # NVML reports `util` only for whole GPUs

    def _begin_activity(self) -> bool:
        """Allocate two samples. Returns False if this device or driver does not support them."""
        module, device = self._module, self.device
        whole = device.parent_handle if device.parent is not None else device.handle
        support = self._nvml.ask(device, "nvmlGpmQueryDeviceSupport", handle=whole)
        if support is None or not support.isSupportedDevice:
            device.give_up("gpm")
            return False
        try:
            self._gpm = [module.nvmlGpmSampleAlloc(), module.nvmlGpmSampleAlloc()]
        except (module.NVMLError, AttributeError):
            device.give_up("gpm")
            return False
        return True

    def release(self) -> None:
        """Free the samples."""
        for sample in self._gpm:
            try:
                self._module.nvmlGpmSampleFree(sample)
            except self._module.NVMLError:
                break
        self._gpm = []

    def _process_use(self, found: dict[int, GpuProcess]) -> None:
        what = "nvmlDeviceGetProcessUtilization"
        if self.device.parent is not None or self.device.never(what):
            return
        samples = self._ask(what, self._seen_us)
        if self.device.never(what):
            return
        # A process without a sample has not run anything since.
        sums: dict[int, list[float]] = {pid: [] for pid in found}
        for sample in samples or ():
            if sample.timeStamp > self._seen_us and sample.pid in sums and sample.smUtil <= 100:
                sums[sample.pid].append(sample.smUtil * _PERCENT)
        self._seen_us = max([self._seen_us, *(int(sample.timeStamp) for sample in samples or ())])
        for pid, shares in sums.items():
            found[pid].util = round(sum(shares) / len(shares), 4) if shares else 0.0


def _value(field: Any) -> tuple[float | None, int]:
    """The value of a field, and its width in bits if it is an integer, else 0."""
    kind, value = field.valueType, field.value
    if kind == 0:
        return (value.dVal if value.dVal - value.dVal == 0 else None), 0
    if kind == 1:
        return value.uiVal, 32
    if kind == 2:
        return value.ulVal, 64
    if kind == 3:
        return value.ullVal, 64
    signed = {4: "sllVal", 5: "siVal"}.get(kind)
    number = getattr(value, signed) if signed else None
    return (number if number is not None and number >= 0 else None), 0
