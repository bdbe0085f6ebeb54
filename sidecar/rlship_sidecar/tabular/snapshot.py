"""The store as it is at one moment, read without disturbing the sidecar that owns it.

A row never changes once it is written. So only two facts have to be read at one moment: a bound on the row numbers, and
which rows are final. The rest is read a piece at a time, each in a transaction of its own. A long transaction would
disturb the owner: it blocks commits with a rollback journal, and keeps a write-ahead log from being emptied.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import orjson

from rlship_formats.clocks import KeptClocks
from rlship_formats.reading import Clock
from rlship_formats.records import MAX_STEP
from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.rows import POINT, Row
from rlship_sidecar.run_data.merging import RunChange, RunData
from rlship_sidecar.store import dead_letters, run_said, schema
from rlship_sidecar.store.changes import MergedRun, SavedBlock
from rlship_sidecar.store.store import StoreUnusable
from rlship_sidecar.tabular.copies import StoreCopy

PIECE_ROWS = 500
MIN_ROW_BYTES = 4  # the smallest row in SQLite: a pointer to its cell, and a cell of two bytes
EVERY_LETTER = -1
_WAIT_S = 10.0


class StoreReader:
    """A store that is open for reading. If SQLite fails, `failing` explains it.

    Every value in the file is checked before it is used, because anyone may have written the file. `MIN_ROW_BYTES`
    bounds the number of rows by the file's size. So neither a number in it nor a loop among its pages costs more than
    that.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, failing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._connection = connection
        self._failing = failing
        self._require_version(path)

    def store_id(self) -> str:
        """The id of the store, by which its run at W&B is known: rows of another one are other rows."""
        found = self._ask("select value from meta where key = 'store_id'")
        if not found or not isinstance(found[0][0], str):
            with self._failing():
                raise sqlite3.DatabaseError("it has no id")
        return str(found[0][0])[:64]

    def row_count(self) -> int:
        """How many rows there are now."""
        return self._counted()[0]

    def _counted(self) -> tuple[int, int]:
        """How many rows there are, and how many the file's size allows."""
        count = self._ask("select coalesce(max(no) + 1, 0) from rows")[0][0]
        with self._failing():
            most = _size(self._connection) // MIN_ROW_BYTES
            if type(count) is not int or count > most:
                raise sqlite3.DatabaseError(
                    f"its last row is numbered {count - 1}, but its size allows only {most} rows"
                )
        return count, most

    def bodies(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        """The numbers and the JSON of rows from `first` on."""
        found = self._ask("select no, body from rows where no >= ? order by no limit ?", (first, limit))
        with self._failing():
            if not all(type(no) is int and no >= first and isinstance(body, bytes) for no, body in found):
                raise sqlite3.DatabaseError(f"what it has from row {first} on are no rows")
        return found

    def bodies_of(self, actor: str, kind: str, first: int, last: int, limit: int) -> list[tuple[int, bytes]]:
        """The newest rows of an actor's units from `first` to `last`."""
        found = self._ask(
            "select no, body from units join rows using (no) where actor = ? and kind = ? and number between ? and ? "
            "order by number limit ?",
            (actor, kind, first, last, limit),
        )
        with self._failing():
            if not all(type(no) is int and isinstance(body, bytes) for no, body in found):
                raise sqlite3.DatabaseError(f"what it has of {actor} {kind} are no rows")
        return found

    def point_bodies(self, actor: str, after: tuple[str, int], limit: int) -> list[tuple[str, int, bytes]]:
        """The newest rows of an actor's points behind the place `after`, each with its place (kind, number)."""
        found = self._ask(
            "select kind, number, body from units join rows using (no) where actor = ? and kind >= ? and kind < ? "
            "and (kind, number) > (?, ?) order by kind, number limit ?",
            (actor, f"{POINT}:", f"{POINT};", *after, limit),
        )
        with self._failing():
            places = [after, *((kind, number) for kind, number, _ in found)]
            if not all(isinstance(one[0], str) and type(one[1]) is int for one in places) or not all(
                isinstance(body, bytes) for *_, body in found
            ):
                raise sqlite3.DatabaseError(f"what it has of {actor} {POINT} are no rows")
            if any(one >= other for one, other in pairwise(places)):  # in a damaged index rows may never end
                raise sqlite3.DatabaseError(f"points of {actor} are out of order")
        return found

    def _require_version(self, path: Path) -> None:
        """Raise StoreUnusable if the store has another version, or if no sidecar made it."""
        with self._failing():
            foreign = schema.foreign_objects(self._connection)
        # Another version may have other tables, but every version has this one.
        found = None if "meta" in foreign else self._ask("select value from meta where key = 'version'")
        if foreign and found in (None, [], [(str(schema.VERSION),)]):
            name, kind = next(iter(foreign.items()))
            raise StoreUnusable(
                f"the store {path} was not made by a sidecar: it holds the {kind} {name}",
                "Find out which program wrote it. To make rows from the files: rlship replay.",
            )
        if found != [(str(schema.VERSION),)]:
            version = str(found[0][0])[:40] if found else "none"
            raise StoreUnusable(
                f"the store {path} has version {version}, this rlship reads version {schema.VERSION}",
                "Use the rlship that wrote it, or make rows from the files: rlship replay.",
            )

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._failing():
            return self._connection.execute(sql, values).fetchall()

    def blocks(self, first: int | None, last: int | None) -> dict[str, list[SavedBlock]]:
        """The finished blocks of every file, in file order: where the records of which steps are. If steps are given,
        only those that may hold records of steps from `first` to `last`, and the last block of each file.
        """
        found: dict[str, list[SavedBlock]] = {}
        if first is None and last is None:
            records = self._ask("select * from blocks order by file, start")
        else:
            bounds = MAX_STEP if last is None else last, -1 if first is None else first
            records = self._ask("select * from blocks where lowest <= ? and highest >= ?", bounds)
            # SQLite takes the other columns from the row with the greatest start.
            newest = self._ask("select *, max(start) from blocks group by file")
            records = sorted({*records, *(record[:-1] for record in newest)}, key=lambda record: record[:2])
        for record in records:
            found.setdefault(record[0], []).append(SavedBlock(*record))
        return found

    def rollbacks(self) -> dict[str, list[int]]:
        """At which bytes of each file a rollback stands, ascending; files without any are left out."""
        found: dict[str, list[int]] = {}
        # A backslash may hide the word, because JSON can write any character as an escape.
        maybe = "select file, offset, line from marks where instr(line, ?) or instr(line, ?) order by file, offset"
        for file, offset, line in self._ask(maybe, (b'"rollback"', b"\\")):
            if orjson.loads(line).get("kind") == "rollback":
                found.setdefault(file, []).append(offset)
        return found

    def gone_back_to(self) -> int | None:
        """The step that the lead ended last, if it had been further; None otherwise, and if it ended none."""
        which = "select step, (select max(step) from timeline) from timeline order by until desc, step desc limit 1"
        found = self._ask(which)
        return found[0][0] if found and found[0][0] < found[0][1] else None

    def clocks(self) -> KeptClocks:
        """How far hosts' clocks were off."""
        found = KeptClocks()
        for host, *record in self._ask("select host, t, offset, err from clocks order by host, t"):
            found.add(host, Clock(*record))
        return found

    def rows_by_unit(self, kinds: Sequence[str]) -> Iterator[Row]:
        """The newest rows of units of some kinds, by (actor, kind, index), a piece at a time in memory. Each is as new
        as the moment at which its piece is read.
        """
        piece = (
            "select actor, kind, number, no, body from units join rows using (no) "
            f"where (actor, kind, number) > (?, ?, ?) and kind in ({', '.join('?' * len(kinds))}) "
            "order by actor, kind, number limit ?"
        )
        last: tuple[Any, ...] = ("", "", -1)
        while found := self._ask(piece, (*last, *kinds, PIECE_ROWS)):
            for *unit, no, body in found:
                row = self._row(no, body)
                with self._failing():
                    if tuple(unit) != _place_of(row) or not all(map(isinstance, unit, (str, str, int))):
                        raise sqlite3.DatabaseError(f"row {no} is not that of its unit")
                    if not last < tuple(unit):  # in a damaged index rows may never end
                        raise sqlite3.DatabaseError(f"the unit of row {no} is out of order")
                last = tuple(unit)
                yield row

    def rows_at(self, actor: str, kind: str, number: int) -> Iterator[Row]:
        """The newest row of a unit, if there is one."""
        for no, body in self.bodies_of(actor, kind, number, number, 1):
            yield self._row(no, body)

    def past_rows(self, actor: str) -> dict[int, list[Row]] | None:
        """What steps of an actor were before they were done again, by step. None: an earlier release made the store,
        and the former revisions of rows say so.
        """
        if not self._ask("select 1 from sqlite_master where name = 'past_rows'"):
            return None
        found: dict[int, list[Row]] = {}
        for step, body in self._ask("select step, body from past_rows where actor = ?", (actor,)):
            found.setdefault(step, []).append(self._row(step, body))
        return found

    def _row(self, no: int, body: bytes | str) -> Row:
        try:
            return Row.from_json(body)
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            with self._failing():
                raise sqlite3.DatabaseError(f"row {no} cannot be decoded") from problem

    def units(self) -> list[tuple[str, str]]:
        """(actor, kind) of all units; all points are of one kind."""
        return self._ask(
            "select distinct actor, case when kind like 'point:%' then 'point' else kind end from units order by 1, 2"
        )

    def dead(self) -> Iterator[tuple[str, Dead]]:
        """Dead letters with their files, as far as they are kept in full."""
        with self._failing():
            yield from dead_letters.letters(self._connection, EVERY_LETTER)

    def run_data(self) -> RunData:
        """What the job said of the run."""
        return run_said.data_of(self._merged_run())

    def run_changes(self) -> list[RunChange]:
        """Who gave a key of it another value."""
        return run_said.changes_of(self._merged_run())

    def run_version(self) -> int:
        """A number that grows when what the job said of the run changes; 0 as long as it said nothing."""
        if not self._ask("select 1 from sqlite_master where name = 'run'"):
            return 0  # of an earlier release
        found = self._ask("select value from run where part = 'version'")
        with self._failing():
            if found and not (isinstance(found[0][0], bytes) and found[0][0][:20].isdigit()):
                raise sqlite3.DatabaseError("its data of the run have no version")
        return int(found[0][0][:20]) if found else 0

    def _merged_run(self) -> MergedRun:
        if not self._ask("select 1 from sqlite_master where name = 'run'"):
            return MergedRun()  # of an earlier release
        with self._failing():
            try:
                found = run_said.read_merged(self._connection)
                run_said.data_of(found)
                run_said.changes_of(found)
            except (ValueError, LookupError, TypeError, msgspec.MsgspecError) as problem:
                raise sqlite3.DatabaseError("its data of the run cannot be decoded") from problem
        return found

    def dead_counts(self) -> Iterator[tuple[str, str, bool, int, int, str]]:
        """(file, reason, whether of values, how many, first offset, its excerpt)."""
        with self._failing():
            yield from dead_letters.totals(self._connection)


class Snapshot(StoreReader):
    """Rows below `count` of a store; `every` row, or only the last revision of each."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, failing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(connection, path, failing)
        connection.execute("begin")
        self.count, most = self._counted()
        with failing():
            self._final = self._find_final(most)
        connection.execute("commit")

    def _find_final(self, most: int) -> bytearray:
        """Which rows are the last of their units, as one bit a row."""
        final = bytearray(self.count // 8 + 1)
        for found, (no,) in enumerate(self._connection.execute("select no from units")):
            if type(no) is not int or not 0 <= no < self.count or found >= most:
                raise sqlite3.DatabaseError(f"a unit's row is {no!r}, where there are {self.count}")
            final[no >> 3] |= 1 << (no & 7)
        return final

    def rows(self, *, every: bool) -> Iterator[Row]:
        """Rows in the order of their numbers, a piece at a time in memory."""
        first = 0
        piece = "select no, body from rows where no >= ? and no < ? order by no limit ?"
        while found := self._ask(piece, (first, self.count, PIECE_ROWS)):
            for no, body in found:
                if every or self.is_final(no):
                    yield self._row(no, body)
            first = found[-1][0] + 1

    def is_final(self, no: int) -> bool:
        """Whether row `no` was the last of its unit."""
        return bool(self._final[no >> 3] & 1 << (no & 7))


def _place_of(row: Row) -> tuple[str, str, int]:
    return row.unit.actor, row.unit.kind_on_disk, row.unit.index


Reader = TypeVar("Reader", bound=StoreReader)


@contextmanager
def look(state_dir: Path, copy: StoreCopy | None = None) -> Iterator[Snapshot | None]:
    """The newest store in a state folder as it is at one moment, or None without a store; see `reading`."""
    with reading(state_dir, Snapshot, copy) as snapshot:
        yield snapshot


@contextmanager
def reading(state_dir: Path, reader: type[Reader], copy: StoreCopy | None = None) -> Iterator[Reader | None]:
    """The newest store in a state folder, open for a short time, or None without a store.

    Raises RlshipError if it cannot be read, or if another sidecar took over meanwhile. Nothing is written to the store
    or left beside it. SQLite would leave files beside a store that no process has open, so such a store is opened as
    immutable. If only a writer could read it (its owner was killed in a commit), it is copied first, into `copy` for
    those who look again.
    """
    before = newest_store(state_dir)
    if before is None:
        yield None
        return
    path = state_dir.absolute() / before[0]
    failing = partial(_failing, path, state_dir, before)
    with ExitStack() as stack:
        with failing():
            try:
                kept = copy or stack.enter_context(closing(StoreCopy()))
                connection, still = stack.enter_context(_opened(path, kept))
            except OSError as problem:
                raise sqlite3.OperationalError(str(problem)) from problem
            is_new = connection.execute("select 1 from sqlite_master limit 1").fetchone() is None
            opened = None if is_new else reader(connection, path, failing)  # its sidecar has just begun to make it
        yield opened
        _require_the_same(state_dir, before, still=still)


@contextmanager
def _failing(path: Path, state_dir: Path, before: tuple[str, int, int, int]) -> Iterator[None]:
    """Explain an error of SQLite."""
    try:
        yield
    except sqlite3.Error as problem:
        _require_the_same(state_dir, before, still=False)
        hint = "is it damaged? `rlship watch` explains how to make the rows again"
        raise RlshipError(f"the store {path} cannot be read: {problem}", hint) from problem


def _require_the_same(state_dir: Path, before: tuple[str, int, int, int], *, still: bool) -> None:
    """Raise if the store was replaced, or if it changed although it had to stand `still`."""
    now = newest_store(state_dir)
    if now is None or now[:2] != before[:2] or (still and now != before):
        raise RlshipError(f"a sidecar began to use the store in {state_dir} while it was read", "try again")


@contextmanager
def _opened(path: Path, copy: StoreCopy) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """A connection that reads, and whether the store must not change while it is open."""
    still = not _beside(path, "-wal") and _logs_ahead(path)
    in_place = still or not _beside(path, "-wal") or _beside(path, "-shm")
    if in_place and not copy.is_of(path):
        uri = f"file:{quote(os.fspath(path))}?{'immutable=1' if still else 'mode=ro'}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)) as connection:
            if _answers(connection):
                copy.close()  # of files that have changed since
                yield connection, still
                return
    with copy.lent(path) as lent, closing(sqlite3.connect(lent, isolation_level=None)) as connection:
        yield connection, False


def _size(connection: sqlite3.Connection) -> int:
    """Size of a database in bytes, including the pages that are still in its write-ahead log."""
    pages: int = connection.execute("pragma page_count").fetchone()[0]
    page_bytes: int = connection.execute("pragma page_size").fetchone()[0]
    return pages * page_bytes


def _beside(path: Path, suffix: str) -> bool:
    return path.with_name(path.name + suffix).exists()


def _logs_ahead(path: Path) -> bool:
    """Whether the store uses a write-ahead log, according to its header."""
    with open(path, "rb") as file:
        return file.read(20)[18:19] == b"\x02"


def _answers(connection: sqlite3.Connection) -> bool:
    """Whether the store can be read in place. It cannot if its owner is frozen, or was killed, within a commit."""
    try:
        connection.execute("select 1 from meta").fetchone()
    except sqlite3.OperationalError:
        return False
    return True
