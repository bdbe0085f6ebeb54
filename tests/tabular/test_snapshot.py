"""A look at a store: its owner is not disturbed, and nothing is left behind."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.store import schema
from rlship_sidecar.store.store import Changes, StoreUnusable
from rlship_sidecar.tabular.copies import StoreCopy
from rlship_sidecar.tabular.snapshot import look
from tests.tabular.stores import experiment, row, store

LOCAL = pytest.mark.parametrize("local", [True, False], ids=["wal", "rollback journal"])

# Commits rows of a store and is then killed: with a log that was not emptied, or in the middle of a commit.
OWNER = """
import os, signal, sqlite3, sys
from pathlib import Path
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.store import schema
from rlship_sidecar.store.store import Changes
from tests.tabular.stores import row, store
made = store(Path(sys.argv[1]), [row(0), row(1)], local=sys.argv[2] == "True")
made.change("pragma cache_size = 1")
made.change("insert into counts values ('x', 1)")
for no in range(2, 400):
    made.change("insert into rows values (?, ?)", (no, row(no).to_json() * 20))
print("there", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, *, local: bool) -> Path:
    """The state folder of an owner that was killed."""
    done = subprocess.run(
        [sys.executable, "-c", OWNER, str(folder), str(local)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert done.stdout == "there\n", done.stderr
    return folder / "rlship" / "state"


def numbers(state: Path, *, every: bool = True) -> list[int]:
    with look(state) as snapshot:
        assert snapshot is not None
        return [one.arrival.row_number for one in snapshot.rows(every=every)]


@LOCAL
def test_the_owner_goes_on(tmp_path: Path, local: bool) -> None:
    """Rows that are committed while a reader looks do not wait for the reader, who sees what was there at first."""
    owner = store(tmp_path, [row(no) for no in range(1200)], local=local)
    with look(owner.path.parent) as snapshot:
        assert snapshot is not None
        coming = snapshot.rows(every=False)
        read = [next(coming).arrival.row_number]
        began = time.monotonic()
        owner.commit(Changes(rows=[row(1200), row(1201, 5, revision=1)]))
        assert time.monotonic() - began < 5
        read += [one.arrival.row_number for one in coming]
    assert read == list(range(1200))
    assert numbers(owner.path.parent, every=False) == [no for no in range(1202) if no != 5]
    owner.close()


@LOCAL
def test_nothing_is_left(tmp_path: Path, local: bool) -> None:
    """Beside a store that no process has open, no file appears and none changes."""
    made = store(tmp_path, [row(0)], local=local)
    made.close()
    state = made.path.parent
    before = {one.name: one.stat().st_mtime_ns for one in state.iterdir()}
    assert numbers(state) == [0]
    assert {one.name: one.stat().st_mtime_ns for one in state.iterdir()} == before
    assert list(before) == ["store.3.db"]


@LOCAL
def test_an_owner_that_was_killed(tmp_path: Path, local: bool) -> None:
    """What was committed is read, what was not is not, and the store is left to its next owner as it was."""
    state = killed(tmp_path, local=local)
    before = {one.name: one.stat().st_size for one in state.iterdir() if not one.name.endswith("-shm")}
    assert len(before) == 2
    assert numbers(state) == [0, 1]
    assert {one.name: one.stat().st_size for one in state.iterdir() if not one.name.endswith("-shm")} == before


def test_a_copy_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store whose owner was killed within a commit, those who look again have one copy, until its files change;
    one that is still read then goes with its last reader.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    state = killed(tmp_path, local=False)

    def copies() -> set[int]:
        return {one.stat().st_ino for one in (tmp_path / "temporary").glob("*/store.db")}

    with closing(StoreCopy()) as copy:
        with look(state, copy) as first:
            assert first is not None and first.count == 2
            (made,) = copies()
            with look(state, copy) as second:
                assert second is not None and second.count == 2
            assert copies() == {made}
            os.utime(state / "store.3.db")
            with copy.lent(state / "store.3.db") as other:
                assert copies() == {made, other.stat().st_ino}
            assert [one.row_number for one in first.rows(every=True)] == [0, 1]
        assert len(copies()) == 1 and made not in copies()
    assert copies() == set()


def test_a_log_without_its_index(tmp_path: Path) -> None:
    """A store whose -shm is gone, as in a copy, is read with its log; no -shm is made."""
    owner = store(tmp_path / "a", [row(0)])
    state = tmp_path / "b"
    state.mkdir()
    for name in ("store.3.db", "store.3.db-wal"):
        (state / name).write_bytes((owner.path.parent / name).read_bytes())
    owner.close()
    assert numbers(state) == [0]
    assert sorted(one.name for one in state.iterdir()) == ["store.3.db", "store.3.db-wal"]


def test_another_sidecar_takes_over(tmp_path: Path) -> None:
    """A store that another generation takes while it is read gives an error that says so, not half an answer."""
    state = experiment(tmp_path, [row(0)]) / "rlship" / "state"
    with pytest.raises(RlshipError, match="began to use the store"), look(state) as snapshot:
        assert snapshot is not None
        assert len(list(snapshot.rows(every=True))) == 1
        os.rename(state / "store.3.db", state / "store.4.db")


def test_the_newest_generation_counts(tmp_path: Path) -> None:
    """Of several generations' stores the newest is read; a folder without any has none."""
    state = experiment(tmp_path / "old", [row(0)]) / "rlship" / "state"
    experiment(tmp_path / "new", [row(0), row(1)])
    os.rename(tmp_path / "new" / "rlship" / "state" / "store.3.db", state / "store.12.db")
    assert numbers(state) == [0, 1]
    with look(tmp_path) as nothing:
        assert nothing is None


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    """Of another version, or damaged: the error names the store and what to do."""
    made = store(tmp_path / "other")
    made.change("update meta set value = '99' where key = 'version'")
    made.commit(Changes())
    made.close()
    with pytest.raises(StoreUnusable, match=r"the store .*store\.\d+\.db has version 99"):
        numbers(made.path.parent)
    broken = experiment(tmp_path / "broken", [row(0)]) / "rlship" / "state" / "store.3.db"
    broken.write_bytes(broken.read_bytes()[:4096] + b"\xff" * 40960)
    with pytest.raises(RlshipError, match=r"store\.3\.db cannot be read"):
        numbers(broken.parent)
    for odd in (7_000, -1, "'none'"):
        path = experiment(tmp_path / f"odd{odd}", [row(0)]) / "rlship" / "state" / "store.3.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"update units set no = {odd}")
            connection.commit()
        with pytest.raises(RlshipError, match=r"store\.3\.db cannot be read"):
            numbers(path.parent)


def test_a_store_of_before_the_record_run_says_nothing_of_it(tmp_path: Path) -> None:
    """It has no such tables; one whose data of the run are damaged is refused."""
    store(tmp_path, [row(0)]).close()
    state = tmp_path / "rlship" / "state"
    (path,) = state.glob("store.*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("drop table said; drop table run")
    with look(state) as snapshot:
        assert snapshot is not None
        assert (snapshot.run_data(), snapshot.run_changes()) == (RunData(), [])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(next(one for one in schema.TABLES if one.startswith("create table run ")))
        connection.execute("insert into run values ('version', '1')")
        connection.commit()
    with look(state) as snapshot, pytest.raises(RlshipError, match="its data of the run cannot be decoded"):
        assert snapshot is not None
        snapshot.run_data()
