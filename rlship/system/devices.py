"""Device readers: code that looks at the accelerators of one vendor. Of several the one that finds some is used.

A reader is made by `make(requested, report, event)`: `requested` holds the entries of `system_metrics['gpus']`, or None
for the visible devices; `report(topic, line)` and `event(name, attrs)` are those of `Sampler`. Its methods are

    sample(t)   one look at the time `t`, in seconds of a clock that does not go back: a `readings.GpuReading`, or None
                where the next look is not due. `known` says whether any devices are here.
    close()     release what it holds.

All calls come from one thread, which may hang. Packages of others name theirs in the group of entry points `GROUP`.
"""

from __future__ import annotations

import time
from functools import partial

from .. import threads
from . import amd, ascend, command, visible
from .gpu import AGAIN_S, Gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Lock
    from typing import Any, Protocol, TypeAlias

    from .readings import GpuReading

    class DeviceReader(Protocol):
        """Looks at the devices of one vendor."""

        def sample(self, t: float) -> GpuReading | None: ...
        def close(self) -> None: ...

    Report: TypeAlias = Callable[[str, str], object]
    Event: TypeAlias = Callable[[str, dict[str, Any]], object]
    Make: TypeAlias = Callable[[Sequence[str] | None, Report, Event], DeviceReader]

GROUP = "rlship.devices"
_WORDS = (["all"], ["local"])


def installed(pynvml: Any, local_rank: int | None, report: Report) -> dict[str, Make]:
    """The readers whose package or command is here, those of other packages first. `pynvml` is the module or None."""
    found = _of_others(report)
    if pynvml is not None:
        found.setdefault("NVML", _looking_at(visible.CUDA, local_rank, partial(Gpus, pynvml)))
    for name, variables, ask in (
        (ascend.COMMAND, visible.ASCEND, ascend.ask),
        (amd.COMMAND, visible.ROCM, amd.ask),
    ):
        path = command.find(name)
        if path is not None:
            make = partial(command.CommandReader, path, ask)
            found.setdefault(name, _looking_at(variables, local_rank, make))
    return found


def _looking_at(variables: visible.Variables, local_rank: int | None, make: Callable[..., DeviceReader]) -> Make:
    """A `Make` of a reader that also takes whether its devices were given by name."""

    def made(requested: Sequence[str] | None, report: Report, event: Event) -> DeviceReader:
        explicit = requested is not None and [*requested] not in _WORDS
        return make(visible.wanted(requested, None, variables, local_rank), report, event, explicit)

    return made


def _of_others(report: Report) -> dict[str, Make]:
    from importlib.metadata import entry_points

    found: dict[str, Make] = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - the package's own code may raise anything
            report(
                f"reader {point.name}",
                f"the device reader {point.name!r} ({point.value}) cannot be loaded, so it is left out: "
                f"{type(error).__name__}: {error}",
            )
    return found


class Devices:
    """The devices of this machine, by the first reader that finds some.

    `looking` is held over calls of a reader that uses a library in this process.
    """

    def __init__(
        self,
        readers: dict[str, Make],
        requested: Sequence[str] | None,
        report: Report,
        event: Event,
        looking: Lock | None = None,
    ) -> None:
        self._makes = readers
        self._requested = requested
        self._report = report
        self._event = event
        self._looking = looking or threads.lock()
        self._candidates: dict[str, DeviceReader] = {}
        self._held: dict[str, list[tuple[Report | Event, Any, Any]]] = {}
        self._reader: DeviceReader | None = None
        self._again_at = float("-inf")
        self.name = " and ".join(readers)  # the reader at work, for messages

    def sample(self) -> GpuReading | None:
        """One look, by the reader in use; None if nothing is new."""
        t = time.monotonic()
        if self._reader is not None:
            return self._look(self._reader, t)
        if t < self._again_at:
            return None
        self._again_at = t + AGAIN_S
        return self._choose(t)

    def close(self) -> None:
        """Release all readers."""
        for reader in [*self._candidates.values(), *([self._reader] if self._reader is not None else [])]:
            reader.close()
        self._candidates.clear()

    def _choose(self, t: float) -> GpuReading | None:
        """Ask one after the other; what they say counts once it is clear which of them is used."""
        for name, make in self._makes.items():
            try:
                reader = self._candidates.get(name)
                if reader is None:
                    reader = self._candidates[name] = make(self._requested, self._hold(name, 0), self._hold(name, 1))
                self.name = name
                found = self._look(reader, t)
            except Exception as error:  # noqa: BLE001 - a reader of another package may raise anything
                self._report(f"reader {name}", f"the device reader {name!r}: {type(error).__name__}: {error}")
                continue
            if (found is not None and found.known) or len(self._makes) == 1:
                self._use(name)
                return found
        for name in self._makes:
            self._release(name)
        return None

    def _use(self, name: str) -> None:
        self._reader = self._candidates.pop(name)
        self.name = name
        self._release(name)
        for other in self._candidates.values():
            other.close()
        self._candidates.clear()
        self._held.clear()

    def _look(self, reader: DeviceReader, t: float) -> GpuReading | None:
        if not getattr(reader, "uses_library", True):
            return reader.sample(t)
        with self._looking:
            return reader.sample(t)

    def _hold(self, name: str, which: int) -> Any:
        """`report` or `event` for a reader: its calls wait until it is clear whether it is used."""

        def call(topic: Any, more: Any) -> None:
            target = (self._report, self._event)[which]
            if self._reader is not None:
                target(topic, more)
            else:
                self._held.setdefault(name, []).append((target, topic, more))

        return call

    def _release(self, name: str) -> None:
        for target, topic, more in self._held.pop(name, []):
            target(topic, more)
