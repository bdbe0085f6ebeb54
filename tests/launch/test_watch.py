"""`rlship run --watch`: a sidecar beside the job, which never changes what the job does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlship.hook.environment import SITE
from rlship_sidecar.cli.whereabouts import seen_at
from rlship_sidecar.launch.ended import by_signal
from rlship_sidecar.report.status import read_status
from tests.endtoend.sidecar import RLSHIP, environment
from tests.kit.files import barrier, experiment, file, log
from tests.kit.waiting import wait_until
from tests.launch.watched import JSONL, LOGS, Noted, children, logs, noted_in, sidecar_of, started
from tests.loopback.backend import API_KEY, LoopbackBackend

JOB = (sys.executable, "-c")


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the trainer that the sink jsonl has."""
    file = folder / "rlship" / "state" / "rows.jsonl"
    return [row for row in map(json.loads, file.read_text().splitlines()) if row["actor"] == "trainer"]


def test_the_rows_of_a_short_job_are_delivered(tmp_path: Path) -> None:
    """A job that ends while its sidecar is still starting has all of its rows, its output and its exit code."""
    with started(tmp_path, *JOB, logs("print('out'); sys.exit(9)")) as process:
        out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (9, "out\n")
    assert [row["index"] for row in rows(tmp_path / "run")][:3] == [0, 1, 2]
    assert f"{tmp_path}/run are delivered" in err


def test_a_rank_that_never_logs_holds_nothing_back(tmp_path: Path) -> None:
    """Where only rank 0 of two logs, the rows of a short job name rank 1 as absent, and are there at its end."""
    with started(tmp_path, *JOB, logs(), settings={**JSONL, "RANK": "0", "WORLD_SIZE": "2"}) as process:
        process.communicate(timeout=100)
    assert process.returncode == 0
    found = [row for row in rows(tmp_path / "run") if row["kind"] == "step"]
    assert [(row["index"], row["coverage"]["absent"]) for row in found] == [(step, ["0.1"]) for step in range(3)]


def test_a_killed_job_is_named(tmp_path: Path) -> None:
    """After kill -9 the last lines name the signal, the step at which each actor ended, and what to do next: the
    command that they name says which process ended, at which step. The second sidecar, which
    delivers the rest, does not repeat that there is no W&B key.
    """
    more = "g = rlship.init(actor='generator', name='g'); g.log({'busy_s': 1.0}, step=4); g.flush()"
    wait = "import os, time\nwhile not os.path.exists('advised'): time.sleep(0.05)"
    with started(
        tmp_path, *JOB, logs(f"{more}; {wait}\nos.kill(os.getpid(), 9)"), settings={"RLSHIP_SINKS": "wandb"}
    ) as process:
        assert process.stderr is not None
        advice = next(line for line in process.stderr if "no W&B API key" in line)
        (tmp_path / "advised").touch()
        _, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    assert advice.startswith("rlship: no W&B API key: ") and "no W&B API key" not in err, err
    killed, steps = err.splitlines()[-2:]
    assert killed.startswith("rlship: the job was killed by SIGKILL (signal 9): "), err
    ended = "trainer step 2, generator step 4"
    assert steps == f"rlship: {tmp_path}/run ended at {ended}; to look for the cause: rlship why {tmp_path}/run", err
    asked = [*RLSHIP, *steps.partition("cause: rlship ")[2].split()]
    why = subprocess.run(asked, env=environment(tmp_path, JSONL), capture_output=True, text=True)
    found = [" ".join(line.split()) for line in why.stdout.split("ended without a close: ")[1:]]
    assert re.match(r"generator r0 \(\S+ pid \d+\) at step 4, its process is gone, last line ", found[0]), why
    assert re.match(r"trainer r0 \(\S+ pid \d+\) at step 2, its process is gone, last line ", found[1]), why


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, ""),
        (1, ""),
        (128, ""),
        (255, ""),
        (-11, "the job was ended by SIGSEGV (signal 11)"),
        (-40, "the job was ended by signal 40"),
        (143, "the job ended with exit code 143, as if ended by SIGTERM (signal 15)"),
    ],
)
def test_signals_by_exit_codes(code: int, said: str) -> None:
    """A shell whose command a signal ended says so by its exit code; other codes name no signal."""
    assert by_signal(code) == said


@pytest.mark.long
def test_the_last_step_of_a_killed_job_is_delivered(tmp_path: Path) -> None:
    """After kill -9 the step that has no barrier is in a row, once all that the job wrote is read."""
    code = logs("rlship.log({'loss': 9.0}, step=3); rlship.flush(); import os; os.kill(os.getpid(), 9)")
    with started(tmp_path, *JOB, code) as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    assert [row["index"] for row in rows(tmp_path / "run") if row["kind"] == "step"] == [0, 1, 2, 3], err


