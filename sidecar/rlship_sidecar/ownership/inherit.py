"""Gives a generation its store: the newest existing store is moved or copied, then older ones are removed.

A predecessor that wakes up late commits to a file that no process reads.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from rlship_sidecar.filesystem import sync_folder
from rlship_sidecar.store.store import StoreUnusable

_STORE = re.compile(r"store\.(\d{1,9})\.db$")
_ANY = re.compile(r"\.?(?P<what>store|lease|status)\.(?P<generation>\d{1,9})(?P<rest>\..+|$)")
COMPANIONS = ("", "-journal", "-wal")  # ends of the names of a store's files
_LOCKED_S = 2.0
_COPIES = 10


def store_file(state_dir: Path, generation: int) -> Path:
    """The path of a generation's store."""
    return state_dir / f"store.{generation}.db"


def stores(state_dir: Path) -> list[int]:
    """The generations that have a store, in order."""
    with os.scandir(state_dir) as entries:
        return sorted(int(match[1]) for entry in entries if (match := _STORE.match(entry.name)))


def lost_its_store(state_dir: Path) -> bool:
    """True if a state folder has no store, but other files that only a sidecar with a store leaves."""
    with os.scandir(state_dir) as entries:
        names = {entry.name for entry in entries}
    return not any(_STORE.match(name) for name in names) and not all(_ANY.fullmatch(name) for name in names)


def newest_store(state_dir: Path) -> tuple[str, int, int, int] | None:
    """The identity of the newest store, which shows whether it is still the same file; None if none can be seen."""
    try:
        path = store_file(state_dir, stores(state_dir)[-1])
        found = path.stat()
    except (OSError, IndexError):
        return None
    return path.name, found.st_ino, found.st_size, found.st_mtime_ns


def inherit(state_dir: Path, generation: int, gone: int | None) -> None:
    """Give `generation` the newest existing store, if any.

    `gone` is the previous generation if its owner certainly does nothing any more; None if that owner may be alive. If
    this function is interrupted, the next generation still finds a whole store. Raises StoreUnusable for a damaged
    store; sqlite3.Error or OSError for problems that may pass.
    """
    found = [one for one in stores(state_dir) if one < generation]
    if found:
        source, target = store_file(state_dir, found[-1]), store_file(state_dir, generation)
        try:
            # The owner of an older store may be alive: the newest owner died before it had a copy.
            if not (found[-1] == gone and _move(source, target)):
                scratch = target.with_suffix(".tmp")
                _clear(scratch)
                if not _copy(source, scratch):
                    copy_as_it_lies(source, scratch)
                os.rename(scratch, target)
        except BaseException as error:
            _clear(target.with_suffix(".tmp"))
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                raise damaged(source, error) from error
            raise
        sync_folder(state_dir)
    clear_before(state_dir, generation)


def clear_before(state_dir: Path, generation: int) -> None:
    """Remove the files of earlier generations, except the last one's lease. Files that cannot be removed stay."""
    with os.scandir(state_dir) as entries:
        left = [
            (entry.name, match["what"], int(match["generation"]), match["rest"])
            for entry in entries
            if (match := _ANY.fullmatch(entry.name))
        ]
    leases = [number for _, what, number, rest in left if what == "lease" and not rest and number < generation]
    last = max(leases, default=-1)
    for name, what, number, rest in left:
        if number < generation and not (what == "lease" and not rest and number == last):
            with suppress(OSError):
                (state_dir / name).unlink()


def damaged(store: Path, error: sqlite3.DatabaseError) -> StoreUnusable:
    """The error for a store that can no longer be read, with the way out."""
    return StoreUnusable(
        f"the store {store} is damaged: {error}",
        f"Move every store.* in {store.parent} away and start again: rows are rebuilt from the files, into a new W&B "
        "run. Move what other sinks wrote away too, or give them new places.",
    )


def _clear(scratch: Path) -> None:
    for suffix in COMPANIONS:
        scratch.with_name(scratch.name + suffix).unlink(missing_ok=True)


def _open(source: Path) -> sqlite3.Connection:
    # `rw`, so that a store that another process just moved does not appear as an empty one.
    uri = f"file:{quote(os.fspath(source))}?mode=rw"
    return sqlite3.connect(uri, timeout=_LOCKED_S, isolation_level=None, uri=True)


def _move(source: Path, target: Path) -> bool:
    """Rename the store, once one file holds all of it. Returns False if another process keeps it open."""
    with closing(_open(source)) as connection:
        try:
            busy = connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not _locked(error):
                raise
            return False
    if busy or any(_left(source, suffix) for suffix in COMPANIONS[1:]):
        return False
    os.rename(source, target)
    return True


def _left(source: Path, suffix: str) -> int:
    try:
        return source.with_name(source.name + suffix).stat().st_size
    except FileNotFoundError:
        return 0


def _copy(source: Path, scratch: Path) -> bool:
    """Copy the committed data. Returns False if its owner stopped while the store was locked."""
    with (
        closing(_open(source)) as old,
        closing(sqlite3.connect(scratch)) as new,
    ):
        try:
            # `backup` would wait for ever for a lock. Inside a read transaction, no process can lock the store any
            # more.
            old.execute("begin")
            old.execute("select count(*) from sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if not _locked(error):
                raise
            return False
        old.backup(new)
    return True


def _locked(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "locking protocol" in str(error)


def copy_as_it_lies(source: Path, scratch: Path) -> None:
    """Copy the files byte by byte, and roll back in the copy what their owner had begun.

    An owner that wakes up during the copy changes the files; then they are copied again. That happens at most once,
    because an owner checks its lease before each commit.
    """
    for _ in range(_COPIES):
        _clear(scratch)
        _copy_files(source, scratch)
        filecmp.clear_cache()
        if not all(_same(source, scratch, suffix) for suffix in COMPANIONS):
            continue
        with closing(sqlite3.connect(scratch)) as copy:
            copy.execute("pragma wal_checkpoint(truncate)")
            found = copy.execute("pragma quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        return
    raise sqlite3.OperationalError(f"{source} is locked by its last owner, and changes while it is copied")


def _copy_files(source: Path, scratch: Path) -> None:
    for suffix in COMPANIONS:
        with suppress(FileNotFoundError):
            shutil.copyfile(source.with_name(source.name + suffix), scratch.with_name(scratch.name + suffix))


def _same(source: Path, scratch: Path, suffix: str) -> bool:
    """True if the copy of one of a store's files equals the file, or neither exists."""
    old, new = source.with_name(source.name + suffix), scratch.with_name(scratch.name + suffix)
    try:
        return filecmp.cmp(old, new, shallow=False)
    except FileNotFoundError:
        return not old.exists() and not new.exists()
