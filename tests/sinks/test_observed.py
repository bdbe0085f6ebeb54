"""Observations as they were logged, without any reduction: on the console, in a file, and as points elsewhere."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import registry
from rlship_sidecar.sinks.console import ConsoleSink
from rlship_sidecar.sinks.contract import Observed, Run, Sink, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.sinks.observing import FilePlace, observation
from rlship_sidecar.sinks.options import WrongOption
from rlship_sidecar.sinks.registry import make_sink
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.pipeline.simulated import simulation
from tests.reference.building import T0, file, log, stream
from tests.sinks.kinds import client_env
from tests.sinks.readback import tensorboard_points
from tests.sinks.rows import make_row, make_run

NO_REDUCE = "per_rank_no_reduce"


def observe(*lines: str) -> list[str]:
    """What lines of one file become."""
    place = FilePlace()
    found = [observation(place, line.encode()) for line in lines]
    return [line.decode() for line in found if line is not None]


OPEN = '{"kind":"open","rlship":1,"id":"a","actor":"gen","replica":"1","rank":3,"attempt":2,"t":1763600000.0}'
WHO = '"actor":"gen","replica":"1","rank":3,"attempt":2'


def test_the_form_of_an_observation_is_pinned() -> None:
    """A metrics record is this very line; a span and an event are what they stand for, and inherited times count.

    An event about the writer is no observation.
    """
    assert observe(
        OPEN,
        '{"t":1763600001.5,"step":12,"m":{"loss":0.5,"len":[1,2],"bad":"x","none":null}}',
        '{"m":{"tokens":{"n":2,"sum":7}}}',
        '{"kind":"span","t":1763600003.0,"dur":0.5,"name":"rollout"}',
        '{"kind":"event","step":3,"name":"pushed"}',
        '{"kind":"event","step":3,"name":"config","attrs":{"lr":0.1}}',
        '{"kind":"event","name":"rlship_error","attrs":{"where":"log","error":"no step"}}',
    ) == [
        f'{{{WHO},"t":1763600001.5,"step":12,"m":{{"loss":0.5,"len":[1,2]}}}}',
        f'{{{WHO},"t":1763600001.5,"step":null,"m":{{"tokens":{{"n":2,"sum":7}}}}}}',
        f'{{{WHO},"t":1763600003.5,"step":null,"m":{{"rollout_s":0.5}}}}',
        f'{{{WHO},"t":1763600003.0,"step":3,"m":{{"event/pushed":1.0}}}}',
    ]


def test_what_is_no_observation() -> None:
    """Lines before the open record, unusable ones, and those of other kinds or format versions give nothing."""
    assert observe('{"m":{"x":1}}', OPEN, "no JSON", "[]", '{"step":-1,"m":{"x":1}}', '{"step":1}', '{"m":{}}') == []
    assert observe(OPEN, '{"kind":"barrier","step":1}', '{"kind":"new","m":{"x":1}}', '{"kind":"span","dur":1}') == []
    assert observe(OPEN.replace('"rlship":1', '"rlship":2'), OPEN, '{"m":{"x":1}}') == []


@pytest.mark.parametrize(
    "dead",
    [
        '"kind":"barrier"',
        '"kind":"rollback","step":-1',
        '"kind":"define","m":7',
        '"kind":"gap","n":0',
        '"kind":"clock","offset":1',
        '"kind":"span","name":"s","dur":-1',
        '"kind":"new"',
        '"m":7',
    ],
)
def test_a_dead_letter_hands_no_time_on(dead: str) -> None:
    """An observation without a time takes that of the last line that could be used, as its row does."""
    late = f'{{{dead},"t":1763600500.0}}'
    assert observe(OPEN, '{"kind":"beat","t":1763600005}', late, '{"m":{"x":1}}') == [
        f'{{{WHO},"t":1763600005.0,"step":null,"m":{{"x":1}}}}'
    ]


def job(folder: Path) -> Path:
    (folder / "rlship" / "state").mkdir(parents=True)
    return folder / "rlship" / "a.jsonl"


def observed(folder: Path) -> list[int]:
    """The value `x` of each observation in the file."""
    text = (folder / "rlship" / "state" / "observations.jsonl").read_text("utf-8")
    return [json.loads(line)["m"]["x"] for line in text.splitlines()]


def test_they_come_without_rows(tmp_path: Path) -> None:
    """While the sink is open observations are taken in as they are written, though no row comes; not half a line."""
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=1)) + b'{"step":2,')
    sink = make_sink("jsonl")
    sink.open(make_run(tmp_path, ranks=NO_REDUCE))
    wait_until(lambda: observed(tmp_path) == [1])
    with open(writer, "ab") as more:
        more.write(b'"m":{"x":2}}\n')
    wait_until(lambda: observed(tmp_path) == [1, 2])
    sink.close()


def test_flush_and_close_take_in_all_that_is_there(tmp_path: Path) -> None:
    """After a flush, and after a close, the file has everything that was written before; rows are beside it."""
    writer = job(tmp_path)
    sink = make_sink("jsonl")
    sink.open(make_run(tmp_path, ranks=NO_REDUCE))
    writer.write_bytes(file(log(1, x=1)))
    sink.write([make_row(0)])
    sink.flush()
    assert observed(tmp_path) == [1]
    with open(writer, "ab") as more:
        more.write(json.dumps(log(2, x=2)).encode() + b"\n")
    sink.close()
    assert observed(tmp_path) == [1, 2]
    assert sink.open(make_run(tmp_path, rows=1, ranks=NO_REDUCE)) == 1
    sink.close()
    assert observed(tmp_path) == [1, 2]


def test_a_crash_before_the_position_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations that were written, but not noted as such, are cut and come once more: each is there once."""
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=1), log(2, x=2)))
    sink = make_sink("jsonl")
    with monkeypatch.context() as patch:
        real = os.replace

        def failing(old: str, new: str) -> None:
            if str(new).endswith(".position"):
                raise OSError(28, "No space left on device")
            real(old, new)

        patch.setattr(os, "replace", failing)
        sink.open(make_run(tmp_path, ranks=NO_REDUCE))
        with pytest.raises(SinkUnavailable, match="No space left"):
            sink.flush()
        assert "No space left" in sink.trouble
        assert observed(tmp_path) == [1, 2]
        sink.close()
    with open(tmp_path / "rlship" / "state" / "observations.jsonl", "ab") as torn:
        torn.write(b'{"actor":"tr')
    sink.open(make_run(tmp_path, ranks=NO_REDUCE))
    sink.flush()
    sink.close()
    assert observed(tmp_path) == [1, 2]


