"""One experiment: every stage from its files to committed rows, wired. One thread; the caller passes the time.

A `tick` reads what is new, decides what closes, reduces it and commits positions, rows and dirty marks together.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from rlship_sidecar.align import MAX_KEPT, Actor, Patience
from rlship_sidecar.changes import Changes
from rlship_sidecar.discover import WRITERS_FOLDER, Folder
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.lineage import Writer
from rlship_sidecar.lines import Batch, Dead, Schemas, too_long
from rlship_sidecar.reduce import reduce_unit
from rlship_sidecar.rows import Arrival, Row, Unit
from rlship_sidecar.source import Source, load_source, new_source, read_again, read_from_floor
from rlship_sidecar.store import Store
from rlship_sidecar.tail import Descriptors, NotAFile
from rlship_sidecar.window import Window

ROUND_STEPS = 32  # steps that one look at a file takes in, so that the open units stay few while history is read
SAVE_EVERY_S = 5.0  # positions alone are not worth a transaction: what is not saved is read again
REST_EVERY_S = 30.0  # how often a file whose writer closed it is looked at
SETTLED_S = 60.0

_ALL = 1 << 62


class Experiment:
    """The pipeline of one experiment over its store."""

    def __init__(
        self,
        directory: Path,
        store: Store,
        filesystem: Filesystem,
        *,
        now: float,
        patience: Patience | None = None,
        overrides: Mapping[str, Sequence[str]] | None = None,
        max_open_files: int = 256,
    ) -> None:
        self.directory = directory
        self.folder = os.path.join(directory, WRITERS_FOLDER)
        self.store = store
        self.filesystem = filesystem
        self._listing = Folder(self.folder, local=filesystem.local)
        self.sources: dict[str, Source] = {}
        self.actors: dict[str, Actor] = {}
        self.oddities: dict[str, str] = {}
        self.overrides = dict(overrides or {})
        self._patience = patience or Patience()
        self._files = Descriptors(max_open_files, keep=filesystem.local)
        self._schemas = Schemas()
        self._changed: dict[str, Source] = {}
        self._dead: list[tuple[str, Dead]] = []
        self._counts: dict[str, int] = {}
        self._revised: list[tuple[str, int]] = []
        self._saved_at = now
        store.adopt(orjson.dumps(self.overrides, option=orjson.OPT_SORT_KEYS).decode())
        self._load(now)

    def close(self) -> None:
        """Release the files; what was not committed is read again next time."""
        self._files.close()

    # Restart -------------------------------------------------------------------------------------------------------

    def _load(self, now: float) -> None:
        """Go on where the store left off: rebuild what was open, remember what is dirty."""
        floors = {}
        for saved in self.store.writers():
            path = os.path.join(self.folder, saved.file)
            source = load_source(saved, path, self._files, self._schemas, self.store, now)
            self.sources[saved.file] = source
            floors[saved.file] = saved.floor
            if source.writer is not None:
                self._actor(source.writer.open.actor).add_writer(source.writer, now)
        for actor in self.actors.values():
            actor.dirty.clear()  # children that were loaded before their parents made it so: the store knows better
        for source in self.sources.values():
            floor = floors[source.name]
            if source.writer is not None and floor < source.read:
                actor = self._actor(source.writer.open.actor)
                try:
                    for batch in read_from_floor(source, self.store, self._schemas, floor):
                        actor.restore(source.writer, batch, now)
                except OSError as error:
                    source.problem = _words(error)
        for name, step in self.store.dirty():
            self._actor(name).soil(step, self.store.row_of(name, step) is True, now)
        for actor in self.actors.values():
            actor.newly_dirty.clear()

    def _actor(self, name: str) -> Actor:
        actor = self.actors.get(name)
        if actor is None:
            actor = self.actors[name] = Actor(name, self.store.of_actor(name), self._patience)
            actor.highest_closed = self.store.highest(name)
        return actor

    # One tick ------------------------------------------------------------------------------------------------------

    def tick(self, now: float, *, only: Collection[str] | None = None, end: bool = False) -> bool:
        """Read, decide, commit. Returns whether files hold more than was read: call again at once.

        `only`: names of files known to have changed, where not all need be looked at. `end`: nothing more will come, so
        once all is read every open step becomes a row and every revision is made.
        """
        if only is None or not all(name in self.sources for name in only):
            self._discover(now, force=end)
        more = self._read(now, self.sources if only is None else only, end=end)
        open_before = self._open_units()
        rows = self._close_units(now, timers=only is None, end=end and not more)
        rows += self._revise(now, first_no=self.store.row_count() + len(rows), end=end and not more)
        # At most so many units of an actor are closed or revised at a time: there may be more.
        settled = open_before - self._open_units() + len(self._revised)
        more = more or settled >= MAX_KEPT or (end and settled > 0)
        self._commit(rows, now, force=end and not more)
        return more

    def _discover(self, now: float, *, force: bool) -> None:
        try:
            names, odd = self._listing.look(self.sources, now, force=force)
        except OSError as error:
            self.oddities[WRITERS_FOLDER] = _words(error)
            return
        self.oddities.pop(WRITERS_FOLDER, None)
        for name in names:
            self.sources[name] = new_source(name, os.path.join(self.folder, name), self._files, self._schemas)
        for name in odd:
            self.oddities[name] = "not a regular file, or its name is not UTF-8"

    def _read(self, now: float, names: Iterable[str], *, end: bool) -> bool:
        """One look at every file that may have grown; within an actor the hindmost file first, the others only as far
        as it got.
        """
        groups: dict[str, list[Source]] = {}
        for name in names:
            source = self.sources.get(name)
            if source is not None and self._grown(source, now, end=end):
                actor = source.writer.open.actor if source.writer is not None else ""
                groups.setdefault(actor, []).append(source)
        more = False
        for group in groups.values():
            group.sort(key=lambda source: source.at_step)
            limit = _ALL
            for place, source in enumerate(group):
                if source.at_step > limit:
                    more = True
                    continue
                left = self._take(source, limit, now)
                more = more or left
                if place == 0 and left and source.at_step >= 0:
                    limit = source.at_step
        return more

    def _grown(self, source: Source, now: float, *, end: bool) -> bool:
        writer = source.writer
        settled = not end and writer is not None and writer.closed and now - writer.line_at > SETTLED_S
        if settled and now - source.looked_at < REST_EVERY_S:
            return False
        source.looked_at = now
        try:
            size = source.size = source.tail.size()
        except OSError as error:
            self._files.forget(source.tail.path)
            source.problem = _words(error)
            return False
        source.problem = ""
        if size == source.read:
            return False
        if size < source.read:
            source.problem = f"shorter than what was read of it ({source.size} < {source.read} bytes): not read further"
            return False
        return True

    def _take(self, source: Source, limit: int, now: float) -> bool:
        """Read and apply one piece of a file. Returns whether complete lines are left in it, as far as one can know."""
        start = source.read
        try:
            piece = source.tail.read(start, source.piece_bytes, size=source.size)
        except OSError as error:
            self._files.forget(source.tail.path)
            source.problem = _words(error)
            return False
        if piece.end == start:
            return piece.more
        batch = source.decoder.decode(piece.lines, piece.offsets, max_steps=ROUND_STEPS, last_step=limit)
        whole = batch.consumed == len(piece.lines)
        end = piece.end if whole else piece.offsets[batch.consumed]
        # Read about as much next time as could be used this time.
        source.piece_bytes = min(1 << 20, max(1 << 14, 17 * (end - start) // 16))
        for offset, excerpt in piece.too_long:
            if offset < end:
                batch.dead.append(too_long(offset, excerpt))
        self._apply(source, batch, end, now)
        return not whole or piece.more

    def _apply(self, source: Source, batch: Batch, end: int, now: float) -> None:
        if batch.opened is not None:
            source.opened_at = batch.opened_at
            source.writer = Writer(source.name, batch.opened, seen_at=now, line_at=now)
            self._actor(batch.opened.actor).add_writer(source.writer, now)
        if source.writer is not None:
            self._actor(source.writer.open.actor).apply(source.writer, batch, now)
        source.advance(batch, end)
        self._changed[source.name] = source
        self._dead.extend((source.name, dead) for dead in batch.dead)
        for name, count in batch.counts.items():
            self._counts[name] = self._counts.get(name, 0) + count

    # Rows ----------------------------------------------------------------------------------------------------------

    def _close_units(self, now: float, *, timers: bool, end: bool) -> list[Row]:
        rows: list[Row] = []
        first_no = self.store.row_count()
        for name in sorted(self.actors):
            actor = self.actors[name]
            closings = actor.closings(now, timers=timers, end=end)
            if not self._refill(actor, actor.unfilled(closings)):
                continue
            for closing in closings:
                unit = Unit(name, "step", closing.step)
                window = actor.close(closing.step)
                if window.empty:
                    continue  # the only file that had lines of it is gone
                row = reduce_unit(unit, window, actor.roster, self.overrides)
                rows.append(_numbered(row, first_no + len(rows), 0, tuple(row.figures), closing.how))
        return rows

    def _open_units(self) -> int:
        return sum(len(actor.open) for actor in self.actors.values())

    def _refill(self, actor: Actor, steps: Sequence[int]) -> bool:
        """Fetch values that were not kept. False: a file cannot be read just now, so nothing of the actor closes."""
        if not steps:
            return True
        windows = self._reread(actor, steps, closing=True)
        if windows is None:
            return False
        actor.refill(windows)
        return True

    def _revise(self, now: float, *, first_no: int, end: bool) -> list[Row]:
        rows: list[Row] = []
        self._revised = []
        for name in sorted(self.actors):
            actor = self.actors[name]
            steps = actor.due(now, end=end)
            if not steps:
                continue
            windows = self._reread(actor, steps, closing=False)
            if windows is None:
                continue
            for step in steps:
                actor.revised(step, now)
                self._revised.append((name, step))
                row = self._revision(actor, step, windows.get(step), first_no + len(rows))
                if row is not None:
                    rows.append(row)
        return rows

    def _reread(self, actor: Actor, steps: Sequence[int], *, closing: bool) -> dict[int, Window] | None:
        """Windows of steps, out of the files; None where a file cannot be read just now.

        A file that is gone for good is a dead letter: a row to be closed is made of the others, a row that exists stays
        as it is.
        """
        windows = {step: Window() for step in steps}
        gone = False
        for name, writer in actor.roster.writers.items():
            source = self.sources[name]
            try:
                for batch in read_again(source, self.store, self._schemas, steps):
                    for line in batch.lines:
                        windows[line.step].add(writer.segments[line.segment], line)
            except FileNotFoundError:
                gone = True
                what = "its row" if closing else "a revision"
                self._dead.append((source.name, Dead(source.read, f"file gone before {what}", "")))
            except OSError as error:
                source.problem = _words(error)
                return None
        return {} if gone and not closing else windows

    def _revision(self, actor: Actor, step: int, window: Window | None, no: int) -> Row | None:
        """The next revision of a row, or None if nothing in it changed."""
        unit = Unit(actor.name, "step", step)
        before = self.store.newest(unit)
        if window is None or before is None:
            return None
        row = reduce_unit(unit, window, actor.roster, self.overrides)
        changed = row.differing(before)
        if row == before and not changed:
            return None
        return _numbered(row, no, before.arrival.revision + 1, changed, "revision")

    def _commit(self, rows: list[Row], now: float, *, force: bool) -> None:
        dirty = [(actor.name, step) for actor in self.actors.values() for step in actor.newly_dirty]
        urgent = rows or self._revised or dirty or self._dead or force
        if not urgent and (not self._changed or now - self._saved_at < SAVE_EVERY_S):
            return
        changed = self._changed.values()
        self._prune_starts(changed)
        self.store.commit(
            Changes(
                writers=[source.saved() for source in changed],
                marks=[(source.name, offset, line) for source in changed for offset, line in source.fresh_marks],
                blocks=[block for source in changed for block in source.fresh_blocks],
                rows=rows,
                dirty=dirty,
                revised=self._revised,
                dead=self._dead,
                counts=self._counts,
            )
        )
        for source in changed:
            source.fresh_marks.clear()
            source.fresh_blocks.clear()
        for actor in self.actors.values():
            actor.newly_dirty.clear()
        self._changed, self._dead, self._counts = {}, [], {}
        self._saved_at = now

    def _prune_starts(self, sources: Iterable[Source]) -> None:
        for source in sources:
            writer = source.writer
            if writer is not None and writer.starts:
                still_open = self.actors[writer.open.actor].open
                writer.starts = {step: offset for step, offset in writer.starts.items() if step in still_open}


def _numbered(row: Row, no: int, revision: int, changed: tuple[str, ...], how: str) -> Row:
    return replace(row, arrival=Arrival(no, revision, changed, how))


def _words(error: OSError) -> str:
    if isinstance(error, NotAFile):
        return "not a regular file"
    return error.strerror or type(error).__name__
