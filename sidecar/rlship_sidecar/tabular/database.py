"""The tables as a database for SQL queries, which can do nothing but read it.

Tables that a query names are copied into a temporary DuckDB file, as far as the query's plan can need them: it says
which tables it scans, and with which filters. The file is then reopened read-only, without access to files, the
network, extensions or this process. So a query may come from an untrusted source. Data that does not fit into memory is
on disk.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.similar import similar
from rlship_sidecar.tabular import wide
from rlship_sidecar.tabular.columns import TABLES, Column, TableSpec
from rlship_sidecar.tabular.condition import NOTHING, Condition, Need, given, names, needs
from rlship_sidecar.tabular.source import ExperimentTables, Record, RecordFilter
from rlship_sidecar.tabular.writing import INSTALL, batches, require_arrow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "512MB"
_NO_EXTENSIONS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # otherwise a name in SQL could refer to a variable of this program
}
_SQL_TYPES = {
    "text": "varchar",
    "json": "json",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "texts": "varchar[]",
    "ints": "bigint[]",
    "floats": "double[]",
}
MAX_COLUMNS = 40  # that an error lists
_FETCHED = 200  # by number, not by size: a text may have a megabyte


class Answer(NamedTuple):
    """The result of a query: its column names (all different), which columns are JSON, and its records.

    `notes` say which columns that the query names may be taken for metrics.
    """

    columns: list[str]
    nested: list[bool]
    records: Iterator[Record]
    notes: Sequence[str] = ()


def require_duckdb() -> Any:
    """The module duckdb; raises UsageProblem if it, or a package that it needs here, is not installed."""
    try:
        import duckdb
        import pytz  # type: ignore[import-untyped, unused-ignore]  # noqa: F401 - for times with a zone
    except ImportError as error:
        raise UsageProblem(f"queries need the package {error.name}, which is not installed", INSTALL) from error
    require_arrow()
    return duckdb


def check(sql: str) -> None:
    """Raise UsageProblem unless `sql` is one statement that reads."""
    duckdb = require_duckdb()
    try:
        kinds = [statement.type.name for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as problem:
        raise _wrong(problem, sql) from None
    if len(kinds) != 1:
        raise UsageProblem(f"a query is one statement, and these are {len(kinds)}", "send one query after the other")
    if kinds[0] == "MULTI":  # a PIVOT that would run a query of its own to find its columns
        raise UsageProblem(
            "PIVOT needs a list of the columns to make", "PIVOT … ON key IN ('trainer/loss', 'trainer/lr') USING …"
        )
    if kinds[0] != "SELECT":
        raise UsageProblem(
            f"a query only reads, and this is {kinds[0]}",
            "use SELECT, WITH, FROM, DESCRIBE, SUMMARIZE or SHOW TABLES; --csv and --json write the answer in full",
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that a query may name. `sources` are those whose records it holds; none if the query does not name it."""

    name: str
    columns: tuple[Column, ...]
    sources: Sequence[ExperimentTables]
    of_files: bool
    records_of: Callable[[ExperimentTables, Condition, Sequence[str]], Iterator[Record]]  # with columns of these names
    shadowed: Sequence[wide.Shadowed] = ()

    def notes(self, sql: str, need: Need) -> list[str]:
        """A line for each metric that a query may mean when it names a column of the head, and does not name."""
        asked = (one for one in self.shadowed if names(sql, one.head) and not names(sql, one.column))
        return [one.note for one in asked if need.columns is None or one.head in need.columns]

    def bytes_to_read(self, condition: Condition, sizes: Mapping[str, int]) -> int:
        """How much of the writers' files is read for it, given the size of each experiment's."""
        asked = [one for one in self.sources if given(condition, {"experiment": one.name}) != NOTHING]
        return sum(sizes[os.fspath(one.path)] for one in asked) if self.of_files else 0