FOLLOWER = """
import sys, time
from pathlib import Path
from rlship_sidecar.sinks import observed
from rlship_sidecar.sinks.contract import Run
from rlship_sidecar.sinks.registry import make_sink

observed.EVERY_S, observed.COMMIT_BYTES = 0.001, 2000
folder, generation = Path(sys.argv[1]), int(sys.argv[2])
sink = make_sink("jsonl")
sink.open(Run("job", folder, folder / "rlship" / "state", "s", 0, {"ranks": "per_rank_no_reduce"}, generation, -1))
print("open", flush=True)
while sys.argv[3] == "follow":
    time.sleep(1)
sink.flush()
sink.close()
"""


def test_each_is_there_once_through_kill_9(tmp_path: Path) -> None:
    """A process that follows two files that grow is killed at any moment, again and again: in the end every observation
    is in the file once, those of each writer in their order.
    """
    writer = job(tmp_path)
    other = writer.with_name("b.jsonl")
    writer.write_bytes(file())
    other.write_bytes(file(rank=1, id="b"))
    command = [sys.executable, "-c", FOLLOWER, str(tmp_path)]
    written = 0
    for generation in range(6):
        process = subprocess.Popen([*command, str(generation), "follow"], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        for _ in range(40 + 17 * generation):
            for path in (writer, other):
                with open(path, "ab") as more:
                    more.write(b"".join(b'{"step":1,"m":{"x":%d}}\n' % (written + i) for i in range(20)))
            written += 20
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    subprocess.run([*command, "6", "end"], check=True, timeout=60, stdout=subprocess.DEVNULL)
    text = (tmp_path / "rlship" / "state" / "observations.jsonl").read_text("utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    for rank in range(2):
        assert [one["m"]["x"] for one in found if one["rank"] == rank] == list(range(written))


def test_a_later_sidecar_keeps_an_earlier_one_out(tmp_path: Path) -> None:
    """Once a later generation has the file, an earlier one that goes on writes nothing to it."""
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=1)))
    state = tmp_path / "rlship" / "state"
    earlier, later = make_sink("jsonl"), make_sink("jsonl")
    earlier.open(Run("job", tmp_path, state, "s", 0, {"ranks": NO_REDUCE}, 1, -1))
    earlier.flush()
    later.open(Run("job", tmp_path, state, "s", 0, {"ranks": NO_REDUCE}, 2, 1))
    with open(writer, "ab") as more:
        more.write(json.dumps(log(2, x=2)).encode() + b"\n")
    later.flush()
    with pytest.raises((SinkRefused, SinkUnavailable)):
        earlier.flush()
    later.close()
    earlier.abandon()
    assert observed(tmp_path) == [1, 2]


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """What has a writer's name now is another file: its observations come as well."""
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=1)))
    sink = make_sink("jsonl")
    sink.open(make_run(tmp_path, ranks=NO_REDUCE))
    sink.flush()
    writer.with_name("other").write_bytes(file(log(1, x=5), log(2, x=6), log(3, x=7), id="other"))
    os.replace(writer.with_name("other"), writer)
    sink.flush()
    sink.close()
    assert observed(tmp_path) == [1, 5, 6, 7]


