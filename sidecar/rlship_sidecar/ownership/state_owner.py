"""Whose state it is: a folder that was moved keeps its state, a copy must not go on with the original's."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.store import schema
from rlship_sidecar.tail.listing import WRITERS_FOLDER


class StateOfAnother(RlshipError):
    """The state was made for an experiment that is still there, elsewhere."""


def location(experiment: Path) -> tuple[str, int]:
    """What a store remembers of its experiment: the absolute path, and the inode of the writers' folder, or of the
    experiment where no writer of ours ever was.
    """
    try:
        inode = os.stat(experiment / WRITERS_FOLDER).st_ino
    except FileNotFoundError:
        inode = os.stat(experiment).st_ino
    return os.path.realpath(experiment), inode


def ownership_error(owner: tuple[str, int] | None, here: tuple[str, int], state_dir: Path) -> StateOfAnother | None:
    """Why the state of `owner` is not that of the experiment `here`, with the way out; None if it may be."""
    if owner is None or owner[0] == here[0] or owner[1] == here[1]:
        return None  # a folder that was moved, or is mounted at two places, keeps its inode; a copy has another
    if not os.path.isdir(os.path.join(owner[0], WRITERS_FOLDER)):
        return None
    return StateOfAnother(
        f"the state in {state_dir} belongs to the experiment {owner[0]}, not to {here[0]}",
        f"If this is a copy, remove {state_dir}: it becomes an experiment with a run of its own. "
        "If both use one --state-dir, give each its own.",
    )


def look(experiment: Path, state_dir: Path) -> StateOfAnother | None:
    """The same for a command that only reads: None as well where the store cannot be read just now, or is no store."""
    found = newest_store(state_dir)
    if found is None:
        return None
    try:
        store = os.fspath(state_dir.absolute() / found[0])
        os.close(open_plain(store))
        # SQLite would leave files beside a store that no process has open, perhaps of a user whom the sidecar cannot
        # overwrite.
        how = "mode=ro" if os.path.exists(f"{store}-wal") else "immutable=1"
        uri = f"file:{quote(store)}?{how}"
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            if schema.foreign_objects(connection):
                return None
            known = connection.execute("select value from meta where key = 'experiment'").fetchone()
        here = location(experiment)
    except (OSError, sqlite3.Error):
        return None
    if known is None:
        return None
    inode, _, path = str(known[0]).partition(" ")
    return ownership_error((path, int(inode)), here, state_dir) if inode.isdecimal() else None
