"""How far the curve of each tag has come, and from which step on charts lack points of it.

A point may be appended as long as it lies after the last one of its tag. The points of any other row are held back
(`held`) until they are written together with all later ones of their tags (`again`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rlship_sidecar import state_file
from rlship_sidecar.sinks.tensorboard.config import is_run_data
from rlship_sidecar.sinks.tensorboard.held import is_held, release, takes_away

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event

CURVES_FILE = "tensorboard-curves.json"


class _Saved(msgspec.Struct, omit_defaults=True):
    """What the file holds. Steps and counts are by tag."""

    store: str
    generation: int
    rows: int
    last: dict[str, int]
    points: dict[str, int]
    lacking: dict[str, int]
    shrunk: list[str] = []


_decode = msgspec.json.Decoder(_Saved).decode


class Curves:
    """The last step of each tag, the number of its points, and the step from which on it lacks some.

    All of it follows from the rows in the event files. A file of the state directory saves a start from reading them
    all; if it is gone or does not fit, they are read.
    """

    def __init__(self, state_dir: Path, store_id: str, generation: int) -> None:
        self.lacking: dict[str, int] = {}
        """By tag the first step of which charts do not have the newest value yet."""
        self.shrunk: set[str] = set()
        """Tags in `lacking` of which a point was taken away."""
        self.points: dict[str, int] = {}
        """By tag how many points rows have."""
        self._last: dict[str, int] = {}
        self._path = state_dir / CURVES_FILE
        self._store_id = store_id
        self._generation = generation

    def load(self, rows: int, shown_below: int, *, since: int) -> int:
        """Take what was saved, at first. `rows`: how many rows the event files hold. `shown_below`: the points of all
        rows below it are in the charts. `since`: the newest sidecar that wrote rows; what an earlier one saved does not
        count, because it may have been frozen meanwhile. Returns the first row that `read` has to be called with.
        """
        try:
            known = _decode(self._path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):  # a torn or strange file: the rows are read again
            return 0
        if known.store != self._store_id or known.rows > rows or known.generation < since:
            return 0
        self._last, self.points = known.last, known.points
        if shown_below < known.rows:
            self.lacking, self.shrunk = known.lacking, set(known.shrunk)
        return known.rows

    def save(self, rows: int) -> None:
        """Save what is known after `rows` rows, unless the disk is full: the next start reads more rows then."""
        known = _Saved(self._store_id, self._generation, rows, self._last, self.points, self.lacking, [*self.shrunk])
        with suppress(OSError):
            state_file.replace(self._path, msgspec.json.encode(known) + b"\n", durable=False)

    def read(self, event: Event, *, shown: bool) -> None:
        """Take in the event of a row from an event file. `shown`: charts have its points by now."""
        made = release(event)
        tags, step = tags_of(made), event.step
        # An earlier rlship appended points that lie before the last one of their tag.
        lacks = not shown and (is_held(event) or any(self._last.get(tag, -1) > step for tag in tags))
        self._count(tags, step, lacks=lacks)
        if lacks:
            self.shrunk.update(_taken_away(made))

    def admit(self, made: Event, *, many: bool) -> bool:
        """Count the points of a new row; whether they can be appended. `many`: some of them may have the same step."""
        tags, step = tags_of(made), made.step
        bound = step + 1 if many else step
        shrunk = _taken_away(made)
        fits = not shrunk and all(self._last.get(tag, -1) < bound for tag in tags)
        self._count(tags, step, lacks=not fits)
        self.shrunk.update(shrunk)
        return fits

    def written_again(self) -> None:
        """Charts have all points of all curves."""
        self.lacking.clear()
        self.shrunk.clear()

    def _count(self, tags: Iterable[str], step: int, *, lacks: bool) -> None:
        for tag in tags:
            self._last[tag] = max(self._last.get(tag, step), step)
            self.points[tag] = self.points.get(tag, 0) + 1
            if lacks:
                self.lacking[tag] = min(self.lacking.get(tag, step), step)


def tags_of(made: Event) -> list[str]:
    """The tags of a row's points."""
    return [value.tag for value in made.summary.value if not is_run_data(value)]


def _taken_away(made: Event) -> list[str]:
    return [value.tag for value in made.summary.value if takes_away(value)]
