"""The configuration that a job declares: its labels and its events named `config`, at each sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

import rlship
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import declared as declared_module
from rlship_sidecar.sinks.contract import Config, Sink
from rlship_sidecar.sinks.declared import EVERY_S, DeclaredConfig
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.sinks.ship import Clocks, Shipper
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from tests.kit.files import T0, event, file, log
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.sinks.readback import run_folder, tensorboard_points
from tests.sinks.rows import MemorySource, make_row, make_rows, make_run
from tests.sinks.test_wandb_online import make_sink


def awaited(declared: DeclaredConfig) -> Config:
    found: Config = {}
    wait_until(lambda: found.update(declared.news()) or found)
    return found


def put(experiment: Path, name: str, data: bytes) -> None:
    (experiment / "rlship").mkdir(exist_ok=True)
    (experiment / "rlship" / name).write_bytes(data)


def test_it_is_that_of_the_lowest_rank_of_the_newest_start(tmp_path: Path) -> None:
    """Events over labels, later events over earlier ones; other ranks, children and agents have no say."""
    told = event("config", attrs={"lr": 0.1, "optimizer": {"name": "adam"}})
    put(tmp_path, "old.jsonl", file(event("config", attrs={"lr": 7}), id="o"))
    put(tmp_path, "a.jsonl", file(told, log(1, x=1), id="a", t=T0 + 5, labels={"model": "7b", "lr": "label", "n": 3}))
    put(tmp_path, "b.jsonl", file(event("config", attrs={"lr": 9}), id="b", rank=1, t=T0 + 9))
    put(tmp_path, "c.jsonl", file(event("config", attrs={"lr": 8}), id="c", parent="a", t=T0 + 9))
    put(tmp_path, "d.jsonl", file(id="d", actor="node", labels={"agent": "sysmon"}))
    put(tmp_path, "e.jsonl", file(event("other", attrs={"x": 1}), id="e", actor="reward"))
    put(tmp_path, "f.jsonl", b"no open record\n")
    now = 0.0
    declared = DeclaredConfig(tmp_path, clock=lambda: now)
    assert declared.news() == {"trainer": {"model": "7b", "lr": 0.1, "optimizer": {"name": "adam"}}}
    put(tmp_path, "e.jsonl", file(event("config", attrs={"x": 1}), id="e", actor="reward"))
    assert declared.news() == {}
    now = EVERY_S
    assert declared.news() == {"reward": {"x": 1}}
    now = 2 * EVERY_S
    assert declared.news() == {}


def test_a_file_that_does_not_answer_holds_up_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a look has had its time, `news` returns at once, however long it takes, and no other look begins."""
    answers = threading.Event()
    real = DeclaredConfig.look

    def slow(declared: DeclaredConfig) -> Config:
        answers.wait()
        return real(declared)

    monkeypatch.setattr(DeclaredConfig, "look", slow)
    monkeypatch.setattr(declared_module, "WAIT_S", 0.0)
    put(tmp_path, "a.jsonl", file(id="a", actor="trainer", labels={"x": "1"}))
    now = 0.0
    declared = DeclaredConfig(tmp_path, clock=lambda: now)
    for _ in range(3):
        assert declared.news() == {}
        now += EVERY_S
    assert len([one for one in threading.enumerate() if one.name == "rlship-declared"]) == 1
    answers.set()
    assert awaited(declared) == {"trainer": {"x": 1}}


def test_numbers_and_bools_of_labels_are_numbers_and_bools(tmp_path: Path) -> None:
    """A file has labels as text, because that is the format. What `str` makes of a number or a bool is one again; any
    other text stays: an id with zeros in front, a number that no double holds, and what is no number in JSON.
    """
    kept = {"lr": 3e-05, "scale": 1.0, "layers": 32, "shift": -2, "tied": True, "fused": False, "model": "7b"}
    texts = {"id": "007", "big": str(2**53 + 1), "nan": "nan", "none": "None", "version": "1.10", "empty": ""}
    rlship.init(tmp_path, "trainer", labels=kept | texts)
    rlship.close()
    found = DeclaredConfig(tmp_path).look()["trainer"]
    assert found == kept | texts
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in (kept | texts).items()
    }


def test_labels_that_differ_between_ranks_are_those_of_the_lowest(tmp_path: Path) -> None:
    """The whole of its labels, and nothing of another rank's: a mixture would be the configuration of no process."""
    put(tmp_path, "a.jsonl", file(id="a", rank=1, labels={"host": "n1", "gpu": "1"}))
    put(tmp_path, "b.jsonl", file(id="b", rank=0, labels={"host": "n0"}))
    assert DeclaredConfig(tmp_path).look() == {"trainer": {"host": "n0"}}


def test_no_folder_is_no_configuration(tmp_path: Path) -> None:
    """Nor is a file that cannot be read."""
    assert DeclaredConfig(tmp_path / "nowhere").news() == {}


