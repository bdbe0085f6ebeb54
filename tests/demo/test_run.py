"""`rlship demo` end to end: what it refuses, what it shows, what its rows hold, and that nothing is left running."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rlship_sidecar.demo import run
from rlship_sidecar.demo.job import start_process
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.run import MARK, claim, run_demo
from rlship_sidecar.errors import UsageProblem
from tests.kit.cases import long
from tests.kit.waiting import wait_until

ROWS = Path("rlship") / "state" / "rows.jsonl"


@pytest.fixture
def lines() -> list[str]:
    """What the demo said."""
    return []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and W&B settings of this test's own."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def test_an_empty_or_new_folder_becomes_an_experiment(tmp_path: Path, lines: list[str]) -> None:
    """The folder named is used, made if need be, and gets a mark and a configuration that keeps W&B offline."""
    claimed = claim(tmp_path / "deep" / "demo", JobPlan(), lines.append)

    assert claimed == tmp_path / "deep" / "demo"
    assert (claimed / "rlship").is_dir()
    assert json.loads((claimed / MARK).read_text())["plan"]["steps"] == 120
    assert 'mode = "offline"' in (claimed / "rlship.toml").read_text()
    assert lines == []


def test_the_newest_demo_has_the_name(tmp_path: Path, lines: list[str]) -> None:
    """A former demo gets another name, and nothing in it changes: commands that name the folder show the newest one. So
    does one whose sidecar was killed. A folder that a sidecar has, or that a demo has just begun with, is left alone.
    """
    demo = tmp_path / "demo"
    for number in range(3):
        first = claim(demo, JobPlan(seed=number), lines.append)
        assert first == demo
        ended(demo, released=number < 2)
    newest = claim(demo, JobPlan(seed=3), lines.append)
    beside = claim(demo, JobPlan(seed=4), lines.append)

    plans = {path.name: json.loads((path / MARK).read_text())["plan"]["seed"] for path in tmp_path.iterdir()}
    assert plans == {"demo-1": 0, "demo-2": 1, "demo-3": 2, "demo": 3, "demo-4": 4}
    assert (newest, beside) == (demo, tmp_path / "demo-4")
    assert lines == [
        *(f"the former demo in {demo} is now {demo}-{number}" for number in (1, 2, 3)),
        f"{demo} holds another demo, so this one goes to {beside}",
    ]


def ended(demo: Path, *, released: bool) -> None:
    """A sidecar had the demo and is gone: it stopped, or it was killed."""
    code = "import sys; from pathlib import Path; from rlship_sidecar.ownership.lease import acquire\n"
    code += "lease = acquire(Path(sys.argv[1]), 10.0)\n"
    code += "lease.release()" if released else "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code, str(demo / "rlship" / "state")], check=released, timeout=60)


def test_somebody_elses_folder_is_refused(tmp_path: Path, lines: list[str]) -> None:
    """A folder with other things in it is refused with the way out, and stays as it was."""
    (tmp_path / "thesis.tex").write_text("x")

    with pytest.raises(UsageProblem) as refusal:
        run_demo(tmp_path, echo=lines.append)

    assert refusal.value.exit_code == 2
    assert refusal.value.message == f"{tmp_path} is not empty and holds no former demo"
    assert str(tmp_path / "demo") in refusal.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path, lines: list[str]) -> None:
    """A file is not a folder to run in."""
    (tmp_path / "notes").write_text("x")

    with pytest.raises(UsageProblem, match="notes cannot be used"):
        run_demo(tmp_path / "notes", echo=lines.append)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_an_impossible_length_is_refused(tmp_path: Path, lines: list[str], seconds: float) -> None:
    """A length that is negative or not finite is refused before anything is made."""
    with pytest.raises(UsageProblem, match="the demo cannot take"):
        run_demo(tmp_path / "demo", seconds=seconds, echo=lines.append)

    assert not (tmp_path / "demo").exists()


def test_a_sidecar_that_ends_early_ends_the_job(
    tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the sidecar ends while the job runs, the demo ends the job too and says with which code the sidecar ended."""
    monkeypatch.setattr(
        run, "_start_sidecar", lambda experiment: start_process([sys.executable, "-c", "raise SystemExit(4)"])
    )

    with pytest.raises(run.SidecarEndedError, match="ended with exit code 4 while the job was running"):
        run.run_demo(tmp_path / "demo", seconds=600, echo=lines.append)

    assert processes_naming(tmp_path) == []


@contextmanager
def running_demo(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A long demo in a process of its own, all of whose processes are up."""
    code = "import sys; from pathlib import Path; from rlship_sidecar.demo.run import run_demo; "
    code += "sys.exit(run_demo(Path(sys.argv[1]), seconds=600))"
    demo = subprocess.Popen([sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True)
    try:

        def all_up() -> bool:
            assert demo.poll() is None
            # With the first rows the sidecar is up as well.
            return len(list((directory / "rlship").glob("*.jsonl"))) == 8 and (directory / ROWS).is_file()

        wait_until(all_up, "eight files, and rows")
        yield demo
    finally:
        if demo.poll() is None:
            demo.terminate()
            demo.communicate(timeout=60)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("number", [signal.SIGINT, *long(signal.SIGTERM)])
def test_an_interrupt_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    """After Ctrl-C or SIGTERM the demo ends with 130, and so does every process it started."""
    with running_demo(tmp_path / "demo") as demo:
        # Not by the folder that they name: a child of one of them has its command line until it is another program.
        running = [" ".join(process.cmdline()) for process in psutil.Process(demo.pid).children()]
        assert len([command for command in running if "] rlship_sidecar.demo." in command]) == 8
        assert len([command for command in running if "] rlship watch" in command]) == 1
        demo.send_signal(number)
        said, _ = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert "interrupted" in said
    assert processes_naming(tmp_path) == []


@pytest.mark.usefixtures("home")
@pytest.mark.long
def test_a_job_that_fails_is_told(tmp_path: Path) -> None:
    """If a rank is killed the demo ends with 1, names it and the steps without rows, and leaves nothing running."""
    with running_demo(tmp_path / "demo") as demo:
        rank = next(
            process
            for process in psutil.Process(demo.pid).children()
            if "rlship_sidecar.demo.trainer" in process.cmdline() and process.cmdline()[-3] == "1"
        )
        rank.kill()
        said, _ = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert "trainer-1 ended by signal 9" in said
    assert "trainer: no row for" in said
    assert processes_naming(tmp_path) == []


def processes_naming(directory: Path) -> list[str]:
    """The command lines of living processes that name a folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(directory) in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(command)
    return found
