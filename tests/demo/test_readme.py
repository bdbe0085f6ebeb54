"""Each command that README.md shows works as printed, on a finished demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import defaultdict
from pathlib import Path

import pytest

from rlship_sidecar.demo import report
from rlship_sidecar.report.status import read_status
from rlship_sidecar.rows import Unit
from tests.demo.test_run import ROWS, processes_naming
from tests.guards.tree import ROOT
from tests.kit.waiting import wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line.partition("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
EXPERIMENT = Path("outputs", "grpo-7b")  # which README.md takes for an example


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder in which the demo of `make demo` has been run, in less time, and what it said."""
    folder = tmp_path_factory.mktemp("readme")
    command = [sys.executable, "-m", "rlship", "demo", "demo", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, **at(folder))  # type: ignore[call-overload]
    assert processes_naming(folder) == []
    return folder, done


@pytest.fixture(scope="module")
def here(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> Path:
    """The folder with a demo and with a job of the reader's that no sidecar has watched."""
    folder, _ = demo
    files = folder / EXPERIMENT / "rlship"
    files.mkdir(parents=True)
    for file in (folder / "demo" / "rlship").glob("*.jsonl"):
        shutil.copy(file, files)
    return folder


def at(folder: Path) -> dict[str, object]:
    """Where and with what environment a command runs: the rlship that is tested, and no account."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "RLSHIP_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    kept |= {"PATH": path, "HOME": str(folder), "WANDB_ERROR_REPORTING": "false"}
    return {"cwd": folder, "env": kept, "timeout": 100, "stdin": subprocess.DEVNULL}


def test_the_demo_learns_and_its_rows_are_whole(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The demo ends with 0: whole rows that equal what the files say, a risen reward, the straggler found, and no word
    of a stop without a request.
    """
    folder, done = demo
    experiment, said = folder / "demo", done.stdout
    assert done.returncode == 0, said + done.stderr
    rows = report.final_rows((experiment / ROWS).read_bytes().splitlines())
    rewards = report.series(rows, "trainer/reward")
    assert list(rewards) == list(range(120))
    assert rewards == pytest.approx(rewards_in_files(experiment))
    assert sum(rewards[step] for step in range(108, 120)) / 12 > 0.7
    assert "straggler: trainer r2, last at the barrier" in said
    learned = [line for line in said.splitlines() if line.startswith("  step ")]
    assert len(learned) == 10 and said.index(learned[-1]) < said.index("The job took")
    kinds = {unit.kind for unit in rows if unit.actor == "verifier"}
    assert {"aligned", "clock"} <= kinds and any(kind.startswith("point") for kind in kinds)
    assert any(row.samples.get("rollouts") for row in rows.values())
    assert "trainer/train_s" in rows[Unit("trainer", "step", 60)].values
    assert f"tensorboard --logdir {experiment / 'rlship' / 'state'}" in said
    assert f"wandb sync {experiment / 'rlship/state/wandb'}  # needs an account" in said
    assert "stopping" not in done.stderr


@pytest.mark.usefixtures("demo")
def test_alerts_know_the_demos_metrics(here: Path) -> None:
    """The rule `divergence` sees the loss, KL, gradient norm and entropy that the demo logs under short names, and the
    demo does not diverge.
    """
    command = [sys.executable, "-m", "rlship", "alerts", "test", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, **at(here))  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    said = dict(re.findall(r"^ +divergence\.(\w+): true in 0, known in (\d+)$", done.stdout, re.MULTILINE))
    assert said == {"kl": "100", "grad": "100", "entropy": "100", "loss_nan": "120", "grad_nan": "120"}, done.stdout


def rewards_in_files(experiment: Path) -> dict[int, float]:
    """The mean over all ranks' rollouts, by step, straight from the trainers' files."""
    values: dict[int, list[float]] = defaultdict(list)
    for path in (experiment / "rlship").glob("trainer-*.jsonl"):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            values[record.get("step")] += record.get("m", {}).get("reward", []) if "kind" not in record else []
    return {step: sum(of_step) / len(of_step) for step, of_step in values.items() if of_step}


@pytest.mark.parametrize(
    "line", [line for line in LINES if line.startswith("rlship ") and line.split()[1] not in ("watch", "view")]
)
@pytest.mark.usefixtures("watched")
def test_a_command_works_as_printed(line: str, here: Path) -> None:
    """It ends with 0 and prints something."""
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, **at(here))  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr


