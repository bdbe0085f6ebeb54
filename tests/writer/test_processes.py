"""Forks, spawned processes, kills and a real limit of the disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.writer.reading import CLEAN, MORTAL, files, kinds, metrics, program, soon, whole


def parts(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The records of each file, by what its first metric is called ("" if it has none)."""
    found = {}
    for path in files(folder):
        own = [json.loads(line) for line in whole(path)]
        names = [next(iter(record["m"])) for record in metrics(own)]
        found[names[0] if names else ""] = own
    return found


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """The child names its parent, has its step and definitions, none of its waiting lines, and the parent loses
    nothing.
    """
    program(
        """
import os, sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.define("child", "sum")
rlship.set_step(7)
rlship.log({"parent": 1})
rlship.record_metric("waiting", 1)
if os.fork() == 0:
    rlship.log({"child": 1})
    rlship.flush()
    os._exit(0)
os.wait()
rlship.log({"parent": 2})
""",
        tmp_path,
    )
    found = parts(tmp_path)
    assert sorted(found) == ["child", "parent"]
    parent, child = found["parent"], found["child"]
    assert "parent" not in parent[0]
    assert child[0]["parent"] == parent[0]["id"] != child[0]["id"]
    assert child[0]["pid"] != parent[0]["pid"]
    assert {"kind": "define", "m": {"child": {"reduce": "sum"}}} in child
    assert metrics(child) == [{"step": 7, "m": {"child": 1}}]
    assert [record["m"] for record in metrics(parent) if "waiting" not in record["m"]] == [{"parent": 1}, {"parent": 2}]


def test_what_a_child_says_is_in_its_own_file(tmp_path: Path) -> None:
    """Events, tags and samples after a fork: the child's have its step, none of the parent's is written twice, and the
    two draw different priorities.
    """
    program(
        """
import os, sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.set_step(7)
rlship.add_step_tag("eval")
rlship.event("parent")
rlship.sample("t", {"who": "parent"})
if os.fork() == 0:
    rlship.event("child"); rlship.add_step_tag("eval")
    for _ in range(3): rlship.sample("t", {"who": "child"})
    rlship.flush()
    os._exit(0)
os.wait()
for _ in range(3): rlship.sample("t", {"who": "parent"})
""",
        tmp_path,
    )
    drawn = []
    for path in files(tmp_path):
        own = [json.loads(line) for line in whole(path)]
        who, samples = ("child", 3) if "parent" in own[0] else ("parent", 4)
        said = [record["name"] for record in own if record["kind"] == "event"]
        assert sorted(said) == sorted([who, "step_tag"])
        rows = [record for record in own if record["kind"] == "sample"]
        assert [record["row"] for record in rows] == [{"who": who}] * samples
        assert {record["step"] for record in rows} == {7}
        drawn += [record["pri"] for record in rows]
    assert len(set(drawn)) == 7


def test_children_that_do_not_log_make_no_file(tmp_path: Path) -> None:
    """A fork that only waits or runs a program leaves nothing behind; its own child belongs to the grandparent."""
    program(
        """
import os, subprocess, sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({"parent": 1})
subprocess.run(["true"])
if os.fork() == 0:
    if os.fork() == 0:
        rlship.log({"grandchild": 1})
        rlship.flush()
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
""",
        tmp_path,
    )
    found = parts(tmp_path)
    assert sorted(found) == ["grandchild", "parent"]
    assert found["grandchild"][0]["parent"] == found["parent"][0]["id"]


def test_a_fork_while_other_threads_log_is_safe(tmp_path: Path) -> None:
    """Forking at any moment, with locks held by other threads, never hangs the child."""
    program(
        """
import os, sys, threading, rlship
rlship.init(sys.argv[1], "trainer")
stop = threading.Event()
def work():
    while not stop.is_set():
        rlship.log({"parent": 1.5}); rlship.record_metric("r", 1.0); rlship.barrier(1)
        rlship.sample("t", {"a": 1}); rlship.event("e")
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for t in threads: t.start()
for i in range(15):
    pid = os.fork()
    if pid == 0:
        rlship.log({"child": i}); rlship.record_metric("r", 1.0)
        os._exit(0 if rlship.flush(20) else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for t in threads: t.join()
""",
        tmp_path,
    )
    children = [own for own in (list(map(json.loads, whole(path))) for path in files(tmp_path)) if "parent" in own[0]]
    assert sorted(metrics(own)[0]["m"]["child"] for own in children) == list(range(15))


