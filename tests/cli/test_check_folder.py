"""`rlship check` of a folder, and what agents say of an experiment that has ended."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from rlship_sidecar.cli import places
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.tail.ending import last_close
from tests.kit.files import CLOSE, barrier, file, log


def make(folder: Path, *records: dict[str, object]) -> Path:
    (folder / "rlship").mkdir(parents=True, exist_ok=True)
    for name in "ab":
        (folder / "rlship" / f"{name}.jsonl").write_bytes(file(log(0, loss=1), barrier(0), *records, id=name))
    return folder


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    """An experiment, or its folder of writers' files."""
    experiment = make(tmp_path / "run", CLOSE)
    for given in (experiment, experiment / "rlship"):
        done = CliRunner().invoke(rlship, ["check", str(given)])
        assert done.exit_code == 0, done.output
        assert "2 files, 8 lines: 0 errors" in done.output


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    """The way out names what to give."""
    done = CliRunner().invoke(rlship, ["check", str(tmp_path)])
    assert done.exit_code == 1
    assert f"{tmp_path} holds no writers' files" in done.output + done.stderr
    assert "rlship check DIR/rlship/*.jsonl" in done.output + done.stderr


def test_an_experiment_is_closed_when_all_its_files_are(tmp_path: Path) -> None:
    """One that still runs, or that no process has written into, is not."""
    experiment = make(tmp_path / "run", CLOSE)
    assert places.is_closed(experiment)
    with (experiment / "rlship" / "a.jsonl").open("ab") as opened:
        opened.write(b'{"step":1,"m":{"loss":"close"}}\n')
    assert not places.is_closed(experiment)
    assert not places.is_closed(tmp_path)


def test_the_last_close_is_what_the_reader_says(tmp_path: Path) -> None:
    """A process that failed has not closed in order, and a file that rolled is no end of its process."""
    file = make(tmp_path / "run", CLOSE) / "rlship" / "a.jsonl"
    for line, failed, rolls in (('"reason":"error"', True, False), ('"reason" : "roll"', False, True)):
        with file.open("ab") as opened:
            opened.write(b'{"t":1763600021.0,"kind":"close",%s}\n' % line.encode())
        close = last_close(file)
        assert close is not None and (close.failed, close.rolls) == (failed, rolls)
    assert last_close(tmp_path / "none.jsonl") is None


def test_an_agent_says_that_it_adds_to_a_finished_experiment(tmp_path: Path) -> None:
    """It logs all the same, as it was asked to."""
    experiment = make(tmp_path / "run", CLOSE)
    done = CliRunner().invoke(rlship, ["scrape", "127.0.0.1:1", "--dir", str(experiment), "--rounds", "1"])
    assert "added to a finished experiment" in done.stderr