def test_wandb_has_it_as_the_configuration_of_the_run(tmp_path: Path) -> None:
    """By actor, from the start of the run, beside our own mark; an actor that comes later is added, and a new client
    sets it again.
    """
    rlship.init(tmp_path, "trainer", labels={"model": "7b", "tp": 2, "zero": True})
    rlship.event("config", lr=0.1, layers=[1, 2], optimizer={"name": "adam"})
    rlship.close()
    trainer = {"model": "7b", "tp": 2, "zero": True, "lr": 0.1, "layers": [1, 2], "optimizer": {"name": "adam"}}
    now = 0.0
    source = MemorySource([make_row(0)])
    with LoopbackBackend() as backend:

        def shipper() -> Shipper:
            return Shipper(
                "wandb",
                lambda: make_sink(backend, tmp_path),
                make_run(tmp_path),
                source,
                clocks=Clocks(lambda: time.monotonic() + now),
            )

        first = shipper()
        first.start()
        assert first.drain(30.0), first.status()
        run = backend.run("rlship", "store1")
        wait_until(lambda: "trainer" in run.config)
        assert run.value("trainer") == trainer and run.value("trainer")["zero"] is True
        assert run.value("store_id") == "store1"
        put(tmp_path, "g.jsonl", file(event("config", attrs={"tp": 2}), id="g", actor="generator"))
        now = EVERY_S
        source.append([make_row(1)])
        assert first.drain(30.0), first.status()
        wait_until(lambda: "generator" in run.config)
        assert (run.value("generator"), run.value("trainer")) == ({"tp": 2}, trainer)
        assert first.stop()
        source.append([make_row(2)])
        again = shipper()
        again.start()
        assert again.drain(30.0), again.status()
        assert again.stop()
        assert run.steps() == [0, 1, 2]
        assert (run.value("generator"), run.value("trainer")) == ({"tp": 2}, trainer)
        assert run.value("store_id") == "store1"


def ship(experiment: Path, make: Callable[[], Sink], rows: int) -> None:
    """One life of a sidecar's sink, which gets all rows that it lacks."""
    shipper = Shipper("any", make, make_run(experiment), MemorySource(make_rows(0, rows)))
    shipper.start()
    assert shipper.drain(30.0), shipper.status()
    assert shipper.stop()


def texts_of(experiment: Path, tag: str) -> list[tuple[int, str]]:
    """(step, text) of every text of a tag, as TensorBoard itself reads them."""
    found = EventAccumulator(str(run_folder(experiment / "rlship/state/tensorboard")), size_guidance={"tensors": 0})
    found.Reload()
    assert tag in found.PluginTagToContent("text"), found.Tags()
    return [(one.step, one.tensor_proto.string_val[0].decode()) for one in found.Tensors(tag)]


def test_tensorboard_shows_it_once_as_a_text(tmp_path: Path) -> None:
    """By actor, with the first row; a restart does not repeat it, a change shows it again, and rows stay whole."""
    put(tmp_path, "a.jsonl", file(event("config", attrs={"lr": 0.1, "opt": {"betas": [1, 2], "name": "a|b"}}), id="a"))
    table = "| key | value |\n| --- | --- |\n"
    first = table + "| lr | 0.1 |\n| opt.betas | [1,2] |\n| opt.name | a\\|b |"
    ship(tmp_path, TensorBoardSink, 1)
    ship(tmp_path, TensorBoardSink, 3)
    assert texts_of(tmp_path, "config/trainer") == [(0, first)]
    put(tmp_path, "b.jsonl", file(event("config", attrs={"lr": 0.2}), id="b", t=T0 + 5))
    put(tmp_path, "g.jsonl", file(id="g", actor="generator", labels={"tp": "2"}))
    ship(tmp_path, TensorBoardSink, 5)
    assert texts_of(tmp_path, "config/trainer") == [(0, first), (3, table + "| lr | 0.2 |")]
    assert texts_of(tmp_path, "config/generator") == [(3, table + "| tp | 2 |")]
    points = tensorboard_points(tmp_path / "rlship/state/tensorboard", "aa_headline/trainer/loss")
    assert points == [(step, float(step)) for step in range(5)]


def test_tensorboard_shows_it_again_if_the_row_that_brought_it_is_lost(tmp_path: Path) -> None:
    """The rows are written again from the store, and the text with them."""
    put(tmp_path, "a.jsonl", file(event("config", attrs={"lr": 0.1}), id="a"))
    ship(tmp_path, TensorBoardSink, 2)
    for part in run_folder(tmp_path / "rlship/state/tensorboard").glob("events.*"):
        part.unlink()
    ship(tmp_path, TensorBoardSink, 2)
    assert [step for step, _ in texts_of(tmp_path, "config/trainer")] == [0]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_plug_in_gets_it_before_the_first_row(tmp_path: Path, wrapped: bool) -> None:
    """Whether or not it wants observations."""
    put(tmp_path, "a.jsonl", file(event("config", attrs={"lr": 0.1}), id="a", labels={"tp": "2"}))
    calls: list[object] = []

    class Recorder(JsonlSink):
        def configure(self, config: Config) -> None:
            calls.append(config)

        def write(self, rows: Sequence[Row]) -> None:
            calls.append(len(rows))
            super().write(rows)

    ship(tmp_path, (lambda: ObservingSink("any", Recorder())) if wrapped else Recorder, 3)
    assert calls == [{"trainer": {"tp": 2, "lr": 0.1}}, 3]
