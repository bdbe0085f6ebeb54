"""The job goes on whatever fails, and what it logged survives its death."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.facade.jobs import PATCHED, barriers, metrics, records, rows_of, run, run_file, said, settings

AGE_S = 0.6


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.long)])
def test_kill_at_any_moment(tmp_path: Path, kills: int) -> None:
    """After SIGKILL at a random moment, every call that returned more than 0.6 s before is in a row: stepped ones at
    their step, those without a step at the next one, rows of tables as samples, the summary in the run's data.
    """
    program = PATCHED + (
        "import os, sys, time\n"
        "for line in sys.stdin:\n"
        "    if os.fork() == 0:\n"
        "        os.environ['RLSHIP_DIR'] = line.strip()\n"
        "        wandb.init(config={'lr': 1})\n"
        "        wandb.define_metric('*', step_metric='s')\n"
        "        n = 0\n"
        "        print('begun', os.getpid(), flush=True)\n"
        "        while True:\n"
        "            wandb.log({'free': n})\n"
        "            wandb.log({'loss': n, 's': n})\n"
        "            wandb.log({'t': wandb.Table(columns=['n'], data=[[n]]), 's': n})\n"
        "            wandb.summary['n'] = n\n"
        "            os.write(1, f'{n} {time.time()}\\n'.encode())\n"
        "            n += 1\n"
        "            time.sleep(0.004)\n"
        "    os.wait()\n"
        "    print('ended', flush=True)\n"
    )
    path = tmp_path / "job.py"
    path.write_text(program)
    env = settings(tmp_path / "home", tmp_path, {})
    with subprocess.Popen(
        [sys.executable, str(path)], env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdin is not None and job.stdout is not None
        for number in range(kills):
            experiment = tmp_path / f"experiment-{number}"
            job.stdin.write(f"{experiment}\n")
            job.stdin.flush()
            child = int(job.stdout.readline().split()[1])
            calls = [job.stdout.readline().split()]
            time.sleep(AGE_S + 0.1 + random.random())
            killed = time.time()
            os.kill(child, signal.SIGKILL)
            while (line := job.stdout.readline()) != "ended\n":
                calls.append(line.split())
            old = [int(n) for n, t in (call for call in calls if len(call) == 2) if float(t) < killed - AGE_S]
            assert old
            check(experiment, max(old))
        job.stdin.close()


def check(experiment: Path, newest: int) -> None:
    """Everything up to step `newest` is there."""
    (found,) = records(experiment)
    assert said(found)["config"] == {"lr": 1}
    assert said(found)["summary"]["n"] >= newest
    rows = rows_of(experiment)
    steps = {unit.index: row for unit, row in rows.items() if unit.kind == "step"}
    aligned = {unit.index: row for unit, row in rows.items() if unit.kind == "aligned"}
    for step in range(newest + 1):
        assert steps[step].values["trainer/loss"] == step
        assert step % 10 or steps[step].samples["t"][0]["row"] == {"n": step}
    # The last step of a killed job ends by its silence alone.
    assert [row.values["trainer/free"] for step, row in sorted(aligned.items()) if step < newest] == [*range(newest)]


def test_a_step_ends_by_itself(tmp_path: Path) -> None:
    """Where nothing is logged for `implicit_s`, the step ends with the time of its last call, while the job goes on."""
    job = run(
        tmp_path,
        """
        import glob, time
        wandb.init()
        wandb.log({"x": 1}, step=4)
        before = time.time()
        def ended():
            return any('"barrier"' in open(path).read() for path in glob.glob("run/rlship/*.jsonl"))
        while not ended():
            assert time.time() < before + 60
            time.sleep(0.01)
        print(time.time() - before)
        wandb.log({"y": 2}, step=4)
        """,
        RLSHIP_IMPLICIT_S="0.3",
    )
    found = job.file()
    assert barriers(found) == [4]
    (barrier,) = [record for record in found if record.get("kind") == "barrier"]
    (first, _) = [record for record in found if "kind" not in record]
    assert abs(barrier["t"] - first["t"]) < 0.01  # a line has milliseconds, the barrier microseconds
    assert job.rows() == {4: {"x": 1.0, "y": 2.0}}
    assert 0.3 <= job.values() < 5


BROKEN = {
    "no init": "del wandb.init",
    "no run class": "wandb.init = lambda *args, **options: object()",
    "no settings": "wandb.Settings = None",
    "no names": "[delattr(wandb, name) for name in ('log', 'config', 'summary', 'save', 'alert', 'login') ]",
    "another config": (
        "real = wandb.init\n"
        "def init(*args, **options):\n"
        "    run = real(*args, **options)\n"
        "    run._config = {}\n"
        "    return run\n"
        "wandb.init = init"
    ),
    "slots": (
        "class Run:\n"
        "    __slots__ = ('id',)\n"
        "    def log(self, data, step=None): pass\n"
        "    def finish(self): pass\n"
        "wandb.init = lambda *args, **options: Run()"
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_client_that_is_broken_or_newer(tmp_path: Path, broken: str) -> None:
    """Where the package lacks what the facade needs, the job runs as without it, and one line says so."""
    path = tmp_path / "job.py"
    path.write_text(
        f"import wandb\n{BROKEN[broken]}\nimport rlship.facade.wandb\nrlship.facade.wandb.patch(wandb)\n"
        "init = getattr(wandb, 'init', None)\n"
        "run = init(mode='offline', settings={'console': 'off'}) if init else None\n"
        "if hasattr(run, 'log'):\n    run.log({'x': 1})\n    run.finish()\n"
        "print('the job ended')\n"
    )
    done = run_file(path, settings(tmp_path / "home", tmp_path / "run", {}))
    assert (done.returncode, done.stdout) == (0, "the job ended\n"), done.stderr
    if broken not in ("no settings", "no names"):
        assert done.stderr.count("cannot be recorded") == 1, done.stderr


def test_a_fault_is_said_once(tmp_path: Path) -> None:
    """An error inside the facade reaches no call of the job, and is said once."""
    job = run(
        tmp_path,
        """
        import rlship.facade.recorder as recorder
        def fail(*args, **options):
            raise RuntimeError("planted")
        run = wandb.init(config={"a": 1})
        recorder.Recorder.log = recorder.Recorder.define = recorder.Recorder.about = recorder.Recorder.tell = fail
        for _ in range(3):
            wandb.log({"x": 1})
            wandb.define_metric("x")
            wandb.config.b = 2
            run.summary["c"] = 3
            run.tags = ("a",)
            wandb.alert("a", "b")
        recorder.Recorder.finish = fail
        wandb.finish(exit_code=1)
        """,
        check=False,
    )
    assert job.code == 0, job.err
    assert job.err.count("planted") == 1


def test_calls_after_the_end_of_the_process(tmp_path: Path) -> None:
    """An object that logs and finishes as the interpreter deletes it, or a late hook of the exit, does no harm and says
    nothing.
    """
    job = run(
        tmp_path,
        """
        import atexit
        def late():
            wandb.log({"x": 2}, step=1)
            wandb.summary["y"] = 1
            wandb.alert("a", "b")
        atexit.register(late)
        class Tracking:
            def __del__(self):
                run.finish(exit_code=0)
        run = wandb.init()
        wandb.log({"x": 1}, step=0)
        wandb.late = Tracking()
        """,
    )
    assert metrics(job.file()) == [(0, {"x": 1})]
    assert job.file()[-1]["kind"] == "close"
    assert job.err.count("rlship: ") == 1


def test_wrong_arguments_raise_as_before(tmp_path: Path) -> None:
    """What the client refuses, it refuses: an unknown argument of `init`, a bad name of a metric."""
    job = run(
        tmp_path,
        """
        import json
        found = []
        for call in (lambda: wandb.init(projekt="x"), lambda: wandb.init(mode="offline").define_metric("a*b"),
                     lambda: wandb.run.define_metric("", step_metric="s")):
            try:
                call()
                found.append("nothing")
            except Exception as error:
                found.append(type(error).__name__)
        print(json.dumps(found))
        """,
    )
    assert job.values() == ["TypeError", "nothing", "nothing"]


def test_what_the_job_returns_to(tmp_path: Path) -> None:
    """Objects whose own code raises, and a full queue of the job's own making, do not reach the job."""
    job = run(
        tmp_path,
        """
        class Bad:
            def __float__(self): raise RuntimeError("mine")
            def __str__(self): raise RuntimeError("mine")
            __repr__ = __str__
        wandb.init()
        wandb.log({"bad": Bad(), "good": 1}, step=0)
        wandb.log({"good": 2}, step="seven")
        wandb.log({"good": 3}, step=2)
        wandb.log({"deep": [[[1]]], "x" * 2000: 1}, step=3)
        """,
    )
    assert [values["good"] for _, values in metrics(job.file()) if "good" in values] == [1, 2, 3]


