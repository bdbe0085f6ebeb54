"""The state directory fails under a running sidecar: full, read-only, deleted, damaged. It goes on when it can, and
says what to do when it cannot; nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import loop as daemon
from rlship_sidecar.daemon import watched
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership import lease as leasing
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.report.status import read_status
from rlship_sidecar.sinks import ship
from rlship_sidecar.sinks.registry import with_defaults
from rlship_sidecar.sinks.tensorboard.sink import event
from rlship_sidecar.store.store import Store
from rlship_sidecar.tail import discover
from tests.endtoend.evidence import check_rows, remove, shipped, state_of, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import RLSHIP, watching
from tests.kit.waiting import wait_until
from tests.reference.building import barrier, file, log
from tests.sinks.readback import tensorboard_events

STEPS = 40
FULL = sqlite3.OperationalError("database or disk is full")
READ_ONLY = sqlite3.OperationalError("attempt to write a readonly database")
MALFORMED = sqlite3.DatabaseError("database disk image is malformed")


def an_experiment(folder: Path, steps: int = STEPS, done: bool = True) -> Path:
    """One trainer that logged `steps` steps."""
    (folder / "rlship").mkdir(parents=True)
    add_steps(folder, 0, steps, done=done)
    return folder


def add_steps(folder: Path, first: int, end: int, *, done: bool) -> None:
    """The trainer's file up to step `end`."""
    records = [record for step in range(first, end) for record in (log(step, loss=step / 7), barrier(step))]
    records += [{"kind": "close", "reason": "exit"}] if done else []
    data = file(*records, world=1)
    with open(folder / "rlship" / "a.jsonl", "ab") as there:
        there.write(data if first == 0 else data.split(b"\n", 1)[1])


class Daemon:
    """`daemon.watch` in a thread."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.said: list[str] = []
        self.code: int | None = None
        self.error: BaseException | None = None
        self._stop = threading.Event()
        config = Config(sinks=["jsonl", "tensorboard"], drain_s=20.0, **settings)
        self._thread = threading.Thread(target=self._run, args=(folder, config))
        self._thread.start()

    def _run(self, folder: Path, config: Config) -> None:
        try:
            self.code = daemon.watch(folder, config, once=False, stop=self._stop, say=self.said.append)
        except RlshipError as error:
            self.error = error

    def until(self, ready: Callable[[], bool]) -> None:
        def alive_and_ready() -> bool:
            assert self._thread.is_alive(), self.error
            return ready()

        wait_until(alive_and_ready, lambda: self.said)

    def ended(self) -> BaseException | None:
        """Wait until it ends by itself; returns what it raised."""
        self._thread.join(30.0)
        assert not self._thread.is_alive()
        return self.error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(40.0)
        assert not self._thread.is_alive()


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Daemon]:
    daemon_ = Daemon(folder, **settings)
    try:
        yield daemon_
    finally:
        daemon_.stop()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth of a second instead of every five."""
    monkeypatch.setattr(daemon, "RETRY_EVERY_S", 0.2)
    monkeypatch.setattr(daemon, "DISCOVER_EVERY_S", 0.1)


def check_sinks(experiment: Path, rows: int) -> None:
    """Every row is in the store, and once in each sink, as the files say."""
    made = stored(experiment)
    check_rows(experiment, made)
    assert len(made) == rows
    assert [row.to_json() for row in shipped(experiment)] == [row.to_json() for row in made]
    assert tensorboard_events(state_of(experiment) / "tensorboard") == [event(row) for row in made]


