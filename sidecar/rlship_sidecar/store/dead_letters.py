"""Lines and values that could not be used, in the store: each is counted, the first of a kind are kept in full."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from rlship_sidecar.decode.lines import Dead

DEAD_DETAILS = 1000  # letters kept in full per file and reason (lines and values apart); the others are only counted

_NO_METRIC = "\n"  # marks a dead line among dead values, whose metric may have any name, the empty one too


def insert(connection: sqlite3.Connection, dead: Iterable[tuple[str, Dead]]) -> None:
    """Take in dead letters with their files, in the transaction that is under way."""
    for file, letter in dead:
        count = connection.execute(
            "insert into dead_counts values (?, ?, ?, 1, ?, ?) "
            "on conflict (file, reason, is_value) do update set count = count + 1 returning count",
            (file, letter.reason, letter.metric is not None, letter.offset, letter.excerpt),
        ).fetchone()[0]
        if count <= DEAD_DETAILS:
            connection.execute(
                "insert or ignore into dead values (?, ?, ?, ?, ?)",
                (
                    file,
                    letter.offset,
                    _NO_METRIC if letter.metric is None else letter.metric,
                    letter.reason,
                    letter.excerpt,
                ),
            )


def letters(connection: sqlite3.Connection, limit: int) -> list[tuple[str, Dead]]:
    """Dead letters with file, in order of file and offset."""
    found = connection.execute(
        "select file, offset, reason, excerpt, metric from dead order by file, offset, metric limit ?", (limit,)
    )
    return [
        (file, Dead(offset, reason, text, None if metric == _NO_METRIC else metric))
        for file, offset, reason, text, metric in found
    ]


def totals(connection: sqlite3.Connection) -> Sequence[tuple[str, str, bool, int, int, str]]:
    """(file, reason, whether of values, how many, first offset, its excerpt)."""
    found = connection.execute("select * from dead_counts order by file, reason, is_value")
    return [(file, reason, bool(value), *rest) for file, reason, value, *rest in found]
