"""What is said when DIR cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.cli.places import require
from rlship_sidecar.errors import NothingToWatch


def hint(directory: Path, *, waits: bool = False) -> str:
    with pytest.raises(NothingToWatch) as caught:
        require(directory, waits=waits)
    assert str(directory) in caught.value.message
    return caught.value.hint


def test_a_folder_is_fine(tmp_path: Path) -> None:
    """A folder that can be read is accepted, empty or not."""
    require(tmp_path)
    (tmp_path / "rlship").mkdir()
    require(tmp_path)


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    """A path that is not UTF-8 is refused in words that a terminal can show, wherever in it that is."""
    folder = tmp_path / os.fsdecode(b"odd\xff\x1b[2J") / "job"
    folder.mkdir(parents=True)
    with pytest.raises(NothingToWatch) as caught:
        require(folder)
    assert caught.value.message.isprintable() and "odd\\udcff\\x1b[2J/job is not UTF-8" in caught.value.message


def test_a_missing_folder_gets_the_nearest_name(tmp_path: Path) -> None:
    """A misspelt folder is answered with the one that was probably meant, at whatever level the slip is."""
    (tmp_path / "outputs" / "grpo-7b").mkdir(parents=True)
    assert hint(tmp_path / "outputs" / "grpo-7") == f"did you mean {tmp_path}/outputs/grpo-7b?"
    assert hint(tmp_path / "output" / "grpo-7b") == f"did you mean {tmp_path}/outputs?"
    new = tmp_path / "outputs" / "grpo-7"
    assert hint(new, waits=True) == (
        f"did you mean {new}b? Otherwise create it if the job is still to start: mkdir -p {new}"
    )


def test_a_missing_folder_like_no_other(tmp_path: Path) -> None:
    """Where nothing is near, the hint says where the path ends; and how to make the folder to a command that waits."""
    for missing in ("zz", "zz/a"):
        assert hint(tmp_path / missing) == (f"give the folder that the job logs into; the path exists up to {tmp_path}")
    assert hint(tmp_path / "zz", waits=True) == f"create it if the job is still to start: mkdir -p {tmp_path / 'zz'}"
    deep = tmp_path / "zz" / "a" / "b c"
    ends = f"{tmp_path / 'zz'} does not exist; {tmp_path} does"
    assert hint(deep, waits=True) == f"{ends}: create it if the job is still to start: mkdir -p '{deep}'"


def test_a_file_is_answered_with_its_experiment(tmp_path: Path) -> None:
    """Giving a writer's file names the experiment it belongs to."""
    (tmp_path / "rlship").mkdir()
    file = tmp_path / "rlship" / "trainer.jsonl"
    file.touch()
    assert hint(file) == f"give the experiment's folder: {tmp_path}"


def test_the_writers_folder_is_answered_with_its_parent(tmp_path: Path) -> None:
    """Giving the folder of the writers' files names its parent."""
    folder = tmp_path / "rlship"
    folder.mkdir()
    (folder / "trainer.jsonl").touch()
    assert hint(folder) == f"give its parent: {tmp_path}"


@pytest.mark.parametrize("verb", ["watch", "status", "replay", "export", "query", "doctor", "alerts", "why", "sysmon"])
def test_an_empty_folder_is_not_the_current_one(verb: str) -> None:
    """As from a variable without a value: the verb ends with usage and does nothing."""
    words = ["SELECT 1", ""] if verb == "query" else [""]
    done = CliRunner().invoke(rlship, [verb, *words])
    assert (done.exit_code, done.stderr.splitlines()[0]) == (2, "rlship: DIR is empty"), done.output