def test_watching_a_folder_works_as_printed(watched: int) -> None:
    """`rlship watch` of README.md ships the rows of an experiment below the folder, and Ctrl-C ends it with 0."""
    assert "rlship watch outputs/" in LINES
    assert watched == 0


def test_the_page_is_served_as_printed(here: Path) -> None:
    """`rlship view` of README.md prints an address with a token, where the page is, and Ctrl-C ends it."""
    assert [line for line in LINES if line.startswith("rlship view demo")]
    options = at(here)
    options.pop("timeout")
    words = ["sh", "-c", "exec rlship view --no-open --port 0 demo"]
    view = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    try:
        address, _, secret = view.stdout.readline().split()[-1].partition("#")
        assert secret
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"<title>" in answer.read()
        view.send_signal(signal.SIGINT)
        assert view.wait(60) == 0
    finally:
        view.kill()
        view.communicate()


@pytest.fixture(scope="module")
def watched(here: Path) -> int:
    """README's `rlship watch outputs/` until all sinks have all rows, and then Ctrl-C; its exit code."""
    options = at(here)
    options.pop("timeout")
    watch = subprocess.Popen(["sh", "-c", "exec rlship watch outputs/"], **options)  # type: ignore[call-overload]
    try:
        wait_until(lambda: delivered(here), "all rows in all sinks")
        watch.send_signal(signal.SIGINT)
        return watch.wait(60)
    finally:
        watch.kill()
        watch.wait()


def delivered(here: Path) -> bool:
    """Whether all sinks have the rows of all 120 steps."""
    status = read_status(here / EXPERIMENT / "rlship" / "state")
    if status is None or not status.sinks:
        return False
    steps = {actor.actor: actor.step for actor in status.actors}
    return steps.get("trainer") == 119 and all(sink.next_row == status.rows for sink in status.sinks)


@pytest.mark.long
def test_the_installations_work_as_printed(tmp_path: Path) -> None:
    """pip builds or finds the package called rlship where each line says, the wheel after the line that makes it.
    `/path/to` stands for where it lies here, and nothing is installed.
    """
    for line in [line for line in LINES if line.startswith("pip ")]:
        words = line.replace("/path/to/rlship", str(ROOT)).replace('"', "").split()[1:]
        words += ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
        if words[0] == "install":
            words += ["--dry-run", "--ignore-installed", "--report", "-"]
        command = [sys.executable, "-m", "pip", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert words[0] == "wheel" or '"name": "rlship"' in done.stdout
    assert len(list((tmp_path / "dist").iterdir())) == 1


def test_nothing_else_is_shown() -> None:
    """Each line of a shell block is tried above, or stands here with what tries it."""
    elsewhere = {
        "make demo",  # tests/guards/test_make.py and test_run.py
        ". .venv/bin/activate",
        "export WANDB_API_KEY=…",
    }
    assert "VENV ?= .venv\n" in (ROOT / "Makefile").read_text()
    assert {line for line in LINES if not line.startswith(("rlship ", "pip "))} == elsewhere


def test_git_ignores_what_the_commands_write() -> None:
    """The files that README's commands write into a checkout are not offered for a commit."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    written = re.findall(r" -o (\S+)", "".join(BLOCKS))
    assert written == ["trace.json.gz"]
    assert {f"/{name}" for name in written} <= set(ignored)
