"""`rlship replay`: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.cli.progress import Words
from rlship_sidecar.config import load
from rlship_sidecar.daemon.watched import Watched
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.replay.run import LIVE_PLACES, ReplayProgress
from tests.endtoend.sidecar import environment
from tests.kit.clocks import Clock
from tests.reference.building import CLOSE, barrier, file, log
from tests.replay.replaying import make, rows_in


def run(*args: object) -> Result:
    return CliRunner().invoke(rlship, ["replay", *map(str, args)])


def a_job(folder: Path, steps: int = 3, broken: bytes = b"") -> Path:
    """One rank that closes."""
    records = [record for step in range(steps) for record in (log(step, loss=1.0), barrier(step, step + 1.0))]
    return make(folder, {"r0.jsonl": file(*records, CLOSE, world=1) + broken})


def test_what_it_came_to(tmp_path: Path) -> None:
    """On standard error: what was read, which rows there are, and what each sink has."""
    job = a_job(tmp_path / "job")
    result = run(job, "--sink", "jsonl")
    assert result.exit_code == 0 and result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert first.startswith(f"{job}: 8 lines, 0.0 MB of 1 file in ")
    assert rest == [
        "  trainer: 3 rows of steps 0 to 2",
        f"  sink jsonl: has 3 of 3 rows: {job}/rlship/state/replay-1/rows.jsonl",
    ]
    assert run(job, "--sink", "jsonl", "--quiet").stderr == ""


def test_dry_run(tmp_path: Path) -> None:
    """On standard output: rows by actor and kind, keys, what is missing or dead; exit code 3 for the latter."""
    job = a_job(tmp_path / "job", broken=b"{oops\n")
    result = run(job, "--dry-run")
    assert result.exit_code == 3 and result.stderr == ""
    assert result.stdout.splitlines()[1:] == [
        "  trainer: 3 rows of steps 0 to 2",
        "  keys of trainer: trainer/loss",
        "  1 dead letter",
        f"    dead: not JSON, r0.jsonl byte {(job / 'rlship' / 'r0.jsonl').stat().st_size - 6}: {{oops",
        "  nothing was shipped: this was a dry run",
    ]
    assert os.listdir(job / "rlship") == ["r0.jsonl"]


def test_json(tmp_path: Path) -> None:
    """A line of JSON on standard output for each experiment of a folder, each in a folder of its own under --out."""
    for name in ("a", "b"):
        a_job(tmp_path / "outputs" / name)
    result = run(tmp_path / "outputs", "--json", "--sink", "jsonl", "--out", tmp_path / "out", "--steps", "1:")
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["experiment"], one["rows"]) for one in found] == [
        (str(tmp_path / "outputs" / name), 2) for name in ("a", "b")
    ]
    unit = {"actor": "trainer", "kind": "step", "rows": 2, "first": 1, "last": 2, "lacking": 0}
    assert found[0]["units"] == [unit] and found[0]["sinks"][0]["next_row"] == 2
    assert len(rows_in(tmp_path / "out" / "b")) == 2


@pytest.mark.parametrize("verb", [("replay", "--dry-run"), ("check",)])
def test_json_moves_no_cursor(tmp_path: Path, verb: tuple[str, ...]) -> None:
    """DEL and C1 characters in the names of folders and files are spelled out in JSON, which a terminal may show."""
    job = a_job(tmp_path / "a\x9b31m\x7f", broken=b"{\n")
    given = job if verb[0] == "replay" else job / "rlship" / "r0.jsonl"
    result = CliRunner().invoke(rlship, [*verb, "--json", str(given)])
    assert "\\u009b31m\\u007f" in result.stdout
    assert all(line.isprintable() for line in result.stdout.splitlines())


def test_one_that_cannot_be_replayed_leaves_the_others(tmp_path: Path) -> None:
    """Of a folder of experiments the others are replayed; the exit code tells of it."""
    for name in ("a", "b"):
        a_job(tmp_path / "outputs" / name)
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "mine.txt").touch()
    result = run(tmp_path / "outputs", "--sink", "jsonl", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"rlship: {tmp_path}/outputs/a: {tmp_path}/out/a holds something other than a replay" in result.stderr
    assert len(rows_in(tmp_path / "out" / "b")) == 3


def test_a_refusal(tmp_path: Path) -> None:
    """A sink that holds rows of another store refuses them: exit code 4."""
    job = a_job(tmp_path / "job")
    settings = tmp_path / "mine.toml"
    settings.write_text(f'sinks = ["jsonl"]\n[sink.jsonl]\npath = "{tmp_path}/rows.jsonl"\n')
    assert run(job, "--config", settings).exit_code == 0
    again = run(job, "--config", settings, "--out", tmp_path / "out")
    assert again.exit_code == 4 and "sink jsonl: has 0 of 3 rows" in again.stderr
    quiet = run(job, "--config", settings, "--out", tmp_path / "out", "--quiet")
    assert quiet.exit_code == 4 and "sink jsonl: has 0 of 3 rows" in quiet.stderr


def test_what_was_read_this_time(tmp_path: Path) -> None:
    """A replay that goes on tells the lines and bytes that it read itself, so that its rate is its own."""
    job = a_job(tmp_path / "job")
    settings = tmp_path / "mine.toml"
    settings.write_text(f'sinks = ["jsonl"]\n[sink.jsonl]\npath = "{tmp_path}/rows.jsonl"\n')
    (tmp_path / "rows.jsonl").write_text('{"row":0}\n')
    told = [json.loads(run(job, "--config", settings, "--out", tmp_path / "out", "--json").stdout) for _ in range(2)]
    size = (job / "rlship" / "r0.jsonl").stat().st_size
    assert [(one["bytes"], one["lines"], one["rows"]) for one in told] == [(size, 8, 3), (0, 0, 3)]


def test_a_damaged_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found to be damaged in the middle, the replay's own store is named, and the way out."""
    job = a_job(tmp_path / "job")

    def fails(self: Watched) -> bool:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(Watched, "read_to_the_end", fails)
    result = run(job, "--sink", "jsonl", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert f"the store {tmp_path}/out/store.0.db is damaged: database disk image is malformed" in result.stderr
    assert "start again" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--steps", "3:1"), "--steps '3:1' ends before it begins"),
        (("--json", "--sink", "console"), "--json and the sink console both write to standard output"),
        (("--config", "nothing.toml"), "nothing.toml: cannot be read: No such file or directory"),
        (("--sink", "wandbb"), 'there is no sink "wandbb"'),
    ],
)
def test_wrong_use(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    """What cannot be is said before anything is read: exit code 2."""
    result = run(a_job(tmp_path / "job"), *args)
    assert result.exit_code == 2 and said in result.stderr
    assert os.listdir(tmp_path / "job" / "rlship") == ["r0.jsonl"]


def test_a_place_in_another_experiment(tmp_path: Path) -> None:
    """A replay goes neither into an experiment nor into the folder of another one; the way out is named."""
    job, other = a_job(tmp_path / "outputs" / "job"), a_job(tmp_path / "outputs" / "other")
    for out, said in (
        (other, "other is an experiment"),
        (job, "job is an experiment"),
        (other / "new", f"new is in the experiment {other}, and this is a replay of {job}\n"),
        (other / "rlship" / "state" / "replay-1", "replay-1 is in the experiment"),
    ):
        result = run(job, "--sink", "jsonl", "--out", out)
        assert result.exit_code == 2 and said in result.stderr and "or omit --out" in result.stderr
    file = tmp_path / "worker.py"
    file.touch()
    for out in (file, file / "new"):
        result = run(job, "--sink", "jsonl", "--out", out)
        assert result.exit_code == 2
        assert f"--out {out}: {file} is not a folder\n  give a folder that is empty" in result.stderr
    assert os.listdir(other) == ["rlship"] and os.listdir(other / "rlship") == ["r0.jsonl"]
    for out in (tmp_path / "outputs" / "new", job / "new", tmp_path / "new"):
        assert run(job, "--sink", "jsonl", "--out", out).exit_code == 0


def test_steps_that_are_not_there(tmp_path: Path) -> None:
    """A replay that made no row because of --steps says so, and which steps there are: exit code 1."""
    job = a_job(tmp_path / "job")
    for quiet in ((), ("--quiet",)):
        result = run(job, "--sink", "jsonl", "--steps", "500:", *quiet)
        assert result.exit_code == 1
        assert f"{job} has no row of the steps 500:, only of steps 0 to " in result.stderr
    assert run(job, "--sink", "jsonl", "--steps", "2:").exit_code == 0


def test_settings_of_a_folder_above(tmp_path: Path) -> None:
    """A replay of one experiment names the settings that a watch on the folder above would use, unless the experiment
    sets them itself, or the replay is one of that folder or has a file of its own.
    """
    job = a_job(tmp_path / "outputs" / "job")
    above = tmp_path / "outputs" / "rlship.toml"
    above.write_text('clock_window_s = 5\ndrain_s = 5\n[reductions]\n"trainer/loss" = "max"\n')
    said = f"{above} sets clock_window_s, reductions, which this replay does not use"
    result = run(job, "--dry-run")
    assert result.stderr.count(said) == 1 and f"--config {above}" in result.stderr
    assert said not in run(tmp_path / "outputs", "--dry-run").stderr
    assert said not in run(job, "--dry-run", "--config", above).stderr
    (job / "rlship.toml").write_text("clock_window_s = 7\n")
    assert f"{above} sets reductions, which" in run(job, "--dry-run").stderr
    above.unlink()
    assert "does not use" not in run(job, "--dry-run").stderr


def test_nothing_there(tmp_path: Path) -> None:
    """A folder without an experiment is distinguished from one that is not there."""
    result = run(tmp_path)
    assert result.exit_code == 1 and f"no experiment in {tmp_path}" in result.stderr


def test_settings(tmp_path: Path) -> None:
    """Of the experiment's own file everything counts but the places of the watched rows; of another file all."""
    text = '[sink.wandb]\nrun_id = "live"\nproject = "mine"\n[sink.jsonl]\npath = "rows.jsonl"\n'
    (tmp_path / "rlship.toml").write_text(text)
    assert load(tmp_path, {}, {}, apart=LIVE_PLACES).sink == {"wandb": {"project": "mine"}, "jsonl": {}}
    (tmp_path / "other.toml").write_text(text)
    found = load(tmp_path, {}, {}, file=tmp_path / "other.toml", apart=LIVE_PLACES)
    assert found.sink == {"wandb": {"run_id": "live", "project": "mine"}, "jsonl": {"path": "rows.jsonl"}}
    with pytest.raises(UsageProblem, match="cannot be read"):
        load(tmp_path, {}, {}, file=tmp_path)


def test_words_of_progress() -> None:
    """Rates are of the last seconds; the time left is that of what is left at this rate, of reading, then of the
    slowest sink.
    """
    clock = Clock(0.0)
    words = Words(clock)
    assert words.of(ReplayProgress(0, 8_000_000, 0, 0, {"jsonl": 0})) == "0.0 of 8.0 MB, 0 MB/s, 0 lines/s, 0 rows"
    clock.now = 2.0
    half = ReplayProgress(4_000_000, 8_000_000, 5_000, 70, {"jsonl": 60})
    assert words.of(half) == "4.0 of 8.0 MB, 2 MB/s, 2,500 lines/s, 70 rows, 2 s left"
    assert words.share(half) == 0.5
    clock.now = 4.0
    shipping = ReplayProgress(8_000_000, 8_000_000, 9_000, 1_000_000, {"jsonl": 400, "wandb": 200})
    assert words.of(shipping) == "1,000,000 rows made; so far jsonl has 400, wandb has 200, 5 h 33 min left"
    assert words.share(ReplayProgress(9, 9, 1, 0, {})) == 1.0


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal a bar goes to 100 %; names of experiments cannot move the cursor."""
    job = a_job(tmp_path / "grpo \x1b[2J[red]")
    here, there = pty.openpty()
    env = environment(tmp_path, {"TERM": "xterm", "COLUMNS": "150"})
    command = [sys.executable, "-m", "rlship", "replay", str(job), "--sink", "jsonl"]
    with subprocess.Popen(command, env=env, stderr=there, stdout=subprocess.DEVNULL) as process:
        os.close(there)
        said = b""
        try:
            while piece := os.read(here, 4096):
                said += piece
        except OSError:  # how a terminal ends
            os.close(here)
    assert process.returncode == 0
    assert b"100%" in said and b"[red]" in said and b"\x1b[2J" not in said and b"3 of 3 rows" in said
