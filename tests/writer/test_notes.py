"""Records that wait for the writing thread to encode them are those that the call would have written."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.buffer import MAX_NOTES, encoded
from rlship.encode import Encoder, metrics_note
from rlship.file import Disk
from rlship.flusher import Timing
from rlship.records import barrier_line
from tests.writer.reading import NOW, kinds, logger_at, metrics, records

_PLAIN = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53) | st.booleans()
_NAMES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)


class Stuck(Disk):
    """A disk that hangs in every write until `free` is set, and remembers which threads called it."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.threads: set[int] = set()

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.threads.add(threading.get_ident())
        self.free.wait(60)
        return super().write(fd, data)

    def open(self, path: str, flags: int) -> int:
        self.threads.add(threading.get_ident())
        return super().open(path, flags)


def encoder() -> Encoder:
    return Encoder(lambda name, value, why: pytest.fail(f"{name}: {why}"))


def lost(step: int | None, error: Exception) -> None:
    raise error


@given(st.dictionaries(_NAMES, _PLAIN, max_size=8), st.none() | st.integers(0, 2**53 - 1))
def test_a_note_becomes_the_line_of_the_call(values: dict[str, Any], step: int | None) -> None:
    """Its bytes are those of a line that is encoded at once, and no more than it said, unless a name has escapes."""
    note = metrics_note(values, NOW)
    if note is None:
        assert abs(sum(map(float, values.values()))) > 9e17
        return
    now = encoder().line(values, step, NOW)
    direct = encoder().lines(values, step, NOW) if now is None else [now]
    found, steps, fewer = encoded([note], [step], encoder(), lost)
    assert (found, steps) == (direct, [step])
    assert fewer == note[2] - sum(len(line.encode()) for line in direct)
    if not any(set(name) & set('"\\') for name in values):
        assert fewer >= 0


@pytest.mark.parametrize(
    "values",
    [
        {"": 1.0},
        {1: 1.0},
        {"x" * 1001: 1.0},
        {"a": [1.0]},
        {"a": "text"},
        {"a": None},
        {"a": float("nan")},
        {"a": 10**400},
        {"a": 10**400, "b": 1.5},
        {str(i): 1.0 for i in range(65)},
        [("a", 1.0)],
    ],
)
def test_what_may_change_or_has_to_be_reported_does_not_wait(values: Any) -> None:
    """Only finite plain numbers under short names do."""
    assert metrics_note(values, NOW) is None


def test_values_are_those_of_the_call_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """A job may change and reuse its dict; lines of all kinds keep the order of their calls, however many wait."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk)
    values: dict[str, Any] = {}
    for step in range(MAX_NOTES):
        values["a"] = step
        logger.log(values, step=step)
        if step % 25 == 10:
            logger.define(f"m{step}", "max")
            logger.log({"a": [1.0, 2.0]}, step=step)
        logger.barrier(step)
    disk.free.set()
    assert logger.close() is True
    found = records(tmp_path)
    kept = [(record.get("kind"), record.get("step")) for record in found if record.get("kind") in (None, "barrier")]
    expected = []
    for step in range(MAX_NOTES):
        expected += [(None, step)] * (2 if step % 25 == 10 else 1) + [("barrier", step)]
    assert kept == expected
    assert [record["m"]["a"] for record in metrics(found) if record["m"]["a"] != [1.0, 2.0]] == [*range(MAX_NOTES)]
    for step in (10, 35, 60):
        at = found.index({"kind": "define", "m": {f"m{step}": {"reduce": "max"}}})
        assert found[at - 1]["m"] == {"a": step} and found[at + 1]["m"] == {"a": [1.0, 2.0]}
    assert logger.stream.buffer.size == 0


def test_calls_never_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """No call opens, writes or waits: all of that is in the writing thread, and everything is there afterwards."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk)
    longest = 0.0
    for step in range(2000):
        began = time.monotonic()
        logger.log({"a": step}, step=step)
        logger.barrier(step)
        longest = max(longest, time.monotonic() - began)
    assert longest < 5  # the disk hangs for a minute
    assert not any(path.stat().st_size for path in (tmp_path / "rlship").glob("*"))
    disk.free.set()
    assert logger.close() is True
    assert threading.get_ident() not in disk.threads and len(disk.threads) == 1
    assert kinds(records(tmp_path)) == ["open", *["metrics", "barrier"] * 2000, "close"]


def test_a_note_that_cannot_be_encoded_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error in the thread the other lines are written, and the loss is counted with its step."""
    logger = logger_at(tmp_path, timing=Timing(flush=60))
    assert logger.flush()
    real = Encoder.line

    def line(self: Encoder, metrics: Any, step: int | None, t: float) -> str | None:
        if step == 1:
            raise MemoryError
        return real(self, metrics, step, t)

    monkeypatch.setattr(Encoder, "line", line)
    for step in range(3):
        logger.log({"a": step}, step=step)
    assert logger.close() is True
    found = records(tmp_path)
    assert [record["step"] for record in metrics(found)] == [0, 2]
    (gap,) = [record for record in found if record.get("kind") == "gap"]
    assert (gap["n"], gap["from"], gap["to"]) == (1, 1, 1)
    assert logger.errors == 1


def test_a_barrier_does_not_overtake_what_another_thread_is_moving(tmp_path: Path) -> None:
    """Observations that have left their list but are not in the buffer yet come before the barrier."""
    logger = logger_at(tmp_path, timing=Timing(flush=60))
    assert logger.flush()
    gathering = logger.stream.gathering
    move, taken, go_on = gathering.batches.move, threading.Event(), threading.Event()

    def slow(upto: int | None, buffer: Any, encoder: Any) -> None:
        entries = gathering.batches.entries
        held, entries[:] = entries[:], []
        taken.set()
        go_on.wait(60)
        entries[:] = held
        move(upto, buffer, encoder)

    gathering.batches.move = slow  # type: ignore[method-assign]
    logger.set_step(3)
    logger.record_metric("a", 1.0)
    other = threading.Thread(target=gathering.move)
    other.start()
    assert taken.wait(60)
    threading.Timer(0.1, go_on.set).start()
    logger.barrier(3)
    other.join(60)
    assert logger.close() is True
    found = [json.dumps(record) for record in records(tmp_path)]
    assert [kinds([json.loads(one)])[0] for one in found] == ["open", "metrics", "barrier", "close"]


def test_a_barrier_that_waits_is_the_line_of_the_call() -> None:
    """Whether it adopts is decided at the call."""
    found, steps, _ = encoded([(True, NOW, 96), (False, NOW, 96)], [1, 2], encoder(), lost)
    assert (found, steps) == ([barrier_line(1, NOW, True), barrier_line(2, NOW)], [1, 2])
