"""Who owns an experiment: takeovers, races between real processes, and stores that move or are copied."""

from __future__ import annotations

import errno
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlship_sidecar import pids
from rlship_sidecar.errors import OwnedElsewhere
from rlship_sidecar.ownership import holder
from rlship_sidecar.ownership import lease as leasing
from rlship_sidecar.ownership.holder import Condition
from rlship_sidecar.ownership.lease import Lease, LeaseLost, acquire, owner
from rlship_sidecar.report.status import Status, read_status, write_status
from rlship_sidecar.store.store import Store
from tests.kit.cases import few
from tests.kit.clocks import Clock
from tests.pipeline.simulated import scratch

TTL = 30.0
PROGRAM = """
import sys, time
from pathlib import Path
from rlship_sidecar.errors import OwnedElsewhere
from rlship_sidecar.ownership.lease import acquire
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


def acquired(state_dir: Path, clock: Clock | None = None) -> Lease:
    """The lease, taken by a clock that moves only while the sidecar waits."""
    clock = clock or Clock()
    return acquire(state_dir, TTL, boottime=clock, sleep=clock.sleep)


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
    fields: dict[str, Any] = msgspec.to_builtins(holder.here())
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
    """The first to come owns generation 0 without waiting, and a lease file of pinned fields says who it is."""
    clock = Clock()
    lease = acquired(state_dir, clock)
    assert (lease.generation, lease.store_path, clock.slept) == (0, state_dir / "store.0.db", 0.0)
    body = (state_dir / "lease.0").read_bytes()
    assert len(body) == 513
    fields = msgspec.json.decode(body)
    assert list(fields) == ["host", "boot", "pid_space", "pid", "started", "beats", "released", "token", "suspect"]
    assert (fields["host"], fields["pid"], fields["beats"], fields["released"]) == (
        socket.gethostname(),
        os.getpid(),
        0,
        False,
    )
    lease.check()
    assert owner(state_dir) == leasing.Owner(socket.gethostname(), os.getpid(), True)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    """The state directory is made, but nothing above it; without one there is no owner."""
    assert owner(tmp_path / "a") is None
    assert acquired(tmp_path / "a").generation == 0
    with pytest.raises(FileNotFoundError):
        acquired(tmp_path / "b" / "c")
    assert not (tmp_path / "b").exists()


def test_a_living_owner_on_this_host_is_respected_at_once(state_dir: Path) -> None:
    """A second sidecar beside a living one reads who owns and how to go on, without any waiting."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        clock = Clock()
        with pytest.raises(OwnedElsewhere, match=f"process {process.pid} on {socket.gethostname()}") as caught:
            acquired(state_dir, clock)
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
        lease = acquired(state_dir, clock)
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
        assert acquired(state_dir).generation == 1
    finally:
        finish(process)


def test_a_number_that_another_process_has_now_is_not_the_owner(state_dir: Path) -> None:
    """Process numbers come again: a living process that started at another time is not the one in the file."""
    put_lease(state_dir, 0, **(here() | {"started": here()["started"] - 1}))
    clock = Clock()
    assert owner(state_dir) == leasing.Owner(socket.gethostname(), os.getpid(), False)
    assert acquired(state_dir, clock).generation == 1
    assert clock.slept == 0.0


@pytest.mark.parametrize("field", ["host", "boot", "pid_space"])
def test_only_a_process_that_can_be_seen_is_judged(state_dir: Path, field: str) -> None:
    """On another host, boot or pid namespace a process number says nothing: then only the beats count."""
    put_lease(state_dir, 0, **(here() | {field: "another", "pid": 1 << 22}))
    clock = Clock()
    assert acquired(state_dir, clock).generation == 1
    assert clock.slept >= TTL


