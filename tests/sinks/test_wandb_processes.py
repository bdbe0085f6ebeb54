"""The child and wandb-core are killed and frozen: it is noticed, they are replaced, and each row arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_sidecar.child_process import module_command
from rlship_sidecar.scratch import OWNER, YOUNG_S, remove_left_behind
from rlship_sidecar.sinks.contract import SinkUnavailable
from rlship_sidecar.sinks.wandb.health import STOPPED_S, core_death, fatal_in
from rlship_sidecar.sinks.wandb.link import ChildLink
from rlship_sidecar.sinks.wandb.sink import WINDOW_BYTES, Limits, WandbSink
from tests.kit.cases import long
from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until
from tests.loopback.backend import FILE_STREAM, GRAPHQL, LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.rows import make_row, make_rows, make_run
from tests.sinks.wandb_shipping import Shipping, check_whole, frozen, gone, shipping

SHORT = Limits(silent_s=6.0)


def victim(ship: Shipping, which: str) -> psutil.Process:
    return ship.child if which == "child" else ship.core


@pytest.mark.parametrize("which", ["child", *long("core")])
def test_kill_9_while_idle_and_while_rows_are_under_way(tmp_path: Path, backend: LoopbackBackend, which: str) -> None:
    """A death while nothing is to do is noticed at once or with the next row, one while a flush waits ends the flush;
    the next child sends what the server lacks.
    """
    project = f"kill-{which}"
    with shipping(tmp_path, backend, project=project) as ship:
        ship.deliver(10)
        child = ship.child
        victim(ship, which).kill()
        # An idle core's death ends its child as well: the next row then need not be lost on it.
        wait_until(lambda: gone([child]))
        ship.deliver(20)
        assert ship.child != child

        backend.fail(503, None)
        ship.add(40)
        wait_until(lambda: backend.sent(FILE_STREAM)[-1].status == 503)
        wait_until(lambda: ship.sinks[-1]._link is not None and ship.sinks[-1]._next == 40)
        victim(ship, which).kill()
        backend.heal()
        assert ship.deliver(60) < 30.0
    check_whole(backend.run(project, "store1"), 60)


@pytest.mark.parametrize("moment", ["at once", *long("soon", "asking")])
def test_a_core_that_dies_while_the_run_is_opened(tmp_path: Path, backend: LoopbackBackend, moment: str) -> None:
    """Killed while it starts (where the client by itself waits for itself for ever) or while the key is checked (which
    it takes for a wrong key): an outage, known within seconds, and the next try succeeds.
    """
    run = make_run(tmp_path, rows=2, project="start")
    sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
    problems: list[Exception] = []

    def open_sink() -> None:
        try:
            sink.open(run)
        except Exception as problem:
            problems.append(problem)

    def cores() -> list[psutil.Process]:
        pid = sink.child_pid
        return [] if pid is None else [p for p in psutil.Process(pid).children() if "wandb" in p.name()]

    asked = len(backend.sent(GRAPHQL))
    backend.hang(10.0, endpoint=GRAPHQL)  # the key is being checked until then
    opening = threading.Thread(target=open_sink, daemon=True)
    opening.start()
    try:
        wait_until(lambda: cores() != [])
        if moment == "soon":
            time.sleep(0.05)
        elif moment == "asking":
            wait_until(lambda: len(backend.sent(GRAPHQL)) > asked)
        cores()[0].kill()
        opening.join(15.0)
        assert not opening.is_alive() and [type(problem) for problem in problems] == [SinkUnavailable]
    finally:
        backend.heal()
        sink.close()
    assert sink.open(run) == 0
    sink.write(make_rows(0, 2))
    sink.flush()
    sink.close()
    check_whole(backend.run("start", "store1"), 2)
    backend.delete_project("start")


@pytest.mark.parametrize("which", long("child", "core"))
def test_a_frozen_process_is_replaced(tmp_path: Path, backend: LoopbackBackend, which: str) -> None:
    """A stopped core is noticed after five seconds, a stopped child after `silent_s` of waiting for it; both are ended,
    and the next child delivers.
    """
    project = f"freeze-{which}"
    with shipping(tmp_path, backend, project=project, limits=SHORT) as ship:
        ship.deliver(10)
        family = [ship.child, ship.core]
        frozen(victim(ship, which))
        assert ship.deliver(20) < 20.0
        wait_until(lambda: gone(family))
    check_whole(backend.run(project, "store1"), 20)


@pytest.mark.long
def test_a_frozen_child_that_thaws_after_its_sidecar_died_harms_nothing(
    tmp_path: Path, backend: LoopbackBackend
) -> None:
    """The sidecar is killed while its child is frozen with rows in its pipe. The next sidecar ships everything; the old
    child, thawed, finds its parent gone and ends, and so does its core.
    """
    program = """
