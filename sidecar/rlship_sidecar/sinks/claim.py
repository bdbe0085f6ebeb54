"""The right to write to a destination made of files: it belongs to one store, and to the last sidecar that owned it.

A process may freeze between any two steps, be succeeded by another, and continue when it wakes up. So no step of an
earlier generation may have an effect once a later one has claimed the destination. A generation claims it by a file of
its own name, an owner file:

- A file gets a name (rename) only if it was made under a name of this generation, and only after a look at the owner
  files. A later generation makes its own first and then removes such files: the rename finds nothing.
- A file is written only through a descriptor that was open before a look at the owner files. A later generation
  replaces every file that an earlier one may have open by a copy: late writes go to a file without a name.
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


class _OwnerFile(NamedTuple):
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

    def __init__(self, sink: str, place: Path, base: Path, run: SinkContext) -> None:
        """`place` names the destination for people; the names of owner files begin with the path `base`."""
        self._sink = sink
        self._place = place
        self._folder = base.parent
        self._base = base.name
        self._store_id = run.store_id
        self._generation = run.generation
        self._suspect = run.suspect
        self._name = re.compile(
            re.escape(base.name) + r"\.(?P<store>[^.]+)\.(?P<generation>\d{1,9})\.(?P<kind>claim|owner|[a-z]+\.tmp)"
        )

    def take(self, *, occupied: bool) -> bool:
        """Claim it. `occupied`: the destination holds rows.

        Returns whether an earlier sidecar that is still alive may have its files open. Then replace them by copies and
        call `fenced`. Raises SinkRefused if the rows are another store's, or if a later generation claimed it.
        """
        owners = self._owner_files()
        others = [one for one in owners if one.store_id != self._store_id and not one.kind.endswith(".tmp")]
        ours = [one for one in owners if one.store_id == self._store_id and not one.kind.endswith(".tmp")]
        if occupied and not ours:
            raise self._foreign(others[0] if others else None)
        self._refuse_if_followed(ours)
        if all(one.generation != self._generation for one in ours):
            os.close(os.open(self._path("claim"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
            sync_folder(self._folder)
        # Only now: an earlier generation sees the owner file, so it publishes no file that it makes from here on.
        self._remove([one for one in self._owner_files() if one.kind.endswith(".tmp") or one in others])
        made_sure = max((one.generation for one in ours if one.kind == "owner"), default=-1)
        if made_sure < 0 or self._suspect >= made_sure:
            return True
        self.fenced()
        return False

    def fenced(self) -> None:
        """Record that no earlier generation has any of the files open."""
        with suppress(FileNotFoundError):
            os.replace(self._path("claim"), self._path("owner"))
        self._remove([one for one in self._owner_files() if one.kind in ("claim", "owner")])
        sync_folder(self._folder)

    def verify(self) -> None:
        """Raise SinkRefused if the destination is another's by now, SinkUnavailable if it has to be claimed again."""
        owners = [one for one in self._owner_files() if not one.kind.endswith(".tmp")]
        self._refuse_if_followed(owners)
        for one in owners:
            if one.store_id != self._store_id:
                raise self._foreign(one)
        if not owners:
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

    def _owner_files(self) -> list[_OwnerFile]:
        with os.scandir(self._folder) as entries:
            found = [self._name.fullmatch(entry.name) for entry in entries]
        return [_OwnerFile(one[0], one["store"], int(one["generation"]), one["kind"]) for one in found if one]

    def _refuse_if_followed(self, owners: list[_OwnerFile]) -> None:
        for one in owners:
            if one.store_id == self._store_id and one.generation > self._generation:
                raise SinkRefused(
                    f"sink {self._sink}: a later sidecar (generation {one.generation}) writes to {self._place}, this "
                    f"one has generation {self._generation}: keep one sidecar per experiment. If its state was "
                    f"restored from an older copy, move the files there away, with {self._folder / one.name}"
                )

    def _foreign(self, one: _OwnerFile | None) -> SinkRefused:
        whose = (
            f"rows of an unknown store (without {self._base}.*.owner)"
            if one is None
            else f"the rows of another store ({one.store_id})"
        )
        return SinkRefused(
            f"sink {self._sink}: {self._place} holds {whose}, not of this one ({self._store_id}): move it away, "
            f"or give [sink.{self._sink}] another place"
        )

    def _remove(self, owners: list[_OwnerFile]) -> None:
        """Remove the owner files up to this generation, except its own."""
        for one in owners:
            ours = one.store_id == self._store_id
            own = ours and one.generation == self._generation and one.kind in ("claim", "owner")
            if not own and not (ours and one.generation > self._generation):
                with suppress(FileNotFoundError):
                    (self._folder / one.name).unlink()
