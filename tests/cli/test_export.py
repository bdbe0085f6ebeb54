"""`rlship export`."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from tests.trace.files import T, opened, span, write
from tests.trace.rules import Trace


def run(*args: object) -> Result:
    return CliRunner().invoke(rlship, ["export", "--chrome-trace", *map(str, args)])


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Two writers with a span, a barrier and a metric each."""
    folder = tmp_path / "grpo"
    for rank in range(2):
        metrics = {"t": T + 1.5, "step": 0, "m": {"loss": 1.0}}
        barrier = {"kind": "barrier", "step": 0, "t": T + 2}
        write(folder, f"r{rank}", opened(rank=rank), span("fwd", rank, 1, 0), metrics, barrier)
    return folder


def test_standard_output(experiment: Path) -> None:
    """Without -o the trace is on standard output, and what is said about it on standard error."""
    result = run(experiment)
    assert result.exit_code == 0
    assert len(Trace(result.stdout).spans()) == 2
    assert result.stderr == (
        "standard output: 2 spans, 0 events, 2 barriers of 2 writers; open it in https://ui.perfetto.dev or "
        "chrome://tracing\n"
    )
    assert run(experiment, "-o", "-").stdout == result.stdout


def test_files(experiment: Path, tmp_path: Path) -> None:
    """-o writes a file, which takes the place of an older one only when it is whole; standard output is empty."""
    target = tmp_path / "trace.json"
    target.write_text("old")
    result = run("-o", target, experiment)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith(f"{target}: 2 spans")
    assert len(Trace(target.read_bytes()).spans()) == 2
    assert sorted(os.listdir(tmp_path)) == ["grpo", "trace.json"]


def test_compressed_files(experiment: Path, tmp_path: Path) -> None:
    """A name in .gz is compressed, twice to the same bytes."""
    targets = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for target in targets:
        assert run("-o", target, experiment).exit_code == 0
    assert targets[0].read_bytes() == targets[1].read_bytes()
    assert gzip.decompress(targets[0].read_bytes()).decode() == run(experiment).stdout


def test_a_pipe(experiment: Path, tmp_path: Path) -> None:
    """What is no regular file is written to, not replaced."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    taken: list[bytes] = []
    reader = threading.Thread(target=lambda: taken.append(fifo.read_bytes()))
    reader.start()
    result = run("-o", fifo, experiment)
    reader.join(30)
    assert result.exit_code == 0
    assert len(Trace(taken[0]).spans()) == 2


def test_a_link_is_written_through(experiment: Path, tmp_path: Path) -> None:
    """/dev/stdout is a link, to a file where the shell sends it into one: nothing takes the link's place."""
    target, link = tmp_path / "target.json", tmp_path / "stdout"
    target.write_bytes(b"before")
    link.symlink_to(target)
    assert run("-o", link, experiment).exit_code == 0
    assert link.is_symlink()
    assert len(Trace(target.read_bytes()).spans()) == 2


def test_counters_and_steps(experiment: Path) -> None:
    """--counter draws a metric, and a name without values is reported; --step keeps a range."""
    result = run(experiment, "--counter", "loss", "--counter", "trainer/lr")
    assert len(Trace(result.stdout).of("C")) == 2
    assert "no value" not in result.stderr
    assert "no value of los\n  did you mean loss?\n" in run(experiment, "--counter", "los").stderr
    assert "no value of nosuch\n  there are: loss\n" in run(experiment, "--counter", "nosuch").stderr
    write(experiment, "r4", opened("gen"), span("gen", 9, 1, 5))
    assert "no value of loss in these steps\n" in run(experiment, "--counter", "loss", "--step", "5:").stderr
    assert len(Trace(run(experiment, "--step", ":0").stdout).spans()) == 2


def test_steps_that_are_not_there(experiment: Path, tmp_path: Path) -> None:
    """No trace is written of steps that no file has, and those that there are are named."""
    target = tmp_path / "trace.json"
    result = run(experiment, "--step", "1:", "-o", target)
    assert (result.exit_code, result.stdout, target.exists()) == (1, "", False)
    assert "the files hold none of these steps: they have the steps 0 to 0\n" in result.stderr


def test_clocks(experiment: Path) -> None:
    """Corrected hosts are reported; --no-align-clocks leaves times as they are."""
    write(experiment, "r2", opened(rank=2), {"kind": "clock", "t": T, "offset": 3.0, "err": 0.01}, span("fwd", 3, 1, 0))
    aligned, plain = run(experiment), run("--no-align-clocks", experiment)
    assert "times are corrected on 1 host by what the clocks were off\n" in aligned.stderr
    assert "corrected" not in plain.stderr
    assert [Trace(result.stdout).spans()[2]["ts"] for result in (aligned, plain)] == [
        1763600000000000,
        1763600003000000,
    ]


def test_lines_that_cannot_be_used_give_exit_code_3(experiment: Path) -> None:
    """The trace is written, what could not be used is reported by file and reason, and the exit code is 3."""
    with (experiment / "rlship" / "r0.jsonl").open("a") as file:
        file.write('rubbish\n{"kind":"span","name":"x"}\n')
    result = run(experiment)
    assert result.exit_code == 3
    assert len(Trace(result.stdout).spans()) == 2
    assert "\nr0.jsonl: 2 could not be used: not JSON (1), bad span (1)\n" in result.stderr


def test_what_to_write_has_to_be_said(experiment: Path) -> None:
    """Without --chrome-trace it is a usage error that says what there is."""
    result = CliRunner().invoke(rlship, ["export", str(experiment)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--chrome-trace" in result.stderr


def test_a_bad_range_is_a_usage_error(experiment: Path) -> None:
    """A --step that is no range is named with an example."""
    result = run(experiment, "--step", "9:3")
    assert result.exit_code == 2
    assert "'9:3' ends before it begins" in result.stderr


def test_one_experiment_at_a_time(experiment: Path) -> None:
    """A folder with one experiment in it will do, one with several is refused, an empty one too."""
    folder = experiment.parent
    assert run(folder).exit_code == 0
    write(folder / "other", "r0", opened())
    result = run(folder)
    assert result.exit_code == 2
    assert f"name it, such as {folder}/grpo" in result.stderr
    (folder / "empty").mkdir()
    assert run(folder / "empty").exit_code == 1
    assert "did you mean" in run(folder / "grp").stderr


def test_a_terminal_is_spared(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the trace is not poured out; the way out is said."""
    runner = CliRunner()
    with runner.isolation():
        kind = type(sys.stdout)
    monkeypatch.setattr(kind, "isatty", lambda stream: True)
    result = runner.invoke(rlship, ["export", "--chrome-trace", str(experiment)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-o trace.json.gz" in result.stderr


def test_a_place_that_cannot_be_written(experiment: Path, tmp_path: Path) -> None:
    """A folder that is not there is named, and nothing is left behind."""
    result = run("-o", tmp_path / "none" / "trace.json", experiment)
    assert result.exit_code == 1
    assert "none/trace.json" in result.stderr
    assert "may you write there" in result.stderr
    assert run("-o", "/dev/full", experiment).exit_code == 1


def test_a_reader_that_leaves(experiment: Path) -> None:
    """When standard output is closed, as behind `| head`, the command ends with exit code 1 and no word."""
    many = [span("x" * 200, n, 0.5) for n in range(3000)]
    write(experiment, "r3", opened(rank=3), *many)
    command = [sys.executable, "-m", "rlship", "export", "--chrome-trace", str(experiment)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        told = process.stderr.read()
        assert process.wait(60) == 1
    assert told == ""