def test_another_host_is_stale_after_the_whole_time_without_a_beat(state_dir: Path) -> None:
    """A counter that stands still for the ttl of our own clock is stale; the store is copied, not moved."""
    put_lease(state_dir, 4, beats=17)
    put_store(state_dir, 4, "hello")
    clock = Clock()
    lease = acquired(state_dir, clock)
    assert TTL <= clock.slept < TTL + 5
    assert (lease.generation, said(lease.store_path)) == (5, "hello")
    assert lease.suspect == 4


def test_another_host_that_beats_owns(state_dir: Path) -> None:
    """As soon as the counter moves, however late, a waiting successor gives up and names the owner."""
    put_lease(state_dir, 0, beats=1)
    clock = Clock()

    def beat() -> None:
        if clock.slept > 20:
            put_lease(state_dir, 0, beats=2)

    clock.on_sleep = beat
    with pytest.raises(OwnedElsewhere, match="process 7 on n99"):
        acquired(state_dir, clock)
    assert 20 < clock.slept < 25
    assert owner(state_dir) == leasing.Owner("n99", 7, None)


def test_a_released_lease_is_free_at_once(state_dir: Path) -> None:
    """Who ends in order lets the next one in without waiting, on any host, also while it is already being watched."""
    put_lease(state_dir, 0, released=True)
    put_store(state_dir, 0, "hello")
    clock = Clock()
    lease = acquired(state_dir, clock)
    assert (lease.generation, clock.slept, said(lease.store_path)) == (1, 0.0, "hello")
    lease.release()
    assert owner(state_dir) is None
    put_lease(state_dir, 2, beats=3)
    clock.on_sleep = lambda: put_lease(state_dir, 2, beats=3, released=True)
    assert acquired(state_dir, clock).generation == 3
    assert clock.slept <= 1.0


@pytest.mark.parametrize("body", [b"", b'{"host":"n99","bo', b"\x00" * 512, b"[1]"])
def test_a_torn_lease_is_waited_for(state_dir: Path, body: bytes) -> None:
    """A lease file that says nothing yet gets the whole time, for its owner may be about to write it."""
    (state_dir / "lease.0").write_bytes(body)
    assert owner(state_dir) is None
    clock = Clock()
    assert acquired(state_dir, clock).generation == 1
    assert clock.slept >= TTL


