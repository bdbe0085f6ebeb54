"""The experiment that a state folder belongs to. A moved experiment keeps its state; a copy must not continue it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.ownership.place import require_place
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.store import schema
from rlship_sidecar.tail.listing import WRITERS_FOLDER


class StateOfAnother(RlshipError):
    """The state was made for another experiment, which still exists."""


def location(experiment: Path) -> tuple[str, int]:
    """The location that a store keeps of its experiment: the absolute path, and an inode.

    The inode is that of the writers' folder, or of the experiment if it never had one.
    """
    try:
        inode = os.stat(experiment / WRITERS_FOLDER).st_ino
    except FileNotFoundError:
        inode = os.stat(experiment).st_ino
    return os.path.realpath(experiment), inode


def ownership_error(owner: tuple[str, int] | None, here: tuple[str, int], state_dir: Path) -> StateOfAnother | None:
    """The error if the state of `owner` cannot be that of the experiment at `here`, with the way out; else None."""
    if owner is None or owner[0] == here[0] or owner[1] == here[1]:
        return None  # a folder that was moved or mounted twice keeps its inode; a copy has another one
    if not os.path.isdir(os.path.join(owner[0], WRITERS_FOLDER)):
        return None
    return StateOfAnother(
        f"the state in {state_dir} belongs to the experiment {owner[0]}, not to {here[0]}",
        f"If this is a copy, remove {state_dir}: it becomes an experiment with a run of its own. "
        "If both use one --state-dir, give each its own.",
    )


def require_readable(experiment: Path, state_dir: Path, *, any_owner: bool) -> bool:
    """Raise UntrustedState, StateOfAnother or another RlshipError if a state folder cannot be used by a command that
    only reads. Returns False without a state folder.
    """
    is_there = require_place(experiment, state_dir, any_owner=any_owner)
    if is_there and (copied := look(experiment, state_dir)) is not None:
        raise copied
    return is_there


def look(experiment: Path, state_dir: Path) -> StateOfAnother | None:
    """The same check for a command that only reads. Returns None too if the store cannot be read now, or is no
    store.
    """
    found = newest_store(state_dir)
    if found is None:
        return None
    try:
        store = os.fspath(state_dir.absolute() / found[0])
        os.close(open_plain(store))
        # Without `immutable`, SQLite would leave files beside a store that no process has open. They might belong to a
        # user whose files the sidecar cannot overwrite.
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
