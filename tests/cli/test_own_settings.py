"""`rlship.toml` of an experiment counts for that experiment, whether it is watched by itself or with its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlship_sidecar import bounded_toml
from rlship_sidecar.cli.settings import SettingsOf
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.rows import Row
from tests.cli.test_watch import run
from tests.kit.files import CLOSE, file, stream

LINES = [*(stream(float(second), tokens=1) for second in range(20)), CLOSE]


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """A folder of two experiments of 20 s; its own settings ask for windows of 5 s and rows as JSON."""
    outputs = tmp_path / "outputs"
    for name in ("own", "plain"):
        (outputs / name / "rlship").mkdir(parents=True)
        (outputs / name / "rlship" / "g.jsonl").write_bytes(file(*LINES, actor="generator", id=name))
    settle(outputs, 'clock_window_s = 5\nsinks = ["jsonl"]\n')
    return outputs


def settle(folder: Path, settings: str, mode: int = 0o644) -> None:
    (folder / "rlship.toml").write_text(settings)
    (folder / "rlship.toml").chmod(mode)


def windows(rows: Path) -> int:
    """How many windows of time have a row."""
    found = [Row.from_json(line) for line in rows.read_bytes().splitlines()]
    return len({row.unit for row in found if row.unit.kind == "clock"})


def test_the_file_of_an_experiment_counts_for_it(outputs: Path, tmp_path: Path) -> None:
    """The experiment with a file has windows and a sink of its own; the other one has the folder's. A replay of the
    folder makes the same rows.
    """
    settle(outputs / "own", f'clock_window_s = 2\n[sink.jsonl]\npath = "{tmp_path}/own.jsonl"\n')
    done = run(tmp_path, "watch", outputs, "--once")
    assert done.returncode == 0, done.stderr
    assert windows(tmp_path / "own.jsonl") == 10
    assert windows(outputs / "plain" / "rlship" / "state" / "rows.jsonl") == 4

    done = run(tmp_path, "replay", outputs, "--out", tmp_path / "again", "--quiet")
    assert done.returncode == 0, done.stderr
    assert windows(tmp_path / "again" / "own" / "rows.jsonl") == 10
    assert windows(tmp_path / "again" / "plain" / "rows.jsonl") == 4


def test_flags_and_variables_go_before_it(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the folder's own file."""
    settle(outputs / "own", "clock_window_s = 2\n")
    monkeypatch.setattr("tests.cli.test_watch.environment", lambda home: {"RLSHIP_CLOCK_WINDOW_S": "10"})
    assert run(tmp_path, "watch", outputs, "--once").returncode == 0
    assert windows(outputs / "own" / "rlship" / "state" / "rows.jsonl") == 2


def test_a_file_that_was_named_replaces_it(outputs: Path, tmp_path: Path) -> None:
    """With --config, a user who can write in an experiment cannot change its settings."""
    settle(outputs / "own", "clock_window_s = 2\n")
    named = tmp_path / "named.toml"
    named.write_text('sinks = ["jsonl"]\n')
    assert run(tmp_path, "watch", outputs, "--once", "--config", named).returncode == 0
    assert windows(outputs / "own" / "rlship" / "state" / "rows.jsonl") == 2


@pytest.mark.parametrize(
    ("settings", "mode", "problem"),
    [
        ("clock_windows_s = 2\n", 0o644, 'unknown key clock_windows_s = 2. did you mean "clock_window_s"?'),
        ("clock_window_s = \n", 0o644, "rlship.toml: "),
        ('[sink.wandb]\nmode = "offline"\n', 0o664, "says where rows go: sink is not taken from it. Look at what it"),
        ('sinks = ["jsonl"]\n[sink.jsonl]\npaths = "x"\n', 0o644, "option paths"),
    ],
)
def test_a_file_that_cannot_be_used_stops_its_experiment_only(
    outputs: Path, tmp_path: Path, settings: str, mode: int, problem: str
) -> None:
    """The experiment waits, because other settings than its own could send its rows elsewhere; the other one goes on.
    The message names the file, the mistake and the way out.
    """
    settle(outputs / "own", settings, mode)
    done = run(tmp_path, "watch", outputs, "--once")
    assert done.returncode == 1
    assert str(outputs / "own" / "rlship.toml") in done.stderr
    assert problem in done.stderr
    assert not (outputs / "own" / "rlship" / "state" / "rows.jsonl").exists()
    assert windows(outputs / "plain" / "rlship" / "state" / "rows.jsonl") == 4

    settle(outputs / "own", "clock_window_s = 2\n")
    assert run(tmp_path, "watch", outputs, "--once").returncode == 0
    assert windows(outputs / "own" / "rlship" / "state" / "rows.jsonl") == 10


def test_a_strangers_file_may_say_how_rows_are_made(outputs: Path, tmp_path: Path) -> None:
    """What does not direct rows is taken from any file, as it is from the watched folder's."""
    settle(outputs / "own", "clock_window_s = 2\n", 0o666)
    assert run(tmp_path, "watch", outputs, "--once").returncode == 0
    assert windows(outputs / "own" / "rlship" / "state" / "rows.jsonl") == 10


def test_keys_of_the_sidecar_are_named(outputs: Path, tmp_path: Path) -> None:
    """State, probes and the time to drain belong to the sidecar as a whole; the message says where to set them."""
    settle(outputs / "own", f'state_dir = "{tmp_path}/elsewhere"\ndrain_s = 3\nclock_window_s = 2\n')
    done = run(tmp_path, "watch", outputs, "--once")
    assert done.returncode == 0
    assert f"{outputs}/own/rlship.toml: state_dir, drain_s counts only if {outputs}/own is watched by itself." in (
        done.stderr
    )
    assert windows(outputs / "own" / "rlship" / "state" / "rows.jsonl") == 10


def test_the_console_may_not_mix_with_json(outputs: Path, tmp_path: Path) -> None:
    """Rows of the sink console and --json would be one stream; such a file stops its experiment."""
    settle(outputs / "own", 'sinks = ["console"]\n')
    done = run(tmp_path, "watch", outputs, "--once", "--json")
    assert done.returncode == 1
    assert "--json and the sink console both write to standard output" in done.stderr
    assert all(json.loads(line) for line in done.stdout.splitlines())


def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often an experiment is opened, or waits for its file to be mended, the file is parsed once a version."""
    (tmp_path / "own").mkdir()
    parsed: list[bytes] = []
    decode = bounded_toml.decode
    monkeypatch.setattr(bounded_toml, "decode", lambda raw: parsed.append(raw) or decode(raw))  # type: ignore[func-returns-value]
    settings_of = SettingsOf(tmp_path, {}, {}, None, console=True, say=print)
    settle(tmp_path / "own", "clock_window_s = 2\n")
    assert [settings_of(tmp_path / "own").clock_window_s for _ in range(3)] == [2, 2, 2]
    settle(tmp_path / "own", "clock_window_s = \n\n")
    for _ in range(3):
        with pytest.raises(UsageProblem):
            settings_of(tmp_path / "own")
    assert len(parsed) <= 3 and set(parsed) == {b"clock_window_s = 2\n", b"clock_window_s = \n\n"}
    (tmp_path / "own" / "rlship.toml").unlink()
    assert settings_of(tmp_path / "own") == settings_of.folder
