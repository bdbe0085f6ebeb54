"""What the job said of the run, at each sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks.contract import Sink
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.sinks.ship import Pace, Shipper
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from tests.sinks.readback import run_folder, tensorboard_points
from tests.sinks.rows import MemorySource, make_row, make_rows, make_run

CONFIG = {"lr": 0.1, "tied": True, "opt": {"betas": [1, 2], "name": "a|b"}, "none": None}


def shipper_of(experiment: Path, make: Callable[[], Sink], source: MemorySource, **options: Any) -> Shipper:
    shipper = Shipper("any", make, make_run(experiment, **options), source, pace=Pace(flush_idle_s=0.1))
    shipper.start()
    return shipper


def ship(experiment: Path, make: Callable[[], Sink], source: MemorySource, **options: Any) -> None:
    """One life of a sidecar's sink, which gets all that it lacks."""
    shipper = shipper_of(experiment, make, source, **options)
    assert shipper.drain(30.0), shipper.status()
    assert shipper.stop()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_sink_gets_it_before_the_first_row_and_again_when_it_changes(tmp_path: Path, wrapped: bool) -> None:
    """With rows and without, whether or not the sink wants observations; a sink that is opened again gets it once."""
    calls: list[object] = []

    class Recorder(JsonlSink):
        def describe(self, run: RunData) -> None:
            calls.append(run.config)

        def write(self, rows: Sequence[Row]) -> None:
            calls.append(len(rows))
            super().write(rows)

    make = (lambda: ObservingSink("any", Recorder())) if wrapped else Recorder
    source = MemorySource()
    source.say(config={"lr": 1})
    shipper = shipper_of(tmp_path, make, source)
    assert shipper.drain(30.0)
    assert calls == [], "a run appears with its first row"
    source.append(make_rows(0, 3))
    shipper.wake()
    assert shipper.drain(30.0)
    assert calls == [{"lr": 1}, 3]
    source.say(config={"lr": 2})
    assert not shipper.at_rest
    shipper.wake()
    assert shipper.drain(30.0) and shipper.at_rest
    assert calls == [{"lr": 1}, 3, {"lr": 2}]
    assert shipper.stop()
    ship(tmp_path, make, source)
    assert calls == [{"lr": 1}, 3, {"lr": 2}, {"lr": 2}]


def test_a_sink_that_takes_no_such_data_is_at_rest_without_them(tmp_path: Path) -> None:
    """Such as a plug-in of an earlier release."""

    class Plain(JsonlSink):
        describe = Sink.describe

    source = MemorySource([make_row(0)])
    source.say(config={"lr": 1})
    shipper = shipper_of(tmp_path, Plain, source)
    assert shipper.drain(30.0) and shipper.at_rest
    assert shipper.stop()


def test_jsonl_writes_it_beside_the_rows(tmp_path: Path) -> None:
    """As one JSON object in a file that is replaced as a whole."""
    source = MemorySource([make_row(0)])
    source.say(config=CONFIG, summary={"best": {"v": 1}}, name="seven", outcome="open")
    ship(tmp_path, JsonlSink, source)
    written = tmp_path / "rlship/state/run.json"
    found = json.loads(written.read_bytes())
    assert (found["config"], found["summary"], found["name"]) == (CONFIG, {"best": {"v": 1}}, "seven")
    inode = written.stat().st_ino
    ship(tmp_path, JsonlSink, source)
    assert written.stat().st_ino == inode, "the same data are not written again"
    source.say(name="eight")
    ship(tmp_path, JsonlSink, source)
    assert json.loads(written.read_bytes())["name"] == "eight"


# TensorBoard


def read_by_tensorboard(experiment: Path) -> EventAccumulator:
    found = EventAccumulator(str(run_folder(experiment / "rlship/state/tensorboard")), size_guidance={"tensors": 0})
    found.Reload()
    return found


def texts_of(experiment: Path, tag: str) -> list[tuple[int, str]]:
    """(step, text) of every text of a tag, as TensorBoard itself reads them."""
    found = read_by_tensorboard(experiment)
    assert tag in found.PluginTagToContent("text"), found.Tags()
    return [(one.step, one.tensor_proto.string_val[0].decode()) for one in found.Tensors(tag)]


