"""The first process of a container, in a PID namespace of its own where the machine allows that, and as a subreaper."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

NAMESPACES = (["unshare", "-pf", "--mount-proc"], ["unshare", "-rpf", "--mount-proc"])
SUPERVISE = "import sys; from rlship_sidecar.entrypoint import supervise; sys.exit(supervise(sys.argv[1:]))"
# A child that leaves an orphan behind, waits until that ended, and counts the zombies it sees.
ORPHANS = """
(sleep 0.2 & ) ; (sleep 0.3 & )
sleep 1
grep -l '^State:.Z' /proc/[0-9]*/status | wc -l
echo $$
exit 7
"""


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(params=["namespace", "subreaper"])
def first(request: pytest.FixtureRequest) -> list[str]:
    """What to put before a command: as process 1 of a namespace, or as a process that orphans are given to."""
    supervised = [sys.executable, "-c", SUPERVISE]
    if request.param == "subreaper":
        return supervised
    for namespace in NAMESPACES:
        if _works(namespace):
            return [*namespace, "--kill-child", *supervised]
    warnings.warn(
        "this machine gives no PID namespace (unshare of util-linux, and the right to): tried without one", stacklevel=1
    )
    return supervised


def in_namespace(first: list[str]) -> bool:
    return first[0] == "unshare"


def test_it_may_be_started_with_children_ignored() -> None:
    """Who starts it may ignore SIGCHLD, which is inherited: it sees its command's end all the same."""
    ignoring = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); {SUPERVISE}"
    done = subprocess.run([sys.executable, "-c", ignoring, "sh", "-c", "exit 7"], capture_output=True, timeout=20)
    assert done.returncode == 7, done.stderr


def test_orphans_are_reaped(first: list[str]) -> None:
    """Processes whose parents are gone leave no zombies, and the command's exit code is the container's."""
    done = subprocess.run([*first, "sh", "-c", ORPHANS], capture_output=True, text=True, timeout=60)
    zombies, pid = done.stdout.split()
    assert done.returncode == 7, done.stderr
    if in_namespace(first):
        assert int(zombies) == 0
        assert int(pid) < 10  # it is one: the numbers begin anew


def test_a_subreaper_has_no_zombies(tmp_path: Path) -> None:
    """Without a namespace the orphans of its command are its own, and are reaped while the command runs."""
    script = "(sleep 0.2 & ) ; sleep 1; ps -o stat= --ppid $PPID | grep -c Z; exit 0"
    first = [sys.executable, "-c", SUPERVISE]
    done = subprocess.run([*first, "sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_handed_on(first: list[str], number: signal.Signals, tmp_path: Path) -> None:
    """A signal to the first process reaches the command, which decides what comes of it."""
    name, ready = number.name.removeprefix("SIG"), tmp_path / "ready"
    script = f'trap "echo got {name}; exit 9" {name}; : > {ready}; while :; do sleep 0.05; done'
    with subprocess.Popen([*first, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        wait_until(ready.exists)
        _signal_first(process, first, number)
        output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (9, f"got {name}\n")


def test_the_end_by_a_signal_is_told_as_shells_do(first: list[str]) -> None:
    """128 + 15 is a command that SIGTERM ended."""
    done = subprocess.run([*first, "sh", "-c", "kill -TERM $$"], timeout=60)
    assert done.returncode == 128 + signal.SIGTERM


def test_a_command_that_is_not_there(first: list[str]) -> None:
    """It fails and names it."""
    done = subprocess.run([*first, "/nowhere/rlship"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr


def test_the_command_begins_as_any_other(first: list[str]) -> None:
    """No signal is blocked or ignored for it: what Python ignores and what the first process waits for is undone."""
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status"
    done = subprocess.run([*first, "sh", "-c", script], capture_output=True, text=True, timeout=60)
    _, blocked, _, ignored = done.stdout.split()
    undone = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD))
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & undone == 0  # others are as they were at the start of the tests


def test_the_sidecar_under_it(first: list[str], tmp_path: Path) -> None:
    """`rlship watch` as in the image: SIGTERM to the first process ends it in order, with exit code 0."""
    command = [word for word in first if word not in ("-c", SUPERVISE)] + ["-m", "rlship_sidecar.entrypoint", "watch"]
    with subprocess.Popen(
        [*command, str(tmp_path), "--sink", "jsonl"], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stderr is not None
        assert "waiting for a writer" in process.stderr.readline()
        _signal_first(process, first, signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "stopping" in said


def test_what_a_person_has_to_mend_does_not_end_the_container(first: list[str], tmp_path: Path) -> None:
    """A wrong setting: the reason is in the log and in `/readyz`, `/healthz` is well, and once the setting is mended
    `watch` begins by itself. SIGTERM ends the container in order.
    """
    (tmp_path / "job").mkdir()
    settings = tmp_path / "job" / "rlship.toml"
    settings.write_text("no_such_setting = 1\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = "import sys; from rlship_sidecar import entrypoint as e; "
    code += "sys.exit(e.watch_for_good(e.module_command('rlship', *sys.argv[1:]), 0.5))"
    command = [word for word in first if word not in ("-c", SUPERVISE)] + ["-c", code, "watch", "--sink", "jsonl", "."]
    variables = {**os.environ, "RLSHIP_METRICS_PORT": str(port), "RLSHIP_METRICS_ADDRESS": "127.0.0.1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path / "job", env=variables) as process:
        assert process.stderr is not None
        wait_until(lambda: answer(port, "/readyz")[0] == 503)
        wait_until(lambda: "no_such_setting" in answer(port, "/readyz")[1])
        settings.write_text("")
        wait_until(lambda: answer(port, "/readyz")[0] == 200)
        _signal_first(process, first, signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "no_such_setting" in said and "exit code 2; started again" in said and "stopping" in said


@pytest.mark.parametrize("code", [1, 2, 4, 5])
def test_a_container_that_waits_ends_at_once(code: int) -> None:
    """SIGTERM while it waits ends it, with the exit code of the last try."""
    waiting = "import sys; from rlship_sidecar.entrypoint import watch_for_good as go; sys.exit(go(sys.argv[1:]))"
    command = [sys.executable, "-c", waiting, "sh", "-c", f"echo mend me >&2; exit {code}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "mend me\n"
        assert f"exit code {code}; started again in 10 s" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == code


@pytest.mark.parametrize("words", [["watch", "--once"], ["status"], ["watch", "--help"]])
def test_other_verbs_end_the_container(words: list[str], tmp_path: Path) -> None:
    """Their exit code is the container's."""
    command = [sys.executable, "-m", "rlship_sidecar.entrypoint", *words]
    done = subprocess.run([*command, str(tmp_path / "away")], capture_output=True, text=True, timeout=60)
    assert done.returncode == (0 if "--help" in words else 1)


def answer(port: int, path: str) -> tuple[int, str]:
    """The status and the text that a probe gets; 0 while no probe is answered."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def _signal_first(process: subprocess.Popen[str], first: list[str], number: signal.Signals) -> None:
    """Signal the supervising process: with a namespace that is the child of `unshare`."""
    if not in_namespace(first):
        process.send_signal(number)
        return
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    subprocess.run(["kill", f"-{number.value}", children[0]], check=True)
