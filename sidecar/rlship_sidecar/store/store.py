"""The durable state of one experiment, in SQLite: how far each file is applied, and every row ever made.

One `commit` is one transaction. Rows are numbered 0, 1, 2, … and never change; a unit's newest row is its state.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlship_sidecar.decode.lines import REPORTED, Dead
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.rows import STEP, Row, Unit
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.shortage import is_shortage
from rlship_sidecar.store import run_said, schema
from rlship_sidecar.store.changes import Changes, MergedRun, SavedBlock, SavedWriter
from rlship_sidecar.store.dead_letters import DEAD_DETAILS, insert, letters, totals

SHARED_CACHE_KB = 256  # of rows that are read once, in order
REMOTE_CACHE_KB = 16_384  # on a network filesystem, where a page that is not there costs a call,
REMOTE_PAGE_BYTES = 16_384  # and one that changes costs four


class StoreUnusable(RlshipError):
    """The store is damaged or from another version; `rlship` says how to go on."""


class Store:
    """One SQLite file. The thread that made it commits. All other threads share one connection, which they use in
    turns and which is made when the first of them asks: connections hold descriptors and memory.
    """

    connection_class = sqlite3.Connection  # a test's own counts statements, and kills between them

    def __init__(self, path: Path, *, local: bool) -> None:
        self.path = path
        self._local = local
        self._thread = threading.get_ident()
        self._connections: list[sqlite3.Connection] = []
        self._shared: sqlite3.Connection | None = None
        self._shared_at = 0.0  # when another thread used it last, in monotonic seconds
        self._lock = threading.RLock()
        self._is_together = False
        self._unchanged = 0
        try:
            self._connection = self._connect()
            if not local:
                self._connection.execute(f"pragma cache_size=-{REMOTE_CACHE_KB}")
            self.store_id = self._prepare()
            found = self._connection.execute("select max(no) from rows").fetchone()[0]
            self._run = run_said.read_merged(self._connection)
        except StoreUnusable:
            self.close()
            raise
        except sqlite3.DatabaseError as error:
            self.close()
            if is_shortage(error):  # nothing is wrong with the store
                raise
            raise StoreUnusable(
                f"cannot use the store {path}: {error}",
                "Move it away and start again: rows are rebuilt from the files, into a new W&B run.",
            ) from error
        self._row_count = 0 if found is None else found + 1

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=30.0, isolation_level=None, check_same_thread=False, factory=self.connection_class
        )
        self._connections.append(connection)
        if not self._local:
            connection.execute(f"pragma page_size={REMOTE_PAGE_BYTES}")  # of a new store
        # Write-ahead logging needs shared memory between processes of one host, which a network filesystem does not
        # give.
        connection.execute(f"pragma journal_mode={'wal' if self._local else 'delete'}")
        connection.execute("pragma synchronous=full")
        return connection

    def _prepare(self) -> str:
        connection = self._connection
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            with connection:
                connection.execute("begin immediate")
                for statement in schema.TABLES:
                    connection.execute(statement)
                connection.executemany(
                    "insert into meta values (?, ?)",
                    [("version", str(schema.VERSION)), ("store_id", secrets.token_hex(8))],
                )
        meta = dict(connection.execute("select key, value from meta").fetchall())
        if meta.get("version") != str(schema.VERSION):
            raise StoreUnusable(
                f"the store {self.path} has version {meta.get('version')}, this rlship reads version {schema.VERSION}",
                "Use the rlship that wrote it, or move it away: rows are rebuilt from the files, into a new W&B run.",
            )
        if lacking := schema.lacking(connection):  # an earlier release made it
            with connection:
                connection.execute("begin immediate")
                for statement in lacking:
                    connection.execute(statement)
        return str(meta["store_id"])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ask many questions in one transaction, on a network filesystem: alone, each of them locks the file and looks
        whether it changed, which takes ten calls. Only the thread that commits may do so. It begins with the first
        question. Changes stay in the transaction that the next `commit` ends.
        """
        if self._local or self._is_together:
            yield
            return
        self._is_together = True
        try:
            yield
        finally:
            self._is_together = False
            if self._connection.in_transaction and not self.changed:
                self._connection.execute("rollback")  # of nothing

    def _begin(self) -> None:
        # At once for writing: two connections that read and then want to write would wait for each other.
        self._connection.execute("begin immediate")
        self._unchanged = self._connection.total_changes

    def _reader(self) -> sqlite3.Connection:
        if threading.get_ident() == self._thread:
            if self._is_together and not self._connection.in_transaction:
                self._begin()
            return self._connection
        with self._lock:
            if self._shared is None:
                self._shared = self._connect()
                self._shared.execute(f"pragma cache_size=-{SHARED_CACHE_KB}")
            return self._shared

    def _all(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All that a query finds, or what a change of one row leaves: for calls from any thread."""
        if threading.get_ident() == self._thread:  # it waits for no other, which may wait for its transaction to end
            return self._connection.execute(sql, values).fetchall()
        with self._lock:
            self._shared_at = time.monotonic()
            return self._reader().execute(sql, values).fetchall()

    def close_idle_reader(self, idle_s: float) -> None:
        """Close the connection of the other threads if they have not used it for `idle_s` seconds.

        It holds a descriptor and a cache. The next read opens it again.
        """
        if self._shared is None or time.monotonic() - self._shared_at < idle_s:
            return
        with self._lock:
            if self._shared is not None and time.monotonic() - self._shared_at >= idle_s:
                self._connections.remove(self._shared)
                self._shared.close()
                self._shared = None

    def close(self) -> None:
        """Close every connection; readers must have stopped."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._shared = None

    # What stages keep in tables of their own (see `ledger`) --------------------------------------------------------

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._reader().execute(sql, values).fetchall()

    def at_once(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query, or a change of one row that is durable on return. Any thread but the one that commits
        may call this.
        """
        return self._all(sql, values)

    def change(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Change a table, in the transaction that the next `commit` ends."""
        if not self._connection.in_transaction:
            self._begin()
        self._connection.execute(sql, values)

    def change_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Change a table with each of these values, in the same transaction."""
        if not self._connection.in_transaction:
            self._begin()
        self._connection.executemany(sql, values)

    @property
    def changed(self) -> bool:
        """Whether there are changes to commit."""
        return self._connection.in_transaction and self._connection.total_changes > self._unchanged

    # The one transaction -------------------------------------------------------------------------------------------

    def commit(self, changes: Changes) -> None:
        """Make all of `changes` durable, or none of it. Rows must be numbered on from `row_count()`."""
        with self._transaction():
            self._apply(self._connection, changes)
        self._row_count += len(changes.rows)
        self._run = changes.run or self._run

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        connection = self._connection
        if not connection.in_transaction:
            self._begin()
        try:
            yield
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:  # a full disk makes SQLite roll back by itself
                connection.execute("rollback")
            raise

    def _apply(self, connection: sqlite3.Connection, changes: Changes) -> None:
        many = connection.executemany
        many(
            "insert into writers values (?, ?, ?, ?) on conflict (file) do update set "
            "read = excluded.read, floor = excluded.floor, state = excluded.state",
            changes.writers,
        )
        many("insert or replace into marks values (?, ?, ?)", changes.governing)
        many("insert or replace into blocks values (?, ?, ?, ?, ?, ?, ?, ?, ?)", changes.blocks)
        many("insert into rows values (?, ?)", ((row.arrival.row_number, row.to_json()) for row in changes.rows))
        many("insert or replace into units values (?, ?, ?, ?, ?, ?)", (_unit_fields(row) for row in changes.rows))
        many("insert or ignore into dirty values (?, ?, ?)", map(_key_of, changes.dirty))
        many("delete from dirty where actor = ? and kind = ? and number = ?", map(_key_of, changes.revised))
        insert(connection, changes.dead)
        many(
            "insert into counts values (?, ?) on conflict (name) do update set count = count + excluded.count",
            changes.counts.items(),
        )
        many("insert or replace into said values (?, ?, ?)", changes.said)
        if changes.run is not None:
            run_said.save_merged(connection, changes.run)

    # Rows ----------------------------------------------------------------------------------------------------------

    def row_count(self) -> int:
        """How many rows are committed; the next one's number."""
        return self._row_count

    def read_rows(self, first: int, limit: int) -> list[Row]:
        """Rows `first`, `first + 1`, … as far as they exist, at most `limit`."""
        found = self._all("select body from rows where no >= ? order by no limit ?", (first, limit))
        return [Row.from_json(body) for (body,) in found]

    def newest(self, unit: Unit) -> Row | None:
        """The newest revision of a unit, or None if it has no row."""
        found = self._reader().execute(
            "select body from units join rows using (no) where actor = ? and kind = ? and number = ?",
            _key_of(unit),
        )
        body = found.fetchone()
        return None if body is None else Row.from_json(body[0])

    def with_samples(self, actor: str, first: int, last: int) -> list[Row]:
        """The newest rows of an actor's steps from `first` to `last` that have samples."""
        found = self._all(
            "select body from units join rows using (no) where actor = ? and kind = ? and number between ? and ? "
            "and instr(body, ?)",
            (actor, STEP, first, last, b'"samples":'),
        )
        return [Row.from_json(body) for (body,) in found]

    def lacking(self) -> list[tuple[str, int, int, int, str]]:
        """(actor, how many, first, last) of the units of a kind whose newest rows lack ranks, and the kind."""
        found = self._reader().execute(
            "select actor, count(*), min(number), max(number), kind from units where partial "
            "group by actor, kind order by actor, kind"
        )
        return found.fetchall()

    def unit_counts(self) -> list[tuple[str, str, int, int, int, int]]:
        """(actor, kind, how many, first and last index, how many lack ranks) of all units; points are of one kind."""
        found = self._reader().execute(
            "select actor, case when kind like 'point:%' then 'point' else kind end as what, count(*), min(number), "
            "max(number), sum(partial) from units group by actor, what order by actor, what"
        )
        return found.fetchall()

    def experiment(self) -> tuple[str, int] | None:
        """The experiment that this store was made for: its absolute path and its folder's inode; None: a new store."""
        found = self._connection.execute("select value from meta where key = 'experiment'").fetchone()
        if found is None:
            return None
        inode, _, path = str(found[0]).partition(" ")
        return path, int(inode)

    def claim(self, experiment: str, inode: int) -> None:
        """Say which experiment it is for: a new one's, or one that was moved."""
        self._connection.execute("insert or replace into meta values ('experiment', ?)", (f"{inode} {experiment}",))

    # The run -------------------------------------------------------------------------------------------------------

    def merged_run(self) -> MergedRun:
        """What all writers said of the run, as it was committed last. Any thread may ask."""
        return self._run

    def run_version(self) -> int:
        """The version of that; 0 if no writer said anything of the run."""
        return self._run.version

    def read_run(self) -> RunData:
        """What the run is."""
        return run_said.data_of(self._run)

    # Files ---------------------------------------------------------------------------------------------------------

    def writers(self) -> list[SavedWriter]:
        """Every file that was ever applied."""
        return [SavedWriter(*row) for row in self._reader().execute("select file, read, floor, state from writers")]

    def set_aside(self, files: Collection[str]) -> None:
        """What is known of these files is from now on known of `<file> (replaced <n>)`, so that their names are free:
        no writer's file ends like that.
        """
        if not files:
            return
        connection = self._connection
        taken = {writer.file for writer in self.writers()}
        with self._transaction():
            for file in files:
                number = 1
                while (aside := f"{file} (replaced {number})") in taken:
                    number += 1
                taken.add(aside)
                for table in schema.TABLES_BY_FILE:
                    connection.execute(f"update {table} set file = ? where file = ?", (aside, file))

    def governing_lines(self, file: str) -> list[tuple[int, bytes]]:
        """(offset, line) of a file's define and rollback lines, in file order."""
        found = self._reader().execute("select offset, line from marks where file = ? order by offset", (file,))
        return found.fetchall()

    def blocks(self, file: str, lowest: int, highest: int) -> list[SavedBlock]:
        """The finished blocks of a file that may hold records of steps from `lowest` to `highest`, in file order."""
        found = self._reader().execute(
            "select * from blocks where file = ? and lowest <= ? and highest >= ? order by start",
            (file, highest, lowest),
        )
        return [SavedBlock(*row) for row in found]

    def blocks_at(self, file: str, low: float, high: float) -> list[SavedBlock]:
        """The finished blocks of a file that may hold stream lines with `t` from `low` to `high`, in file order."""
        found = self._reader().execute(
            "select * from blocks where file = ? and t_low <= ? and t_high >= ? order by start", (file, high, low)
        )
        return [SavedBlock(*row) for row in found]

    def block_at(self, file: str, offset: int) -> SavedBlock | None:
        """The finished block that holds a byte of a file."""
        found = (
            self._reader()
            .execute("select * from blocks where file = ? and start <= ? order by start desc limit 1", (file, offset))
            .fetchone()
        )
        return SavedBlock(*found) if found is not None and found[2] > offset else None

    def dirty(self) -> list[Unit]:
        """The units whose rows may have changed since they were made."""
        return [Unit.from_disk(*found) for found in self._reader().execute("select actor, kind, number from dirty")]

    # What could not be used ----------------------------------------------------------------------------------------

    def dead_letters(self, limit: int = DEAD_DETAILS) -> list[tuple[str, Dead]]:
        """Dead letters with file, in order of file and offset."""
        return letters(self._reader(), limit)

    def dead_counts(self) -> Sequence[tuple[str, str, bool, int, int, str]]:
        """(file, reason, whether of values, how many, first offset, its excerpt)."""
        return totals(self._reader())

    def counts(self) -> dict[str, int]:
        """Other counts by name."""
        return {name: count for name, count in self._counts() if not name.startswith(REPORTED)}

    def reported(self) -> dict[str, int]:
        """What writers reported to the job, with how many processes did; the sum may be less than `counts` says."""
        return {name[len(REPORTED) :]: count for name, count in self._counts() if name.startswith(REPORTED)}

    def _counts(self) -> list[tuple[str, int]]:
        return self._reader().execute("select name, count from counts").fetchall()

    # Sinks' cursors ------------------------------------------------------------------------------------------------

    def load_cursor(self, key: str) -> int:
        """The row number saved last under this key, 0 without one: `sinks/delivery.py` says what the keys stand for."""
        found = self._all("select next from cursors where sink = ?", (key,))
        return int(found[0][0]) if found else 0

    def save_cursor(self, key: str, row_number: int) -> None:
        """Save a row number under a key."""
        self._all("insert or replace into cursors values (?, ?)", (key, row_number))


def _key_of(unit: Unit) -> tuple[str, str, int]:
    return unit.actor, unit.kind_on_disk, unit.index


def _unit_fields(row: Row) -> tuple[str, str, int, int, int, bool]:
    arrival = row.arrival
    return *_key_of(row.unit), arrival.row_number, arrival.revision, bool(row.coverage.missing)


class CountingStore(Store):
    """A store with `made`: rows committed by this process, by actor and by why they appeared (`Arrival.closed`).

    `on_rows` is called with the rows of each commit, once they are durable.
    """

    def __init__(self, path: Path, *, local: bool) -> None:
        super().__init__(path, local=local)
        self.made: dict[tuple[str, str], int] = {}
        self.on_rows: Callable[[Sequence[Row]], object] = lambda rows: None

    def commit(self, changes: Changes) -> None:
        """See `Store.commit`."""
        super().commit(changes)
        for row in changes.rows:
            key = row.unit.actor, row.arrival.closed
            self.made[key] = self.made.get(key, 0) + 1
        self.on_rows(changes.rows)