@contextmanager
def answering(
    folder: str,
    sources: Sequence[ExperimentTables],
    sql: str,
    memory: str = MEMORY,
    *,
    on_start: Callable[[int], None] = lambda total: None,
) -> Iterator[Answer]:
    """The answer to `sql`, over the tables of all `sources`.

    `folder` is empty and may be filled with the tables. The database holds at most about `memory` in RAM. `on_start` is
    called with the number of bytes of writers' files that will be read. Raises UsageProblem if the query is wrong.
    """
    duckdb = require_duckdb()
    check(sql)
    file = os.path.join(folder, "tables.db")
    limits = {"memory_limit": memory, "temp_directory": os.path.join(folder, "spill")}
    filling = {**_NO_EXTENSIONS, **limits}
    asking = {**filling, "enable_external_access": "false"}
    known: dict[str, list[str]] = {}
    try:
        with duckdb.connect(file, config=filling) as connection:
            named = []
            for table in _tables(sources, sql):
                known[table.name] = [column.name for column in table.columns]
                _create(connection, table)
                named += [table] if table.sources else []
        with duckdb.connect(file, read_only=True, config=asking) as connection, ThreadPoolExecutor(1) as thread:
            needed = _needs(connection, thread, named, sql)
        if any(table.of_files for table in named):
            sizes = {os.fspath(source.path): source.file_bytes() for source in sources}
            on_start(sum(table.bytes_to_read(needed[table.name].condition, sizes) for table in named))
        with duckdb.connect(file, config=filling) as connection:
            for table in named:
                _fill(connection, table, needed[table.name])
        with duckdb.connect(file, read_only=True, config=asking) as connection, ThreadPoolExecutor(1) as thread:
            connection.execute("set timezone = 'UTC'")
            connection.execute("set lock_configuration = true")
            _stoppable(connection, thread, connection.execute, sql)
            about = connection.description or []
            heads = list(map(wide.UniqueNames().unlike, (column[0] for column in about)))
            notes = [note for table in named for note in table.notes(sql, needed[table.name])]
            nested = [str(column[1]) == "JSON" for column in about]
            yield Answer(heads, nested, _fetched(connection, thread), notes)
    except duckdb.OutOfMemoryException as problem:
        raise RlshipError(_first_line(problem), f"allow more than {memory} with --memory, or select less") from problem
    except duckdb.Error as problem:
        raise _wrong(problem, sql, known) from None


def _fetched(connection: DuckDBPyConnection, thread: Executor) -> Iterator[Record]:
    while found := _stoppable(connection, thread, connection.fetchmany, _FETCHED):
        yield from found


def _stoppable(connection: DuckDBPyConnection, thread: Executor, call: Callable[[Any], Any], given: object) -> Any:
    """Wait for DuckDB in another thread, because the waiting thread would not notice a signal."""
    try:
        return thread.submit(call, given).result()
    except BaseException:
        connection.interrupt()
        raise


def _tables(sources: Sequence[ExperimentTables], sql: str) -> Iterator[_Table]:
    """Every table."""
    watched = [source for source in sources if source.snapshot is not None]
    tables = wide.UniqueNames(TABLES)
    for table in TABLES.values():
        # An unwatched experiment has no rows. Only if all are unwatched are they asked, so that the error shows.
        there = sources if table.of == "records" else watched or sources
        asked = there if names(sql, table.name) else ()
        yield _Table(table.name, table.columns, asked, table.of == "records", partial(_records, table))
    for actor, kind in sorted({unit for source in watched for unit in source.units()}):
        name = tables.unlike(wide.table_name(actor, kind))
        keys: list[str] = []
        asked = watched if names(sql, name) else ()
        choice = RecordFilter((actor,), (kind,))
        if asked:
            keys = wide.keys_of(chain.from_iterable(one.rows(choice, every=False) for one in asked))
        short = wide.short(actor, kind)
        columns = wide.columns(keys, short)
        key_of = dict(zip((column.name for column in columns[len(wide.HEAD) :]), keys))
        metrics = wide.shadowed(keys, columns, short)
        yield _Table(name, columns, asked, False, partial(_wide_records, choice, key_of), metrics)


def _records(
    table: TableSpec, source: ExperimentTables, condition: Condition, wanted: Sequence[str]
) -> Iterator[Record]:
    return _narrowed(source.records(table, RecordFilter(), condition), table.columns, wanted)


def _wide_records(
    choice: RecordFilter,
    key_of: Mapping[str, str],
    source: ExperimentTables,
    condition: Condition,
    wanted: Sequence[str],
) -> Iterator[Record]:
    """`key_of` maps the columns of values to their keys."""
    condition = given(condition, {"experiment": source.name})
    keys = {name: key for name, key in key_of.items() if name in wanted}
    columns = (*wide.HEAD, *(Column(name, "float") for name in keys))
    rows = source.rows(choice, every=False, condition=condition)
    return _narrowed(wide.records(source.name, rows, [*keys.values()]), columns, wanted)


def _narrowed(records: Iterator[Record], columns: Sequence[Column], wanted: Sequence[str]) -> Iterator[Record]:
    """The wanted columns of records that have these columns."""
    if len(wanted) == len(columns):
        return records
    places = {column.name: place for place, column in enumerate(columns)}
    chosen = [places[name] for name in wanted]
    return (tuple([record[place] for place in chosen]) for record in records)