def test_the_first_line_is_where_the_run_is(tmp_path: Path) -> None:
    """With W&B reachable: the run's address. After the job's end the server has its rows, and the run is finished."""
    home = tmp_path / "home"
    with LoopbackBackend() as backend:
        settings = {**backend.environment(home), "RLSHIP_SINKS": "wandb"}
        wait = "import time\nwhile not __import__('os').path.exists('seen'): time.sleep(0.05)"
        with started(home, *JOB, logs(wait), settings=settings) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            (home / "seen").touch()
            _, err = process.communicate(timeout=100)
        assert process.returncode == 0
        assert first.startswith(f"rlship: {home}/run: http"), first
        assert "/runs/" in first
        (run,) = backend.runs.values()
        assert run.finished
        assert [line["trainer/loss"] for line in run.rows() if "trainer/loss" in line][:3] == [1, 1 / 2, 1 / 3]
        assert f"rows are at {first.strip().partition('/run: ')[2]}" in err


@pytest.mark.long
def test_an_offline_run_says_how_it_is_uploaded(tmp_path: Path) -> None:
    """Without a key the first line and the last one have the command that uploads the run."""
    with started(tmp_path, *JOB, logs(""), settings={"RLSHIP_SINKS": "wandb"}) as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 0
    ours = [line for line in err.splitlines() if line.startswith("rlship: ")]
    said = [line for line in ours if "the job ended; delivering" not in line]
    command = f"wandb sync {tmp_path}/run/rlship/state/wandb"
    assert said[0] == f"rlship: {tmp_path}/run: W&B, offline; to upload the run: {command}"
    assert said[-1].endswith(f"rows are offline; to upload the run: {command}")


@pytest.mark.long
def test_an_unreachable_server_holds_nothing_up(tmp_path: Path) -> None:
    """Where W&B does not answer, the end comes `drain_s` after that of the job, with the command that delivers."""
    with LoopbackBackend() as backend:
        url = backend.url
    settings = {"RLSHIP_SINKS": "wandb", "WANDB_BASE_URL": url, "WANDB_API_KEY": API_KEY, "RLSHIP_DRAIN_S": "6"}
    ended = tmp_path / "ended"
    after = f"rlship.close(); open({str(ended)!r}, 'w').close(); sys.exit(3)"
    with started(tmp_path, *JOB, logs(after), settings=settings) as process:
        _, err = process.communicate(timeout=100)
    took = time.time() - ended.stat().st_mtime
    assert process.returncode == 3
    assert took < 6 + 3, took  # the interpreter's own end, and a busy machine
    assert f"rlship watch --once {tmp_path}/run" in err, err


def test_a_wrong_setting_is_the_sidecars_matter(tmp_path: Path) -> None:
    """A sidecar that cannot start says why; the job runs to its end, and its lines stay."""
    with started(tmp_path, *JOB, logs(""), settings={"RLSHIP_SINKS": "wandbb"}) as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "wandbb" in err and "rlship watch --once" in err
    assert len([*(tmp_path / "run" / "rlship").glob("trainer-*.jsonl")]) == 1


def test_a_killed_sidecar_is_started_again(tmp_path: Path) -> None:
    """`kill -9` of the sidecar costs nothing: another one goes on, and the job does not notice. Where the run can be
    seen is the first line, and is said once.
    """
    job = Noted(tmp_path)
    experiment(tmp_path / "run", {"a.jsonl": file(log(0, loss=1.0), barrier(0))})
    state = tmp_path / "run" / "rlship" / "state"

    def goes_on(since: float) -> bool:
        status = read_status(state)
        return status is not None and status.t > since and bool(seen_at(status))

    def has_noted(sidecar: int) -> bool:
        # A kill between the line and its note would have it printed again, rather than never.
        return b"place " in Path(f"/proc/{sidecar}/fd/{noted_in(sidecar)}").read_bytes()

    with started(tmp_path, *job.command) as process:
        job.pid()
        assert process.stderr is not None
        assert process.stderr.readline() == f"rlship: {tmp_path}/run: jsonl: {state}/rows.jsonl\n"
        first = sidecar_of(process.pid)
        assert first is not None
        wait_until(lambda: has_noted(first), "the note that the place was printed")
        killed = time.time()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: sidecar_of(process.pid) not in (None, first), "another sidecar")
        wait_until(lambda: goes_on(killed), "the status of that one")
        assert job.end(process) == []
        said = process.stderr.read()
        assert said.startswith("rlship: the sidecar was ended by signal 9; starting it again\n"), said
        assert f"{tmp_path}/run: jsonl:" not in said


@pytest.mark.long
def test_an_agent_logs_the_node(tmp_path: Path) -> None:
    """What the node uses is part of the run."""
    wait = "import time, glob\nwhile not glob.glob('run/rlship/node-*'): time.sleep(0.05)"
    with started(tmp_path, *JOB, logs(wait)) as process:
        process.communicate(timeout=100)
    assert process.returncode == 0


def test_only_the_first_node_watches(tmp_path: Path) -> None:
    """On the other nodes --watch changes nothing: the process is the command, and prints nothing of its own."""
    code = "import os; print(os.getpid())"
    with started(tmp_path, *JOB, code, settings={**JSONL, "SLURM_NODEID": "1"}) as process:
        out, err = process.communicate(timeout=60)
    assert (int(out), err, process.returncode) == (process.pid, "", 0)


