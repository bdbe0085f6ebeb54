"""Who owns an experiment: takeovers, races between real processes, and stores that move or are copied."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlship_sidecar import lease as leasing
from rlship_sidecar.errors import OwnedElsewhere
from rlship_sidecar.lease import Lease, LeaseLost, acquire, owner

TTL = 30.0
PROGRAM = """
import sys, time
from pathlib import Path
from rlship_sidecar.errors import OwnedElsewhere
from rlship_sidecar.lease import acquire
state_dir, what = Path(sys.argv[1]), sys.argv[2]
if what == "race":
    print("ready", flush=True)
    sys.stdin.readline()
try:
    lease = acquire(state_dir, 30.0)
except OwnedElsewhere as error:
    print("owned", flush=True)
    sys.exit(5)
print("owner", lease.generation, flush=True)
sys.stdin.readline()
"""


@dataclass
class Clock:
    """Seconds that pass only while somebody sleeps; `on_sleep` may do something each time."""

    now: float = 5000.0
    slept: float = 0.0
    on_sleep: Any = None

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        if self.on_sleep is not None:
            self.on_sleep()

    def acquire(self, state_dir: Path) -> Lease:
        return acquire(state_dir, TTL, boottime=self.time, sleep=self.sleep)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rlship" / "state"
    path.mkdir(parents=True)
    return path


def put_lease(state_dir: Path, generation: int, **fields: Any) -> None:
    """A lease file as another sidecar left it: on another host unless `fields` say otherwise."""
    holder = {"host": "n99", "boot": "other", "pid_space": "pid:[1]", "pid": 7, "started": 1, "beats": 0} | fields
    (state_dir / f"lease.{generation}").write_bytes(msgspec.json.encode(holder).ljust(512) + b"\n")


def here() -> dict[str, Any]:
    """The fields by which a holder is known to be on this machine."""
    fields: dict[str, Any] = msgspec.to_builtins(leasing._here())
    return {name: fields[name] for name in ("host", "boot", "pid_space", "pid", "started")}


def put_store(state_dir: Path, generation: int, text: str) -> None:
    with closing(sqlite3.connect(state_dir / f"store.{generation}.db")) as connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table said (text)")
        connection.execute("insert into said values (?)", (text,))
        connection.commit()


def said(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("select text from said").fetchone()[0])


def start(state_dir: Path, what: str = "own") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(state_dir), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_first_generation(state_dir: Path) -> None:
    """Whoever comes first owns generation 0 without waiting, and a lease file of pinned fields says who it is."""
    clock = Clock()
    lease = clock.acquire(state_dir)
    assert (lease.generation, lease.store_path, clock.slept) == (0, state_dir / "store.0.db", 0.0)
    body = (state_dir / "lease.0").read_bytes()
    assert len(body) == 513
    fields = msgspec.json.decode(body)
    assert list(fields) == ["host", "boot", "pid_space", "pid", "started", "beats", "released"]
    assert (fields["host"], fields["pid"], fields["beats"], fields["released"]) == (
        socket.gethostname(),
        os.getpid(),
        0,
        False,
    )
    lease.check()
    assert owner(state_dir) == leasing.Owner(socket.gethostname(), os.getpid(), True)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    """The state directory is made; where there is none nobody owns."""
    assert owner(tmp_path / "a" / "b") is None
    assert Clock().acquire(tmp_path / "a" / "b").generation == 0


def test_a_living_owner_on_this_host_is_respected_at_once(state_dir: Path) -> None:
    """A second sidecar beside a living one is told who owns and how to go on, without any waiting."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        clock = Clock()
        with pytest.raises(OwnedElsewhere, match=f"process {process.pid} on {socket.gethostname()}") as caught:
            clock.acquire(state_dir)
        assert clock.slept == 0.0
        assert caught.value.exit_code == 5
        assert f"kill {process.pid}" in caught.value.hint
        assert [path.name for path in state_dir.iterdir()] == ["lease.0"]
    finally:
        finish(process)


def test_a_killed_owner_on_this_host_is_followed_at_once(state_dir: Path) -> None:
    """After kill -9 the next sidecar owns without waiting, and has the store by a move."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        put_store(state_dir, 0, "hello")
        process.send_signal(signal.SIGKILL)
        process.wait()
        clock = Clock()
        lease = clock.acquire(state_dir)
        assert (lease.generation, clock.slept) == (1, 0.0)
        assert said(lease.store_path) == "hello"
        assert not (state_dir / "store.0.db").exists()
        lease.check()
    finally:
        finish(process)


def test_a_zombie_is_dead(state_dir: Path) -> None:
    """An owner that was killed but not yet waited for by its parent does not count as alive."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Clock().acquire(state_dir).generation == 1
    finally:
        finish(process)


def test_a_number_that_another_process_has_now_is_not_the_owner(state_dir: Path) -> None:
    """Process numbers come again: a living process that started at another time is not the one in the file."""
    put_lease(state_dir, 0, **(here() | {"started": here()["started"] - 1}))
    clock = Clock()
    assert owner(state_dir) == leasing.Owner(socket.gethostname(), os.getpid(), False)
    assert clock.acquire(state_dir).generation == 1
    assert clock.slept == 0.0


