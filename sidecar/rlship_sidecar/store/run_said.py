"""What each writer said of the run, in the store, and what all of it comes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rlship_sidecar.run_data.merging import RunChange, RunData
from rlship_sidecar.run_data.said import PARTS, About, Said
from rlship_sidecar.store.changes import MergedRun
from rlship_sidecar.store.tables import StoreTables

ABOUT = "about"
_VERSION, _DATA, _CHANGES = "version", "data", "changes"

_data = msgspec.json.Decoder(RunData).decode
_changes = msgspec.json.Decoder(list[RunChange]).decode
_about = msgspec.json.Decoder(About).decode


def said_by_file(ledger: StoreTables) -> dict[str, Said]:
    """What every writer said, by file. Writers that said the same share it."""
    found: dict[str, Said] = {}
    shared: dict[bytes, bytes] = {}
    for file, part, value in ledger.ask("select file, part, value from said"):
        said = found.setdefault(file, Said())
        if part == ABOUT:
            said.about = _about(value)
        elif part in PARTS:
            setattr(said, part, shared.setdefault(value, value))
    return found


def parts_of(file: str, said: Said, parts: Iterable[str]) -> list[tuple[str, str, bytes]]:
    """The rows of the table that keep these parts of what a file said."""
    return [(file, part, msgspec.json.encode(said.about) if part == ABOUT else getattr(said, part)) for part in parts]


def read_merged(connection: sqlite3.Connection) -> MergedRun:
    """The merged data and the changes. Raises DecodeError if no sidecar wrote them."""
    found: Mapping[str, Any] = dict(connection.execute("select part, value from run").fetchall())
    if not found:
        return MergedRun()
    return MergedRun(int(found[_VERSION]), bytes(found[_DATA]), bytes(found[_CHANGES]))


def save_merged(connection: sqlite3.Connection, merged: MergedRun) -> None:
    """Keep it, in the transaction that is under way."""
    values = [(_VERSION, str(merged.version).encode()), (_DATA, merged.data), (_CHANGES, merged.changes)]
    connection.executemany("insert or replace into run values (?, ?)", values)


def data_of(merged: MergedRun) -> RunData:
    """The merged data."""
    return _data(merged.data) if merged.version else RunData()


def changes_of(merged: MergedRun) -> list[RunChange]:
    """The changes."""
    return _changes(merged.changes) if merged.version else []