def test_the_console_shows_each_observation(tmp_path: Path) -> None:
    """One line for each metrics record in place of rows, and after a restart only new ones."""
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=0.123456, n=[1, 2]), stream(2.5, x=3), replica="1", rank=2))
    stream_ = io.StringIO()
    for _ in range(2):
        sink = ObservingSink("console", ConsoleSink(stream_))
        sink.open(make_run(tmp_path, ranks=NO_REDUCE))
        sink.write([make_row(0)])
        sink.flush()
        sink.close()
    assert stream_.getvalue().splitlines() == [
        "trainer/1.2 t=1763600000.000 step=1  x=0.1235  n=[1,2]",
        "trainer/1.2 t=1763600002.500  x=3",
    ]


class Peaks(Sink):
    """A whole plug-in: the largest value of each metric as it was logged, before any reduction."""

    observes = True
    peaks: ClassVar[dict[str, float]] = {}

    def open(self, run: Run) -> int | None:
        return None

    def write(self, rows: Sequence[Row]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def observe(self, lines: bytes, position: Observed) -> None:
        for line in lines.splitlines():
            for name, value in json.loads(line)["m"].items():
                self.peaks[name] = max(value, self.peaks.get(name, value))


def test_a_plugin_gets_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that defines `observe` gets every value as it was logged, new ones only, and none while it is closed.
    What its `observe` raises is the trouble of the sink, and closes it.
    """
    point = EntryPoint("peaks", f"{__name__}:Peaks", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    writer = job(tmp_path)
    writer.write_bytes(file(log(1, x=3), stream(2.5, x=7, y=-1)))
    sink = make_sink("peaks")
    sink.open(make_run(tmp_path))
    sink.write([make_row(0)])
    sink.flush()
    sink.close()
    assert Peaks.peaks == {"x": 7, "y": -1}
    Peaks.peaks.clear()
    with open(writer, "ab") as more:
        more.write(json.dumps(log(2, x=5)).encode() + b"\n")
    assert Peaks.peaks == {}
    sink.open(make_run(tmp_path))
    wait_until(lambda: Peaks.peaks == {"x": 5})
    monkeypatch.setattr(Peaks, "peaks", None)
    with open(writer, "ab") as more:
        more.write(json.dumps(log(3, x=5)).encode() + b"\n")
    wait_until(lambda: sink.trouble != "")
    assert sink.trouble.startswith("sink peaks: observations: AttributeError: ")
    with pytest.raises(SinkUnavailable, match="AttributeError"):
        sink.write([make_row(1)])
    sink.close()


def test_which_sinks_have_this_mode() -> None:
    """The console and the file take it; in W&B and TensorBoard a metric is declared a stream instead."""
    JsonlSink.check_options({"ranks": NO_REDUCE})
    ConsoleSink.check_options({"ranks": NO_REDUCE})
    for check in (WandbSink.check_options, TensorBoardSink.check_options):
        with pytest.raises(WrongOption, match="global_reduce, per_rank_reduce"):
            check({"ranks": NO_REDUCE})
    with pytest.raises(WrongOption, match="global_reduce, per_rank_no_reduce"):
        JsonlSink.check_options({"ranks": "per_rank_reduce"})


def test_points_of_streams_stand_on_the_axis_of_time(tmp_path: Path) -> None:
    """Each observation of a metric that is declared a stream is a point at the seconds since the job began, in W&B over
    an axis of its own and in TensorBoard as its step.
    """
    define = {"kind": "define", "m": {"ping": {"reduce": "last", "stream": True}}}
    lines = (define, *(stream(after, ping=after / 4, other=1) for after in (1, 2.5, 2.75, 7)))
    with simulation() as sim:
        sim.write("a.jsonl", file(*lines, actor="generator", beat=10))
        sim.finish()
        points = [row for row in sim.rows() if row.unit.kind == "point"]
    points = [replace(row, arrival=replace(row.arrival, row_number=no)) for no, row in enumerate(points)]
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path, rows=3))
    sink.write(points)
    sink.flush()
    sink.close()
    key = "zz_rlship/point/generator/ping"
    assert tensorboard_points(tmp_path / "rlship" / "state" / "tensorboard", key) == [(1, 0.25), (2, 0.625), (7, 1.75)]
    with LoopbackBackend() as backend:
        to_wandb = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
        to_wandb.open(make_run(tmp_path, rows=3))
        to_wandb.write(points)
        to_wandb.flush()
        to_wandb.close()
        run = backend.run("rlship", "store1")
        assert [(row["clock/elapsed_s"], row[key], row["_timestamp"]) for row in run.rows()] == [
            (1.0, 0.25, T0 + 1),
            (2.5, 0.625, T0 + 2.5),
            (7.0, 1.75, T0 + 7),
        ]
        defined = run.config["_wandb"]["value"]["m"]
        (over,) = [defined[entry["5"] - 1]["1"] for entry in defined if entry.get("2") == "zz_rlship/point/generator/*"]
        assert over == "clock/elapsed_s"
