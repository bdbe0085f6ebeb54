"""What becomes of files that no reader knows, and of readers that fail."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlship_formats.foreign import registry
from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.native import Native, ReaderFailed, bind
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Unit
from rlship_sidecar.sinks.observing import Observer
from tests.foreign.made_up import DOCUMENT, SHARED, reading
from tests.foreign.titan import put, scalar
from tests.pipeline.simulated import Simulation, simulation

LINE = b'{"n":1,"a":2.0}\n'


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as made:
        yield made


def one(line: Callable[[bytes], Sequence[Record]], **opened: Any) -> Reader:
    """A reader of `*.odd.jsonl` with one writer."""
    return Reader("odd", ("*.odd.jsonl",), lambda path, raw: (Translation({"actor": "o"} | opened, line),))


def fails(raw: bytes) -> list[Record]:
    raise ZeroDivisionError("of all things")


def _raises(*given: object) -> list[Any]:
    raise IndexError(len(given))


def test_the_installed_readers_are_found_by_their_entry_points() -> None:
    """Ours are all there, and nothing is wrong with them."""
    readers, problems = registry.installed()
    assert {"torchtitan", "trainer_state"} <= {reader.name for reader in readers}
    assert not problems


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is an entry point that is no reader; the others are there."""

    class Point:
        def __init__(self, name: str, value: str, found: object) -> None:
            self.name, self.value, self._found = name, value, found

        def load(self) -> object:
            if isinstance(self._found, Exception):
                raise self._found
            return self._found

    points = [
        Point("a", "pkg:READER", ImportError("no module named pkg")),
        Point("b", "other:X", 3),
        Point("c", "made_up:SHARED", SHARED),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    readers, problems = registry.installed()
    assert readers == [SHARED]
    assert problems["a"] == "cannot be loaded from pkg:READER: ImportError: no module named pkg"
    assert problems["b"].startswith("other:X is no ")


@pytest.mark.parametrize("where", ["line", "bind", "open", "lines", "many"])
def test_a_reader_that_fails_leaves_its_files_alone(sim: Simulation, where: str) -> None:
    """Whatever it raises, it is named, its files are not read on, and the others are."""
    bad = {
        "line": one(fails),
        "bind": Reader("odd", ("*.odd.jsonl",), _raises),
        "open": one(lambda raw: [], rank="text"),
        "lines": Reader("odd", ("*.odd.jsonl",), SHARED.bind, _raises),
        "many": Reader("odd", ("*.odd.jsonl",), lambda path, raw: (Translation({"actor": "o"}, fails),) * 2),
    }[where]
    with reading(bad, SHARED):
        sim.restart()
        (sim.directory / "x.odd.jsonl").write_bytes(LINE)
        (sim.directory / "x.shared.jsonl").write_bytes(LINE)
        sim.tick()
        sim.finish()
        assert [row.values for row in sim.rows()] == [{"a/v": 2.0, "a/again": 2.0}]
        assert "odd failed" in sim.experiment.intake.oddities["reader odd"]
        assert not survey(sim.experiment, [], now=sim.now, wall=0.0).complete or where != "line"


def test_a_file_that_nobody_knows_is_named_once_and_left_alone(sim: Simulation) -> None:
    """It is not opened for reading any more; once its lines are known it is read after all."""
    with reading(SHARED):
        sim.restart()
        path = sim.directory / "x.shared.jsonl"
        path.write_bytes(b'{"who":"knows"}\n')
        sim.tick()
        assert not sim.experiment.intake.news()  # it may still be beginning
        sim.wait(11.0)
        sim.tick()
        why = "./x.shared.jsonl: not recognised: no reader knows its first lines; left alone"
        assert sim.experiment.intake.news() == [why]
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).notes == [why]
        with open(path, "ab") as file:
            file.write(LINE)
        sim.tick()
        sim.finish()
        assert not sim.experiment.intake.news()
        assert [row.values for row in sim.rows()] == [{"a/v": 2.0, "a/again": 2.0}]


def test_of_many_unknown_files_the_first_are_named() -> None:
    """A job may keep many files of its own beside its logs: ten are named, and a line says that there are more."""
    with reading(SHARED), simulation() as sim:
        for number in range(12):
            (sim.directory / f"own{number:02}.shared.jsonl").write_bytes(b"{}\n")
        sim.finish()
        *named, more = sim.experiment.intake.news()
        assert len(named) == 10 and all("not recognised" in line for line in named)
        assert more == "more than 10 files that no reader knows; `rlship check FILE` judges each"


def test_what_is_not_recognised_in_64_kib_never_is(sim: Simulation) -> None:
    """A long log of something else is not searched to its end."""
    with reading(SHARED):
        sim.restart()
        (sim.directory / "x.shared.jsonl").write_bytes(b'{"who":"knows"}\n' * 5000 + LINE)
        sim.finish()
        assert not sim.rows()
        assert list(sim.experiment.intake.oddities) == ["./x.shared.jsonl"]


