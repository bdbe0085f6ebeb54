"""The store: one transaction or nothing, numbering, other threads, damage, and the format on disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.reading import Run
from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.run_data.merging import NamedPlace, RunChange, RunData
from rlship_sidecar.run_data.said import Said
from rlship_sidecar.store import logged_steps
from rlship_sidecar.store.changes import MergedRun
from rlship_sidecar.store.logged_steps import LoggedStep, LoggedSteps
from rlship_sidecar.store.run_said import changes_of, parts_of, said_by_file
from rlship_sidecar.store.schema import VERSION
from rlship_sidecar.store.store import DEAD_DETAILS, Changes, SavedBlock, SavedWriter, Store, StoreUnusable
from rlship_sidecar.store.units import ActorUnits
from tests.kit.files import T0
from tests.pipeline.simulated import scratch

LOCAL = pytest.mark.parametrize("local", [True, False], ids=["wal", "rollback journal"])


@contextmanager
def opened(path: Path, *, local: bool = True) -> Iterator[Store]:
    store = Store(path, local=local)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a store may be, in memory if possible."""
    with scratch() as folder:
        yield folder / "store.db"


def row(no: int, step: int | None = None, *, revision: int = 0, missing: tuple[str, ...] = ()) -> Row:
    unit = Unit("trainer", "step", no if step is None else step)
    figures = {"trainer/loss": no + 0.5}
    return Row(
        unit,
        1763600000.0,
        {"global_step": unit.index},
        figures,
        Coverage(("0.0",), 1, missing),
        Arrival(no, revision, ("trainer/loss",), "complete"),
    )


def everything(no: int) -> Changes:
    """Changes of every kind, with row `no`."""
    return Changes(
        writers=[SavedWriter("f", 100 + no, 50, b"state")],
        governing=[("f", 10 + no, b"{}")],
        blocks=[SavedBlock("f", no, no + 1, 1.0, no, no, 3.0)],
        rows=[row(no)],
        dirty=[Unit("trainer", "step", 1000 + no)],
        dead=[("f", Dead(no, "not JSON", "rubbish")), ("f", Dead(no, "bad value", '{"a":[]}', "a"))],
        counts={"unknown kinds": 1},
    )


def content(path: Path) -> list[str]:
    """All that a store file holds, as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@LOCAL
def test_what_is_committed_is_there_after_a_restart(path: Path, local: bool) -> None:
    """Positions, marks, blocks, rows, dirty units, dead letters, counts and cursors come back, and the store's id."""
    with opened(path, local=local) as store:
        store.commit(everything(0))
        store.commit(everything(1))
        store.save_cursor("wandb", 2)
        store_id = store.store_id
    with opened(path, local=local) as store:
        assert store.store_id == store_id
        assert store.row_count() == 2
        assert store.read_rows(0, 10) == [row(0), row(1)]
        assert [one.arrival for one in store.read_rows(0, 10)] == [row(0).arrival, row(1).arrival]
        assert store.writers() == [SavedWriter("f", 101, 50, b"state")]
        assert store.governing_lines("f") == [(10, b"{}"), (11, b"{}")]
        assert store.governing_lines("g") == []
        assert store.blocks("f", 1, 5) == [SavedBlock("f", 1, 2, 1.0, 1, 1, 3.0)]
        assert store.dirty() == [Unit("trainer", "step", 1000), Unit("trainer", "step", 1001)]
        assert store.counts() == {"unknown kinds": 2}
        assert store.dead_letters() == [
            ("f", Dead(0, "not JSON", "rubbish")),
            ("f", Dead(0, "bad value", '{"a":[]}', "a")),
            ("f", Dead(1, "not JSON", "rubbish")),
            ("f", Dead(1, "bad value", '{"a":[]}', "a")),
        ]
        assert (store.load_cursor("wandb"), store.load_cursor("jsonl")) == (2, 0)