def test_nothing_without_a_folder(tmp_path: Path) -> None:
    """Without RLSHIP_DIR, and with RLSHIP_DISABLE, the package stays as it is."""
    for more in ({"RLSHIP_DIR": ""}, {"RLSHIP_DISABLE": "1"}):
        job = run(tmp_path, "print(wandb.init is wandb.sdk.init, wandb.init.__module__)", **more)
        assert job.out == "True wandb.sdk.wandb_init\n"
        assert not job.experiment.exists()


def test_no_process_is_started(tmp_path: Path) -> None:
    """The client's own service does not run, and the facade has no thread but that of the writer."""
    job = run(
        tmp_path,
        """
        import json, os, threading
        wandb.init(config={"a": 1})
        wandb.log({"x": 1})
        wandb.run.summary["y"] = 2
        children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        print(json.dumps([children, [one.name for one in threading.enumerate()].count("rlship")]))
        """,
    )
    assert job.values() == [[], 1]


def test_the_cost_of_a_call(tmp_path: Path) -> None:
    """A call of `log` through the facade takes some tens of microseconds."""
    job = run(
        tmp_path,
        """
        import json, time
        wandb.init()
        data = {f"key/{i}": 0.1 * i for i in range(5)}
        times = []
        for step in range(3000):
            begun = time.thread_time()
            wandb.log(data, step=step)
            times.append(time.thread_time() - begun)
        print(json.dumps(sorted(times)[len(times) // 2]))
        """,
    )
    assert json.loads(job.out) < 0.001
