"""GPU times and values of tensors: read when they have arrived, never waited for, and barriers after them."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.flusher import Timing
from rlship.gpu import late as deferred
from rlship.gpu.late import Deferred
from tests.kit.cases import few
from tests.tracing import fake_torch
from tests.writer.reading import QUICK, answers, kinds, logger_at, metrics, program, records, soon


def spans(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in found if record.get("kind") == "span"]


def has(kind: str) -> Any:
    return lambda found: kind in kinds(found)


def test_gpu_time_is_read_when_it_is_there(tmp_path: Path, torch: Any) -> None:
    """The duration is between two events of the current stream; the span comes once the GPU got there, before its
    barrier, which has the time of its call.
    """
    now = [100.0]
    logger = logger_at(tmp_path, clock=lambda: now[0])
    logger.set_step(4)
    with logger.span("forward", timer="gpu"):
        torch.clock_ms += 250.0
    logger.barrier(4)
    now[0] = 200.0
    logger.log({"later": 1.0})
    found = soon(tmp_path, lambda found: len(metrics(found)) == 1)
    assert kinds(found) == ["open", "metrics"]
    torch.cuda.streams[0].run()
    found = soon(tmp_path, has("barrier"))
    logger.close()
    (span,) = spans(found)
    assert (span["t"], span["dur"], span["step"], span["lane"]) == (100.0, 0.25, 4, "main (gpu)")
    assert kinds(found) == ["open", "metrics", "span", "barrier"]
    assert found[-1]["t"] == 100.0
    assert torch.synchronisations == 0


def test_both_ends_are_waited_for(tmp_path: Path, torch: Any) -> None:
    """A span whose ends lie on different streams is there once both are reached, in any order."""
    logger = logger_at(tmp_path)
    first, second = torch.cuda.streams[0], fake_torch.Stream(0)
    with logger.span("x", timer="gpu"):
        torch.cuda.streams[0] = second
        torch.clock_ms += 3.0
    second.run()
    assert not logger.flush(0.1)
    first.run()
    logger.close()
    assert [span["dur"] for span in spans(records(tmp_path))] == [0.003]


def test_between_two_devices_the_cpu_clock_is_used(tmp_path: Path, torch: Any) -> None:
    """A span that ends on another device than it began has no GPU time."""
    logger = logger_at(tmp_path)
    with logger.span("x", timer="gpu"):
        torch.cuda.current = 1
    logger.close()
    assert [span["lane"] for span in spans(records(tmp_path))] == ["main"]


@pytest.mark.parametrize("missing", ["torch", "CUDA"])
def test_without_a_gpu_the_cpu_clock_is_used(
    tmp_path: Path, torch: Any, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither torch nor CUDA is brought in for a span: it says once what is missing, and takes the CPU's time."""
    if missing == "torch":
        monkeypatch.delitem(sys.modules, "torch")
    torch.cuda.initialised = False
    logger = logger_at(tmp_path)
    for _ in range(2):
        with logger.span("x", timer="gpu", memory=True):
            pass
    logger.close()
    said = "the job has not imported torch" if missing == "torch" else "torch has not initialised CUDA"
    text = f"span('x'): {said}, so the CPU's clock is used and no memory is measured"
    assert capsys.readouterr().err.count(text) == 1
    assert [span["lane"] for span in spans(records(tmp_path))] == ["main", "main"]
    assert answers(tmp_path) == [("span", text)]
    assert (missing == "CUDA") == ("torch" in sys.modules)


