"""Every observation straight from the writers' files, as it was logged, without any reduction.

A metrics record, or the metric that a span or event implies, becomes one line of JSON. Nothing is superseded or
delayed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from rlship_formats.reading import Event, FileReader, Metrics, Span, derive_metric
from rlship_formats.records import Open
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.pipeline.intake import NUL_WAIT_S
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import Descriptors, Position, Replaced, Tail

READ_BYTES = 1 << 20


class FilePlace(msgspec.Struct):
    """How far a file was read, the bytes that identify it, and the state after its lines: its `open` record and the
    last `t`.
    """

    offset: int = 0
    head: bytes = b""
    before: bytes = b""
    open: Open | None = None
    foreign: bool = False
    t: float = 0.0


class Observer:
    """Reads all files of an experiment on from `places`, by name, and keeps `places` up to date."""

    def __init__(
        self, experiment: Path, places: dict[str, FilePlace], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.places = places
        self._local = filesystem_of(os.path.realpath(experiment)).local
        # Not kept open between two looks, because a name may come to refer to another file.
        self._opener = Opener(str(experiment), Descriptors(1, keep=False, root=str(experiment)))
        self._tails: dict[str, Tail] = {}
        self._held: dict[str, float] = {}
        self._clock = clock

    def look(self) -> Iterator[bytes]:
        """The new observations of all files, as whole lines, a piece of one file after the other.

        `places` are those after the piece that was yielded last. A file that cannot be read now is left for the next
        look.
        """
        try:
            found = self._opener.all()
        except OSError:
            return
        for name in sorted(found):
            self._tails.setdefault(name, found[name])
            more = True
            while more:
                try:
                    data, more = self._read(name)
                except OSError:
                    break
                if data:
                    yield data

    def _read(self, name: str) -> tuple[bytes, bool]:
        """The observations of the next piece of a file, and whether the file has more."""
        place = self.places.get(name) or FilePlace()
        tail = self._tails[name]
        held_for = self._clock() - self._held.get(name, self._clock())
        start = Position(place.offset, place.head, place.before)
        try:
            if tail.size() <= start.offset:
                return b"", False
            piece = tail.read(start, READ_BYTES, hold_nul=not self._local and held_for < NUL_WAIT_S)
        except Replaced:
            # Another file has the name: its lines are new ones.
            self._tails[name] = self._opener.tail(name)
            self.places[name] = FilePlace()
            return b"", True
        if piece.held:
            self._held.setdefault(name, self._clock())
        else:
            self._held.pop(name, None)
        if piece.end == start.offset:
            return b"", piece.more
        place = msgspec.structs.replace(place)
        made = [line for line in (observation(place, line) for line in piece.lines) if line is not None]
        mark = piece.position(piece.end)
        place.offset, place.head, place.before = mark.offset, mark.head, mark.before
        self.places[name] = place
        return b"".join(line + b"\n" for line in made), piece.more


def observation(place: FilePlace, line: bytes) -> bytes | None:
    """A line of a file as an observation in JSON; None for other lines. `place` gets the state after the line."""
    reader = FileReader(place.open, t=place.t, unsupported=place.foreign)
    record = reader.read(line)
    place.open, place.t, place.foreign = reader.opened, reader.t, reader.unsupported
    opened = reader.opened
    if opened is None or not isinstance(record, (Metrics, Span, Event)):
        return None
    if isinstance(record, Event) and record.is_about_writer:
        return None
    if isinstance(record, Metrics):
        t, metrics = record.t, {name: record.m[name] for name, _ in record.observed()[0]}
    else:
        t, name, value, _ = derive_metric(record)
        metrics = {name: value}
    if not metrics:
        return None
    return orjson.dumps(
        {
            "actor": opened.actor,
            "replica": opened.replica,
            "rank": opened.rank,
            "attempt": opened.attempt,
            "t": t,
            "step": record.step,
            "m": metrics,
        }
    )


def text(line: bytes) -> str:
    """An observation in one line for people: writer, time, step and values."""
    body = orjson.loads(line)
    at = "" if body["step"] is None else f" step={body['step']}"
    values = "  ".join(f"{name}={_brief(value)}" for name, value in body["m"].items())
    when = f" t={body['t']:.3f}" if body["t"] else ""
    return f"{body['actor']}/{body['replica']}.{body['rank']}{when}{at}  {values}"


def _brief(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.4g}"
    return str(value) if isinstance(value, (str, bool)) else orjson.dumps(value).decode()
