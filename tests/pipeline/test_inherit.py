"""How a generation gets its store: whole, whatever its predecessor was doing, and wherever a takeover is cut off."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.ownership import inherit as inheriting
from rlship_sidecar.ownership.lease import acquire
from rlship_sidecar.store.store import StoreUnusable
from tests.kit.cases import some
from tests.kit.clocks import Clock
from tests.pipeline.simulated import scratch
from tests.pipeline.test_lease import acquired, here, put_lease, put_store, said

ROWS = 300
# Leaves a transaction in the middle of its commit, so far that the file itself is half changed, and stays like that.
HALF = """
import os, sqlite3, sys, time
path, mode, locking = sys.argv[1:]
store = sqlite3.connect(path, isolation_level=None)
store.execute(f"pragma journal_mode={mode}")
store.execute("create table said (text)")
store.executemany("insert into said values (?)", [("before" + "x" * 1000,)] * 300)
store.execute("pragma cache_size=2")
store.execute("begin immediate" if locking == "shared" else "begin exclusive")
store.execute("update said set text = 'half' || text")
print("half", flush=True)
time.sleep(600)
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rlship" / "state"
    path.mkdir(parents=True)
    return path


@contextmanager
def half_committed(state_dir: Path, mode: str, locking: str) -> Iterator[subprocess.Popen[str]]:
    """A process that stands in the middle of a commit to `store.0.db`."""
    command = [sys.executable, "-c", HALF, str(state_dir / "store.0.db"), mode, locking]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "half\n"
            yield process
        finally:
            process.kill()


def check_before(path: Path) -> None:
    """The store is whole, and has nothing of the commit that was cut off."""
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert store.execute("select count(*) from said where text like 'before%'").fetchone() == (ROWS,)


@pytest.mark.parametrize("killed", [True, False], ids=["killed here", "frozen elsewhere"])
@pytest.mark.parametrize("locking", ["shared", "exclusive"])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_commit_that_was_cut_off_is_rolled_back(state_dir: Path, mode: str, locking: str, killed: bool) -> None:
    """A store whose owner was killed in the middle of a commit, or stands there with the store locked, is taken over
    without that commit, in both journal modes.
    """
    with half_committed(state_dir, mode, locking) as process:
        if killed:
            process.kill()
            process.wait()
            put_lease(state_dir, 0, **(here() | {"started": 1}))
        else:
            process.send_signal(signal.SIGSTOP)
            put_lease(state_dir, 0)
        lease = acquired(state_dir)
        assert lease.generation == 1
        check_before(lease.store_path)
        assert sorted(path.name for path in state_dir.iterdir()) == ["lease.0", "lease.1", "store.1.db"]


