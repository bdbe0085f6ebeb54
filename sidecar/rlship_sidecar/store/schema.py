"""The tables of the store."""

from __future__ import annotations

import sqlite3

VERSION = 3

_SQL = """
create table meta (key text primary key, value text not null) without rowid;
create table writers (file text primary key, read integer not null, floor integer not null, state blob not null) without
rowid;
create table marks (file text not null, offset integer not null, line blob not null, primary key (file, offset)) without
rowid;
create table blocks (file text not null, start integer not null, stop integer not null, t real not null,
                     lowest integer not null, highest integer not null, barrier_t real,
                     t_low real, t_high real, primary key (file, start))
                     without rowid;
create table rows (no integer primary key, body blob not null);
create table units (actor text not null, kind text not null, number integer not null, no integer not null,
                    revision integer not null, partial integer not null, primary key (actor, kind, number)) without
                    rowid;
create index lacking on units (partial) where partial;
create table dirty (actor text not null, kind text not null, number integer not null,
                    primary key (actor, kind, number)) without rowid;
create table dead (file text not null, offset integer not null, metric text not null, reason text not null,
                   excerpt text not null, primary key (file, offset, metric, reason)) without rowid;
create table dead_counts (file text not null, reason text not null, is_value integer not null, count integer not null,
                          offset integer not null, excerpt text not null,
                          primary key (file, reason, is_value)) without rowid;
create table clocks (host text not null, t real not null, offset real not null, err real not null,
                     primary key (host, t)) without rowid;
create table timeline (step integer primary key, until real not null, since real not null, until_t real not null,
                       since_t real not null, file text not null, host text not null, replica text not null,
                       rank integer not null, attempt integer not null, open_t real not null, id text not null,
                       segment integer not null);
create index timeline_order on timeline (until, step);
create index timeline_until on timeline (host, until_t);
create index timeline_since on timeline (host, since_t);
create table frontiers (actor text primary key, clock integer, until real not null, step integer not null) without
rowid;
create table names (actor text not null, name text not null, stepped integer not null,
                    primary key (actor, name, stepped)) without rowid;
create table gaps (actor text not null, file text not null, t real not null, n integer not null);
create index gaps_at on gaps (actor, t);
create table logged_metrics (actor text not null, metric text not null, id integer not null, first integer not null,
                             ranks text not null, primary key (actor, metric)) without rowid;
create table logged_steps (actor text not null, step integer not null, ranks text not null, short text,
                           primary key (actor, step)) without rowid;
create index short_steps on logged_steps (actor, step) where short is not null;
create table nonfinite (actor text not null, kind text not null, key text not null, rows integer not null,
                        first integer not null, last integer not null, ranks text not null,
                        primary key (actor, kind, key)) without rowid;
create table counts (name text primary key, count integer not null) without rowid;
create table said (file text not null, part text not null, value blob not null, primary key (file, part)) without
rowid;
create table run (part text primary key, value blob not null) without rowid;
create table ledger (key text not null, file text not null, offset integer not null, segment integer not null,
                     hop text not null, t real not null, step integer, body blob not null,
                     primary key (key, file, offset)) without rowid;
create index ledger_times on ledger (t, step) where hop = 'trained' and step is not null;
create index ledger_steps on ledger (step, t) where hop = 'trained' and step is not null;
create table ledger_groups (key text primary key, step integer, tau real, placed_t real,
                            verdict blob not null) without rowid;
create index ledger_placed on ledger_groups (step);
create index ledger_decided on ledger_groups (placed_t, tau) where tau is not null;
create table past_rows (actor text not null, step integer not null, submission integer not null,
                        attempt integer not null, rollbacks integer not null, lacks integer not null,
                        body blob not null, primary key (actor, step, submission, attempt, rollbacks)) without rowid;
create table alert_steps (submission integer not null, attempt integer not null, rollbacks integer not null,
                          step integer not null,
                          primary key (submission, attempt, rollbacks, step)) without rowid;
create table alert_states (submission integer not null, attempt integer not null, rollbacks integer not null,
                           rule text not null, piece integer not null, state blob not null,
                           primary key (submission, attempt, rollbacks, rule, piece)) without rowid;
create table alert_episodes (submission integer not null, attempt integer not null, rollbacks integer not null,
                             rule text not null, piece integer not null, episodes blob not null,
                             primary key (submission, attempt, rollbacks, rule, piece)) without rowid;
create table alert_dirty (submission integer not null, attempt integer not null, rollbacks integer not null,
                          piece integer not null,
                          primary key (submission, attempt, rollbacks, piece)) without rowid;
create table alert_frames (piece integer primary key, steps blob not null);
create table outbox (notifier text not null, episode text not null, state text not null, number integer not null,
                     rule text not null, made real not null, tries integer not null, sent real, body blob not null,
                     primary key (notifier, episode, state)) without rowid;
create index outbox_numbers on outbox (number);
create index outbox_waiting on outbox (notifier, number) where sent is null;
create table cursors (sink text primary key, next integer not null) without rowid;
"""

TABLES = [statement.strip() for statement in _SQL.split(";") if statement.strip()]
TABLES_BY_FILE = ("writers", "marks", "blocks", "dead", "dead_counts", "timeline", "gaps", "said", "ledger")


def lacking(connection: sqlite3.Connection) -> list[str]:
    """The statements that make the tables and indexes that a store lacks."""
    there = {name for (name,) in connection.execute("select name from sqlite_master")}
    return [statement for statement in TABLES if statement.split()[2] not in there]


def _words(sql: str) -> str:
    """SQL without what SQLite changes when it keeps a statement: upper case."""
    return " ".join(sql.lower().split())


_MADE = {statement.split()[2]: _words(statement) for statement in TABLES}


def foreign_objects(connection: sqlite3.Connection) -> dict[str, str]:
    """What a database holds that no sidecar made: its name and kind, such as {"rows": "view"}.

    A view can answer without end, and a generated column runs what its author wrote. So nothing may be asked of a
    database that another user may have made before this is known.
    """
    there = connection.execute("select type, name, sql from sqlite_master")
    return {name: kind for kind, name, sql in there if sql is None or _MADE.get(name) != _words(sql)}