@LOCAL
@pytest.mark.parametrize("statement", ["writers", "marks", "blocks", "rows", "units", "dirty", "dead", "counts"])
def test_a_commit_that_fails_leaves_nothing(path: Path, local: bool, statement: str) -> None:
    """Whichever statement fails, also if SQLite itself rolls back, nothing is there, and the next commit works."""
    with opened(path, local=local) as store:
        store.commit(everything(0))
        before = content(path)
        for how in ("abort", "rollback"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(
                    f"create trigger trouble before insert on {statement} begin select raise({how}, 'no room'); end"
                )
            with pytest.raises(sqlite3.IntegrityError, match="no room"):
                store.commit(everything(1))
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("drop trigger trouble")
            assert content(path) == before
            assert store.row_count() == 1
        store.commit(everything(1))
        assert store.row_count() == 2


def test_rows_are_never_numbered_twice(path: Path) -> None:
    """A row whose number is taken is refused together with all else of its commit."""
    with opened(path) as store:
        store.commit(Changes(rows=[row(0), row(1)]))
        with pytest.raises(sqlite3.IntegrityError):
            store.commit(Changes(rows=[row(2), row(1)], counts={"x": 1}))
        assert store.row_count() == 2
        assert store.counts() == {}
        store.commit(Changes(rows=[row(2)]))
        assert [one.arrival.row_number for one in store.read_rows(0, 10)] == [0, 1, 2]
        assert [one.arrival.row_number for one in store.read_rows(1, 1)] == [1]
        assert store.read_rows(3, 10) == []


def test_the_newest_revision_is_the_units_state(path: Path) -> None:
    """Earlier revisions stay as rows; whether a unit lacks ranks is its newest revision's word."""
    with opened(path) as store:
        store.commit(Changes(rows=[row(0, 7, missing=("0.1",)), row(1, 8), row(2, 10, missing=("0.1",))]))
        assert ActorUnits(store, "trainer").lacks_ranks(7) is True
        assert ActorUnits(store, "trainer").rows_between(0, 9, partial=False) == [(7, True), (8, False)]
        assert ActorUnits(store, "trainer").rows_between(0, 99, partial=True) == [(7, True), (10, True)]
        assert sum(rows for _, rows, *_ in store.lacking()) == 2
        store.commit(Changes(rows=[row(3, 7, revision=1)]))
        assert store.newest(Unit("trainer", "step", 7)) == row(3, 7)
        assert ActorUnits(store, "trainer").lacks_ranks(7) is False
        assert ActorUnits(store, "trainer").lacks_ranks(9) is None
        assert ActorUnits(store, "generator").lacks_ranks(7) is None
        assert (
            sum(rows for _, rows, *_ in store.lacking()),
            ActorUnits(store, "trainer").highest_step(),
            ActorUnits(store, "generator").highest_step(),
        ) == (1, 10, -1)
        assert store.newest(Unit("trainer", "step", 9)) is None
        view = ActorUnits(store, "trainer")
        assert (view.lacks_ranks(8), view.rows_between(8, 10, partial=False)) == (False, [(8, False), (10, True)])


def test_a_revision_clears_its_mark_in_the_same_commit(path: Path) -> None:
    """A unit that got dirty and was revised within one commit is not dirty afterwards."""
    with opened(path) as store:
        first, second, third = Unit("trainer", "step", 1), Unit("trainer", "step", 2), Unit("trainer", "clock", 1)
        store.commit(Changes(dirty=[first, second, first]))
        store.commit(Changes(dirty=[third], revised=[third, first]))
        assert store.dirty() == [second]


def test_the_block_that_holds_a_byte(path: Path) -> None:
    """A byte is found in the block around it, and beyond the last finished block in none."""
    with opened(path) as store:
        blocks = [SavedBlock("f", 0, 100, 0.0, 1, 5, None), SavedBlock("f", 100, 250, 2.0, -1, -1, 1.0)]
        store.commit(Changes(blocks=blocks))
        assert [store.block_at("f", at) for at in (0, 99, 100, 249, 250)] == [*blocks[:1] * 2, *blocks[1:] * 2, None]
        assert store.block_at("g", 0) is None
        assert store.blocks("f", 0, 1 << 53) == [blocks[0]]


def test_dead_letters_are_counted_exactly_and_kept_in_part(path: Path) -> None:
    """Per file and reason a thousand are kept in full, all are counted, and the first keeps its place and text."""
    many = DEAD_DETAILS + 500
    with opened(path) as store:
        for first in (0, many // 2):
            letters = [("f", Dead(first + n, "not JSON", f"line {first + n}")) for n in range(many // 2)]
            store.commit(Changes(dead=letters))
        store.commit(Changes(dead=[("g", Dead(5, "not JSON", "other")), ("f", Dead(9, "bad step", "x"))]))
        assert store.dead_counts() == [
            ("f", "bad step", False, 1, 9, "x"),
            ("f", "not JSON", False, many, 0, "line 0"),
            ("g", "not JSON", False, 1, 5, "other"),
        ]
        kept = [dead.offset for file, dead in store.dead_letters(1 << 30) if (file, dead.reason) == ("f", "not JSON")]
        assert kept == list(range(DEAD_DETAILS))
        assert len(store.dead_letters(10)) == 10


def test_lines_and_values_of_one_reason_are_counted_apart(path: Path) -> None:
    """`bad define` may be a whole line or one metric's entry; each has its own count."""
    with opened(path) as store:
        entries = [("f", Dead(1, "bad define", "entry", "loss")), ("f", Dead(1, "bad define", "entry", ""))]
        store.commit(Changes(dead=[*entries, ("f", Dead(2, "bad define", "line"))]))
        assert store.dead_counts() == [
            ("f", "bad define", False, 1, 2, "line"),
            ("f", "bad define", True, 2, 1, "entry"),
        ]


@LOCAL
def test_another_thread_reads_during_commits(path: Path, local: bool) -> None:
    """A thread that reads all the time sees rows from the first on without gaps, and never part of a commit."""
    problems: list[str] = []
    seen: list[int] = []
    done = threading.Event()
    with opened(path, local=local) as store:

        def read() -> None:
            try:
                while not done.is_set() or seen[-1:] != [60]:
                    rows = store.read_rows(0, 100)
                    if [one.arrival.row_number for one in rows] != list(range(len(rows))) or len(rows) % 3:
                        problems.append(f"{len(rows)} rows")
                    seen.append(len(rows))
                    store.save_cursor("sink", len(rows))
            except BaseException as error:
                problems.append(repr(error))

        thread = threading.Thread(target=read)
        thread.start()
        for first in range(0, 60, 3):
            store.commit(Changes(rows=[row(first + n) for n in range(3)]))
        done.set()
        thread.join(60.0)
        assert not thread.is_alive()
        assert problems == []
        assert seen == sorted(seen)
        assert store.load_cursor("sink") == 60


@LOCAL
def test_an_idle_reader_gives_descriptors_back(path: Path, local: bool) -> None:
    """The connection of other threads is closed once it is idle, and opened again by the next read."""

    def held() -> int:
        return sum(os.path.realpath(entry.path).startswith(str(path)) for entry in os.scandir("/proc/self/fd"))

    with opened(path, local=local) as store, ThreadPoolExecutor(1) as other:
        store.commit(everything(0))
        alone = held()
        for _ in range(2):
            assert other.submit(store.read_rows, 0, 10).result() == [row(0)]
            both = held()
            assert both > alone
            store.close_idle_reader(3600.0)
            assert held() == both
            store.close_idle_reader(0.0)
            assert held() < both
        assert store.read_rows(0, 10) == [row(0)]


@LOCAL
def test_the_journal_suits_the_filesystem(path: Path, local: bool) -> None:
    """Write-ahead logging is for local filesystems only, whatever the file was made with; always synchronous."""
    for now in (local, not local, local):
        with opened(path, local=now) as store:
            connection = store._reader()
            assert connection.execute("pragma journal_mode").fetchone()[0] == ("wal" if now else "delete")
            assert connection.execute("pragma synchronous").fetchone()[0] == 2
            no = store.row_count()
            store.commit(Changes(rows=[row(no)]))
    with opened(path, local=local) as store:
        assert store.row_count() == 3


@pytest.mark.parametrize(
    "damage", [b"this is not a database at all, just text. " * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_damaged_store_names_the_way_out(path: Path, damage: bytes) -> None:
    """A file that is no store is named by its path, with what to do about it, and stays untouched."""
    path.write_bytes(damage)
    with pytest.raises(StoreUnusable, match=r"store\.db") as caught:
        Store(path, local=True)
    assert "Move it away" in caught.value.hint
    assert caught.value.exit_code == 1
    assert path.read_bytes() == damage


def test_a_database_of_something_else_is_no_store(path: Path) -> None:
    """Another program's SQLite file is refused."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table recipes (name text)")
    with pytest.raises(StoreUnusable, match="no such table: meta"):
        Store(path, local=True)


def test_a_newer_store_is_refused(path: Path) -> None:
    """A store of another version is reported with both versions and the way out, and is not held open."""
    with opened(path) as store:
        store.commit(everything(0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update meta set value = '99' where key = 'version'")
        connection.commit()
    with pytest.raises(StoreUnusable, match="has version 99, this rlship reads version 3") as caught:
        Store(path, local=True)
    assert "Use the rlship that wrote it" in caught.value.hint
    assert not list(path.parent.glob("store.db-*")), "a connection was left open"


LINEAGE_KEY = ("submission", "attempt", "rollbacks")
LINEAGE = ("submission INTEGER", "attempt INTEGER", "rollbacks INTEGER")


def test_the_format_is_pinned(path: Path) -> None:
    """Version 3 has these tables. RunChange the version when you change one; a new one may join (`schema.lacking`)."""
    with opened(path) as store:
        store.commit(Changes(rows=[row(0)], writers=[SavedWriter("f", 1, 0, b"[]")]))
    assert VERSION == 3
    with closing(sqlite3.connect(path)) as connection:
        tables = {
            name: [f"{column} {kind}" for _, column, kind, *_ in connection.execute(f"pragma table_info({name})")]
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        }
        keys = {
            name: [column for _, column, _, _, _, key in connection.execute(f"pragma table_info({name})") if key]
            for name in tables
        }
        body = connection.execute("select body from rows").fetchone()[0]
    assert tables == {
        "meta": ["key TEXT", "value TEXT"],
        "writers": ["file TEXT", "read INTEGER", "floor INTEGER", "state BLOB"],
        "marks": ["file TEXT", "offset INTEGER", "line BLOB"],
        "blocks": [
            "file TEXT",
            "start INTEGER",
            "stop INTEGER",
            "t REAL",
            "lowest INTEGER",
            "highest INTEGER",
            "barrier_t REAL",
            "t_low REAL",
            "t_high REAL",
        ],
        "rows": ["no INTEGER", "body BLOB"],
        "units": [
            "actor TEXT",
            "kind TEXT",
            "number INTEGER",
            "no INTEGER",
            "revision INTEGER",
            "partial INTEGER",
        ],
        "dirty": ["actor TEXT", "kind TEXT", "number INTEGER"],
        "past_rows": [
            "actor TEXT",
            "step INTEGER",
            "submission INTEGER",
            "attempt INTEGER",
            "rollbacks INTEGER",
            "lacks INTEGER",
            "body BLOB",
        ],
        "alert_steps": [*LINEAGE, "step INTEGER"],
        "alert_states": [*LINEAGE, "rule TEXT", "piece INTEGER", "state BLOB"],
        "alert_episodes": [*LINEAGE, "rule TEXT", "piece INTEGER", "episodes BLOB"],
        "alert_dirty": [*LINEAGE, "piece INTEGER"],
        "alert_frames": ["piece INTEGER", "steps BLOB"],
        "outbox": [
            "notifier TEXT",
            "episode TEXT",
            "state TEXT",
            "number INTEGER",
            "rule TEXT",
            "made REAL",
            "tries INTEGER",
            "sent REAL",
            "body BLOB",
        ],
        "dead": ["file TEXT", "offset INTEGER", "metric TEXT", "reason TEXT", "excerpt TEXT"],
        "dead_counts": [
            "file TEXT",
            "reason TEXT",
            "is_value INTEGER",
            "count INTEGER",
            "offset INTEGER",
            "excerpt TEXT",
        ],
        "nonfinite": [
            "actor TEXT",
            "kind TEXT",
            "key TEXT",
            "rows INTEGER",
            "first INTEGER",
            "last INTEGER",
            "ranks TEXT",
        ],
        "logged_metrics": ["actor TEXT", "metric TEXT", "id INTEGER", "first INTEGER", "ranks TEXT"],
        "logged_steps": ["actor TEXT", "step INTEGER", "ranks TEXT", "short TEXT"],
        "clocks": ["host TEXT", "t REAL", "offset REAL", "err REAL"],
        "timeline": [
            "step INTEGER",
            "until REAL",
            "since REAL",
            "until_t REAL",
            "since_t REAL",
            "file TEXT",
            "host TEXT",
            "replica TEXT",
            "rank INTEGER",
            "attempt INTEGER",
            "open_t REAL",
            "id TEXT",
            "segment INTEGER",
        ],
        "frontiers": ["actor TEXT", "clock INTEGER", "until REAL", "step INTEGER"],
        "names": ["actor TEXT", "name TEXT", "stepped INTEGER"],
        "gaps": ["actor TEXT", "file TEXT", "t REAL", "n INTEGER"],
        "counts": ["name TEXT", "count INTEGER"],
        "said": ["file TEXT", "part TEXT", "value BLOB"],
        "run": ["part TEXT", "value BLOB"],
        "ledger": [
            *("key TEXT", "file TEXT", "offset INTEGER", "segment INTEGER", "hop TEXT", "t REAL", "step INTEGER"),
            "body BLOB",
        ],
        "ledger_groups": ["key TEXT", "step INTEGER", "tau REAL", "placed_t REAL", "verdict BLOB"],
        "cursors": ["sink TEXT", "next INTEGER"],
    }
    assert keys == {
        "meta": ["key"],
        "writers": ["file"],
        "marks": ["file", "offset"],
        "blocks": ["file", "start"],
        "rows": ["no"],
        "units": ["actor", "kind", "number"],
        "dirty": ["actor", "kind", "number"],
        "past_rows": ["actor", "step", *LINEAGE_KEY],
        "alert_steps": [*LINEAGE_KEY, "step"],
        "alert_states": [*LINEAGE_KEY, "rule", "piece"],
        "alert_episodes": [*LINEAGE_KEY, "rule", "piece"],
        "alert_dirty": [*LINEAGE_KEY, "piece"],
        "alert_frames": ["piece"],
        "outbox": ["notifier", "episode", "state"],
        "dead": ["file", "offset", "metric", "reason"],
        "dead_counts": ["file", "reason", "is_value"],
        "nonfinite": ["actor", "kind", "key"],
        "logged_metrics": ["actor", "metric"],
        "logged_steps": ["actor", "step"],
        "clocks": ["host", "t"],
        "timeline": ["step"],
        "frontiers": ["actor"],
        "names": ["actor", "name", "stepped"],
        "gaps": [],
        "counts": ["name"],
        "said": ["file", "part"],
        "run": ["part"],
        "ledger": ["key", "file", "offset"],
        "ledger_groups": ["key"],
        "cursors": ["sink"],
    }
    assert body == (
        b'{"row":0,"actor":"trainer","kind":"step","index":0,"t":1763600000.0,"x":{"global_step":0},'
        b'"m":{"trainer/loss":0.5},"coverage":{"ranks":["0.0"],"expected":1,"missing":[],"absent":[],"attempts":[],'
        b'"gap":0,"underivable":[]},"arrival":{"revision":0,"changed":["trainer/loss"],"closed":"complete"}}'
    )


def test_a_store_written_before_is_read(path: Path) -> None:
    """Rows put into the tables as literal text come out as rows."""
    with opened(path):
        pass
    body = (
        b'{"row":0,"actor":"a","kind":"step","index":3,"t":1.5,"x":{"global_step":3},"m":{"a/x":2.0},'
        b'"coverage":{"ranks":["0.0"],"expected":2,"missing":["0.1"],"absent":[],"attempts":[0],"gap":0,'
        b'"underivable":[]},"arrival":{"revision":0,"changed":["a/x"],"closed":"partial"}}'
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("insert into rows values (0, ?)", (body,))
        connection.execute("insert into units values ('a', 'step', 3, 0, 0, 1)")
        connection.commit()
    with opened(path) as store:
        assert store.row_count() == 1
        assert store.newest(Unit("a", "step", 3)) == Row(
            Unit("a", "step", 3), 1.5, {"global_step": 3}, {"a/x": 2.0}, Coverage(("0.0",), 2, ("0.1",), (), (0,))
        )
        assert ActorUnits(store, "a").lacks_ranks(3) is True


def test_what_files_said_of_the_run_is_pinned(path: Path) -> None:
    """As the store keeps it, and what all of it comes to; read back it is the same."""
    said = Said(b'{"lr":1}')
    said.take(Run(T0, {"lr": 2}, {"best": 1}, {"host": "n07"}, name="seven", tags=("a",), exit_code=0, dropped=("k",)))
    data = RunData(
        name="seven", config={"lr": 2}, outcome="finished", places=[NamedPlace("project", "p", "f")], actors=["a"]
    )
    found = [RunChange(T0, "f", "a", "0", 1, 2, "config", ("lr",), 1, 2)]
    merged = MergedRun(7, msgspec.json.encode(data), msgspec.json.encode(found))
    with opened(path) as store:
        store.commit(Changes(said=parts_of("f", said, ("config", "summary", "facts", "about")), run=merged))
    about = (
        b'{"began":1763600000.0,"texts":{"name":"seven"},"tags":["a"],"exit_code":0,"dropped":["k"],"labels":{},'
        b'"edits":[[1763600000.0,"config",["lr"],1,2]],"first":{"config":"{\\"lr\\":1}"},"left_out":0}'
    )
    with closing(sqlite3.connect(path)) as connection:
        assert dict(connection.execute("select part, value from said where file = 'f'").fetchall()) == {
            "config": b'{"lr":2}',
            "summary": b'{"best":1}',
            "facts": b'{"host":"n07"}',
            "about": about,
        }
        assert dict(connection.execute("select part, value from run").fetchall()) == {
            "version": b"7",
            "data": b'{"name":"seven","notes":null,"tags":null,"group":null,"project":null,"entity":null,'
            b'"job_type":null,"config":{"lr":2},"summary":{},"facts":{},"labels":{},"outcome":"finished",'
            b'"places":[{"member":"project","value":"p","file":"f"}],"dropped":[],"left_out":0,"actors":["a"]}',
            "changes": b'[{"t":1763600000.0,"file":"f","actor":"a","replica":"0","rank":1,"attempt":2,"part":"config",'
            b'"key":["lr"],"before":1,"after":2}]',
        }
    with opened(path) as store:
        assert said_by_file(store) == {"f": said}
        assert (store.run_version(), store.read_run(), changes_of(store.merged_run())) == (7, data, found)


def test_a_store_of_before_the_record_run_gets_its_tables(path: Path) -> None:
    """It goes on, and knows what is said from then on."""
    with opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("drop table said; drop table run")
    with opened(path) as store:
        assert (store.run_version(), store.read_run(), said_by_file(store)) == (0, RunData(), {})
        store.commit(Changes(said=[("f", "config", b'{"lr":1}')]))
    with opened(path) as store:
        assert said_by_file(store)["f"].tree("config") == {"lr": 1}


@given(
    puts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=20),
    asked=st.integers(0, 31),
    again=st.integers(0, 20),
)
def test_a_walk_back_has_the_steps_of_the_store(puts: list[tuple[int, int]], asked: int, again: int) -> None:
    """In whatever order steps are put, a new one or one again, before or after a restart: the steps before another are
    those of the store, the nearest first, as they were put last.
    """
    with scratch() as folder, opened(folder / "store.db") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(logged_steps, "_NEWEST", 4)
        steps = LoggedSteps(store, "trainer")
        for place, (step, what) in enumerate(puts):
            if place == again:
                steps.flush()
                steps = LoggedSteps(store, "trainer")
            steps.put(LoggedStep(step, str(what), None))
        expected = {step: LoggedStep(step, str(what), None) for step, what in puts if step < asked}
        assert [*steps.before(asked)] == [expected[step] for step in sorted(expected, reverse=True)]
