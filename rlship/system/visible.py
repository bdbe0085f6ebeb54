"""Selects GPUs by `--gpus` or `system_metrics`, or by the variables that hide devices from a process."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from .nvml import Device

    # Of one inner tuple the first variable that is set counts. The indices of a later one count what the one before it
    # leaves visible.
    Variables: TypeAlias = tuple[tuple[str, ...], ...]

CUDA: Variables = (("CUDA_VISIBLE_DEVICES",),)
# HIP reads CUDA's variable too.
ROCM: Variables = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
ASCEND: Variables = (("ASCEND_RT_VISIBLE_DEVICES",),)


def wanted(
    given: Sequence[str] | None,
    environ: Mapping[str, str] | None = None,
    variables: Variables = CUDA,
    local_rank: int | None = None,
) -> list[str] | None:
    """Indices and UUIDs of the GPUs to look at: those given, else the visible ones. None means all, as does "all".

    "local" is the visible one at the process's `local_rank`; where that is unknown, or only one is visible, it means
    the visible ones.
    """
    if given is not None and [*given] == ["all"]:
        return None
    local = given is not None and [*given] == ["local"]
    if given is not None and not local:
        return [one.strip() for one in given if one.strip()]
    found = _visible(os.environ if environ is None else environ, variables)
    if not local or local_rank is None or (found is not None and len(found) == 1):
        return found
    if found is None:
        return [str(local_rank)]
    return found[local_rank : local_rank + 1]


def _visible(environ: Mapping[str, str], variables: Variables) -> list[str] | None:
    found: list[str] | None = None
    for names in variables:
        value = next((environ[name] for name in names if name in environ), None)
        if value is None:
            continue
        entries = [one.strip() for one in value.split(",")]
        if found is not None:
            entries = [found[int(one)] for one in entries if one.isdigit() and int(one) < len(found)]
        found = entries
    return found


def choose(devices: Sequence[Device], requested: Sequence[str] | None, *, ends: bool = True) -> list[Device]:
    """The requested devices, in the order of `devices`.

    An entry is an index, the beginning of a GPU's UUID, a MIG device's UUID (also in its older form
    `MIG-GPU-<uuid>/<gpu instance>/<compute instance>`), or a key such as `0_1`. A GPU includes its MIG devices.
    The first entry without a device ends the list, as it does for CUDA; without `ends` only that entry is left out.
    """
    if requested is None:
        return list(devices)
    chosen: set[str] = set()
    for entry in requested:
        found = _matching(devices, entry)
        if found is not None:
            chosen.add(found.key)
        elif ends:
            break
    return [device for device in devices if device.key in chosen or device.parent in chosen]


def unknown(devices: Sequence[Device], requested: Sequence[str]) -> str:
    """Which requested devices are not here and which are, as a text; "" if all of them are here."""
    lacking = [entry for entry in requested if _matching(devices, entry) is None]
    if not lacking:
        return ""
    known = ", ".join(f"{device.key} ({device.uuid or device.name})" for device in devices) or "no devices"
    return f"there is no GPU {', '.join(map(repr, lacking))[:200]}; there are: {known}"


def _matching(devices: Sequence[Device], entry: str) -> Device | None:
    if not entry:
        return None
    if not entry[0].isdigit() or "-" in entry:
        names = [(name, device) for device in devices for name in (device.uuid, device.old_name) if name]
        exact = [device for name, device in names if name == entry]
        found = exact or [device for name, device in names if name.startswith(entry)]
        return found[0] if len({device.key for device in found}) == 1 else None
    return next((device for device in devices if device.key == entry), None)