@pytest.mark.parametrize("field", ["host", "boot", "pid_space"])
def test_only_a_process_that_can_be_seen_is_judged(state_dir: Path, field: str) -> None:
    """On another host, boot or pid namespace a process number says nothing: then only the beats count."""
    put_lease(state_dir, 0, **(here() | {field: "another", "pid": 1 << 22}))
    clock = Clock()
    assert clock.acquire(state_dir).generation == 1
    assert clock.slept >= TTL


def test_another_host_is_stale_after_the_whole_time_without_a_beat(state_dir: Path) -> None:
    """A counter that stands still for the ttl of our own clock is stale; the store is copied, not moved."""
    put_lease(state_dir, 4, beats=17)
    put_store(state_dir, 4, "hello")
    clock = Clock()
    lease = clock.acquire(state_dir)
    assert TTL <= clock.slept < TTL + 5
    assert (lease.generation, said(lease.store_path)) == (5, "hello")
    with closing(sqlite3.connect(state_dir / "store.4.db")) as thawed:
        thawed.execute("update said set text = 'too late'")
        thawed.commit()
    assert said(lease.store_path) == "hello"


def test_another_host_that_beats_owns(state_dir: Path) -> None:
    """As soon as the counter moves, however late, the one who watches gives up and tells whose it is."""
    put_lease(state_dir, 0, beats=1)
    clock = Clock()

    def beat() -> None:
        if clock.slept > 20:
            put_lease(state_dir, 0, beats=2)

    clock.on_sleep = beat
    with pytest.raises(OwnedElsewhere, match="process 7 on n99"):
        clock.acquire(state_dir)
    assert 20 < clock.slept < 25
    assert owner(state_dir) == leasing.Owner("n99", 7, None)


def test_a_released_lease_is_free_at_once(state_dir: Path) -> None:
    """Who ends in order lets the next one in without waiting, on any host, also while it is already being watched."""
    put_lease(state_dir, 0, released=True)
    put_store(state_dir, 0, "hello")
    clock = Clock()
    lease = clock.acquire(state_dir)
    assert (lease.generation, clock.slept, said(lease.store_path)) == (1, 0.0, "hello")
    lease.release()
    assert owner(state_dir) is None
    put_lease(state_dir, 2, beats=3)
    clock.on_sleep = lambda: put_lease(state_dir, 2, beats=3, released=True)
    assert clock.acquire(state_dir).generation == 3
    assert clock.slept <= 1.0


@pytest.mark.parametrize("body", [b"", b'{"host":"n99","bo', b"\x00" * 512, b"[1]"])
def test_a_torn_lease_is_waited_for(state_dir: Path, body: bytes) -> None:
    """A lease file that says nothing yet gets the whole time, for its owner may be about to write it."""
    (state_dir / "lease.0").write_bytes(body)
    assert owner(state_dir) is None
    clock = Clock()
    assert clock.acquire(state_dir).generation == 1
    assert clock.slept >= TTL


def test_a_torn_lease_that_gets_whole_counts(state_dir: Path) -> None:
    """Once the file says that a living process of this host has it, it is owned."""
    (state_dir / "lease.0").write_bytes(b"")
    with subprocess.Popen(["sleep", "60"]) as other:
        clock = Clock(
            on_sleep=lambda: put_lease(state_dir, 0, **here() | {"pid": other.pid, "started": age(other.pid)})
        )
        with pytest.raises(OwnedElsewhere):
            clock.acquire(state_dir)
        other.kill()
    assert clock.slept <= 1.0


