"""The rows of one store, taken into a rollup as they appear. Reads are short, so that they disturb no sidecar."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.tabular.copies import StoreCopy
from rlship_sidecar.tabular.snapshot import Snapshot, StoreReader, look, reading
from rlship_sidecar.view import rollup_file
from rlship_sidecar.view.contract import MAX_ROWS
from rlship_sidecar.view.lean import ChartedRow, decoded
from rlship_sidecar.view.rollup import Rollup

PIECE_ROWS, PIECE_BYTES = 200, 4 << 20  # read in one transaction, of rows as large as those before
MANY_ROWS = 2_000  # of a history that is read like a snapshot: only the last revision of each row
POINTS_SHARE = 0.02
SAVE_SHARE, SAVE_EVERY_S, SAVE_ROWS = 0.1, 60.0, 500

Stamp = tuple[object, ...]


def stamp_of(state_dir: Path) -> Stamp | None:
    """What changes with each commit to the newest store; None without a store."""
    found = newest_store(state_dir)
    if found is None:
        return None
    try:
        log = os.stat(state_dir / f"{found[0]}-wal")
    except OSError:
        return found
    return (*found, log.st_ino, log.st_size, log.st_mtime_ns)


class News(NamedTuple):
    """What a look at the store found: rows that are new (None: more than a live event holds), and whether it is another
    store than before.
    """

    rows: list[ChartedRow] | None
    is_other: bool = False


class Followed:
    """The store in a state folder and its rollup, as of the last `look`. Any thread may use it, one at a time looks.

    `lock` is to be held while the rollup is read. `progress` is 0..1 while a long history is taken in.
    """

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.lock = threading.Lock()
        self.rollup = Rollup()
        self.store_id = ""
        self.count = 0
        self.progress: float | None = None
        self.run_version = 0
        self.stamp: Stamp | None = None
        self._copy = StoreCopy()
        self._looking = threading.Lock()
        self._saved = 0
        self._saved_at = 0.0
        self._saves = True
        self._piece = 16
        self._points_at = 0.0  # when revised points may be taken again

    def has_changed(self) -> bool:
        """Whether a look finds anything: there was a commit since the last one. Costs two calls of stat."""
        return stamp_of(self.state_dir) != self.stamp or self._has_points_due()

    def look(self, tell: Callable[[], None] = lambda: None) -> News:
        """Take in the rows that are new; `tell` is called after each piece. Raises RlshipError."""
        with self._looking:
            stamp = stamp_of(self.state_dir)
            first = self.rollup.upto
            news = self._look(tell)
            self.stamp = stamp
            if self.rollup.upto - first > MANY_ROWS or self._is_due():
                self.save()
        return news

    def _look(self, tell: Callable[[], None]) -> News:
        with reading(self.state_dir, StoreReader, self._copy) as store:
            if store is None:
                return News([])
            store_id, count = store.store_id(), store.row_count()
            self.run_version = store.run_version()
            is_other = store_id != self.store_id or count < self.rollup.upto
            if is_other:
                self._begin(store_id, count)
            if count - self.rollup.upto <= MANY_ROWS:
                return self._take_new(store, count, is_other=is_other, tell=tell)
        if self.rollup.upto == 0:
            with reading(self.state_dir, Snapshot, self._copy) as snapshot:
                if snapshot is not None:
                    self._take_final(snapshot, tell)
        with reading(self.state_dir, StoreReader, self._copy) as store:
            if store is not None:
                self._take_new(store, store.row_count(), is_other=is_other, tell=tell)
        return News(None, is_other)

    def _begin(self, store_id: str, count: int) -> None:
        kept = rollup_file.read(self.state_dir, store_id)
        if kept is None or kept.upto > count:
            kept = Rollup(store_id)
        with self.lock:
            self.rollup, self.store_id, self.count = kept, store_id, kept.upto
        self._saved = kept.upto

    def _take_final(self, snapshot: Snapshot, tell: Callable[[], None]) -> None:
        """Take a long history in: of each row its last revision alone."""
        first = 0
        while first < snapshot.count and (found := snapshot.bodies(first, self._piece)):
            self._fit_piece(found)
            first = found[-1][0] + 1
            with self.lock:
                final = (body for no, body in found if no < snapshot.count and snapshot.is_final(no))
                self.rollup.take(map(charted_row, final), first_seen=True)
                self.rollup.upto = self.count = min(first, snapshot.count)
            self.progress = first / snapshot.count
            tell()
        self.progress = None

    def _take_new(self, store: StoreReader, count: int, *, is_other: bool, tell: Callable[[], None]) -> News:
        fresh: list[ChartedRow] = []
        first, begun = self.rollup.upto, self.rollup.upto
        is_live = count - begun <= MAX_ROWS
        while first < count and (found := store.bodies(first, self._piece)):
            self._fit_piece(found)
            first = found[-1][0] + 1
            rows: Iterable[ChartedRow] = map(charted_row, (body for _, body in found))
            if is_live:
                rows = list(rows)
                fresh += rows
            with self.lock:
                self.rollup.take(rows)
                self.rollup.upto = self.count = first
            if count - begun > MANY_ROWS // 2:
                self.progress = (first - begun) / (count - begun)
                tell()
        self.progress = None
        while (stretch := self.rollup.stale()) is not None:
            name, low, high = stretch
            again = [charted_row(body) for _, body in store.bodies_of(*name, low, high, high - low + 1)]
            with self.lock:
                self.rollup.retake(name, low, high, again)
        if self._has_points_due():
            self._take_points_again(store)
        return News(fresh if is_live else None, is_other)

    def _has_points_due(self) -> bool:
        return bool(self.rollup.again) and time.monotonic() >= self._points_at

    def _take_points_again(self, store: StoreReader) -> None:
        """Take all points of a family again of which one was revised, in at most `POINTS_SHARE` of the time."""
        began = time.monotonic()
        for name in sorted(self.rollup.again):
            made = self.rollup.remade(name)
            place = ("", -1)
            while found := store.point_bodies(name[0], place, self._piece):
                place = found[-1][:2]
                made.take(filter(self.rollup.has, (charted_row(body) for *_, body in found)), first_seen=True)
            with self.lock:
                self.rollup.replace(name, made)
        self._points_at = time.monotonic() + (time.monotonic() - began) / POINTS_SHARE

    def _fit_piece(self, found: Sequence[tuple[int, bytes]]) -> None:
        """Read about `PIECE_BYTES` at a time: a row of a thousand ranks is large."""
        size = sum(len(body) for _, body in found) // len(found) + 1
        self._piece = max(4, min(PIECE_ROWS, PIECE_BYTES // size))

    def _is_due(self) -> bool:
        grown = self.rollup.upto - self._saved
        is_much = grown >= SAVE_ROWS and grown >= SAVE_SHARE * self.rollup.upto
        return is_much and time.monotonic() - self._saved_at >= SAVE_EVERY_S

    def save(self) -> None:
        """Write the rollup beside the store, if it has grown by enough to be worth it."""
        if self._saves and self.rollup.upto - self._saved >= SAVE_ROWS:
            with self.lock:
                self._saves = rollup_file.write(self.state_dir, self.rollup)
            self._saved, self._saved_at = self.rollup.upto, time.monotonic()

    def rows(self, first: int, last: int) -> list[ChartedRow]:
        """The rows from number `first` up to `last` - 1. Raises RlshipError."""
        with self.open() as store:
            return [charted_row(body) for no, body in store.bodies(first, last - first) if no < last]

    def sized_rows_of(
        self, actor: str, kind: str, first: int, last: int, most: int
    ) -> Iterator[tuple[ChartedRow, int]]:
        """The newest rows of an actor's units from `first` to `last`, at most `most`, and how many bytes were read so
        far. Raises RlshipError.
        """
        left, size = most, 0
        with self.open() as store:
            while left > 0 and (found := store.bodies_of(actor, kind, first, last, min(left, self._piece))):
                for _, body in found:
                    size += len(body)
                    row = charted_row(body)
                    yield row, size
                left -= len(found)
                first = max(first, row.index) + 1

    def open(self) -> _Open:
        """The store, open for a short time: `with followed.open() as store`. Raises RlshipError."""
        return _Open(self.state_dir, self._copy)

    def whole(self) -> AbstractContextManager[Snapshot | None]:
        """The store as it is at one moment: `with followed.whole() as snapshot`. Raises RlshipError."""
        return look(self.state_dir, self._copy)

    def close(self) -> None:
        """Keep the rollup for the next start, and no copy of the store."""
        self.save()
        self._copy.close()


class _Open:
    """A store for a `with`. It raises RlshipError without a store."""

    def __init__(self, state_dir: Path, copy: StoreCopy) -> None:
        self._opened = reading(state_dir, StoreReader, copy)
        self._state_dir = state_dir

    def __enter__(self) -> StoreReader:
        store = self._opened.__enter__()
        if store is None:
            with suppress(RlshipError):
                self._opened.__exit__(None, None, None)
            raise RlshipError(f"there is no store in {self._state_dir} any more", "make the rows again: rlship watch")
        return store

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)  # type: ignore[arg-type]  # what Python gives


def charted_row(body: bytes) -> ChartedRow:
    """A row of a store. Raises RlshipError for one that no sidecar wrote."""
    try:
        return decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RlshipError(
            f"a row of the store cannot be used: {problem}", "make the rows again from the files: rlship replay"
        ) from problem