@pytest.mark.parametrize("metrics", ["None", "0.05"])
def test_no_thread_imports_anything(tmp_path: Path, metrics: str) -> None:
    """Neither the writing thread nor those of the system metrics import a module, a text codec included: a child that
    is forked during an import never gets that module's lock.
    """
    done = program(
        f"""
import glob, sys, threading, time, rlship
main, found = threading.get_ident(), []
def note(event, arguments):
    if event == "import" and threading.get_ident() != main: found.append(arguments[0])
sys.addaudithook(note)
rlship.init(sys.argv[1], "trainer", system_metrics={metrics})
rlship.log({{"a": 1.0, "b\\ud800": 2}}); rlship.record_metric("r", 1.0)
rlship.sample("t", {{"a": "x"}}); rlship.event("e"); rlship.config({{"a": 1}}); rlship.barrier(1)
with rlship.span("s"): pass
wanted = "proc/" if {metrics} else '"facts"'
while not any(wanted in open(path).read() for path in glob.glob(sys.argv[1] + "/rlship/*.jsonl")):
    time.sleep(0.01)
rlship.close()
print(*found)
""",
        tmp_path,
    )
    assert done.stdout.split() == []


def test_a_child_speaks_on_stderr_whoever_held_it_at_the_fork(tmp_path: Path) -> None:
    """A thread that was writing to stderr at the fork took its lock along, which a notice in the child passes by."""
    done = program(
        """
import os, sys, threading, rlship
rlship.init(sys.argv[1], "trainer")
kept = os.dup(2)
read, write = os.pipe()
os.dup2(write, 2)
size = 1 << 20
thread = threading.Thread(target=lambda: print("x" * size, file=sys.stderr))
thread.start()
os.read(read, 1)  # the thread has begun to write, and the pipe is too small for all of it
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    os.dup2(kept, 2)
    rlship.log({"word": "text", "child": 1})
    os._exit(0 if rlship.flush(10) else 1)
status = os.waitpid(pid, 0)[1]
left = size
while left > 0: left -= len(os.read(read, 65536))
thread.join()
os.dup2(kept, 2)
sys.exit(status)
""",
        tmp_path,
    )
    assert "'word' has a value of type str that is no metric" in done.stderr
    assert [record["m"] for record in metrics(parts(tmp_path)["child"])] == [{"child": 1}]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_keep_their_last_lines(tmp_path: Path, method: str) -> None:
    """A child of multiprocessing ends by os._exit, and its lines and close record are in the file all the same."""
    script = tmp_path / "job.py"
    script.write_text(
        MORTAL
        + """
import multiprocessing, sys, rlship
def work(folder, i):
    rlship.init(folder, "trainer")
    rlship.log({f"child{i}": 1}, step=1)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    rlship.init(sys.argv[1], "trainer")
    rlship.log({"parent": 1}, step=1)
    children = [context.Process(target=work, args=(sys.argv[1], i)) for i in range(2)]
    for child in children: child.start()
    for child in children: child.join(); assert child.exitcode == 0
"""
    )
    run = tmp_path / "run"
    subprocess.run([sys.executable, script, run, method], env=CLEAN, check=True, timeout=60)
    found = parts(run)
    assert sorted(found) == ["child0", "child1", "parent"]
    for name in ("child0", "child1"):
        assert found[name][0]["parent"] == found["parent"][0]["id"]
        assert kinds(found[name]) == ["open", "metrics", "close"]


SPAWN = (
    MORTAL
    + """
import os, subprocess, sys, rlship
if len(sys.argv) > 2:
    rlship.init(sys.argv[1], "trainer")
    rlship.log({"child": 1})
else:
    rlship.init(sys.argv[1], "trainer")
    rlship.log({"parent": 1})
    %s
    subprocess.run([sys.executable, __file__, sys.argv[1], "child"], check=True)
"""
)


def spawned(tmp_path: Path, before: str, env: dict[str, str] | None = None) -> bool:
    """Whether a process that a writer starts, after running `before`, becomes its child."""
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN % before)
    subprocess.run([sys.executable, script, tmp_path], env={**CLEAN, **(env or {})}, check=True, timeout=60)
    found = parts(tmp_path)
    assert sorted(found) == ["child", "parent"]
    assert found["child"][0].get("parent") in (None, found["parent"][0]["id"])
    return "parent" in found["child"][0]


def test_a_spawned_process_of_the_same_rank_is_a_child(tmp_path: Path) -> None:
    """A helper process with its parent's rank contributes to it and is not another rank 3."""
    assert spawned(tmp_path, "", {"RANK": "3", "WORLD_SIZE": "8"})