def test_an_owner_that_wakes_up_while_its_store_is_copied(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked store that is changed while it is copied byte by byte is copied once more, never half old, half new."""
    real = inheriting._copy_files
    path = state_dir / "store.0.db"
    copies = 0
    with half_committed(state_dir, "delete", "exclusive") as process:
        process.send_signal(signal.SIGSTOP)
        put_lease(state_dir, 0)
        whole = path.read_bytes()

        def copy(source: Path, target: Path) -> None:
            nonlocal copies
            copies += 1
            path.write_bytes(whole)
            real(source, target)
            if copies == 1:
                path.write_bytes(whole[:-4096] + bytes(4096))

        monkeypatch.setattr(inheriting, "_copy_files", copy)
        lease = acquired(state_dir)
        assert copies == 2
        check_before(lease.store_path)


def test_a_store_that_changes_again_and_again_is_tried_later(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that is not frozen at all is no reason to copy for ever: it is an error that may pass, and nothing is
    left of the attempt.
    """
    with half_committed(state_dir, "delete", "exclusive"):
        put_lease(state_dir, 0)
        monkeypatch.setattr(inheriting, "_same", lambda *arguments: False)
        with pytest.raises(sqlite3.OperationalError, match="changes while it is copied"):
            acquired(state_dir)
        assert not (state_dir / "lease.1").exists()


def test_a_store_of_an_owner_who_may_live_is_never_moved(state_dir: Path) -> None:
    """If the last owner died here before it had a copy, the one before it may thaw elsewhere: its store is copied."""
    put_lease(state_dir, 0)
    put_store(state_dir, 0, "hello")
    put_lease(state_dir, 1, **(here() | {"started": 1}))
    with closing(sqlite3.connect(state_dir / "store.0.db")) as frozen:
        frozen.execute("select * from said").fetchall()
        lease = acquired(state_dir)
        frozen.execute("update said set text = 'too late'")
        frozen.commit()
        frozen.execute("pragma wal_checkpoint(truncate)")
    assert lease.generation == 2
    assert said(lease.store_path) == "hello"


def test_a_store_that_somebody_looks_at_is_taken_over_whole(state_dir: Path) -> None:
    """A reader, such as sqlite3 in a terminal, keeps the log from being emptied: what is in it comes along."""
    put_lease(state_dir, 0, **(here() | {"started": 1}))
    put_store(state_dir, 0, "old")
    with closing(sqlite3.connect(state_dir / "store.0.db", isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select * from said").fetchall()
        with closing(sqlite3.connect(state_dir / "store.0.db")) as writer:
            writer.execute("update said set text = 'hello'")
            writer.commit()
        lease = acquired(state_dir)
        assert said(lease.store_path) == "hello"


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("damage", ["no database", "torn"])
def test_a_damaged_store_is_reported_with_the_way_out(state_dir: Path, damage: str, gone: bool) -> None:
    """The error names the file and what to do; nothing of the attempt is left, and once the store is moved away the
    next one begins anew.
    """
    put_lease(state_dir, 3, **(here() | {"started": 1} if gone else {}))
    path = state_dir / "store.3.db"
    with closing(sqlite3.connect(path)) as store:
        store.execute("create table said (text)")
        store.executemany("insert into said values (?)", [("x" * 1000,)] * ROWS)
        store.commit()
    if damage == "no database":
        path.write_bytes(b"neither a database nor a folder\n" * 1000)
    else:
        data = path.read_bytes()
        path.write_bytes(data[:20] + b"\xff" * 200 + data[220:])
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=r"store\.3\.db is damaged") as caught:
            acquired(state_dir)
        assert f"Move every store.* in {state_dir} away" in caught.value.hint
        assert sorted(found.name for found in state_dir.iterdir() if "shm" not in found.name) == ["lease.3", path.name]
    path.rename(state_dir / "damaged.db")
    lease = acquired(state_dir)
    assert lease.generation == 4 and not lease.store_path.exists()


def test_a_store_that_vanishes_does_not_become_an_empty_one(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another process renames between the look and the copy is an error that may pass, not a new store."""
    put_lease(state_dir, 0)
    put_store(state_dir, 0, "hello")
    real = inheriting._open

    def late(source: Path) -> sqlite3.Connection:
        source.rename(state_dir / "elsewhere")
        return real(source)

    with monkeypatch.context() as patch:
        patch.setattr(inheriting, "_open", late)
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            acquired(state_dir)
    (state_dir / "elsewhere").rename(state_dir / "store.0.db")
    assert said(acquired(state_dir).store_path) == "hello"


class Killed(BaseException):
    """The process ends here."""


def killed_at(fatal: int, state_dir: Path, snapshot: Path, *, locked: bool) -> int:
    """Take over, and be killed before file operation number `fatal` (0: never): what lies there then is copied to
    `snapshot`. `locked`: the store is, and is copied as it lies. Returns how many operations there were.
    """
    moments = 0

    def passing(operation: Callable[..., Any]) -> Callable[..., Any]:
        def pass_by(*arguments: Any, **keywords: Any) -> Any:
            nonlocal moments
            moments += 1
            if moments == fatal:
                shutil.copytree(state_dir, snapshot)
                raise Killed
            return operation(*arguments, **keywords)

        return pass_by

    class Passing(sqlite3.Connection):
        execute = passing(sqlite3.Connection.execute)

        def backup(self, target: sqlite3.Connection, **keywords: Any) -> None:
            super().backup(target, pages=1, progress=passing(lambda *counts: None))

    connect = sqlite3.connect
    names = ("link", "unlink", "rename", "open", "pwrite", "fdatasync", "fsync")
    operations = [(os, name) for name in names] + [(shutil, "copyfile")]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in operations:
            patch.setattr(module, name, passing(getattr(module, name)))
        if locked:
            patch.setattr(inheriting, "_copy", lambda source, scratch: False)
        patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Passing))
        try:
            acquire(state_dir, 30.0, boottime=CLOCK, sleep=CLOCK.sleep)
        except Killed:
            assert fatal
    return moments


CLOCK = Clock()


@pytest.mark.statistical
@pytest.mark.parametrize("predecessor", ["gone", "silent", "locked"])
def test_a_takeover_that_is_killed_anywhere_loses_nothing(predecessor: str) -> None:
    """Before every file operation and every page of a copy the one that takes over is killed; the next one has the
    whole store, and so has one after another kill at the same place.
    """
    with scratch() as folder:
        original = folder / "original"
        original.mkdir()
        put_lease(original, 0, **(here() | {"started": 1} if predecessor == "gone" else {}))
        with half_committed(original, "delete", "exclusive") as process:
            process.kill()
            process.wait()
        shutil.copytree(original, folder / "whole")
        locked = predecessor == "locked"
        moments = killed_at(0, folder / "whole", folder / "unused", locked=locked)
        assert moments >= {"gone": 8, "silent": 80, "locked": 15}[predecessor]
        for fatal in some(range(1, moments + 1)):
            first, second, third = (folder / f"{fatal}.{life}" for life in range(3))
            shutil.copytree(original, first)
            killed_at(fatal, first, second, locked=locked)
            dead_leases(second)
            killed_at(fatal, second, third, locked=locked)
            last = third if third.exists() else second
            dead_leases(last)
            check_before(acquire(last, 30.0, boottime=CLOCK, sleep=CLOCK.sleep).store_path)
            for life in (first, second, third):
                shutil.rmtree(life, ignore_errors=True)


def dead_leases(state_dir: Path) -> None:
    """The process that made a lease here is dead."""
    for path in state_dir.glob("lease.*"):
        put_lease(state_dir, int(path.suffix[1:]), **(here() | {"started": 1}))
