"""What `rlship.ledger` and `rlship.weights` do: records now, or once tensors of a device have arrived."""

from __future__ import annotations

import sys

from ..encode import size_of
from ..gpu import cuda
from ..gpu import values as device_values
from ..guard import raised_by_signal
from ..values import UnusableError
from . import entry
from .fingerprint import Fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..stream import Stream
    from .entry import Given

_TENSORS = ("sample", "lengths", "attention_mask", "response", "version")


def record(stream: Stream, given: Given, share: float, step: int | None, t: float) -> None:
    """Write the records of a call's groups that are kept. What cannot be used is reported once."""
    try:
        groups = entry.groups_of(given, share)
        if groups and not _defers(stream, given, groups, step, t):
            _write(stream, entry.lines(given, groups, step, t), step)
    except UnusableError as error:
        _refuse(stream, given.hop, str(error))


def record_weights(stream: Stream, version: Any, fingerprint: Any, step: int | None, t: float) -> None:
    """Write which weights a version has."""
    try:
        number = entry.whole("version", version, 0)
        if isinstance(fingerprint, Fingerprint) and device_values.on_device(fingerprint.values, None):
            _defer(stream, {"f": fingerprint.values}, _LateWeights(number, fingerprint), step, t)
            return
        text = "" if fingerprint is None else str(fingerprint)[: entry.MAX_KEY]
        _write(stream, [entry.weights_line(number, text, step, t)], step)
    except UnusableError as error:
        _refuse(stream, "weights", str(error))


def _write(stream: Stream, lines: Sequence[str], step: int | None) -> None:
    for line in lines:
        stream.buffer.append(line, size_of(line), step)
    if stream.buffer.size > stream.wake_at:
        stream.wake()


def _refuse(stream: Stream, hop: str, why: str) -> None:
    stream.misuse.refuse("ledger", f"ledger({hop[:40]!r}) is left out: {why}", hop[:40])


def _defers(
    stream: Stream, given: Given, groups: Sequence[tuple[str, list[int] | None]], step: int | None, t: float
) -> bool:
    """Start the copies of tensors on a device. Returns False if every value is on the host.

    Only what can be copied without waiting for the device is copied; the rest of the call is left out.
    """
    if "torch" not in sys.modules:
        return False
    held = {name: getattr(given, name) for name in _TENSORS} | given.fields
    if not device_values.on_device(held, None):
        return False
    _defer(stream, held, _LateGroups(stream, given, groups), step, t)
    return True


def _defer(stream: Stream, held: dict[str, Any], late: Any, step: int | None, t: float) -> None:
    torch = cuda.torch_module()
    try:
        if cuda.initialised() is not None and cuda.capturing(torch):
            raise UnusableError("a tensor cannot be read while its CUDA graph is captured")
        values = device_values.LateValues(late, held, step, t, None, torch)
    except device_values.Unreadable as error:
        raise UnusableError(f"a tensor {error}, cannot be copied without waiting for the device") from None
    except Exception as error:
        if raised_by_signal(error) or isinstance(error, UnusableError):
            raise
        raise UnusableError(f"the copy of a tensor raised {type(error).__name__}: {error}") from None
    stream.deferred.add(values)


class _LateGroups:
    """Makes the records once the copies have arrived, in the place of a `LateValues`' encoder."""

    def __init__(self, stream: Stream, given: Given, groups: Sequence[tuple[str, list[int] | None]]) -> None:
        self._stream = stream
        self._given = given
        self._groups = groups

    def lines(self, held: dict[str, Any], step: int | None, t: float, weight: object) -> list[str]:
        """The records of the groups."""
        given = self._given
        for name in _TENSORS:
            setattr(given, name, held.pop(name))
        given.fields = held
        try:
            return entry.lines(given, self._groups, step, t)
        except UnusableError as error:
            _refuse(self._stream, given.hop, str(error))
            return []


class _LateWeights:
    """Makes the record of a version once the sampled parameters have arrived."""

    def __init__(self, version: int, fingerprint: Fingerprint) -> None:
        self._version = version
        self._head = fingerprint

    def lines(self, held: dict[str, Any], step: int | None, t: float, weight: object) -> list[str]:
        """The record."""
        text = str(Fingerprint(self._head.of, held["f"], self._head.precision))
        return [entry.weights_line(self._version, text, step, t)]