def test_a_spawned_process_through_a_shell_is_a_child(tmp_path: Path) -> None:
    """Processes in between do not matter as long as the parent lives above them."""
    script = tmp_path / "spawn.py"
    script.write_text(
        (SPAWN % "").replace(
            'subprocess.run([sys.executable, __file__, sys.argv[1], "child"], check=True)',
            'subprocess.run(f"true; {sys.executable} {__file__} {sys.argv[1]} child; true", shell=True, check=True)',
        )
    )
    subprocess.run([sys.executable, script, tmp_path], env=CLEAN, check=True, timeout=60)
    found = parts(tmp_path)
    assert found["child"][0]["parent"] == found["parent"][0]["id"]


@pytest.mark.parametrize(
    "before",
    [
        # A launcher that is itself rank 0 by default, or by argument, and starts the ranks.
        'os.environ.update(RANK="0", WORLD_SIZE="2")',
        'os.environ.update(RANK="1", WORLD_SIZE="2")',
        'os.environ.update(TORCHELASTIC_RESTART_COUNT="1")',
        'os.environ.update(RLSHIP_REPLICA="1")',
        # After close() the parent's part is over.
        "rlship.close()",
        'os.environ.pop("RLSHIP_PARENT")',
    ],
)
def test_a_spawned_process_with_another_identity_is_a_writer_in_its_own_right(tmp_path: Path, before: str) -> None:
    """Another rank, world, attempt or replica, or a parent that is done, makes no child."""
    assert not spawned(tmp_path, before)


def test_an_exec_of_itself_is_a_restart(tmp_path: Path) -> None:
    """A process that replaces itself keeps pid and environment, and is no child of its former self."""
    program(
        """
import os, sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({"first": 1})
rlship.flush()
source = "import sys, rlship; rlship.init(sys.argv[1], 'trainer'); rlship.log({'second': 1})"
os.execv(sys.executable, [sys.executable, "-c", source, sys.argv[1]])
""",
        tmp_path,
    )
    found = parts(tmp_path)
    assert found["first"][0]["pid"] == found["second"][0]["pid"]
    assert "parent" not in found["second"][0]


def test_a_process_that_outlives_its_parent_is_no_child(tmp_path: Path) -> None:
    """A job resubmitted from within a job inherits the variable, but the writer it names is dead or not above it."""
    child = "import sys, rlship; rlship.init(sys.argv[1], 'trainer'); rlship.log({'second': 1})"
    program(
        f"""
import os, sys, time, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({{"first": 1}})
rlship.flush()
parent = os.getpid()
if os.fork() == 0:
    os.setsid()
    while os.getppid() == parent:  # its descriptors are closed a moment before it has ended
        time.sleep(0.01)
    os.execv(sys.executable, [sys.executable, "-c", {child!r}, sys.argv[1]])
""",
        tmp_path,
    )
    wait_until(
        lambda: len(list((tmp_path / "rlship").iterdir())) == 2 and "second" in parts_if_whole(tmp_path),
        "both files are whole",
    )
    assert "parent" not in parts(tmp_path)["second"][0]


