"""Files that write the points of charts again, from a step on: after them a chart has the newest value of each step.

Such a file holds no rows. Each point in it takes the place of all points of its tag from its step on, in both of
TensorBoard's readers. The data server always reads points so. The reader of `--load_fast false` does so in files of
version 1, if the step lies before that of the last event. An event without points and with a very high step sees to
that.
"""

from __future__ import annotations

import os
import struct
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from rlship_sidecar.plainfiles import make_plain
from rlship_sidecar.sinks.tensorboard.curves import Curves
from rlship_sidecar.sinks.tensorboard.events import FOOTER_BYTES, HEADER_BYTES, encode, whole_header
from rlship_sidecar.sinks.tensorboard.held import blank, release, takes_away
from rlship_sidecar.sinks.tensorboard.parts import PartFile, find_again, find_parts

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

EVENT_FILE = "tfevents"
VERSION = "brain.Event:1"
MAX_POINTS = 10_000  # of a tag in one file; TensorBoard shows 1,000 of them unless it is asked for more
WAIT = 100.0  # times as long as it took: it takes at most a hundredth of the time
SPACING_S = 1 / 40  # times the square of the number of files: a month of it makes 900 files, two each time
FREE_BYTES = 64 << 20
MAX_TIMES = 4  # as many bytes as the rows have
_BEYOND = 1 << 62
_MAX_FILES = 8
_WALL_TIME, _STEP = b"\x09", b"\x10"
_AFTER_STEP = (b"", b"\x2a", b"\x32")  # nothing, a summary, a `log_message`


_Point = tuple[int, float, "Summary.Value"]  # step, wall time and value


class Damaged(Exception):
    """A part does not hold what it held. `whole_to`: what follows this byte has to go; None: the part shows it itself.

    The rows from there on have to be written again from the store.
    """

    def __init__(self, path: Path, problem: str, whole_to: int | None = None) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.whole_to = whole_to


class _Part:
    """Where the rows of a part are, as far as it was read: steps, and places of the events' data."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.steps = array("q")
        self._starts = array("q")
        self._sizes = array("l")
        self._end = self._inode = 0

    def read_on(self) -> None:
        """Take in what was appended; everything if the file is another one or became shorter."""
        with open(self.path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._end:
                self._forget()
                self._inode = found.st_ino
            file.seek(self._end)
            data = file.read()
        base, at = self._end, 0
        while at + HEADER_BYTES <= len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            start = at + HEADER_BYTES
            if start + size + FOOTER_BYTES > len(data) or not whole_header(data[at:start]):
                return
            if base + at:  # the first event of a file is its version
                self.steps.append(_step(data[start : start + 24]))
                self._starts.append(base + start)
                self._sizes.append(size)
            at = start + size + FOOTER_BYTES
            self._end = base + at

    def read(self, fd: int, number: int) -> Event:
        """The event of the part's row `number`, counted from 0, as it was before it was held back."""
        start, size = self._starts[number], self._sizes[number]
        data = os.pread(fd, size, start)
        if len(data) < size:
            raise Damaged(self.path, f"became shorter than {start + size} bytes")
        try:
            found = event_of(data)
            if found.step != self.steps[number]:
                raise ValueError("no event can be read there")
            return found
        except ValueError as error:
            raise Damaged(self.path, f"is damaged at byte {start}: {error}", start - HEADER_BYTES) from error


class _Place(NamedTuple):
    """A row: its step, its row number, its part and its number in the part. The first two are their order."""

    step: int
    row_number: int
    part: int
    number: int


