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


def test_no_folder_is_no_configuration(tmp_path: Path) -> None:
    """Nor is a file that cannot be read."""
    assert DeclaredConfig(tmp_path / "nowhere").news() == {}


def test_wandb_has_it_as_the_configuration_of_the_run(tmp_path: Path) -> None:
    """By actor, from the start of the run, beside our own mark; an actor that comes later is added, and a new client
    sets it again.
    """
    rlship.init(tmp_path, "trainer", labels={"model": "7b"})
    rlship.event("config", lr=0.1, layers=[1, 2], optimizer={"name": "adam"})
    rlship.close()
    with LoopbackBackend() as backend:
        sink = make_sink(backend, tmp_path)
        sink.open(make_run(tmp_path, rows=3))
        sink.write([make_row(0)])
        sink.flush()
        run = backend.run("rlship", "store1")
        trainer = {"model": "7b", "lr": 0.1, "layers": [1, 2], "optimizer": {"name": "adam"}}
        wait_until(lambda: "trainer" in run.config)
        assert run.value("trainer") == trainer
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