def age(pid: int) -> int:
    """When a process started, as the kernel counts it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_lease_that_came_with_a_copied_folder_is_free(tmp_path: Path) -> None:
    """A process is not kept out by its own lease in a copy of the folder; the original stays its own."""
    (tmp_path / "original").mkdir()
    lease = Clock().acquire(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = Clock().acquire(tmp_path / "copy")
    assert copy.generation == 1
    with pytest.raises(OwnedElsewhere):
        Clock().acquire(tmp_path / "original")
    assert lease.held()


def test_a_lease_is_kept_without_its_owner_doing_anything(tmp_path: Path) -> None:
    """A thread beats, so that a long piece of work is no death; released, it stops."""
    lease = acquire(tmp_path / "state", 1.0)
    lease.keep()
    time.sleep(1.5)
    assert lease.held()
    lease.release()
    time.sleep(1.2)
    assert not lease.held()


def test_the_owner_beats_while_it_checks(state_dir: Path) -> None:
    """Checking writes a growing counter, several times within the ttl, and nothing in between."""
    clock = Clock()
    lease = clock.acquire(state_dir)
    counters = []
    for _ in range(60):
        clock.now += 1.0
        lease.check()
        counters.append(msgspec.json.decode((state_dir / "lease.0").read_bytes())["beats"])
    assert counters == [second // 5 for second in range(1, 61)]
    lease.release()


def test_after_a_long_sleep_ownership_is_lost(state_dir: Path) -> None:
    """An owner that stood still for the ttl may have been followed: it stops, although nobody came."""
    clock = Clock()
    lease = clock.acquire(state_dir)
    clock.now += TTL - 0.1
    assert lease.held()
    clock.now += 0.1
    assert not lease.held()
    with pytest.raises(LeaseLost, match="stood still for 30 s") as caught:
        lease.check()
    assert caught.value.exit_code == 5
    assert not lease.held()


def test_a_follower_ends_ownership(state_dir: Path) -> None:
    """As soon as there is a higher generation the owner stops, however recently it beat."""
    lease = Clock().acquire(state_dir)
    assert lease.held()
    (state_dir / "lease.1").touch()
    assert not lease.held()
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_wiped_folder_ends_ownership(state_dir: Path) -> None:
    """Where the state directory was emptied or deleted nobody can be sure of owning it."""
    lease = Clock().acquire(state_dir)
    (state_dir / "lease.0").unlink()
    assert not lease.held()
    shutil.rmtree(state_dir)
    assert not lease.held()
    with pytest.raises(LeaseLost):
        lease.check()


def test_the_tenth_generation_is_above_the_ninth(state_dir: Path) -> None:
    """Generations are compared as numbers; files that are named otherwise are none."""
    for generation in (2, 9, 10):
        put_lease(state_dir, generation, released=True)
    for name in ("lease.x", "lease.99.tmp", "xlease.77", "lease."):
        (state_dir / name).touch()
    assert Clock().acquire(state_dir).generation == 11


def test_what_is_older_than_the_predecessor_is_cleared(state_dir: Path) -> None:
    """A takeover leaves the last predecessor's lease and removes everything of those before it."""
    for generation in (0, 1):
        put_lease(state_dir, generation)
        put_store(state_dir, generation, f"store {generation}")
    (state_dir / "store.0.tmp").write_bytes(b"half a copy")
    (state_dir / "other").write_bytes(b"")
    lease = Clock().acquire(state_dir)
    assert said(lease.store_path) == "store 1"
    assert sorted(path.name for path in state_dir.iterdir()) == [
        "lease.1",
        "lease.2",
        "other",
        "store.1.db",
        "store.2.db",
    ]


def test_a_store_of_an_owner_who_may_live_is_never_moved(state_dir: Path) -> None:
    """If the last owner died here before it had a copy, the one before it may thaw elsewhere: its store is copied."""
    put_lease(state_dir, 0)
    put_store(state_dir, 0, "hello")
    put_lease(state_dir, 1, **(here() | {"started": 1}))
    with closing(sqlite3.connect(state_dir / "store.0.db")) as frozen:
        frozen.execute("select * from said").fetchall()
        lease = Clock().acquire(state_dir)
        frozen.execute("update said set text = 'too late'")
        frozen.commit()
        frozen.execute("pragma wal_checkpoint(truncate)")
    assert lease.generation == 2
    assert said(lease.store_path) == "hello"


def test_a_commit_that_was_cut_off_is_rolled_back_by_a_takeover(state_dir: Path) -> None:
    """A store whose owner was killed in the middle of a commit, journal and all, is moved without that commit."""
    program = f"""
import os, sqlite3
store = sqlite3.connect({str(state_dir / "store.0.db")!r}, isolation_level=None)
store.execute("pragma journal_mode=delete")
store.execute("create table said (text)")
store.executemany("insert into said values (?)", [("before" + "x" * 1000,)] * 300)
store.execute("pragma cache_size=2")
store.execute("begin immediate")
store.execute("update said set text = 'half'")
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert (state_dir / "store.0.db-journal").stat().st_size > 0
    put_lease(state_dir, 0, **(here() | {"started": 1}))
    lease = Clock().acquire(state_dir)
    with closing(sqlite3.connect(lease.store_path)) as store:
        assert store.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert store.execute("select count(*) from said where text like 'before%'").fetchone() == (300,)


@pytest.mark.parametrize("dead", [True, False], ids=["after a crash", "at first"])
def test_of_two_that_race_one_wins(state_dir: Path, dead: bool) -> None:
    """Of processes that come for one generation in the same moment exactly one owns, and the others are told so."""
    if dead:
        put_lease(state_dir, 0, **(here() | {"started": 1}))
    processes = [start(state_dir, "race") for _ in range(4)]
    try:
        assert [line_of(process) for process in processes] == ["ready"] * 4
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = sorted(line_of(process) for process in processes)
        assert answers == ["owned", "owned", "owned", f"owner {int(dead)}"]
    finally:
        for process in processes:
            finish(process)


def test_any_thread_may_ask(state_dir: Path) -> None:
    """Sinks' threads ask whether the experiment is still held while the owner beats."""
    clock = Clock()
    lease = clock.acquire(state_dir)
    answers: set[bool] = set()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.add(lease.held())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        clock.now += 6.0
        lease.check()
    done.set()
    for thread in threads:
        thread.join(30.0)
    assert answers == {True}