def test_a_half_imported_torch_is_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread is importing torch its module has nothing in it yet."""
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    logger = logger_at(tmp_path)
    with logger.span("x", timer="gpu"):
        logger.log({"a": [1.5, 2.5]})
        logger.record_metric("b", [1.5])
    logger.close()
    assert kinds(records(tmp_path)) == ["open", "event", "metrics", "metrics", "span", "close"]


def test_a_tensor_on_the_device_is_copied_and_read_later(tmp_path: Path, torch: Any) -> None:
    """log and record_metric take tensors, in any form that they take numbers, without a synchronisation; the values
    are those at the call.
    """
    now = [100.0]
    logger = logger_at(tmp_path, clock=lambda: now[0])
    host, mine = torch.Tensor(9.0), [1.0, torch.on_gpu(2.0)]
    given = {
        "loss": torch.on_gpu(0.5),
        "per_token": torch.on_gpu([1.0, 2.0]),
        "g": {"x": torch.on_gpu(3.0)},
        "plain": 7,
        "host": host,
        "w": {"v": torch.on_gpu([1.0, 2.0]), "w": [1, 3]},
    }
    logger.log(given, step=2)
    logger.log({"several": [torch.on_gpu(1.0), torch.on_gpu(2.0)], "second device": torch.on_gpu(4.0, 1)}, step=2)
    logger.log({"weighted": torch.on_gpu([1.0, 2.0])}, step=2, weight=torch.on_gpu([5.0, 6.0]))
    logger.set_step(2)
    logger.record_metric("reward", torch.on_gpu(0.25), "max", weight=2)
    given["plain"], host.value, mine[0], now[0] = 8, 10.0, 5.0, 200.0
    logger.barrier(2)
    soon(tmp_path, has("define"))
    assert torch.synchronisations == 0
    for stream in torch.cuda.streams.values():
        stream.run()
    found = soon(tmp_path, has("barrier"))
    logger.close()
    assert [(record["t"], record["m"]) for record in found if "m" in record and "kind" not in record] == [
        (
            100.0,
            {
                "loss": 0.5,
                "per_token": [1.0, 2.0],
                "g/x": 3.0,
                "plain": 7,
                "host": 9.0,
                "w": {"v": [1.0, 2.0], "w": [1, 3]},
            },
        ),
        (100.0, {"several": [1.0, 2.0], "second device": 4.0}),
        (100.0, {"weighted": {"v": [1.0, 2.0], "w": [5.0, 6.0]}}),
        (100.0, {"reward": {"v": [0.25], "w": [2]}}),
    ]
    assert kinds(found)[-1] == "barrier"
    assert torch.synchronisations == 0


def test_memory_of_another_stream_is_kept_until_it_is_copied(tmp_path: Path, torch: Any) -> None:
    """The tensor's memory is marked as used by the stream that copies it."""
    logger = logger_at(tmp_path)
    tensor = torch.on_gpu(1.0)
    logger.log({"x": tensor})
    torch.cuda.streams[0].run()
    logger.close()
    assert tensor.recorded_on == [torch.cuda.streams[0]]