def test_sidecar_and_agent_have_no_hook(tmp_path: Path) -> None:
    """Neither has the hook's folder on PYTHONPATH, whatever environment `rlship run` itself was started in."""
    job = Noted(tmp_path)
    settings = {**JSONL, "PYTHONPATH": f"{SITE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "RLSHIP_DIR": "other"}
    with started(tmp_path, *job.command, settings=settings) as process:
        pid = job.pid()
        wait_until(lambda: sidecar_of(process.pid), "a sidecar")
        for child, line in children(process.pid).items():
            if " watch " in line or " sysmon " in line:
                variables = Path(f"/proc/{child}/environ").read_bytes()
                assert (SITE.encode() in variables) is False, line
        assert SITE.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        job.end(process)


def test_a_job_that_logs_nothing_is_named(tmp_path: Path) -> None:
    """The user learns that nothing was caught, and where to read why."""
    with started(tmp_path, "true") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"the job logged nothing into {tmp_path}/run; docs/run.md" in err


def test_output_of_a_pipe_ends_with_the_command(tmp_path: Path) -> None:
    """`rlship run --watch … | cat` ends once job and sidecar have ended: no process keeps the pipe."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m rlship run --dir run --watch echo out | cat"],
        cwd=tmp_path,
        env={**os.environ, **JSONL, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
    )
    assert done.stdout == "out\n"


def test_without_room_for_processes_the_job_runs_alone(tmp_path: Path) -> None:
    """Where no process can be started beside it, the job runs as without --watch."""
    code = (
        "import os, errno, sys; from pathlib import Path; from rlship_sidecar.launch.run import run_watched\n"
        "def fork(): raise OSError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "os.fork = fork\n"
        "command = ['sh', '-c', 'grep SigBlk /proc/self/status; exit 4']\n"
        "run_watched(command, Path('run'), '', os.environ, print, alone=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, env={**os.environ}
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout.split()[-1] == "0" * 16


# A client's run, then another one that ends with a failure.
TWO_RUNS = """
import wandb
for n in range(2):
    run = wandb.init(project="grpo", name=f"trial {n}", config={"lr": n / 2})
    wandb.log({"loss": n + 0.5})
    run.finish(exit_code=n)
"""


@pytest.mark.long
def test_further_runs_are_shipped(tmp_path: Path) -> None:
    """A job that finishes a run of W&B's and begins another one has both at W&B, and each one's place is printed."""
    with LoopbackBackend() as backend:
        settings = {**backend.environment(tmp_path), "RLSHIP_SINKS": "wandb"}
        with started(tmp_path, *JOB, TWO_RUNS, settings=settings) as process:
            _, err = process.communicate(timeout=100)
        runs = {run.display_name: run for run in backend.runs.values()}
    assert process.returncode == 0, err
    assert set(runs) == {"trial 0", "trial 1"}, err
    for n, (name, folder) in enumerate((("trial 0", "run"), ("trial 1", "run-2"))):
        run = runs[name]
        assert [line["loss"] for line in run.rows() if "loss" in line] == [n + 0.5]
        assert (run.config["lr"]["value"], run.finished) == (n / 2, True)
        places = [line for line in err.splitlines() if line.startswith(f"rlship: {tmp_path}/{folder}: http")]
        assert len(places) == 1 and places[0].endswith(f"/runs/{run.name}"), err


def test_each_run_of_a_sweep_is_shipped(tmp_path: Path) -> None:
    """Processes that an agent starts for two runs of a sweep write two experiments, each with the rows of its run."""
    agent = (
        "import os, subprocess, sys\n"
        "for run_id in ('a1', 'b/2'):\n"
        "    env = {**os.environ, 'WANDB_SWEEP_ID': 's', 'WANDB_RUN_ID': run_id}\n"
        f"    subprocess.run([sys.executable, '-c', {LOGS!r}], env=env, check=True)"
    )
    with started(tmp_path, *JOB, agent) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    for name in ("run-sweep-a1", "run-sweep-b_2"):
        assert [row["index"] for row in rows(tmp_path / name)] == [0, 1, 2], err
        assert f"{tmp_path}/{name} are delivered" in err
    assert not (tmp_path / "run" / "rlship").exists()


def test_only_the_jobs_own_further_runs_are_shipped(tmp_path: Path) -> None:
    """A folder of such a name into which nothing was written since the job's start is left alone. A first run that logs
    nothing is not missed.
    """
    old = tmp_path / "run-2" / "rlship"
    old.mkdir(parents=True)
    (old / "a.jsonl").touch()
    os.utime(old / "a.jsonl", (1, 1))
    code = LOGS.replace('init(actor="trainer")', 'init("run-3", actor="trainer")')
    with started(tmp_path, *JOB, code) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [row["index"] for row in rows(tmp_path / "run-3")][:3] == [0, 1, 2], err
    assert f"{tmp_path}/run-3 are delivered" in err
    assert "run-2" not in err and not (old / "state").exists()
    assert "logged nothing" not in err
