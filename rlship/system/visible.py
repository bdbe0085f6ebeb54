"""Selects GPUs by `--gpus`, or by CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .nvml import Device


def wanted(given: Sequence[str] | None, environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Indices and UUIDs of the GPUs to look at: those given, else the visible ones. None means all, as does "all"."""
    if given is not None and [*given] == ["all"]:
        return None
    if given is not None:
        return [one.strip() for one in given if one.strip()]
    value = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    return None if value is None else [one.strip() for one in value.split(",")]


def choose(devices: Sequence[Device], requested: Sequence[str] | None, *, strict: bool = False) -> list[Device]:
    """The requested devices, in the order of `devices`.

    An entry is an index, the beginning of a GPU's UUID, a MIG device's UUID (also in its older form
    `MIG-GPU-<uuid>/<gpu instance>/<compute instance>`), or a key such as `0_1`. A GPU includes its MIG devices.
    The first entry without a device ends the list, as it does for CUDA; with `strict` it raises ValueError.
    """
    if requested is None:
        return list(devices)
    chosen: set[str] = set()
    for entry in requested:
        found = _matching(devices, entry)
        if found is None:
            if strict:
                known = ", ".join(f"{device.key} ({device.uuid})" for device in devices) or "none"
                raise ValueError(f"there is no GPU {entry!r}; there are: {known}")
            break
        chosen.add(found.key)
    return [device for device in devices if device.key in chosen or device.parent in chosen]


def _matching(devices: Sequence[Device], entry: str) -> Device | None:
    if not entry:
        return None
    if entry.startswith(("GPU-", "MIG-")):
        names = [(name, device) for device in devices for name in (device.uuid, device.old_name) if name]
        exact = [device for name, device in names if name == entry]
        found = exact or [device for name, device in names if name.startswith(entry)]
        return found[0] if len({device.key for device in found}) == 1 else None
    return next((device for device in devices if device.key == entry), None)
