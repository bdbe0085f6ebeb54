"""Which experiments and files are found, and which are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlship_sidecar.tail.discover import experiments
from rlship_sidecar.tail.listing import list_writers
from tests.pipeline.simulated import simulation
from tests.reference.building import file, log


def experiment(path: Path) -> Path:
    (path / "rlship").mkdir(parents=True)
    return path


def test_an_experiment_is_a_folder_with_a_writers_folder(tmp_path: Path) -> None:
    """The folder itself counts alone if it is one, whatever lies below it."""
    experiment(tmp_path)
    experiment(tmp_path / "inner")
    assert experiments(tmp_path) == [tmp_path]


def test_a_folder_of_experiments_gives_them_sorted(tmp_path: Path) -> None:
    """Direct subfolders that are experiments count; files, links, deeper ones and folders without `rlship/` do not."""
    found = [experiment(tmp_path / name) for name in ("b", "a", "ä")]
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")
    experiment(tmp_path / "deep" / "er")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "rlship").write_bytes(b"not a folder")
    assert experiments(tmp_path) == sorted(found, key=str)


def test_a_folder_that_is_not_there_raises(tmp_path: Path) -> None:
    """The caller gets the OSError, to tell the person what to do."""
    with pytest.raises(FileNotFoundError):
        experiments(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        list_writers(str(tmp_path / "nowhere"))


def test_only_writers_files_are_listed(tmp_path: Path) -> None:
    """Hidden files and other endings are passed over; what only looks like a file is reported; inodes are the
    files'.
    """
    for name in ("b.jsonl", "a.jsonl", ".hidden.jsonl", "notes.txt", "a.jsonl.tmp"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    assert list_writers(str(tmp_path)) == (
        {name: (tmp_path / name).stat().st_ino for name in ("a.jsonl", "b.jsonl")},
        ["fifo.jsonl", "folder.jsonl", "link.jsonl"],
        (),
    )


def test_a_name_that_is_not_text_is_odd(tmp_path: Path) -> None:
    """A name that is not UTF-8, which no store could hold, is among the odd ones, in a form that can be shown."""
    with open(os.fsencode(tmp_path) + b"/caf\xe9.jsonl", "wb"):
        pass
    assert list_writers(str(tmp_path)) == ({}, ["caf\ufffd.jsonl"], ())


def test_a_name_that_is_not_text_stops_nobody() -> None:
    """Rows of the other files are made although such a file lies beside them."""
    with simulation() as sim:
        with open(os.fsencode(sim.directory) + b"/rlship/caf\xe9.jsonl", "wb") as odd:
            odd.write(file(log(1, loss=1.0), id="odd"))
        sim.write("a.jsonl", file(log(1, loss=2.0)))
        sim.finish()
        assert [row.values for row in sim.rows()] == [{"trainer/loss": 2.0}]
        assert list(sim.experiment.intake.oddities) == ["caf\ufffd.jsonl"]


def test_a_python_package_is_no_experiment(tmp_path: Path) -> None:
    """A checkout with a package called rlship is not taken for an experiment; the experiments below it are found."""
    (tmp_path / "rlship").mkdir()
    (tmp_path / "rlship" / "__init__.py").touch()
    (tmp_path / "demo" / "rlship").mkdir(parents=True)
    assert experiments(tmp_path) == [tmp_path / "demo"]


def test_a_file_that_was_empty_at_first_is_read_as_soon_as_it_is_not() -> None:
    """A writer makes its file before it writes to it: found in between, it is looked at again at once, not as seldom as
    files that no process writes to.
    """
    with simulation() as sim:
        sim.write("a.jsonl", b"")
        for _ in range(3):
            sim.tick()
            sim.wait(0.1)
        sim.write("a.jsonl", file(log(1), log(2)))
        sim.tick()
        assert sim.experiment.sources["a.jsonl"].writer is not None
        assert sim.experiment.intake.lines == 3