def losses(experiment: Path) -> list[tuple[int, float]]:
    return tensorboard_points(experiment / "rlship/state/tensorboard", "aa_headline/trainer/loss")


TABLE = "| key | value |\n| --- | --- |\n"


def test_tensorboard_shows_each_text_once(tmp_path: Path) -> None:
    """With the next row; a restart does not repeat it, a change shows it again, and rows stay whole."""
    source = MemorySource([make_row(0)])
    source.say(config=CONFIG, labels={"generator": {"tp": 2}}, name="seven", notes="try", outcome="open")
    first = TABLE + "| lr | 0.1 |\n| tied | true |\n| opt.betas | [1,2] |\n| opt.name | a\\|b |\n| none | null |"
    ship(tmp_path, TensorBoardSink, source)
    source.append(make_rows(1, 3))
    ship(tmp_path, TensorBoardSink, source)
    assert texts_of(tmp_path, "config") == [(0, first)]
    assert texts_of(tmp_path, "config/generator") == [(0, TABLE + "| tp | 2 |")]
    assert texts_of(tmp_path, "run") == [(0, TABLE + "| name | seven |\n| notes | try |")]
    source.append(make_rows(3, 5))
    source.say(config={"lr": 0.2}, outcome="open")
    ship(tmp_path, TensorBoardSink, source)
    assert texts_of(tmp_path, "config") == [(0, first), (3, TABLE + "| lr | 0.2 |")]
    assert losses(tmp_path) == [(step, float(step)) for step in range(5)]


def test_tensorboard_shows_what_comes_after_the_last_row(tmp_path: Path) -> None:
    """At its step, also to a reader that looks at no file again once there is a later one; rows go on behind it."""
    source = MemorySource(make_rows(0, 2))
    source.say(config={"lr": 1}, outcome="open")
    shipper = shipper_of(tmp_path, TensorBoardSink, source)
    assert shipper.drain(30.0)
    reader = read_by_tensorboard(tmp_path)
    for best in (0.5, 0.75):
        source.say(config={"lr": 1}, summary={"best": best}, outcome="open")
        shipper.wake()
        assert shipper.drain(30.0)
        reader.Reload()
        texts = [one.tensor_proto.string_val[0].decode() for one in reader.Tensors("summary")]
        assert texts[-1] == TABLE + f"| best | {best} |"
    assert shipper.stop()
    source.append(make_rows(2, 4))
    ship(tmp_path, TensorBoardSink, source)
    reader.Reload()
    assert [one.step for one in reader.Scalars("aa_headline/trainer/loss")] == [0, 1, 2, 3]
    assert [step for step, _ in texts_of(tmp_path, "summary")] == [1, 1]


def test_tensorboard_has_hyper_parameters_and_the_end(tmp_path: Path) -> None:
    """As its own reader has them: keys with dots, numbers, bools and texts as they are, all else as JSON."""
    from tensorboard.plugins.hparams import api_pb2, metadata  # type: ignore[import-untyped, unused-ignore]

    source = MemorySource([make_row(0)])
    source.say(config=CONFIG, outcome="open")
    ship(tmp_path, TensorBoardSink, source)
    source.say(config=CONFIG, outcome="failed")
    ship(tmp_path, TensorBoardSink, source)
    content = read_by_tensorboard(tmp_path).PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    found = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
    assert found == {"lr": 0.1, "tied": True, "opt.betas": "[1,2]", "opt.name": "a|b", "none": "null"}
    end = metadata.parse_session_end_info_plugin_data(content["_hparams_/session_end_info"])
    assert end.status == api_pb2.Status.Value("STATUS_FAILURE")


def test_tensorboard_shows_it_again_if_the_row_that_brought_it_is_lost(tmp_path: Path) -> None:
    """The rows are written again from the store, and the text with them."""
    source = MemorySource(make_rows(0, 2))
    source.say(config={"lr": 1})
    ship(tmp_path, TensorBoardSink, source)
    for part in run_folder(tmp_path / "rlship/state/tensorboard").glob("events.*"):
        part.unlink()
    ship(tmp_path, TensorBoardSink, source)
    assert [step for step, _ in texts_of(tmp_path, "config")] == [0]