def test_native_and_several_foreign_kinds_in_one_experiment(sim: Simulation) -> None:
    """Each is read by its own, and rows of all come."""
    with reading(SHARED, DOCUMENT, *registry.installed()[0]):
        sim.restart()
        sim.write("w.jsonl", b'{"kind":"open","id":"w","actor":"native"}\n{"step":1,"m":{"x":1}}\n')
        (sim.directory / "x.shared.jsonl").write_bytes(LINE)
        (sim.directory / "d1").mkdir()
        (sim.directory / "d1" / "state.json").write_bytes(b'{"n":1,"b":7}\nend\n')
        put(sim.directory, "t.jsonl", scalar("loss", 4.0, 1, 1))
        sim.finish()
        assert {unit.actor: row.values for unit, row in sim.final().items() if unit.kind == "step"} == {
            "native": {"native/x": 1.0},
            "a": {"a/v": 2.0, "a/again": 2.0},
            "b": {"b/w": 7.0, "b/w/max": 7.0, "b/s_s": 0.5, "b/s_s/max": 0.5},
            "trainer": {"trainer/loss": 4.0},
        }
        found = {writer.file: writer.format for writer in survey(sim.experiment, [], now=0.0, wall=0.0).writers}
        assert found == {
            "w.jsonl": "",
            "./x.shared.jsonl#a": "shared",
            "./x.shared.jsonl#b": "shared",
            "d1/state.json#a": "document",
            "d1/state.json#b": "document",
            "structured_logs/t.jsonl": "torchtitan",
        }


def test_the_form_without_reduction_has_foreign_observations_too(tmp_path: Path) -> None:
    """Each observation comes once, as lines are appended."""
    put(tmp_path, "t.jsonl", scalar("loss", 4.0, 1, 1))
    observer = Observer(tmp_path, {})
    assert b'"loss":4.0' in b"".join(observer.look())
    put(tmp_path, "t.jsonl", scalar("loss", 5.0, 1, 2))
    assert io.BytesIO(b"".join(observer.look())).read().count(b"\n") == 1


def test_the_first_answer_to_the_first_line_has_the_file() -> None:
    """Readers are asked line by line, so that a file that grows is never another reader's."""
    late = Reader("a", ("*",), lambda path, raw: (Translation({"actor": "late"}, fails),) if raw == b"2" else ())
    early = Reader("b", ("*",), lambda path, raw: (Translation({"actor": "early"}, fails),) if raw == b"1" else ())
    for head in (b"0\n1\n", b"0\n1\n2\n"):
        found = bind([late, early], "x", head)
        assert found is not None
        assert found.reader is early
    assert bind([late, early], "x", b"0\n2") is None


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"step": 1, "m": {}}, {"step": 2, "m": {}}], "records of several steps"),
        ([{"step": 1, "m": {}}, {"m": {}}], "records of several steps"),
        ([{"kind": "open"}], "a reader may not give this open"),
        ([{"kind": "gap", "n": 1}], "a reader may not give this gap"),
        ([{"kind": "rollback", "step": 1}, {"step": 1, "m": {}}], "a reader may not give this rollback"),
        ([{"m": {}}] * 9, "more records than bytes"),
        ([{"m": {"x": 1 << 70}}], "not JSON"),
        ([{"m": {"x": "\ud800"}}], "not JSON"),
        ([{"m": {"x": "y" * (1 << 20)}}], "line too long"),
    ],
)
def test_what_the_contract_does_not_allow_is_a_dead_letter(records: list[Record], reason: str) -> None:
    """A reader's records are checked where being wrong would count a line twice, or not at all."""
    native = Native(SHARED, Translation({"actor": "o"}, lambda raw: records), "x")
    with pytest.raises(BadRecord) as caught:
        native.lines(b"12345678")
    assert str(caught.value) == reason


def test_an_open_record_that_cannot_be_used_is_the_readers_fault() -> None:
    """Nothing of its file could be told apart without it."""
    with pytest.raises(ReaderFailed):
        Native(SHARED, Translation({"actor": ""}, fails), "x")


DEEP = json.loads("[" * 300 + "]" * 300)


def test_no_first_line_puts_a_reader_out_or_stops_the_sidecar(sim: Simulation) -> None:
    """Whatever stands where the host's name and the process's number are, also half a surrogate pair beside a NaN:
    other files are read on, and so is the rest of this one.
    """
    first = json.loads(scalar("loss", 1.0, 1, 1))
    deep = json.dumps(first | {"rank": 1, "pid": DEEP}).encode() + b"\n"
    half = json.dumps(first | {"rank": 2, "host_name": "\ud800", "value": float("nan")}).encode() + b"\n"
    with reading(*registry.installed()[0]) as readers:
        sim.restart()
        for rank, head in enumerate((b"", deep, half)):
            put(sim.directory, f"{rank}.jsonl", head, scalar("loss", 4.0 + rank, 2, 2, rank=rank))
        sim.finish()
        assert not readers.problems
        assert sim.final()[Unit("trainer", "step", 2)].values == {"trainer/loss": 5.0}
        assert [(name, reason) for name, _, reason, _ in sim.dead()] == [("structured_logs/2.jsonl", "not JSON")]