def test_what_cannot_be_copied_is_read_at_once_and_told_once(
    tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another kind of device, of tensor, or too large a one: one synchronisation, and the value is there."""

    class Distributed(torch.Tensor):  # type: ignore[misc]
        pass

    logger = logger_at(tmp_path)
    logger.log({"mps": torch.Tensor(1.0, "mps", 0)})
    logger.log({"subclass": Distributed(2.0, "cuda", 0)})
    large = torch.on_gpu(3.0)
    large.numel = lambda: 10**9
    logger.record_metric("large", large)
    torch.cuda.streams[0].copies.clear()
    logger.close()
    assert torch.synchronisations == 3
    assert [record["m"] for record in metrics(records(tmp_path))] == [{"mps": 1.0}, {"subclass": 2.0}, {"large": 3.0}]
    said = capsys.readouterr().err
    assert said.count("is read at once, and the call waits for it") == 1
    assert "mps: a tensor on mps, not on CUDA, is read at once" in said
    assert [where for where, _ in answers(tmp_path)] == ["log"]


def test_while_a_graph_is_captured_the_device_is_left_alone(
    tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside a capture spans take the CPU's time, and a tensor is left out: reading it would break the capture."""
    logger = logger_at(tmp_path)
    torch.cuda.capturing = True
    with logger.span("x", timer="gpu", memory=True):
        logger.log({"a": torch.on_gpu(1.0)})
    torch.cuda.capturing = False
    logger.close()
    assert (torch.synchronisations, torch.queries, torch.cuda.streams[0].recorded) == (0, 0, 0)
    assert kinds(records(tmp_path)) == ["open", "event", "gap", "span", "close"]
    assert "while its CUDA graph is captured; it is left out" in capsys.readouterr().err


def test_a_barrier_waits_only_for_its_steps(tmp_path: Path, torch: Any) -> None:
    """Values of later steps, and of none, hold no barrier; barriers keep their order."""
    logger = logger_at(tmp_path)
    logger.log({"stream": torch.on_gpu(0.0)})
    logger.log({"a": torch.on_gpu(1.0)}, step=1)
    logger.log({"b": torch.on_gpu(2.0)}, step=2)
    logger.barrier(0)
    logger.barrier(1)
    logger.barrier(1)
    soon(tmp_path, has("barrier"))
    torch.cuda.streams[0].run(4)  # two copies and their events: the value without a step, and a
    found = soon(tmp_path, lambda found: kinds(found).count("barrier") == 3)
    assert kinds(found) == ["open", "barrier", "metrics", "metrics", "barrier", "barrier"]
    torch.cuda.streams[0].run()
    logger.close()
    assert kinds(records(tmp_path))[6:] == ["metrics", "close"]


def test_a_value_that_never_comes_is_given_up(
    tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A barrier waits so long and no longer: then a gap of that step stands before it, and it is said once."""
    logger = logger_at(tmp_path)
    logger.stream.deferred._patience = 0.1
    logger.set_step(3)
    with logger.span("x", timer="gpu"):
        logger.log({"a": torch.on_gpu(1.0)})
    logger.barrier(3)
    began = time.monotonic()
    found = soon(tmp_path, has("barrier"))
    assert time.monotonic() - began >= 0.05
    torch.cuda.streams[0].run()
    logger.close()
    assert [(r["kind"], r.get("n"), r.get("from"), r.get("to")) for r in found[1:]] == [
        ("event", None, None, None),
        ("gap", 2, 3, 3),
        ("barrier", None, None, None),
    ]
    assert kinds(records(tmp_path)) == ["open", "event", "gap", "barrier", "close"]
    ((where, text),) = answers(tmp_path)
    assert where == "device"
    assert "of step 3 has not arrived from the device" in text
    assert logger.dropped_lines == 2
    assert capsys.readouterr().err.count("has not arrived from the device") == 1


def test_a_failing_device_costs_its_values_only(tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A CUDA error while looking is counted and told; barriers and other lines go on."""
    logger = logger_at(tmp_path)
    logger.log({"a": torch.on_gpu(1.0)}, step=0)
    torch.failing = True
    logger.barrier(0)
    soon(tmp_path, has("barrier"))
    logger.log({"b": 1.0}, step=1)
    logger.barrier(1)
    logger.close()
    found = records(tmp_path)
    assert [kind for kind in kinds(found) if kind != "event"] == [
        "open",
        "gap",
        "barrier",
        "metrics",
        "barrier",
        "close",
    ]
    assert "device-side assert triggered" in capsys.readouterr().err
    assert logger.errors == 1


def test_closing_waits_for_the_device(tmp_path: Path, torch: Any) -> None:
    """close and flush wait for what is late, within their time; what is not there then is a gap before `close`."""
    logger = logger_at(tmp_path)
    logger.log({"a": torch.on_gpu(1.0)}, step=0)
    assert not logger.flush(0.05)
    timer = threading.Timer(0.1, lambda: torch.cuda.streams[0].run())
    timer.start()
    assert logger.flush(5.0)
    timer.join()
    assert kinds(records(tmp_path)) == ["open", "metrics"]
    logger.log({"b": torch.on_gpu(1.0)}, step=1)
    timer = threading.Timer(0.1, lambda: torch.cuda.streams[0].run())
    timer.start()
    logger.barrier(1)
    assert logger.close()
    timer.join()
    assert kinds(records(tmp_path)) == ["open", "metrics", "metrics", "barrier", "close"]


def test_closing_does_not_wait_for_ever(tmp_path: Path, torch: Any) -> None:
    """What never comes is given up within the time that closing has, and the rest is written."""
    logger = logger_at(tmp_path, timing=Timing(**QUICK, close=0.5))
    logger.log({"a": torch.on_gpu(1.0)}, step=1)
    logger.log({"b": 1.0}, step=1)
    logger.barrier(1)
    began = time.monotonic()
    assert logger.close()
    assert time.monotonic() - began < 2.0
    assert kinds(records(tmp_path)) == ["open", "metrics", "event", "gap", "barrier", "close"]


def test_a_rollback_is_not_passed(tmp_path: Path, torch: Any) -> None:
    """After a rollback lines count as a newer writer's, so what is late then is given up, and said to be."""
    logger = logger_at(tmp_path)
    logger.log({"there": torch.on_gpu(1.0)}, step=5)
    torch.cuda.streams[0].run()
    logger.log({"late": torch.on_gpu(1.0)}, step=6)
    logger.barrier(6)
    logger.rollback(2)
    torch.cuda.streams[0].run()
    logger.close()
    found = records(tmp_path)
    assert kinds(found) == ["open", "metrics", "event", "gap", "barrier", "rollback", "close"]
    assert (found[3]["from"], found[3]["to"]) == (6, 6)


def test_too_many_late_values_are_left_out(tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that never answers cannot let the memory grow: values beyond a number are dropped, with a gap."""
    monkeypatch.setattr(deferred, "MAX_VALUES", 3)
    logger = logger_at(tmp_path)
    for i in range(5):
        logger.log({"a": torch.on_gpu(float(i))}, step=i)
    torch.cuda.streams[0].run()
    logger.close()
    found = records(tmp_path)
    assert [record["step"] for record in metrics(found)] == [0, 1, 2]
    assert [(r["n"], r["from"], r["to"]) for r in found if r.get("kind") == "gap"] == [(2, 3, 4)]


def test_a_value_that_no_barrier_waits_for_is_given_up_in_the_end(torch: Any) -> None:
    """Without barriers a value that never comes is forgotten after five minutes."""
    from rlship.buffer import Buffer

    now = [0.0]
    buffer = Buffer(lambda: 0.0)
    late = Deferred(buffer, lambda where, topic, message: None, lambda where, error: None, now=lambda: now[0])
    late.add(Value(None))
    now[0] = 299.0
    late.look()
    assert len(late) == 1
    now[0] = 301.0
    late.look()
    assert len(late) == 0
    assert buffer.take()[0] == ['{"kind":"gap","n":1,"t":0.000}\n']


def test_a_forked_child_has_no_late_values(tmp_path: Path) -> None:
    """They are the parent's: the child neither reads nor frees nor waits for them."""
    program(
        """
import os, sys, rlship
from tests.tracing import fake_torch
torch = sys.modules["torch"] = fake_torch.make()
rlship.init(sys.argv[1], "trainer")
rlship.log({"parent": torch.on_gpu(1.0)}, step=1)
rlship.barrier(1)
if os.fork() == 0:
    torch.cuda.initialised = False
    torch.queries = 0
    rlship.log({"child": 1.0}, step=2)
    rlship.barrier(2)
    done = rlship.flush(5)
    os._exit(0 if done and torch.queries == 0 else 1)
assert os.wait()[1] == 0
torch.cuda.streams[0].run()
""",
        tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    found = sorted(
        [path.read_text() for path in (tmp_path / "rlship").iterdir()], key=lambda text: '"parent":"' in text
    )
    assert [('{"parent":1.0}' in text, '{"child":1.0}' in text) for text in found] == [(True, False), (False, True)]


class Value:
    """A late value that the test makes arrive, or fail."""

    def __init__(self, step: int | None, name: str = "") -> None:
        self.step = step
        self.name = name
        self.state = "late"

    def ready(self) -> bool:
        if self.state == "broken":
            raise RuntimeError("own")
        return self.state == "there"

    def lines(self) -> list[str]:
        return [f"{self.name}\n"]


STEPS = st.one_of(st.none(), st.integers(0, 4))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), STEPS),
        st.tuples(st.just("barrier"), st.integers(0, 4)),
        st.tuples(st.just("arrive"), st.integers(0, 30)),
        st.tuples(st.just("break"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=few(300), deadline=None)
@given(events=EVENTS)
def test_barriers_wait_for_their_values_whatever_comes_when(events: list[tuple[str, Any]]) -> None:
    """In any interleaving: every value is written or counted as dropped, once; a barrier stands after all of its
    values that are written and within 5 s; barriers keep their order.
    """
    from rlship.buffer import Buffer

    now = [0.0]
    buffer = Buffer(lambda: 0.0, 1 << 20)
    late = Deferred(buffer, lambda where, topic, message: None, lambda where, error: None, now=lambda: now[0])
    values: list[Value] = []
    barriers: list[tuple[str, int, float, int]] = []  # line, step, when, how many values were before it
    written: dict[str, float] = {}
    order: list[str] = []

    def taken() -> None:
        for line in buffer.take()[0]:
            if "gap" not in line:
                assert line not in written
                written[line] = now[0]
                order.append(line)

    for what, n in events:
        if what == "add":
            values.append(Value(n, f"v{len(values)}"))
            late.add(values[-1])
        elif what == "barrier":
            line = f"b{len(barriers)}\n"
            barriers.append((line, n, now[0], len(values)))
            if not late.hold(n, line):
                buffer.append_control(line, 5, n)
        elif what in ("arrive", "break") and n < len(values) and values[n].state == "late":
            values[n].state = "there" if what == "arrive" else "broken"
        elif what == "wait":
            now[0] += n
            late.look()
        elif what == "look":
            late.look()
        elif what == "settle":
            late.settle()
        taken()
    now[0] += 5.0
    late.look()
    taken()
    assert [line for line in order if line[0] == "b"] == [line for line, *_ in barriers]
    for line, step, when, before in barriers:
        assert written[line] <= when + 5.0 + 6.0  # looked at by then: the waits above are of 6 s at most
        for value in values[:before]:
            if value.step is not None and value.step <= step and f"{value.name}\n" in written:
                assert order.index(f"{value.name}\n") < order.index(line)
    late.settle()
    taken()
    assert len(late) == 0
    assert len([line for line in order if line[0] == "v"]) + buffer.dropped == len(values)


def test_the_stand_in_keeps_the_rules() -> None:
    """The events of these tests refuse what torch refuses: a time before its ends, a copy read too early."""
    torch = fake_torch.make()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    copy = torch.on_gpu(1.0).to("cpu", non_blocking=True)
    torch.clock_ms = 5.0
    b.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        a.elapsed_time(b)
    with pytest.raises(AssertionError, match="read before it was copied"):
        copy.item()
    torch.cuda.streams[0].run()
    assert (a.elapsed_time(b), copy.item()) == (5.0, 1.0)
