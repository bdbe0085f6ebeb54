"""Every observation straight from the writers' files, as it stands there: the form without any reduction.

A metrics record, or what a span or event stands for, becomes one line of JSON. Nothing is superseded, nothing waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from rlship_formats.records import KNOWN_KINDS, BadRecord, Open, UnsupportedVersion, is_step, parse_open, time_of
from rlship_formats.standing import STANDING, stands_for
from rlship_formats.values import DeadValue, observe
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.pipeline.intake import NUL_WAIT_S
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import Bookmark, Descriptors, Replaced, Tail

READ_BYTES = 1 << 20


class Place(msgspec.Struct):
    """How far a file was taken in, by what to know it again, and what its lines left behind there: who wrote it, and
    the last `t`.
    """

    offset: int = 0
    head: bytes = b""
    before: bytes = b""
    open: Open | None = None
    foreign: bool = False
    t: float = 0.0


class Observer:
    """Reads all files of an experiment on from `places`, by name, which it keeps up to date."""

    def __init__(
        self, experiment: Path, places: dict[str, Place], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.places = places
        self._local = filesystem_of(os.path.realpath(experiment)).local
        # Not kept open between two looks: a name may come to mean another file.
        self._opener = Opener(str(experiment), Descriptors(1, keep=False, root=str(experiment)))
        self._tails: dict[str, Tail] = {}
        self._held: dict[str, float] = {}
        self._clock = clock

    def look(self) -> Iterator[bytes]:
        """What is new in all files, as whole lines; a piece of one file after the other. `places` are those after the
        piece that was given last. A file that cannot be read just now is left for the next look.
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
        """The observations of the next piece of a file, and whether there is more of it."""
        place = self.places.get(name) or Place()
        tail = self._tails[name]
        held_for = self._clock() - self._held.get(name, self._clock())
        start = Bookmark(place.offset, place.head, place.before)
        try:
            if tail.size() <= start.offset:
                return b"", False
            piece = tail.read(start, READ_BYTES, hold_nul=not self._local and held_for < NUL_WAIT_S)
        except Replaced:
            # Another file has the name: its lines are new ones.
            self._tails[name] = self._opener.tail(name)
            self.places[name] = Place()
            return b"", True
        if piece.held:
            self._held.setdefault(name, self._clock())
        else:
            self._held.pop(name, None)
        if piece.end == start.offset:
            return b"", piece.more
        place = msgspec.structs.replace(place)
        made = [line for line in (observation(place, line) for line in piece.lines) if line is not None]
        mark = piece.bookmark(piece.end)
        place.offset, place.head, place.before = mark.offset, mark.head, mark.before
        self.places[name] = place
        return b"".join(line + b"\n" for line in made), piece.more


def observation(place: Place, line: bytes) -> bytes | None:
    """A line of a file as an observation in JSON, None for one that is none; `place` takes what it leaves behind."""
    try:
        record = orjson.loads(line)
        if not isinstance(record, dict):
            return None
        if record.get("kind") == "open":
            if place.open is None and not place.foreign:
                place.open = parse_open(record)
                place.t = place.open.t
            return None
        found = _metrics(place, record)
    except UnsupportedVersion:
        place.foreign = True
        return None
    except ValueError:  # of which BadRecord is one
        return None
    if place.open is None or found is None or not found[1]:
        return None
    opened, (t, metrics) = place.open, found
    return orjson.dumps(
        {
            "actor": opened.actor,
            "replica": opened.replica,
            "rank": opened.rank,
            "attempt": opened.attempt,
            "t": t,
            "step": record.get("step"),
            "m": metrics,
        }
    )


def _metrics(place: Place, record: dict[str, Any]) -> tuple[float, dict[str, Any]] | None:
    """The time of a record and the usable values that it has or stands for; raises BadRecord."""
    kind = record.get("kind")
    if place.open is None or ("kind" in record and (not isinstance(kind, str) or kind not in KNOWN_KINDS)):
        return None
    if "step" in record and not is_step(record["step"]):
        raise BadRecord("bad step")
    t = time_of(record, place.t)
    if "kind" not in record:
        metrics = record.get("m")
        if not isinstance(metrics, dict):
            raise BadRecord("bad metrics")
        place.t = t
        return t, {name: value for name, value in metrics.items() if name and _is_usable(value)}
    if kind in STANDING:
        stands = stands_for(kind, record, t)
        place.t = t
        return stands.t, {stands.metric: stands.value} if stands.metric else {}
    place.t = t
    return None


def _is_usable(value: Any) -> bool:
    try:
        return observe(value) is not None
    except DeadValue:
        return False


def text(line: bytes) -> str:
    """An observation in one line for people: who, when, at which step, and its values."""
    body = orjson.loads(line)
    at = "" if body["step"] is None else f" step={body['step']}"
    values = "  ".join(f"{name}={_brief(value)}" for name, value in body["m"].items())
    when = f" t={body['t']:.3f}" if body["t"] else ""
    return f"{body['actor']}/{body['replica']}.{body['rank']}{when}{at}  {values}"


def _brief(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.4g}"
    return str(value) if isinstance(value, (str, bool)) else orjson.dumps(value).decode()
