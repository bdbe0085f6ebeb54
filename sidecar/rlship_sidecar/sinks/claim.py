"""The right to write to a destination made of files: it belongs to one store, and to the last sidecar that owned it.

A process may freeze between any two steps, be succeeded by another, and continue when it wakes up. So no step of an
earlier generation may have an effect once a later one has claimed the destination. A generation claims it by a file of
its own name, a mark:

- A file gets a name (rename) only if it was made under a name of this generation, and only after a look at the marks. A
  later generation makes its mark first and then removes such files: the rename finds nothing.
- A file is written only through a descriptor that was open before a look at the marks. A later generation replaces
  every file that an earlier one may have open by a copy: late writes go to a file without a name.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.filesystem import sync_folder
from rlship_sidecar.plainfiles import make_plain
from rlship_sidecar.sinks.contract import SinkContext, SinkRefused, SinkUnavailable

_COPY_BYTES = 1 << 24


class _Mark(NamedTuple):
    """A name that a sidecar made beside its destination.

    `kind` is first "claim", then "owner" once no earlier sidecar has a file of it open. "….tmp" is a file in the
    making.
    """

    name: str
    store_id: str
    generation: int
    kind: str


class Claim:
    """The right of one generation to write to a destination, as long as `verify` does not raise."""

    def __init__(self, sink: str, place: Path, marks: Path, run: SinkContext) -> None:
        """`place` names the destination for people; the names of marks begin with the path `marks`."""
        self._sink = sink
        self._place = place
        self._folder = marks.parent
        self._base = marks.name
        self._store_id = run.store_id
        self._generation = run.generation
        self._suspect = run.suspect
        self._name = re.compile(
            re.escape(marks.name) + r"\.(?P<store>[^.]+)\.(?P<generation>\d{1,9})\.(?P<kind>claim|owner|[a-z]+\.tmp)"
        )

    def take(self, *, occupied: bool) -> bool:
        """Claim it. `occupied`: the destination holds rows.

        Returns whether an earlier sidecar that is still alive may have its files open. Then replace them by copies and
        call `fenced`. Raises SinkRefused if the rows are another store's, or if a later generation claimed it.
        """
        marks = self._marks()
        others = [mark for mark in marks if mark.store_id != self._store_id and not mark.kind.endswith(".tmp")]
        ours = [mark for mark in marks if mark.store_id == self._store_id and not mark.kind.endswith(".tmp")]
        if occupied and not ours:
            raise self._foreign(others[0] if others else None)
        self._refuse_if_followed(ours)
        if all(mark.generation != self._generation for mark in ours):
            os.close(os.open(self._path("claim"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
            sync_folder(self._folder)
        # Only now: an earlier generation sees the mark, so it publishes no file that it makes from here on.
        self._remove([mark for mark in self._marks() if mark.kind.endswith(".tmp") or mark in others])
        made_sure = max((mark.generation for mark in ours if mark.kind == "owner"), default=-1)
        if made_sure < 0 or self._suspect >= made_sure:
            return True
        self.fenced()
        return False

    def fenced(self) -> None:
        """Record that no earlier generation has any of the files open."""
        with suppress(FileNotFoundError):
            os.replace(self._path("claim"), self._path("owner"))
        self._remove([mark for mark in self._marks() if mark.kind in ("claim", "owner")])
        sync_folder(self._folder)

    def verify(self) -> None:
        """Raise SinkRefused if the destination is another's by now, SinkUnavailable if it has to be claimed again."""
        marks = [mark for mark in self._marks() if not mark.kind.endswith(".tmp")]
        self._refuse_if_followed(marks)
        for mark in marks:
            if mark.store_id != self._store_id:
                raise self._foreign(mark)
        if not marks:
            raise SinkUnavailable(f"sink {self._sink}: {self._path('owner')} is gone: opening the sink again")

    def scratch(self, what: str) -> Path:
        """The path for a new file that is to be published. `what`: lower-case letters, one word for each kind."""
        return self._path(f"{what}.tmp")

    def scratch_prefix(self, what: str) -> str:
        """The beginning of such a name if `state_file.replacing` chooses the rest, letters and `.tmp`."""
        return self._path(what).name

    def publish(self, scratch: Path, target: Path) -> None:
        """Give its name to a file that was made at `scratch` and synced."""
        self.verify()
        os.replace(scratch, target)
        sync_folder(target.parent)

    def copy(self, source: Path, size: int) -> None:
        """Replace a file by a copy of its first `size` bytes."""
        scratch = self.scratch("copy")
        with open(source, "rb") as old, open(make_plain(scratch), "wb") as new:
            while size:
                data = old.read(min(size, _COPY_BYTES))
                if not data:
                    raise SinkUnavailable(f"sink {self._sink}: {source} became shorter while it was copied")
                new.write(data)
                size -= len(data)
            new.flush()
            os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o7777)
            os.fsync(new.fileno())
        self.publish(scratch, source)

    def _path(self, kind: str) -> Path:
        return self._folder / f"{self._base}.{self._store_id}.{self._generation}.{kind}"

    def _marks(self) -> list[_Mark]:
        with os.scandir(self._folder) as entries:
            found = [self._name.fullmatch(entry.name) for entry in entries]
        return [_Mark(mark[0], mark["store"], int(mark["generation"]), mark["kind"]) for mark in found if mark]

    def _refuse_if_followed(self, marks: list[_Mark]) -> None:
        for mark in marks:
            if mark.store_id == self._store_id and mark.generation > self._generation:
                raise SinkRefused(
                    f"sink {self._sink}: a later sidecar (generation {mark.generation}) writes to {self._place}, this "
                    f"one has generation {self._generation}: keep one sidecar per experiment. If its state was "
                    f"restored from an older copy, move the files there away, with {self._folder / mark.name}"
                )

    def _foreign(self, mark: _Mark | None) -> SinkRefused:
        whose = (
            f"rows of an unknown store (without {self._base}.*.owner)"
            if mark is None
            else f"the rows of another store ({mark.store_id})"
        )
        return SinkRefused(
            f"sink {self._sink}: {self._place} holds {whose}, not of this one ({self._store_id}): move it away, "
            f"or give [sink.{self._sink}] another place"
        )

    def _remove(self, marks: list[_Mark]) -> None:
        """Remove the marks up to this generation, except its own."""
        for mark in marks:
            ours = mark.store_id == self._store_id
            own = ours and mark.generation == self._generation and mark.kind in ("claim", "owner")
            if not own and not (ours and mark.generation > self._generation):
                with suppress(FileNotFoundError):
                    (self._folder / mark.name).unlink()
