"""Signals to `rlship run --watch` are the command's, each once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.endtoend.sidecar import RLSHIP, environment
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.launch.watched import JSONL, Noted, children, started

QUIET_S = 0.5  # for so long a second delivery is waited for


@pytest.mark.parametrize("number", [signal.SIGTERM, *long(signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)])
def test_a_signal_to_the_parent_is_passed_on(tmp_path: Path, number: signal.Signals) -> None:
    """As Kubernetes, `docker stop` and `kill` send it: to the first process alone."""
    job = Noted(tmp_path)
    with started(tmp_path, *job.command) as process:
        job.pid()
        process.send_signal(number)
        job.until(number.name)
        time.sleep(QUIET_S)
        assert job.end(process) == [number.name]


@pytest.mark.long
def test_a_signal_to_the_group_arrives_once(tmp_path: Path) -> None:
    """As `timeout` and shells send it: the command has it already, so it is not passed on."""
    job = Noted(tmp_path)
    with started(tmp_path, *job.command) as process:
        job.pid()
        os.killpg(process.pid, signal.SIGUSR1)
        job.until("SIGUSR1")
        time.sleep(QUIET_S)
        assert job.end(process) == ["SIGUSR1"]


def test_a_signal_to_each_process_arrives_once(tmp_path: Path) -> None:
    """As batch systems send it, to each process of the step one by one, in either order."""
    job = Noted(tmp_path)
    with started(tmp_path, *job.command) as process:
        job.pid()
        for order in (1, -1):
            for pid in sorted([process.pid, *_group(process.pid)])[::order]:
                os.kill(pid, signal.SIGTERM)
            time.sleep(QUIET_S)
        assert job.end(process) == ["SIGTERM", "SIGTERM"]


def _group(pid: int) -> list[int]:
    return [child for child in children(pid) if os.getpgid(child) == pid]


def test_a_ctrl_c_at_the_terminal_arrives_once(tmp_path: Path) -> None:
    """The kernel sends it to the terminal's group, which the command is in. The sidecar is not, and goes on."""
    job = Noted(tmp_path)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [*RLSHIP, "run", "--dir", "run", "--watch", *job.command]
        os.execvpe(command[0], command, environment(tmp_path, JSONL))
    try:
        job.pid()
        os.write(terminal, b"\x03")
        job.until("SIGINT")
        time.sleep(QUIET_S)
        os.kill(job.pid(), signal.SIGUSR2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        assert job.lines()[1:-1] == ["SIGINT"]
    finally:
        os.close(terminal)


def test_the_parent_ends_by_the_commands_signal(tmp_path: Path) -> None:
    """Where a signal ends the command, the caller sees it as if there were no parent."""
    with started(tmp_path, "sh", "-c", "kill -TERM $$") as process:
        assert process.wait(60) == -signal.SIGTERM
    with started(tmp_path, "sh", "-c", "kill -KILL $$") as process:
        assert process.wait(60) == -signal.SIGKILL


def test_the_command_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """`kill -9` of the process that the user started ends the job, and the sidecar after its delivery."""
    job = Noted(tmp_path)
    with started(tmp_path, *job.command) as process:
        pid = job.pid()
        wait_until(lambda: len(children(process.pid)) == 4, "command, witness, sidecar and agent")
        below = [*children(process.pid)]
        process.kill()
        process.wait()
        wait_until(lambda: not any(_lives(one) for one in below), lambda: str([one for one in below if _lives(one)]))
        assert pid in below


def _lives(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_the_commands_own_state_is_that_of_the_caller(tmp_path: Path) -> None:
    """The command has no blocked and no ignored signals but those of the caller, and none of the parent's files."""
    (tmp_path / "home").mkdir()
    script = "grep -E 'SigIgn|SigBlk' /proc/self/status; ls /proc/self/fd | wc -l"
    plain = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    with started(tmp_path, "sh", "-c", script) as process:
        out, _ = process.communicate(timeout=60)
    assert out == plain.stdout
    assert sys.executable