import os, signal, sys, time
from pathlib import Path
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.sinks.rows import make_rows, make_run
sink = WandbSink()
sink.open(make_run(Path(sys.argv[1]), rows=60, project="thaw"))
sink.write(make_rows(0, 5))
sink.flush()
os.kill(sink.child_pid, signal.SIGSTOP)
sink.write(make_rows(5, 40))
print(sink.child_pid, flush=True)
time.sleep(600)
"""
    env = client_env(backend.environment(tmp_path / "home"))
    root = Path(__file__).parents[2]
    sidecar = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], env=env, cwd=root, stdout=subprocess.PIPE, text=True
    )
    family: list[psutil.Process] = []
    try:
        assert sidecar.stdout is not None
        child = psutil.Process(int(sidecar.stdout.readline()))
        family = [child, *child.children(recursive=True)]
        sidecar.kill()
        sidecar.communicate()
        with shipping(tmp_path, backend, project="thaw") as ship:
            ship.deliver(60)
            assert child.status() == psutil.STATUS_STOPPED
            os.kill(child.pid, signal.SIGCONT)
            wait_until(lambda: gone(family))
            ship.deliver(70)
    finally:
        sidecar.kill()
        sidecar.wait()
        for process in family:
            if process.is_running():
                process.kill()
    check_whole(backend.run("thaw", "store1"), 70)


@pytest.mark.long
def test_memory_is_bounded_while_the_server_is_down(tmp_path: Path, backend: LoopbackBackend) -> None:
    """Of 100 MB of rows for a server that takes none, no more than 2 MiB are under way: neither the sink nor the child
    grows with the rest, which waits in the store. A call that waits for room can be interrupted, and a sink whose
    server does not answer closes at once.
    """
    env = client_env(backend.environment(tmp_path / "home"))
    sink = WandbSink(env=env)
    sink.open(make_run(tmp_path, rows=1000, project="big"))
    sink.write([make_row(0)])
    sink.flush()
    assert sink.child_pid is not None
    child = psutil.Process(sink.child_pid)
    before = child.memory_info().rss
    figures = {f"trainer/{number:04}/{'x' * 80}": 0.1 for number in range(1000)}
    problems: list[Exception] = []

    def write() -> None:
        try:
            for no in range(1, 1000):
                sink.write([make_row(no, values=figures)])
        except SinkUnavailable as problem:
            problems.append(problem)

    backend.down()
    try:
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        wait_until(lambda: sink.trouble != "")
        taken = len(sink._window.pending)
        time.sleep(1.0)
        assert len(sink._window.pending) == taken and 1 < taken < 25
        assert sink._window.bytes <= WINDOW_BYTES
        assert child.memory_info().rss - before < 80 << 20
        assert writing.is_alive()

        trouble = sink.trouble
        sink.interrupt()
        writing.join(2.0)
        assert not writing.is_alive() and [str(problem) for problem in problems] == [trouble]
        began = time.monotonic()
        sink.close()
        assert time.monotonic() - began < 2.0
    finally:
        backend.up()
        sink.close()


def start_link(folder: Path, program: str, silent_s: float) -> ChildLink:
    """A link to a child that runs `program` in place of the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlship_sidecar.sinks.wandb.link.module_command", lambda module: [sys.executable, "-c", program])
        return ChildLink({}, os.environ, folder, folder / "log", silent_s=silent_s)


def test_a_child_that_takes_nothing_does_not_block_its_parent(tmp_path: Path) -> None:
    """A pipe without a reader fills up: the writer gives up after `silent_s`, and the child is ended."""
    link = start_link(tmp_path, "import time\ntime.sleep(600)", 0.5)
    child = psutil.Process(link.pid)
    try:
        with pytest.raises(SinkUnavailable, match=r"read nothing for 0\.5 s and may be stopped"):
            link.send_line(b"x" * 1_000_000)
    finally:
        link.close(10.0)
    wait_until(lambda: gone([child]))


def test_a_child_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """Silence for `silent_s` ends the waiting, and closing does not begin it anew."""
    link = start_link(tmp_path, "import time\ntime.sleep(600)", 0.5)
    try:
        with pytest.raises(SinkUnavailable, match=r"sent nothing for 0\.5 s and may be stopped"):
            link.wait_opened()
    finally:
        began = time.monotonic()
        link.close(10.0)
    assert time.monotonic() - began < 5.0