def test_a_torn_lease_that_gets_whole_counts(state_dir: Path) -> None:
    """Once the file says that a living process of this host has it, it is owned."""
    (state_dir / "lease.0").write_bytes(b"")
    # It reads what its parent never sends, so that it waits for no disk once its first word is here.
    with subprocess.Popen(["sh", "-c", "echo; read never"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"\n"
        clock = Clock(
            on_sleep=lambda: put_lease(state_dir, 0, **here() | {"pid": other.pid, "started": age(other.pid)})
        )
        with pytest.raises(OwnedElsewhere):
            acquired(state_dir, clock)
        other.kill()
    assert clock.slept <= 1.0


def age(pid: int) -> int:
    """When a process started, as the kernel counts it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_lease_that_came_with_a_copied_folder_is_free(tmp_path: Path) -> None:
    """A process is not kept out by its own lease in a copy of the folder; the original stays its own."""
    (tmp_path / "original").mkdir()
    lease = acquired(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = acquired(tmp_path / "copy")
    assert copy.generation == 1
    with pytest.raises(OwnedElsewhere):
        acquired(tmp_path / "original")
    assert lease.held()


def test_a_lease_is_kept_without_its_owner_doing_anything(tmp_path: Path) -> None:
    """A thread beats, so that a long piece of work is no death; released, it stops."""
    lease = acquire(tmp_path / "state", 1.0)
    time.sleep(1.5)
    assert lease.held()
    lease.release()
    time.sleep(1.2)
    assert not lease.held()


def test_the_owner_beats_while_it_checks(state_dir: Path) -> None:
    """Checking writes a growing counter, several times within the ttl, and nothing in between."""
    clock = Clock()
    lease = acquired(state_dir, clock)
    counters = []
    for _ in range(60):
        clock.now += 1.0
        lease.check()
        counters.append(msgspec.json.decode((state_dir / "lease.0").read_bytes())["beats"])
    assert counters == [second // 5 for second in range(1, 61)]
    lease.release()


def test_after_a_long_sleep_ownership_is_lost(state_dir: Path) -> None:
    """An owner that stood still for nearly the ttl may be followed: it stops, although no successor came."""
    clock = Clock()
    lease = acquired(state_dir, clock)
    clock.now += 0.9 * TTL - 0.1
    assert lease.held()
    clock.now += 0.2
    assert not lease.held()
    with pytest.raises(LeaseLost, match="stood still for 27 s") as caught:
        lease.check()
    assert caught.value.exit_code == 5
    assert not lease.held()


def test_a_follower_ends_ownership(state_dir: Path) -> None:
    """As soon as there is a higher generation the owner stops, however recently it beat."""
    lease = acquired(state_dir)
    assert lease.held()
    (state_dir / "lease.1").touch()
    assert not lease.held()
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_wiped_folder_ends_ownership(state_dir: Path) -> None:
    """Where the state directory was emptied or deleted no process can be sure of owning it."""
    lease = acquired(state_dir)
    (state_dir / "lease.0").unlink()
    assert not lease.held()
    shutil.rmtree(state_dir)
    assert not lease.held()
    with pytest.raises(LeaseLost):
        lease.check()


def test_the_tenth_generation_is_above_the_ninth(state_dir: Path) -> None:
    """Generations are compared as numbers; files that are named otherwise are no generations."""
    for generation in (2, 9, 10):
        put_lease(state_dir, generation, released=True)
    for name in ("lease.x", "lease.99.tmp", "xlease.77", "lease."):
        (state_dir / name).touch()
    assert acquired(state_dir).generation == 11


def test_what_is_older_than_the_predecessor_is_cleared(state_dir: Path) -> None:
    """A takeover leaves the last predecessor's lease and removes everything else of earlier ones."""
    for generation in (0, 1):
        put_lease(state_dir, generation)
        put_store(state_dir, generation, f"store {generation}")
    (state_dir / "store.0.tmp").write_bytes(b"half a copy")
    (state_dir / "other").write_bytes(b"")
    lease = acquired(state_dir)
    assert said(lease.store_path) == "store 1"
    assert sorted(path.name for path in state_dir.iterdir()) == [
        "lease.1",
        "lease.2",
        "other",
        "store.2.db",
    ]


@pytest.mark.parametrize("dead", [True, False], ids=["after a crash", "at first"])
def test_of_two_that_race_one_wins(state_dir: Path, dead: bool) -> None:
    """Of processes that come for one generation in the same moment exactly one owns, and the others hear of it."""
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
    lease = acquired(state_dir, clock)
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


def test_a_stopped_owner_on_this_host_is_watched_like_any_other(state_dir: Path) -> None:
    """After SIGSTOP the owner's beats alone count: it is followed after the ttl, by a copy, and not trusted since."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        put_store(state_dir, 0, "hello")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        clock = Clock()
        lease = acquired(state_dir, clock)
        assert clock.slept >= TTL
        assert (lease.generation, lease.suspect, said(lease.store_path)) == (1, 0, "hello")
    finally:
        process.send_signal(signal.SIGCONT)
        finish(process)


def test_a_stopped_owner_that_is_woken_up_in_time_keeps_its_experiment(state_dir: Path) -> None:
    """As soon as it runs again it is respected, without waiting for its next beat."""
    process = start(state_dir)
    try:
        assert line_of(process) == "owner 0"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        clock = Clock()

        def wake() -> None:
            if clock.slept > TTL / 2:
                process.send_signal(signal.SIGCONT)
                os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)

        clock.on_sleep = wake
        with pytest.raises(OwnedElsewhere):
            acquired(state_dir, clock)
        assert clock.slept <= TTL / 2 + 2
    finally:
        finish(process)


@pytest.mark.parametrize(
    ("state", "events", "expected"),
    [
        ("R", None, Condition.RUNS),
        ("S", None, Condition.RUNS),
        ("S", "populated 1\nfrozen 0\n", Condition.RUNS),
        ("S", "populated 1\nfrozen 1\n", Condition.STANDS),
        ("T", None, Condition.STANDS),
        ("t", None, Condition.STANDS),
        ("D", None, Condition.STANDS),
        ("Z", None, Condition.GONE),
        ("X", None, Condition.GONE),
    ],
)
def test_what_is_seen_of_a_process(
    state: str, events: str | None, expected: Condition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, waiting for a disk, or frozen with its group: it stands; a zombie is gone; anything else runs."""
    me = holder.here()
    (tmp_path / "77").mkdir()
    fields = [state, *(str(number) for number in range(4, 22)), str(me.started), "0"]
    (tmp_path / "77" / "stat").write_text(f"77 (a) b) {' '.join(fields)}\n")
    (tmp_path / "77" / "cgroup").write_text("1:name=systemd:/\n0::/box\n")
    if events is not None:
        (tmp_path / "box").mkdir()
        (tmp_path / "box" / "cgroup.events").write_text(events)
    monkeypatch.setattr(pids, "PROC", str(tmp_path))
    monkeypatch.setattr(holder, "_CGROUPS", str(tmp_path))
    assert holder.condition(msgspec.structs.replace(me, pid=77), me) is expected
    assert holder.condition(msgspec.structs.replace(me, pid=77, started=me.started + 1), me) is Condition.GONE


def test_a_process_that_proc_hides_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc shows no processes of other users, one of theirs that is there counts as not seen: only its lease
    tells. One that is not there is gone.
    """

    def kill(pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError if pid == 77 else ProcessLookupError

    me = holder.here()
    monkeypatch.setattr(pids, "PROC", str(tmp_path))
    monkeypatch.setattr(pids.os, "kill", kill)
    assert holder.condition(msgspec.structs.replace(me, pid=77), me) is Condition.UNSEEN
    assert holder.condition(msgspec.structs.replace(me, pid=78), me) is Condition.GONE


@pytest.mark.parametrize("beats", [0, 16, 18, 10**15])
def test_any_change_of_the_counter_is_life(state_dir: Path, beats: int) -> None:
    """A counter that jumps, back or far ahead, was written by another process."""
    put_lease(state_dir, 0, beats=17)
    clock = Clock(on_sleep=lambda: put_lease(state_dir, 0, beats=beats))
    with pytest.raises(OwnedElsewhere):
        acquired(state_dir, clock)


def test_a_later_version_that_beats_owns(state_dir: Path) -> None:
    """Fields that this version does not know are passed over; where it can read nothing, change alone is life."""
    put_lease(state_dir, 0, released=True, colour="green")
    assert acquired(state_dir).generation == 1
    numbers = iter(range(1000))

    def write() -> None:
        (state_dir / "lease.2").write_text(f'{{"format": 2, "pulse": {next(numbers)}}}')

    write()
    with pytest.raises(OwnedElsewhere, match="of a version that writes"):
        acquired(state_dir, Clock(on_sleep=write))
    assert acquired(state_dir).generation == 3


def test_a_lease_that_cannot_be_read_is_nobodys_prey(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease file that may not be read, or whose server answers with an error, is reported and not taken over."""
    put_lease(state_dir, 0)

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(leasing, "read", refused)
    with pytest.raises(PermissionError, match=r"lease\.0"):
        acquired(state_dir)
    assert [path.name for path in state_dir.iterdir()] == ["lease.0"]


def test_a_lease_that_is_given_up_while_it_is_watched_is_no_predecessor(state_dir: Path) -> None:
    """An owner that fails before it had a store takes its file away again: who watched it looks again at once."""
    put_lease(state_dir, 4, released=True)
    put_store(state_dir, 4, "hello")
    put_lease(state_dir, 5)
    clock = Clock(on_sleep=lambda: (state_dir / "lease.5").unlink(missing_ok=True))
    lease = acquired(state_dir, clock)
    assert (lease.generation, said(lease.store_path)) == (5, "hello")
    assert clock.slept <= 1.0


def test_thousands_of_generations(state_dir: Path) -> None:
    """However many were left behind, the highest counts, taking over is quick, and clears the others away."""
    for generation in range(5000):
        put_lease(state_dir, generation, released=True)
    began = time.monotonic()
    lease = acquired(state_dir)
    assert time.monotonic() - began < 5.0
    assert lease.generation == 5000
    assert sorted(path.name for path in state_dir.iterdir()) == ["lease.4999", "lease.5000"]


def test_leases_that_were_removed_do_not_lose_the_store(state_dir: Path) -> None:
    """`rm lease.*` of a person in a hurry: the store goes on, and its owner, who may live, is not trusted."""
    put_store(state_dir, 7, "hello")
    lease = acquired(state_dir)
    assert (lease.generation, lease.suspect, said(lease.store_path)) == (8, 7, "hello")


def test_who_may_still_be_alive_is_handed_on(state_dir: Path) -> None:
    """A predecessor that was only silent stays suspect for all who come later, until a newer one is."""
    put_lease(state_dir, 3)
    first = acquired(state_dir)
    assert (first.generation, first.suspect) == (4, 3)
    first.release()
    second = acquired(state_dir)
    assert (second.generation, second.suspect) == (5, 3)
    second.release()
    put_lease(state_dir, 6, suspect=3)
    assert acquired(state_dir).suspect == 6


def test_what_a_stuck_thread_may_still_write_is_suspect(state_dir: Path) -> None:
    """Abandoned, not released: the same process may go on at once, with a copy of the store, and is not trusted."""
    put_lease(state_dir, 0, released=True)
    put_store(state_dir, 0, "hello")
    lease = acquired(state_dir)
    lease.abandon()
    with closing(sqlite3.connect(lease.store_path)) as stuck:
        stuck.execute("begin immediate")
        clock = Clock()
        after = acquired(state_dir, clock)
        assert (after.generation, after.suspect, clock.slept) == (2, 1, 0.0)
        assert said(after.store_path) == "hello"


def followed(state_dir: Path, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """The successor, on another host, of an owner that beats no more."""
    elsewhere = msgspec.structs.replace(holder.here(), host="n99", token="t99")
    with monkeypatch.context() as patch:
        patch.setattr(leasing, "here", lambda: msgspec.structs.replace(elsewhere))
        return acquired(state_dir)


def test_what_a_late_owner_writes_of_itself_harms_nothing(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats, the release of its lease, cursors and commits in its store: the successor has files of its own."""
    late = acquired(state_dir)
    store = Store(late.store_path, local=True)
    store.save_cursor("jsonl", 3)
    successor = followed(state_dir, late, monkeypatch)
    late._write()
    store.save_cursor("jsonl", 7)
    store.close()
    late.release()

    successor.check()
    assert owner(state_dir) == leasing.Owner("n99", os.getpid(), None)
    with closing(sqlite3.connect(successor.store_path)) as copy:
        assert copy.execute("select next from cursors").fetchall() == [(3,)]
    assert not late.held() and successor.held()


def test_a_status_that_comes_late_is_not_shown(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is frozen between the look at its lease and the rename finds nothing to rename afterwards."""
    late = acquired(state_dir)
    told = Status("job", 1.0, "s", "tmpfs", 0, True, [], [], [], [], 0, 0)

    def held() -> bool:
        assert late.held()
        successor = followed(state_dir, late, monkeypatch)
        write_status(state_dir, replace(told, rows=9), generation=successor.generation, held=successor.held)
        return True

    with pytest.raises(FileNotFoundError):
        write_status(state_dir, told, generation=late.generation, held=held)
    shown = read_status(state_dir)
    assert shown is not None and shown.rows == 9
    write_status(state_dir, told, generation=late.generation, held=late.held)
    assert read_status(state_dir) == shown
    assert not list(state_dir.glob("status.*.tmp"))


def test_two_that_made_the_same_file(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where O_EXCL excludes no process, two own one generation until their next beat: then one of them finds the
    other.
    """

    def no_links(*arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    real = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_links)
        patch.setattr(os, "open", lambda path, flags, mode=0o777: real(path, flags & ~os.O_EXCL, mode))
        patch.setattr(leasing, "_leases", lambda state_dir: [])
        patch.setattr(Lease, "check", lambda lease: None)
        clock = Clock()
        first, second = acquired(state_dir, clock), acquired(state_dir, clock)
    assert first.generation == second.generation == 0
    clock.now += TTL / 5
    second.check()
    with pytest.raises(LeaseLost):
        first.check()
    assert not first.held() and second.held()


def test_a_server_that_forgot_its_answer(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that was made, although the server says when asked again that it was there, is our own."""
    real = os.link

    def twice(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "asked again")

    monkeypatch.setattr(os, "link", twice)
    assert acquired(state_dir).generation == 0
    assert [path.name for path in state_dir.iterdir()] == ["lease.0"]


def test_a_beat_that_fails_is_tried_again(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs ownership only if it lasts; the error then says what could not be written."""
    clock = Clock()
    lease = acquired(state_dir, clock)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        clock.now += 20.0
        lease.check()
    lease.check()
    clock.now += 20.0
    lease.check()
    monkeypatch.setattr(os, "pwrite", full)
    clock.now += 26.0
    lease.check()
    clock.now += 1.5
    with pytest.raises(LeaseLost, match=r"could not write .*lease\.0: No space left"):
        lease.check()


def test_a_folder_that_cannot_be_listed_is_no_takeover(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the server's is reported as what it is; meanwhile nothing is shipped."""
    lease = acquired(state_dir)

    def stale(path: Path) -> list[int]:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(leasing, "_leases", stale)
        assert not lease.held()
        with pytest.raises(OSError, match="Stale"):
            lease.check()
    lease.check()
    assert lease.held()


@dataclass
class HostClock:
    """A host's clock: off by `offset` seconds at first, and running at `rate`."""

    now: list[float]
    offset: float
    rate: float

    def __call__(self) -> float:
        return self.offset + self.rate * self.now[0]


@settings(max_examples=few(100), deadline=None)
@given(
    offsets=st.tuples(st.floats(0, 3600), st.floats(0, 3600)),
    rates=st.tuples(st.floats(0.95, 1.05), st.floats(0.95, 1.05)),
    lives=st.floats(0, 100),
    nap=st.floats(0, 90),
)
@example(offsets=(0.0, 3600.0), rates=(0.95, 1.05), lives=0.0, nap=0.0)
def test_clocks_that_disagree_never_make_two_owners(
    offsets: tuple[float, float], rates: tuple[float, float], lives: float, nap: float
) -> None:
    """Clocks of two hosts may be an hour apart and drift: by the time that one takes over, the other one, which beat
    until it froze, knows by its own clock alone that it may be followed, even if it never sees the other's file.
    """
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        now = [0.0]
        mine, theirs = (HostClock(now, offset, rate) for offset, rate in zip(offsets, rates))
        patch.setattr(Lease, "keep", lambda lease: None)
        lease = acquire(folder, TTL, boottime=mine)
        here_now = holder.here()
        patch.setattr(leasing, "here", lambda: msgspec.structs.replace(here_now, host="n99", token="t99"))

        def pass_time(seconds: float) -> None:
            now[0] += seconds / rates[1]

        while now[0] < lives:
            now[0] += 1.0
            lease.check()
        now[0] += nap
        successor = acquire(folder, TTL, boottime=theirs, sleep=pass_time)
        assert successor.generation == 1
        patch.setattr(leasing, "_leases", lambda state_dir: [0])
        assert not lease.held()
