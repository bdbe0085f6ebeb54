"""Where foreign files are looked for, and what makes an experiment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlship_formats.foreign.contract import Reader
from rlship_formats.foreign.verl import READER as VERL
from rlship_sidecar.tail import discover
from rlship_sidecar.tail.discover import NegativeCache, experiments
from rlship_sidecar.tail.foreign.places import Places
from rlship_sidecar.tail.foreign.readers import Readers
from tests.foreign.made_up import DOCUMENT, SHARED, reading
from tests.foreign.titan import put
from tests.pipeline.simulated import simulation

LINE = b'{"n":1,"a":2.0}\n'


def found(directory: Path, *places: str) -> tuple[list[str], list[str]]:
    """Names of files, and odd ones."""
    reader = Reader("r", places, lambda path, line: ())
    listed = Places(str(directory), Readers([reader], {}), local=True).look(0.0, force=True)
    return sorted(listed.files), sorted(listed.odd)


def test_patterns_hold_within_one_folder_and_go_no_deeper(tmp_path: Path) -> None:
    """A star is part of one name; hidden files, the writers' folder and deeper folders are not looked into."""
    for name in (
        "a.jsonl",
        ".b.jsonl",
        "logs/c.jsonl",
        "logs/deep/d.jsonl",
        "x-1/e.json",
        "x-2/e.txt",
        "rlship/f.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert found(tmp_path, "*.jsonl", "logs/*.jsonl", "x-*/e.json", "rlship/*.jsonl") == (
        ["./a.jsonl", "logs/c.jsonl", "x-1/e.json"],
        [],
    )


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither a linked file nor a linked folder, which may lead anywhere; they are named, and so are other oddities."""
    outside = tmp_path / "outside"
    put(outside, "a.jsonl", b"")
    experiment = tmp_path / "experiment"
    experiment.mkdir()
    (experiment / "structured_logs").symlink_to(outside / "structured_logs")
    (experiment / "m.jsonl").symlink_to(outside / "structured_logs" / "a.jsonl")
    os.mkfifo(experiment / "f.jsonl")
    (experiment / "a (replaced 1)").touch()
    (experiment / "a#b").touch()
    (experiment / "g.jsonl").mkdir()
    assert found(experiment, "structured_logs/*.jsonl", "*.jsonl", "a*") == (
        [],
        ["a (replaced 1)", "a#b", "f.jsonl", "m.jsonl", "structured_logs"],
    )


def test_names_with_a_number_sign_are_read(tmp_path: Path) -> None:
    """It parts a file's name from that of one of several writers in it, and may stand in the file's own name, too."""
    shared = Reader(SHARED.name, ("logs*/*.shared.jsonl",), SHARED.bind)
    with reading(shared, VERL), simulation() as sim:
        (sim.directory / "logs#2").mkdir()
        (sim.directory / "logs#2" / "a#1.shared.jsonl").write_bytes(LINE)
        for name in ("run #3.jsonl", "run#4.jsonl"):
            (sim.directory / name).write_bytes(b'{"step":1,"data":{"critic/score/mean":0.5}}\n')
        sim.finish()
        names = ["./run #3.jsonl", "./run#4.jsonl", "logs#2/a#1.shared.jsonl#a", "logs#2/a#1.shared.jsonl#b"]
        assert sorted(sim.experiment.sources) == names
        assert {row.unit.actor for row in sim.rows()} >= {"trainer", "a"}
        assert not sim.experiment.intake.oddities
        sim.restart()
        assert sorted(sim.experiment.sources) == names


def test_folders_are_listed_again_when_they_change(tmp_path: Path) -> None:
    """New files and folders are found at the next look; where nothing changed there is no listing for ten seconds."""
    places = Places(str(tmp_path), Readers([SHARED, DOCUMENT], {}), local=True)
    assert places.look(100.0, force=False).files == {}
    (tmp_path / "d1").mkdir()
    (tmp_path / "d1" / "state.json").touch()
    assert list(places.look(101.0, force=False).files) == ["d1/state.json"]
    assert places.folders == [str(tmp_path), str(tmp_path / "d1")]
    assert places.look(104.0, force=False).files == {}
    (tmp_path / "a.shared.jsonl").touch()
    assert list(places.look(105.0, force=False).files) == ["./a.shared.jsonl"]
    (tmp_path / "d1" / "state.json").unlink()
    (tmp_path / "d1").rmdir()
    assert sorted(places.look(120.0, force=False).files) == ["./a.shared.jsonl"]
    assert places.folders == [str(tmp_path)]


def test_what_makes_an_experiment(tmp_path: Path) -> None:
    """A file in a folder that a reader names, or one elsewhere that is recognised; no other file, no empty folder."""
    (tmp_path / "empty" / "logs").mkdir(parents=True)
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "a.shared.jsonl").write_bytes(b"{}\n")
    (tmp_path / "named" / "logs").mkdir(parents=True)
    (tmp_path / "named" / "logs" / "a.shared.jsonl").touch()
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "a.shared.jsonl").write_bytes(LINE)
    (tmp_path / "document" / "d1").mkdir(parents=True)
    (tmp_path / "document" / "d1" / "state.json").write_bytes(LINE + b"end\n")
    with reading(SHARED, DOCUMENT):
        assert [path.name for path in experiments(tmp_path)] == ["document", "known", "named"]
        assert experiments(tmp_path / "known") == [tmp_path / "known"]


def test_folders_that_are_none_are_not_looked_into_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has not changed for long is looked into now and then; one that changes at once."""
    old, young = tmp_path / "old", tmp_path / "young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (1e9, 1e9))
    looked: list[str] = []
    monkeypatch.setattr(discover, "holds_foreign", lambda folder, readers: looked.append(os.path.basename(folder)))
    not_experiments = NegativeCache()
    for _ in range(3):
        experiments(tmp_path, not_experiments)
    name = tmp_path.name
    assert looked == [name, "old", "young", name, "young", name, "young"]
    os.utime(old, (1.1e9, 1.1e9))
    experiments(tmp_path, not_experiments)
    assert looked[-2:] == ["old", "young"]