def test_a_sign_of_life_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that beats but never opens the run is given up as well."""
    monkeypatch.setattr("rlship_sidecar.sinks.wandb.link.OPEN_S", 1.0)
    beat = "import time\nwhile True:\n    print('{\"alive\": true}', flush=True)\n    time.sleep(0.1)"
    link = start_link(tmp_path, beat, 0.8)
    try:
        with pytest.raises(SinkUnavailable, match="has not opened the run within 1 s"):
            link.wait_opened()
    finally:
        link.close(0.0)


def test_what_is_said_of_a_core(tmp_path: Path) -> None:
    """Gone: at once. Stopped: only if it stays so for some seconds. Running, or never there: nothing."""
    clock = Clock()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        dead = core_death(sleeper.pid, clock=clock)
        assert dead() == "" and core_death(None)() == ""
        process = psutil.Process(sleeper.pid)
        frozen(process)
        assert dead() == ""
        clock.sleep(STOPPED_S - 0.1)
        assert dead() == ""
        os.kill(sleeper.pid, signal.SIGCONT)
        wait_until(lambda: process.status() != psutil.STATUS_STOPPED)
        assert dead() == ""
        frozen(process)
        clock.sleep(1.0)
        assert dead() == ""
        clock.sleep(STOPPED_S)
        assert "is stopped" in dead()
    finally:
        sleeper.kill()
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert dead() == "wandb-core is gone"
    sleeper.wait()
    assert dead() == "wandb-core is gone"


def test_the_clients_log_is_read_once(tmp_path: Path) -> None:
    """The sign of a fatal error is found wherever it comes in a log that grows, also where a read cut it in two."""
    log = tmp_path / "debug.log"
    fatal = fatal_in(log)
    assert fatal() == ""
    log.write_text("much\n" * 1000 + "filestream: fa")
    assert fatal() == ""
    with open(log, "a") as file:
        file.write("tal error: 404\nmore\n")
    assert fatal() == "the client gave up sending history: filestream: fatal error: 404"


def test_rows_out_of_turn_are_a_mistake(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A gap in the row numbers would put a row on another's line."""
    sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
    sink.open(make_run(tmp_path, rows=5, project="turn"))
    try:
        with pytest.raises(ValueError, match="row 1 does not follow on row -1"):
            sink.write(make_rows(1, 2))
    finally:
        sink.close()


def test_what_is_left_of_a_kill_of_all_is_removed(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A sidecar that is killed together with its child and core leaves the client's files behind; the next one removes
    them, and nothing else.
    """
    run = make_run(tmp_path, rows=3, project="left")
    left, other = tmp_path / "rlship-wandb-left", tmp_path / "other"
    for folder in (left, other):
        folder.mkdir()
        (folder / "file").write_text("x")
    for folder in (other, left):
        (run.state_dir / "wandb-scratch").write_text(str(folder))
        sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
        sink.open(run)
        sink.close()
    assert other.exists() and not left.exists()


def test_the_child_owns_its_folder(tmp_path: Path, backend: LoopbackBackend) -> None:
    """The folder for the client's files stays while the child lives, and the sidecar holds no descriptor for it."""
    run = make_run(tmp_path, rows=3, project="owned")
    sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
    sink.open(run)
    try:
        scratch = Path((run.state_dir / "wandb-scratch").read_text())
        remove_left_behind(time.time() + 2 * YOUNG_S)
        assert scratch.is_dir()
        assert [path for path in held_by(os.getpid()) if path.startswith(str(scratch))] == []
        assert f"{scratch}/{OWNER}" in held_by(sink.child_pid)
    finally:
        sink.close()
    assert not scratch.exists()


def held_by(pid: int | None) -> list[str]:
    """The files that a process has open."""
    return [file.path for file in psutil.Process(pid).open_files()]


def test_what_startup_code_prints_is_no_message(
    tmp_path: Path, backend: LoopbackBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that something prints before the child can redirect its output is passed over."""

    def printing(module: str) -> list[str]:
        return ["/bin/sh", "-c", 'echo hello; exec "$@"', "sh", *module_command(module)]

    monkeypatch.setattr("rlship_sidecar.sinks.wandb.link.module_command", printing)
    sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
    assert sink.open(make_run(tmp_path, rows=1, project="printed")) == 0
    sink.close()
