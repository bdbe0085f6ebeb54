"""The configuration that a job declares: its labels and its events named `config`, in W&B."""

from __future__ import annotations

from pathlib import Path

import rlship
from rlship_sidecar.sinks.declared import EVERY_S, DeclaredConfig
from tests.kit.files import T0, event, file, log
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.sinks.rows import make_row, make_run
from tests.sinks.test_wandb_online import make_sink


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
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=3))
        sink.write([make_row(0)])
        sink.flush()
        run = backend.run("rlship", "store1")
        trainer = {"model": "7b", "tp": 2, "zero": True, "lr": 0.1, "layers": [1, 2], "optimizer": {"name": "adam"}}
        wait_until(lambda: "trainer" in run.config)
        assert run.value("trainer") == trainer and run.value("trainer")["zero"] is True
        assert run.value("store_id") == "store1"
        put(tmp_path, "g.jsonl", file(event("config", attrs={"tp": 2}), id="g", actor="generator"))
        assert sink._declared is not None
        sink._declared._looked_at = None
        sink.write([make_row(1)])
        sink.flush()
        wait_until(lambda: "generator" in run.config)
        assert (run.value("generator"), run.value("trainer")) == ({"tp": 2}, trainer)
        sink.close()
        again = make_sink(backend, tmp_path)
        assert again.open(make_run(tmp_path, rows=3)) == 2
        again.write([make_row(2)])
        again.flush()
        again.close()
        assert (run.value("generator"), run.value("trainer")) == ({"tp": 2}, trainer)
        assert run.value("store_id") == "store1"