class Rows:
    """The rows in the parts of a store, by their steps. 24 bytes for each, once points had to be written again."""

    def __init__(self) -> None:
        self._parts: dict[Path, _Part] = {}

    def read_on(self, parts: list[PartFile], rows: int) -> None:
        """Take in what is new. `parts`: all of them, in order; raises Damaged unless they hold rows 0 to `rows` - 1."""
        known = self._parts
        self._parts = {part.path: known.get(part.path) or _Part(part.path) for part in parts}
        for one in self._parts.values():
            one.read_on()
        self._firsts = [part.first for part in parts]
        held = 0
        for part in parts:
            if part.first > held:
                break
            held = max(held, part.first + len(self._parts[part.path].steps))
        if held < rows:
            raise Damaged(parts[0].path.parent if parts else Path(), f"lacks row {held}")

    def from_step(self, step: int) -> Iterator[Event]:
        """The events of this step and all later ones, in the order of steps, those of a step in that of rows."""
        return self._read(sorted(self._places(step, _BEYOND)))

    def before_step(self, step: int) -> Iterator[Event]:
        """The events of all earlier steps, the last step and the newest row first."""
        return self._read(sorted(self._places(-_BEYOND, step - 1), reverse=True))

    def _places(self, first_step: int, last_step: int) -> list[_Place]:
        found = []
        parts = list(self._parts.values())
        for which, (part, first, following) in enumerate(zip(parts, self._firsts, [*self._firsts[1:], _BEYOND])):
            found += [
                _Place(at, first + number, which, number)
                for number, at in enumerate(part.steps[: following - first])
                if first_step <= at <= last_step
            ]
        return found

    def _read(self, places: Sequence[_Place]) -> Iterator[Event]:
        parts = list(self._parts.values())
        fds: dict[int, int] = {}
        try:
            for place in places:
                if place.part not in fds:
                    if len(fds) >= _MAX_FILES:
                        os.close(fds.pop(next(iter(fds))))
                    fds[place.part] = os.open(parts[place.part].path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                yield parts[place.part].read(fds[place.part], place.number)
        finally:
            for fd in fds.values():
                os.close(fd)


class Again:
    """When points are written again, and from where: the parts in a folder. It is done now and then for all tags that
    lack any, because each time the rest of their curves is written.
    """

    def __init__(self, folder: Path, store_id: str, curves: Curves) -> None:
        self._folder = folder
        self._store_id = store_id
        self.curves = curves
        self._rows = Rows()
        self._not_before = 0.0

    def wait_s(self) -> float | None:
        """The seconds until points should be written again; None if no curve lacks any, or if those that were written
        again take `FREE_BYTES` and `MAX_TIMES` as much space as the rows. Then they are written when the sink closes.
        """
        if not self.curves.lacking:
            return None
        wait = self._not_before - time.monotonic()
        if wait > 0.0:
            return wait
        written = sum(one.path.stat().st_size for one in find_again(self._folder, self._store_id))
        rows = sum(part.path.stat().st_size for part in self._parts())
        return 0.0 if written <= FREE_BYTES + MAX_TIMES * rows else None

    def write(self, scratch: Path, rows: int) -> None:
        """Write and sync the file at `scratch`. Raises Damaged unless the parts hold rows 0 to `rows` - 1."""
        began = time.monotonic()
        self._rows.read_on(self._parts(), rows)
        with open(make_plain(scratch), "wb") as file:
            write_again(file, self._rows, self.curves)
            file.flush()
            os.fsync(file.fileno())
        # TensorBoard's data server keeps every event file of a run open.
        files = sum(EVENT_FILE in path.name for path in self._folder.iterdir())
        ended = time.monotonic()
        self._not_before = ended + max(WAIT * (ended - began), SPACING_S * files**2)

    def _parts(self) -> list[PartFile]:
        return [part for part in find_parts(self._folder) if part.store_id == self._store_id]


def write_again(file: BinaryIO, rows: Rows, curves: Curves) -> None:
    """Write, for each tag that lacks points, those from the first lacking one on: the newest of each step.

    Of a tag with more than `MAX_POINTS` points, every second, third, … is left out, but for the last. A point that was
    taken away goes with the one before it, which comes again.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    def put(event: Event) -> None:
        file.write(encode(event.SerializeToString(deterministic=True)))

    lacking, seen = _from_before(rows, curves), set[str]()
    thinned = _Thinned({tag: -(-curves.points[tag] // MAX_POINTS) for tag in lacking})
    for step, wall_time, values in thinned.points(rows.from_step(min(lacking.values())), lacking):
        if not seen:
            put(Event(wall_time=wall_time, file_version=VERSION))
        tags = {value.tag for value in values}
        if not tags <= seen:
            put(Event(wall_time=wall_time, step=_BEYOND, summary=Summary()))
            seen |= tags
        put(Event(wall_time=wall_time, step=step, summary=Summary(value=values)))


def _from_before(rows: Rows, curves: Curves) -> dict[str, int]:
    """By tag the step from which on points have to be written: where one was taken away, that of the point before."""
    lacking, wanted, passed = dict(curves.lacking), set(curves.shrunk), dict[str, int]()
    if not wanted:
        return lacking
    for event in rows.before_step(max(curves.lacking[tag] for tag in wanted)):
        for value in event.summary.value:
            tag = value.tag
            if tag not in wanted or event.step >= curves.lacking[tag] or passed.get(tag) == event.step:
                continue
            if takes_away(value):
                passed[tag] = event.step
            else:
                lacking[tag] = event.step
                wanted.remove(tag)
        if not wanted:
            break
    return lacking


class _Thinned:
    """Keeps every n-th point of a tag, and its last one."""

    def __init__(self, every: Mapping[str, int]) -> None:
        self._every = every
        self._counted = dict.fromkeys(every, 0)

    def points(
        self, events: Iterator[Event], lacking: Mapping[str, int]
    ) -> Iterator[tuple[int, float, list[Summary.Value]]]:
        """Step, time and values, for each step and time."""
        left_out: dict[str, _Point] = {}
        for step, held in groupby(events, key=lambda event: event.step):
            newest: dict[str, _Point] = {}
            for event in held:
                for value in event.summary.value:
                    if lacking.get(value.tag, _BEYOND) <= step:
                        self._take(newest, (step, event.wall_time, value))
            kept = []
            for tag, point in newest.items():
                if self._counted[tag] % self._every[tag]:
                    left_out[tag] = point
                else:
                    left_out.pop(tag, None)
                    kept.append(point)
                self._counted[tag] += 1
            yield from _joined(kept)
        yield from _joined(sorted(left_out.values(), key=lambda point: point[:2]))

    def _take(self, newest: dict[str, _Point], point: _Point) -> None:
        """Take in the next point of a step."""
        step, wall_time, value = point
        if not takes_away(value):
            newest[value.tag] = point
        elif value.tag in newest and not self._counted[value.tag]:
            # No point before it takes it out of the chart.
            newest[value.tag] = (step, wall_time, blank(newest[value.tag][2]))
        else:
            newest.pop(value.tag, None)


def _joined(points: list[_Point]) -> Iterator[tuple[int, float, list[Summary.Value]]]:
    """Points of one step and time together; they stand beside each other."""
    for (step, wall_time), found in groupby(sorted(points, key=lambda point: point[:2]), key=lambda point: point[:2]):
        yield step, wall_time, [value for _, _, value in found]


def event_of(data: bytes) -> Event:
    """The event of a row from its data, as it was before it was held back. Raises ValueError for damage."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
    from tensorboardX.proto.event_pb2 import Event

    try:
        return release(Event.FromString(data))
    except DecodeError as error:
        raise ValueError("no event can be read there") from error


def _step(head: bytes) -> int:
    """The step of an event, from the first bytes of its data: a double and a varint, each left out if it is 0.

    Of what cannot be an event it is beyond all steps, so that the event is read, and the damage is found.
    """
    at = 9 if head[:1] == _WALL_TIME else 0
    if head[at : at + 1] != _STEP:
        return 0 if head[at : at + 1] in _AFTER_STEP else _BEYOND
    step = shift = 0
    for byte in head[at + 1 :]:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return min(step, _BEYOND)