def _needs(connection: DuckDBPyConnection, thread: Executor, tables: Sequence[_Table], sql: str) -> dict[str, Need]:
    """What the query needs of each table, from the query's plan.

    The tables are empty, and the plan must not rest on that: what it would conclude from their statistics is switched
    off. If DuckDB does not explain plans as this module reads them, everything is needed.
    """
    columns = {table.name: table.columns for table in tables}
    everything = dict.fromkeys(columns, Need())
    if not columns:
        return everything
    connection.execute("set disabled_optimizers = 'statistics_propagation'")
    connection.execute("set lock_configuration = true")
    plans = {name: _plan(connection, thread, f"from {_quoted(name)}") for name in columns}
    if any(needs(plan, {name: columns[name]})[name].condition == NOTHING for name, plan in plans.items()):
        return everything
    plan = _plan(connection, thread, sql)
    return needs(plan, columns) if plan else everything


def _plan(connection: DuckDBPyConnection, thread: Executor, sql: str) -> list[Any]:
    """How DuckDB would answer; empty if it explains that otherwise than expected. Raises its error for wrong SQL."""
    duckdb = require_duckdb()
    try:
        _stoppable(connection, thread, connection.execute, f"explain (format json) {sql}")
        plan = json.loads(connection.fetchall()[0][1])
    except duckdb.Error:
        _stoppable(connection, thread, connection.execute, sql)  # so that an error shows what was asked
        return []
    except (ValueError, LookupError):
        return []
    return plan if isinstance(plan, list) else []


def _create(connection: DuckDBPyConnection, table: _Table) -> None:
    types = ", ".join(f"{_quoted(column.name)} {_SQL_TYPES[column.type]}" for column in table.columns)
    connection.execute(f"create table {_quoted(table.name)} ({types})")


def _fill(connection: DuckDBPyConnection, table: _Table, need: Need) -> None:
    """Copy what the query needs. The other columns stay null."""
    if need.condition == NOTHING:
        return
    wanted = [column for column in table.columns if need.columns is None or column.name in need.columns]
    wanted = wanted or [table.columns[0]]  # the query counts records
    columns = [column.name for column in wanted]
    records = chain.from_iterable(table.records_of(source, need.condition, columns) for source in table.sources)
    into = f"{_quoted(table.name)} ({', '.join(map(_quoted, columns))})"
    for batch in batches(wanted, records):
        connection.register("incoming batch", batch)
        connection.execute(f'insert into {into} select * from "incoming batch"')
        connection.unregister("incoming batch")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_NO_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_NO_COLUMN = re.compile(r'Referenced column "(.+?)" not found|does not have a column named "(.+?)"')
_DIVIDED = re.compile(r"(?<![\w\"/])\w+(?:/\w+)+(?![\w\"/])")  # SQL takes `barrier/spread_s` for a division
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def _wrong(problem: Exception, sql: str, tables: Mapping[str, Sequence[str]] | None = None) -> UsageProblem:
    """The error in a query, with similar names. `tables` maps each table to its columns."""
    text, known = str(problem), tables or {}
    message = _first_line(problem)
    if match := _NO_TABLE.search(text):
        near = similar(match[1], known, 3)
        return UsageProblem(f"there is no table {match[1]}", _offer(near) or f"there are: {', '.join(known)}")
    named = {table: found for table, found in known.items() if names(sql, table)} or known
    columns = list(dict.fromkeys(column for found in named.values() for column in found))
    divided = _DIVIDED.findall(sql)
    if unquoted := next((one for one in columns if one.lower() in map(str.lower, divided)), ""):
        return UsageProblem(message, f"a name with a slash needs double quotes: {_quoted(unquoted)}")
    if match := _NO_COLUMN.search(text):
        missing = match[1] or match[2]
        whole = [one for one in divided if missing.lower() in one.lower().split("/")]
        near = next(filter(None, (similar(one, columns, 3) for one in [*whole, missing])), [])
        offer = _tables_with(missing, known) or _offer(list(map(_as_written, near)))
        return UsageProblem(message, offer or _columns_of(named))
    where = "\n".join(line for line in text.splitlines()[1:] if line.strip())
    return UsageProblem(message, where or "docs/query.md describes the tables")


def _tables_with(column: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The tables that have a column of exactly this name; "" without any."""
    having = [table for table, columns in tables.items() if column.lower() in map(str.lower, columns)]
    return f"{', '.join(map(_as_written, having[:4]))} {'has' if len(having) == 1 else 'have'} it" if having else ""


def _columns_of(tables: Mapping[str, Sequence[str]]) -> str:
    """The columns of the tables that a query names; if these are many, how to list them."""
    if sum(map(len, tables.values())) <= MAX_COLUMNS:
        return "; ".join(f"{_as_written(table)} has {', '.join(map(_as_written, tables[table]))}" for table in tables)
    some = " or ".join(map(_as_written, [*tables][:4])) if len(tables) <= 4 else "<table>"
    return f"list a table's columns: DESCRIBE {some}"


def _as_written(column: str) -> str:
    """A column's name as a query has to write it: quoted, or in any case."""
    return column.lower() if _PLAIN_NAME.fullmatch(column) else _quoted(column)


def _offer(near: list[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else ""


def _first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0]