def failing(error: Exception, operation: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """The operation, which raises `error` the next `left[0]` times."""

    def maybe(*arguments: Any, **keywords: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return operation(*arguments, **keywords)

    return maybe


@pytest.mark.parametrize("error", [FULL, READ_ONLY, sqlite3.OperationalError("disk I/O error")])
def test_a_commit_that_fails_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A full disk, a read-only remount and an error of the disk are said once, with the folder, and tried again."""
    experiment = an_experiment(tmp_path / "job")
    left = [5]
    monkeypatch.setattr(Store, "commit", failing(error, Store.commit, left))
    with running(experiment) as sidecar:
        sidecar.until(lambda: len(shipped(experiment)) == STEPS)
    assert sidecar.code == 0 and left == [0]
    (said,) = sidecar.said
    assert str(state_of(experiment)) in said and str(error) in said and "trying again every" in said
    check_sinks(experiment, STEPS)


def test_told_to_stop_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left undone is said, with the exit code 1; meanwhile the sidecar is known to be alive."""
    experiment = an_experiment(tmp_path / "job")
    monkeypatch.setattr(Store, "commit", failing(FULL, Store.commit, [1 << 30]))
    with running(experiment) as sidecar:
        sidecar.until(lambda: bool(sidecar.said))
        found = leasing.last_owner(state_of(experiment))
        assert found is not None and (found.pid, found.alive) == (os.getpid(), True)
    assert sidecar.code == 1
    told = f"{experiment} is left as it is: cannot keep the state of {experiment} in {state_of(experiment)}: {FULL}"
    assert sidecar.said[1:] == [f"{told}; the next `rlship watch` goes on with it"]


def test_told_to_stop_once_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it ends it tries once more, without waiting for the time to try again: all rows are there, exit code 0."""
    monkeypatch.setattr(daemon, "RETRY_EVERY_S", 3600.0)
    experiment = an_experiment(tmp_path / "job")
    monkeypatch.setattr(Store, "commit", failing(FULL, Store.commit, [1]))
    with running(experiment) as sidecar:
        sidecar.until(lambda: bool(sidecar.said))
    assert sidecar.code == 0
    assert len(sidecar.said) == 1
    check_sinks(experiment, STEPS)


def test_told_to_stop_after_the_experiment_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying once more does not make a folder anew that was removed."""
    monkeypatch.setattr(daemon, "RETRY_EVERY_S", 3600.0)
    experiment = an_experiment(tmp_path / "job")
    monkeypatch.setattr(Store, "commit", failing(FULL, Store.commit, [1 << 30]))
    with running(tmp_path) as sidecar:
        sidecar.until(lambda: bool(sidecar.said))
        remove(experiment)
    assert sidecar.code == 0
    assert not experiment.exists()


def test_a_store_that_reaches_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own full disk, in the middle of a commit of many rows: nothing of it is there, then all of it."""
    limit: list[int | None] = [60]  # more than an empty store takes

    class Limited(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql.startswith("begin") and limit[0] is not None:
                super().execute(f"pragma max_page_count={limit[0]}")
            return super().execute(sql, *arguments)

    monkeypatch.setattr(Store, "connection_class", Limited)
    experiment = an_experiment(tmp_path / "job", 1500)
    with running(experiment) as sidecar:
        sidecar.until(lambda: any("full" in line for line in sidecar.said))
        assert len(shipped(experiment)) < 1500
        limit[0] = None
        sidecar.until(lambda: len(shipped(experiment)) == 1500)
    check_sinks(experiment, 1500)


def test_a_status_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are shipped, and the status says why its file is old."""
    real = os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith("status.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    told: list[Any] = []
    experiment = an_experiment(tmp_path / "job")
    config = Config(sinks=["jsonl", "tensorboard"])
    assert daemon.watch(experiment, config, once=True, on_status=told.extend) == 0
    assert any("status.json cannot be written: No space left" in note for note in told[-1].notes)
    assert read_status(state_of(experiment)) is None
    check_sinks(experiment, STEPS)


def test_a_fault_in_what_is_shown_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows reach their sinks although the status and the display fail; each fault is reported once."""

    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    said: list[str] = []
    monkeypatch.setattr(watched.Watched, "report", fault)
    experiment = an_experiment(tmp_path / "job")
    config = Config(sinks=["jsonl", "tensorboard"])
    assert daemon.watch(experiment, config, once=True, on_status=fault, say=said.append) == 0
    cause = "ZeroDivisionError: division by zero; rows go on. This is a fault of rlship's own"
    assert said == [f"{experiment}: its status cannot be made: {cause}", f"nothing is shown any more: {cause}"]
    check_sinks(experiment, STEPS)


def test_a_fault_over_one_experiment_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two experiments the one over which rlship fails is named and left, and the other one has all of its rows."""
    real = Experiment.tick

    def fault(self: Experiment, *args: Any, **more: Any) -> bool:
        if self.directory.name == "bad":
            raise ZeroDivisionError("division by\x1b zero")
        return real(self, *args, **more)

    monkeypatch.setattr(Experiment, "tick", fault)
    bad, good = an_experiment(tmp_path / "bad"), an_experiment(tmp_path / "good")
    said: list[str] = []
    assert daemon.watch(tmp_path, Config(sinks=["jsonl", "tensorboard"]), once=True, say=said.append) == 1
    cause = f"{bad}: ZeroDivisionError: division by\\x1b zero; the others go on. This is a fault of rlship's own"
    assert sum(line.startswith(cause) for line in said) == 1
    check_sinks(good, STEPS)
    with pytest.raises(ZeroDivisionError):
        daemon.watch(bad, Config(sinks=["jsonl"]), once=True)


def test_a_state_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    """`rm -r state` under a running sidecar, or an unmounted share: it says so, and rebuilds all rows, each once."""
    experiment = an_experiment(tmp_path / "job", done=False)
    with running(experiment) as sidecar:
        sidecar.until(lambda: len(shipped(experiment)) == STEPS)
        remove(state_of(experiment))
        add_steps(experiment, STEPS, STEPS + 5, done=True)
        sidecar.until(lambda: len(shipped(experiment)) == STEPS + 5)
    assert any("it is gone" in line for line in sidecar.said)
    check_sinks(experiment, STEPS + 5)


@pytest.mark.parametrize("call", ["commit", "read_rows"])
def test_a_store_that_is_damaged_while_it_runs_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever thread finds the damage: exit code 1, the store and the way out are named, and nothing is retried."""
    experiment = an_experiment(tmp_path / "job")
    monkeypatch.setattr(Store, call, failing(MALFORMED, getattr(Store, call), [1 << 30]))
    sidecar = Daemon(experiment)
    error = sidecar.ended()
    assert isinstance(error, RlshipError) and error.exit_code == 1
    assert error.message == f"the store {state_of(experiment) / 'store.0.db'} is damaged: {MALFORMED}"
    assert f"Move every store.* in {state_of(experiment)} away" in error.hint
    assert [path.name for path in state_of(experiment).glob("lease.*")] == ["lease.0"]


def test_a_damaged_store_among_others_is_left_out_until_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of experiments the others go on; the damaged one is not tried again and again, but once its store and
    what the sinks wrote are moved away.
    """
    outputs = tmp_path / "outputs"
    bad, good = an_experiment(outputs / "bad"), an_experiment(outputs / "good", 3)
    real = Store.commit
    damaged = [True]

    def commit(store: Store, changes: Any) -> None:
        if damaged[0] and "bad" in str(store.path):
            raise MALFORMED
        real(store, changes)

    looks: list[float] = []
    look = discover.experiments

    def counted(*arguments: Any) -> list[Path]:
        looks.append(time.monotonic())
        return look(*arguments)

    monkeypatch.setattr(Store, "commit", commit)
    monkeypatch.setattr(discover, "experiments", counted)
    with running(outputs) as sidecar:
        sidecar.until(lambda: len(shipped(good)) == 3)
        sidecar.until(lambda: any("it is left out until that is done" in line for line in sidecar.said))
        before = sorted(path.name for path in state_of(bad).iterdir())
        seen = len(looks)
        sidecar.until(lambda: len(looks) >= seen + 8)
        assert sorted(path.name for path in state_of(bad).iterdir()) == before
        damaged[0] = False
        for path in state_of(bad).glob("store.*"):
            path.rename(bad / path.name)
        sidecar.until(lambda: len(shipped(bad)) == STEPS)
    assert len(sidecar.said) == 1
    check_sinks(bad, STEPS)
    check_sinks(good, 3)


def test_a_lease_that_cannot_beat_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats that fail for longer than the ttl end ownership, since another could have come; none did, so the same
    sidecar goes on as the next generation.
    """
    real = os.pwrite
    full = [True]

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if full[0] and bytes(data).startswith(b'{"host"') and b'"beats":0' not in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(leasing.os, "pwrite", pwrite)
    experiment = an_experiment(tmp_path / "job", done=False)
    with running(experiment, lease_ttl_s=1.0) as sidecar:
        sidecar.until(lambda: (state_of(experiment) / "lease.2").exists())
        full[0] = False
        add_steps(experiment, STEPS, STEPS + 5, done=True)
        sidecar.until(lambda: len(shipped(experiment)) == STEPS + 5)
    assert sidecar.code == 0
    assert any("could not write" in line and "No space left" in line for line in sidecar.said)
    check_sinks(experiment, STEPS + 5)


def test_a_sink_that_hangs_is_not_vouched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a thread cannot be stopped, the lease is not released: what it still writes must not be trusted."""
    hangs, going_on = threading.Event(), threading.Event()

    class Hanging:
        def open(self, run: object) -> int:
            hangs.set()
            going_on.wait(30.0)
            return 0

        def write(self, rows: object) -> None:
            return

        flush = close = lambda self: None

    monkeypatch.setattr(watched, "make_sink", lambda name: with_defaults(Hanging)())
    stop = ship.Shipper.stop
    monkeypatch.setattr(ship.Shipper, "stop", lambda shipper, timeout_s=0.2: stop(shipper, min(timeout_s, 0.2)))
    experiment = an_experiment(tmp_path / "job", 3)
    config = Config(sinks=["jsonl"])
    try:
        one = watched.open_watched(experiment, config, alone=True)
        while one.experiment.tick(time.monotonic(), time.time(), end=True):
            pass
        one.ship()
        assert hangs.wait(10.0)
        one.close()
        other = watched.open_watched(experiment, config, alone=True)
        assert (other.lease.generation, other.lease.suspect) == (1, 0)
        other.close()
    finally:
        going_on.set()


def test_a_small_disk_that_fills_up_and_has_room_again(tmp_path: Path) -> None:
    """A real full disk under store, status and file sinks: the job goes on logging, the sidecar says what is wrong, and
    when there is room again every row is there once. Where no file system may be mounted, a limit of the size of files
    stands for it.
    """
    experiment, home, state = tmp_path / "job", tmp_path / "home", tmp_path / "small"
    state.mkdir()
    home.mkdir()
    mount = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
    script = f'mount -t tmpfs -o size=8m none {state} && exec "$@"'
    mounts = subprocess.run([*mount, script, "sh", "true"], capture_output=True, check=False).returncode == 0
    launch = (*mount, script, "sh", *RLSHIP) if mounts else RLSHIP
    settings = {"RLSHIP_STATE_DIR": str(state), "RLSHIP_REVISE_S": "0.2"}
    with (
        crew(experiment, "trainer", 1) as (worker,),
        watching(experiment, "jsonl", "tensorboard", home=home, settings=settings, launch=launch) as sidecar,
    ):
        pid = sidecar.process.pid
        there = Path(f"/proc/{pid}/root{state}") if mounts else state
        rows = there / "job" / "rows.jsonl"
        worker.tell("run", 0, 100, seed=1, pause=0.0)
        worker.flush()
        sidecar.until(lambda: rows.exists() and rows.read_bytes().count(b"\n") >= 90)
        if mounts:
            with open(there / "ballast", "wb", buffering=0) as ballast:
                for size in (4096, 1):
                    try:
                        while ballast.write(bytes(size)):
                            pass
                    except OSError as error:
                        assert error.errno == errno.ENOSPC
        else:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (rows.stat().st_size, resource.RLIM_INFINITY))
        worker.tell("run", 101, 300, seed=2, pause=0.0)
        worker.end()
        sidecar.until(lambda: "trying again" in sidecar.said() or "No space left" in sidecar.said())
        if mounts:
            (there / "ballast").unlink()
        else:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        sidecar.until(lambda: b'"index":300,' in rows.read_bytes())
        sidecar.until(lambda: len(tensorboard_events(there / "job" / "tensorboard")) == rows.read_bytes().count(b"\n"))
        state_of(experiment).parent.mkdir(exist_ok=True)
        shutil.copytree(there / "job", state_of(experiment))
        assert sidecar.stop() == 0, sidecar.said()
        assert "Traceback" not in sidecar.said()
    check_sinks(experiment, len(shipped(experiment)))