def parts_if_whole(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """`parts`, or nothing while a file is just being written."""
    closed = all(b'"kind":"close"' in path.read_bytes() for path in (folder / "rlship").iterdir())
    return parts(folder) if closed else {}


def test_sigkill_loses_at_most_the_flush_interval(tmp_path: Path) -> None:
    """After kill -9 the file ends with a whole line that is less than a second old (0.5 s and what the machine is slow
    by).
    """
    source = """
import sys, time, rlship
rlship.init(sys.argv[1], "trainer")
i = 0
while True:
    rlship.log({"i": i}, step=i)
    sys.stdout.write(f"{i} {time.monotonic()}\\n"); sys.stdout.flush()
    i += 1
    time.sleep(0.002)
"""
    with subprocess.Popen(
        [sys.executable, "-c", MORTAL + source, tmp_path], env=CLEAN, stdout=subprocess.PIPE, text=True
    ) as job:
        try:
            soon(tmp_path, lambda found: len(found) > 10)
            time.sleep(0.7)
        finally:
            job.send_signal(signal.SIGKILL)
        assert job.stdout is not None
        said = [line.split() for line in job.stdout.read().splitlines() if line.count(" ") == 1]
    (path,) = files(tmp_path)
    kept = metrics([json.loads(line) for line in whole(path)])
    assert [record["step"] for record in kept] == list(range(len(kept)))
    times = {int(i): float(t) for i, t in said}
    assert times[max(times)] - times[len(kept) - 1] < 1.5


def test_a_real_limit_of_the_disk_is_survived(tmp_path: Path) -> None:
    """Where the kernel itself cuts a write short and refuses the next, the file is whole once there is room again."""
    program(
        """
import resource, sys, time, rlship
logger = rlship.init(sys.argv[1], "trainer")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
for i in range(300):
    rlship.log({"i": i, "pad": i / 7}, step=i)
assert not rlship.flush(0.5)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert rlship.flush(20)
assert logger.dropped_lines == 0
""",
        tmp_path,
    )
    (path,) = files(tmp_path)
    found = [json.loads(line) for line in whole(path)]
    assert [record["m"]["i"] for record in metrics(found)] == list(range(300))
    assert "gap" not in kinds(found)


def test_a_terminated_process_keeps_what_was_flushed(tmp_path: Path) -> None:
    """SIGTERM without a handler ends Python at once; lines older than the flush interval are in the file."""
    source = """
import os, signal, sys, time, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({"old": 1})
time.sleep(1.2)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
"""
    program(source, tmp_path, code=-signal.SIGTERM)
    (path,) = files(tmp_path)
    assert kinds([json.loads(line) for line in whole(path)]) == ["open", "metrics"]


def test_ray_like_process_trees_do_not_deadlock_at_exit(tmp_path: Path) -> None:
    """A child that forks again inside a pool of workers ends in time, each with a whole file."""
    script = tmp_path / "job.py"
    script.write_text(
        MORTAL
        + """
import sys, concurrent.futures, rlship
def work(i):
    rlship.log({f"w{i}": i}, step=i)
    return i
if __name__ == "__main__":
    rlship.init(sys.argv[1], "trainer")
    import multiprocessing
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(work, range(12))) == list(range(12))
"""
    )
    run = tmp_path / "run"
    subprocess.run([sys.executable, script, run], env=CLEAN, check=True, timeout=60)
    steps = []
    for path in files(run):
        own = [json.loads(line) for line in whole(path)]
        assert own[-1]["kind"] == "close"
        steps += [record["step"] for record in metrics(own)]
    assert sorted(steps) == list(range(12))
    assert os.path.isdir(run / "rlship")


def test_a_forked_rank_is_a_writer_of_its_own(tmp_path: Path) -> None:
    """A forked worker that calls init as another rank, by argument or variable, is no child of its parent's rank."""
    program(
        """
import os, sys, rlship
rlship.init(sys.argv[1], "trainer", world=3)
rlship.log({"r0": 1})
for rank in (1, 2):
    pid = os.fork()
    if pid == 0:
        if rank == 1:
            rlship.init(sys.argv[1], "trainer", rank=1)
        else:
            os.environ["RANK"] = "2"
            rlship.init(sys.argv[1], "trainer")
        rlship.log({f"r{rank}": 1})
        os._exit(0 if rlship.close(20) else 1)
    assert os.waitpid(pid, 0)[1] == 0
pid = os.fork()
if pid == 0:
    rlship.init(sys.argv[1], "trainer")
    rlship.log({"child": 1})
    os._exit(0 if rlship.close(20) else 1)
assert os.waitpid(pid, 0)[1] == 0
""",
        tmp_path,
    )
    found = parts(tmp_path)
    who = {name: (own[0]["rank"], own[0]["world"], "parent" in own[0]) for name, own in found.items()}
    assert who == {"r0": (0, 3, False), "r1": (1, 3, False), "r2": (2, 3, False), "child": (0, 3, True)}


@pytest.mark.parametrize("end", ["os._exit(0 if rlship.close(20) else 1)", "sys.exit()"])
@pytest.mark.parametrize("before", ["", "rlship.log({'early': 1}); "])
def test_the_functions_of_a_forked_child_write_for_the_actor_it_asked_for(
    tmp_path: Path, before: str, end: str
) -> None:
    """A forked child that calls init for another actor logs as that one and closes its file. The parent goes on."""
    done = program(
        f"""
import os, sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({{"parent": 1}}, step=1)
pid = os.fork()
if pid == 0:
    {before}rlship.init(sys.argv[1], "loader")
    rlship.log({{"child": 1}})
    with rlship.span("load"):
        pass
    rlship.init(sys.argv[1], "second")
    rlship.log({{"child": 2}})
    {end}
assert os.waitpid(pid, 0)[1] == 0
rlship.log({{"parent": 2}}, step=2)
""",
        tmp_path,
    )
    found = parts(tmp_path)
    loader = found["child"]
    assert (loader[0]["actor"], "parent" in loader[0]) == ("loader", False)
    assert [record["m"] for record in metrics(loader)] == [{"child": 1}, {"child": 2}]
    assert {"span", "close"} <= {*kinds(loader)}
    assert (found["parent"][0]["actor"], kinds(found["parent"])[-1]) == ("trainer", "close")
    assert [record["m"] for record in metrics(found["parent"])] == [{"parent": 1}, {"parent": 2}]
    assert done.stderr.count("still write for 'loader': for 'second' use") == 1


def test_hooks_that_log_at_a_fork_find_no_lock_held(tmp_path: Path) -> None:
    """Other hooks run in the child before ours, while threads of the parent log, and two threads fork at once."""
    program(
        """
import os, sys, threading, rlship
logger = None
def hook():
    if logger is not None:
        logger.log({"forked": 1.0}); logger.record_metric("forked", 1.0)
os.register_at_fork(after_in_child=hook)
logger = rlship.init(sys.argv[1], "trainer")
stop = threading.Event()
def work():
    while not stop.is_set():
        logger.log({"a": 1.0}); logger.record_metric("b", 1.0)
threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for t in threads: t.start()
bad = []
def forks():
    for _ in range(15):
        pid = os.fork()
        if pid == 0: os._exit(0)
        bad.append(os.waitpid(pid, 0)[1])
forking = [threading.Thread(target=forks) for _ in range(2)]
for t in forking: t.start()
for t in forking: t.join()
stop.set()
for t in threads: t.join(20); assert not t.is_alive()
assert bad == [0] * 30, bad
assert rlship.close(20)
""",
        tmp_path,
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_that_ends_its_workers_loses_nothing_done(tmp_path: Path, method: str) -> None:
    """Leaving a Pool's `with` block kills its workers: what they logged a moment before is in their files."""
    source = tmp_path / "pool.py"
    source.write_text(
        MORTAL
        + """
import multiprocessing, sys, time, rlship
def score(i):
    rlship.log({"reward": float(i)}, step=i)
    return i
def main():
    rlship.init(sys.argv[1], "reward")
    context = multiprocessing.get_context(sys.argv[2])
    with context.Pool(2, initializer=rlship.init, initargs=(sys.argv[1], "reward")) as pool:
        pool.map(score, range(50))
        time.sleep(0.2)
if __name__ == "__main__":
    main()
"""
    )
    subprocess.run([sys.executable, source, tmp_path, method], env=CLEAN, check=True, timeout=60)
    found = [json.loads(line) for path in files(tmp_path) for line in path.read_text().splitlines()]
    assert sorted(record["step"] for record in metrics(found)) == list(range(50))


def test_a_descriptor_that_the_job_reused_is_left_open_in_a_child(tmp_path: Path) -> None:
    """A job that closed all descriptors and opened its own keeps them over a fork."""
    program(
        """
import os, sys, rlship
logger = rlship.init(sys.argv[1], "trainer")
rlship.log({"a": 1}); assert rlship.flush()
number = logger.stream._flusher.file._fd
os.close(number)
own = os.open(sys.argv[1] + "/own.txt", os.O_CREAT | os.O_WRONLY)
os.dup2(own, number)
pid = os.fork()
if pid == 0:
    os.write(number, b"still here")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
        tmp_path,
    )
    assert (tmp_path / "own.txt").read_text() == "still here"


def test_a_fork_while_another_thread_is_in_init_is_safe(tmp_path: Path) -> None:
    """The child can call init itself, also where it was the first one that the fork fell into."""
    program(
        """
import os, sys, threading, rlship
inside, leave = threading.Event(), threading.Event()
class Slow:
    def __fspath__(self):
        inside.set(); leave.wait(20)
        return sys.argv[1]
thread = threading.Thread(target=rlship.init, args=(Slow(), "trainer"))
thread.start()
assert inside.wait(20)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    rlship.init(sys.argv[1], "reward").log({"child": 1})
    os._exit(0 if rlship.close(10) else 1)
assert os.waitpid(pid, 0)[1] == 0
leave.set()
thread.join()
rlship.log({"parent": 1})
""",
        tmp_path,
    )
    assert {name: own[0]["actor"] for name, own in parts(tmp_path).items()} == {"child": "reward", "parent": "trainer"}
