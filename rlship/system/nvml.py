"""NVML through pynvml: the list of GPUs, and calls that survive all the ways in which drivers fail."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class GpuLost(Exception):
    """The GPU has fallen off the bus, or needs a reset: it will not answer again."""


class Unusable(Exception):
    """NVML cannot be used here; the message gives the reason."""

    def __init__(self, message: str, *, for_good: bool) -> None:
        super().__init__(message)
        self.for_good = for_good


class Device:
    """A GPU or a MIG device. `key` is its index, for a MIG device with its own index ("0_1"). `parent` is the key of a
    MIG device's GPU, else None; `instance` its GPU instance. `old_name` is an older form of a MIG device's UUID.
    """

    __slots__ = ("_never", "handle", "instance", "key", "name", "old_name", "parent", "parent_handle", "uuid")

    def __init__(self, key: str, handle: Any, uuid: str, name: str) -> None:
        self.key = key
        self.handle = handle
        self.uuid = uuid
        self.name = name
        self.parent: str | None = None
        self.parent_handle: Any = None
        self.instance: int | None = None
        self.old_name = ""
        self._never: set[str] = set()

    def never(self, what: str) -> bool:
        """True if this device is known not to support `what`."""
        return what in self._never

    def give_up(self, what: str) -> None:
        """Never call `what` for this device again."""
        self._never.add(what)


class Nvml:
    """The library, opened by `open`. `pynvml` is the module. Calls `failed(what, error)` for errors other than a plain
    refusal.
    """

    def __init__(self, pynvml: Any, failed: Callable[[str, Exception], object]) -> None:
        self.module = pynvml
        self._failed = failed
        self._opened = False
        self.refusals = self._codes(
            "NOT_SUPPORTED",
            "FUNCTION_NOT_FOUND",
            "NO_PERMISSION",
            "INVALID_ARGUMENT",
            "ARGUMENT_VERSION_MISMATCH",
            "DEPRECATED",
        )
        self._lost = self._codes("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND")
        self._later = self._codes("NOT_FOUND", "NO_DATA", "NOT_READY") | {0}
        self._closed = self._codes("UNINITIALIZED")

    def _codes(self, *names: str) -> frozenset[int]:
        codes = (getattr(self.module, f"NVML_ERROR_{name}", None) for name in names)
        return frozenset(code for code in codes if code is not None)

    def open(self) -> str:
        """Load and initialise the library; returns the driver's version. Raises Unusable."""
        module = self.module
        if self._opened:
            return ""
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            no_library = error.value == module.NVML_ERROR_LIBRARY_NOT_FOUND
            why = "no NVIDIA driver is installed here" if no_library else f"NVML failed: {error}"
            raise Unusable(why, for_good=no_library) from None
        self._opened = True
        try:
            return _text(module.nvmlSystemGetDriverVersion())
        except module.NVMLError:
            return "unknown"

    def close(self) -> None:
        """Shut the library down."""
        if self._opened:
            self._opened = False
            try:
                self.module.nvmlShutdown()
            except self.module.NVMLError as error:
                self._failed("nvmlShutdown", error)

    def devices(self) -> list[Device]:
        """All GPUs and their MIG devices, in the order of their indices; those that do not answer are left out.

        Raises Unusable if even their number is unknown.
        """
        module = self.module
        try:
            count = module.nvmlDeviceGetCount()
        except module.NVMLError as error:
            if error.value in self._closed:
                self._opened = False
            raise Unusable(f"NVML cannot count the GPUs: {error}", for_good=False) from None
        found: list[Device] = []
        for index in range(count):
            try:
                handle = module.nvmlDeviceGetHandleByIndex(index)
                gpu = Device(str(index), handle, _text(module.nvmlDeviceGetUUID(handle)), self._name(handle))
            except module.NVMLError as error:
                self._failed(f"GPU {index}", error)
                continue
            found.append(gpu)
            found += self._mig(gpu)
        return found

    def ask(self, device: Device, what: str, *arguments: Any, handle: Any = None, name: str = "") -> Any:
        """Call `what(device, …)`; returns None if it gives no value. A call that a device refuses is not repeated; it
        is remembered under `name`, by default `what`. Raises GpuLost, or Unusable if NVML was closed.
        """
        name = name or what
        if device.never(name):
            return None
        module = self.module
        call = getattr(module, what, None)
        if call is None:
            device.give_up(name)
            return None
        try:
            return call(device.handle if handle is None else handle, *arguments)
        except module.NVMLError as error:
            code = error.value
            if code in self._lost:
                raise GpuLost(str(error)) from None
            if code in self._closed:
                self._opened = False
                raise Unusable(f"NVML failed: {error}", for_good=False) from None
            if code in self.refusals:
                device.give_up(name)
            elif code not in self._later:
                self._failed(f"{what} of GPU {device.key}", error)
            return None

    def _mig(self, gpu: Device) -> list[Device]:
        module = self.module
        found: list[Device] = []
        try:
            if module.nvmlDeviceGetMigMode(gpu.handle)[0] != 1:
                return found
            count = module.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except (module.NVMLError, AttributeError):
            return found
        for index in range(count):
            try:
                handle = module.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index)
                device = Device(f"{gpu.key}_{index}", handle, _text(module.nvmlDeviceGetUUID(handle)), gpu.name)
                device.parent, device.parent_handle = gpu.key, gpu.handle
                device.instance = int(module.nvmlDeviceGetGpuInstanceId(handle))
                compute = int(module.nvmlDeviceGetComputeInstanceId(handle))
                device.old_name = f"MIG-{gpu.uuid}/{device.instance}/{compute}"
            except module.NVMLError as error:
                if error.value not in self._later:
                    self._failed(f"MIG device {index} of GPU {gpu.key}", error)
                continue
            found.append(device)
        return found

    def _name(self, handle: Any) -> str:
        try:
            return _text(self.module.nvmlDeviceGetName(handle))
        except self.module.NVMLError:
            return "unknown"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
