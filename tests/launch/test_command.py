"""`rlship run -- COMMAND`: this process becomes the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlship.hook.environment import SITE
from tests.endtoend.sidecar import RLSHIP, environment

SHOW = "import json, os; print(json.dumps([os.getpid(), dict(os.environ)]))"


def run(
    home: Path, *arguments: str, given: str = "", settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `rlship run` to its end, with `given` as its standard input."""
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [*RLSHIP, "run", *arguments],
        cwd=home,
        env=environment(home, settings or {}),
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_input_output_and_exit_code_are_the_commands(tmp_path: Path) -> None:
    """What the command reads and prints passes as it is; on stderr there is one line of rlship before."""
    code = "import sys; print(sys.stdin.read().upper()); print('bad', file=sys.stderr); sys.exit(7)"
    done = run(tmp_path, "--dir", "x", "--", sys.executable, "-c", code, given="text")
    assert (done.returncode, done.stdout) == (7, "TEXT\n")
    first, second = done.stderr.splitlines()
    assert first == f"rlship: this run is in {tmp_path}/x; to ship it: rlship watch {tmp_path}/x"
    assert second == "bad"


def test_a_run_of_which_nothing_is_recorded_says_so(tmp_path: Path) -> None:
    """With RLSHIP_DISABLE there is nothing to ship."""
    done = run(tmp_path, "--dir", "x", "--", "true", settings={"RLSHIP_DISABLE": "1"})
    assert (done.returncode, done.stderr) == (0, "rlship: RLSHIP_DISABLE is set: nothing of this run is recorded\n")


def test_the_process_is_the_command(tmp_path: Path) -> None:
    """No process is between the caller and the command: the same pid, and the same signals ignored and blocked."""
    program = ["/bin/sh", "-c", "echo $$; grep -E 'SigIgn|SigBlk' /proc/self/status"]
    alone = subprocess.run(program, capture_output=True, text=True, check=True)
    with subprocess.Popen(
        [*RLSHIP, "run", "--dir", "x", *program],
        cwd=tmp_path,
        env=environment(tmp_path / "home", {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        assert started.stdout is not None
        pid, *masks = started.stdout.read().splitlines()
    assert int(pid) == started.pid
    assert masks == alone.stdout.splitlines()[1:]


def test_a_signal_ends_it_as_it_ends_the_command(tmp_path: Path) -> None:
    """The caller sees the signal that ended the command."""
    done = run(tmp_path, "--dir", "x", "sh", "-c", "kill -USR1 $$")
    assert done.returncode == -signal.SIGUSR1


def test_what_the_command_gets(tmp_path: Path) -> None:
    """The folder is absolute, an actor is passed on, and the hook's folder is before what PYTHONPATH had."""
    settings = {"PYTHONPATH": f"{tmp_path}/mine"}
    done = run(tmp_path, "--dir", "x", "--actor", "driver", "--", sys.executable, "-c", SHOW, settings=settings)
    _, found = json.loads(done.stdout)
    assert found["RLSHIP_DIR"] == f"{tmp_path}/x"
    assert found["RLSHIP_ACTOR"] == "driver"
    assert found["PYTHONPATH"] == f"{SITE}{os.pathsep}{tmp_path}/mine"
    assert "RAY_RUNTIME_ENV_HOOK" not in found


def test_a_run_within_a_run_has_the_hook_once(tmp_path: Path) -> None:
    """The inner one's folder counts, and PYTHONPATH does not grow."""
    inner = [*RLSHIP, "run", "--dir", "inner", "--", sys.executable, "-c", SHOW]
    done = run(tmp_path, "--dir", "outer", "--", *inner)
    _, found = json.loads(done.stdout)
    assert found["RLSHIP_DIR"] == f"{tmp_path}/inner"
    assert found["PYTHONPATH"].split(os.pathsep).count(SITE) == 1


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_a_command_that_cannot_run(tmp_path: Path, watch: list[str]) -> None:
    """The exit codes are those of a shell: 127 for a program that is not there, 126 for one that is no program. Nothing
    new is left, whether a look or only the start shows it, and a folder that was there stays.
    """
    (tmp_path / "kept").mkdir()
    (tmp_path / "text").write_text("text")
    (tmp_path / "lost").write_text("#!/no/such/program\n")
    (tmp_path / "lost").chmod(0o755)
    before = sorted(tmp_path.iterdir())
    for folder, command, code, why in (
        (["--dir", "new/x"], "./missing", 127, "No such file or directory"),
        ([], "no-such-command", 127, "No such file or directory"),
        (["--dir", "x"], "./text", 126, "Permission denied"),
        ([], "./lost", 127, "No such file or directory"),
        (["--dir", "kept"], "./lost", 127, "No such file or directory"),
    ):
        done = run(tmp_path, *watch, *folder, "--", command)
        assert done.returncode == code
        assert f"rlship: {command} cannot be run: {why}\n  nothing ran, and no new folder is left; " in done.stderr
        assert sorted(tmp_path.iterdir()) == before


def test_several_nodes_need_a_name(tmp_path: Path) -> None:
    """Without a name the job does not start; with RLSHIP_DIR or --dir it does."""
    (tmp_path / "home").mkdir()
    settings = {"WORLD_SIZE": "2", "RANK": "1"}
    done = run(tmp_path, "touch", "started", settings=settings)
    assert done.returncode == 2 and "--dir outputs/touch" in done.stderr
    assert not (tmp_path / "started").exists()
    done = run(tmp_path, "touch", "started", settings={**settings, "RLSHIP_DIR": "x"})
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "started").exists()


def test_a_default_is_printed_with_the_reason(tmp_path: Path) -> None:
    """The line says what chose the folder."""
    done = run(tmp_path, "true", settings={"SLURM_JOB_ID": "12"})
    assert f"this run is in {tmp_path}/outputs/slurm-12 (by the launcher's job)" in done.stderr
    done = run(tmp_path, "true")
    assert "(a new one; --dir names one, and goes on with it)" in done.stderr


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """A file given as --dir is refused before the job starts."""
    (tmp_path / "x").write_text("")
    done = run(tmp_path, "--dir", "x", "touch", "started")
    assert done.returncode == 2 and "is not a folder" in done.stderr
    assert not (tmp_path / "started").exists()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """`--dir ''`, as from a variable without a value, is not the current folder: nothing starts and nothing is made."""
    done = run(tmp_path / "here", "--dir", "", "--", "touch", "started")
    assert done.returncode == 2
    assert done.stderr == ("rlship: --dir is empty\n  give a path, such as . for the current folder, or leave it out\n")
    assert list((tmp_path / "here").iterdir()) == []
    done = run(tmp_path / "here", "--", "true", settings={"RLSHIP_DIR": ""})
    assert done.returncode == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["outputs"]


@pytest.mark.long
def test_why_names_the_error_that_ends_a_block_of_wandb(tmp_path: Path) -> None:
    """`with wandb.init()` finishes the run before the error ends the process: why has the error all the same."""
    code = "import wandb\nwith wandb.init() as run:\n    run.log({'x': 1})\n    raise RuntimeError('out of memory')"
    settings = {"WANDB_SILENT": "true", "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_ERROR_REPORTING": "false"}
    assert run(tmp_path, "--dir", "x", "--", sys.executable, "-c", code, settings=settings).returncode == 1
    said = ""
    for verb in (["watch", "--once", "--quiet", "--sink", "jsonl"], ["why"]):
        command = [*RLSHIP, *verb, str(tmp_path / "x")]
        env = environment(tmp_path, {})
        said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    assert " ended with RuntimeError: out of memory" in " ".join(said.split())
