"""The Logger: steps, barriers, batches, definitions, and what it does with what cannot be done."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rlship import Reduce
from rlship.file import Disk
from rlship.flusher import Timing
from tests.writer.reading import NOW, QUICK, kinds, lines, logger_at, metrics, records, soon

SLOW = Timing(flush=30.0)


class Stuck(Disk):
    """A disk whose writes wait until `free` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.free.wait(20)
        return super().write(fd, data)


def test_the_implicit_step_is_used_where_none_is_given(tmp_path: Path) -> None:
    """set_step holds until the next one; a given step wins and goes on to it; without any the record has none."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1})
    logger.set_step(5)
    logger.log({"a": 2})
    logger.log({"a": 3}, step=9)
    logger.log({"a": 4})
    logger.close()
    assert [record.get("step") for record in metrics(records(tmp_path))] == [None, 5, 9, 9]


def test_a_barrier_sets_the_next_step(tmp_path: Path) -> None:
    """After barrier(n), and after a barrier of the implicit step, logging is at n + 1."""
    logger = logger_at(tmp_path)
    logger.barrier(3)
    logger.log({"a": 1})
    logger.barrier()
    logger.log({"a": 2})
    logger.close()
    found = records(tmp_path)
    assert [(record.get("kind"), record.get("step")) for record in found[1:-1]] == [
        ("barrier", 3),
        (None, 4),
        ("barrier", 4),
        (None, 5),
    ]


def test_the_step_context_nests_and_ends(tmp_path: Path) -> None:
    """Inside `with step(n)` n is the step, a barrier in it moves it on, and leaving restores what was."""
    logger = logger_at(tmp_path)
    logger.set_step(1)
    with logger.step(10) as n:
        assert n == 10
        with logger.step(20):
            logger.log({"a": 1})
        logger.log({"a": 2})
        logger.barrier()
        logger.log({"a": 3})
    logger.log({"a": 4})
    logger.close()
    assert [record["step"] for record in metrics(records(tmp_path))] == [20, 10, 11, 1]


def test_asyncio_tasks_are_apart(tmp_path: Path) -> None:
    """Tasks that interleave inside `with step(n)` each log at their own step, as do the tasks they start."""
    logger = logger_at(tmp_path)

    async def child(n: int) -> None:
        await asyncio.sleep(0)
        logger.record_metric(f"child{n}", 1.0)

    async def rollout(n: int) -> None:
        with logger.step(n):
            for _ in range(3):
                await asyncio.sleep(0)
                logger.log({f"task{n}": 1.0})
            await asyncio.create_task(child(n))

    async def all_of_them() -> None:
        await asyncio.gather(*(rollout(n) for n in range(5)))

    asyncio.run(all_of_them())
    logger.close()
    found = metrics(records(tmp_path))
    assert len(found) == 20
    assert {(name, record["step"]) for record in found for name in record["m"]} == {
        *((f"task{n}", n) for n in range(5)),
        *((f"child{n}", n) for n in range(5)),
    }


def test_threads_log_at_once(tmp_path: Path) -> None:
    """Lines and observations of eight threads are all in the file, and no line is mixed with another."""
    logger = logger_at(tmp_path)

    def work(name: int) -> None:
        for i in range(300):
            logger.log({f"t{name}": float(i)}, step=i)
            logger.record_metric("shared", float(i))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.close()
    shared, own = [], {f"t{name}": [] for name in range(8)}  # type: dict[str, list[float]]
    for record in metrics(records(tmp_path)):
        for name, value in record["m"].items():
            if name == "shared":
                shared += value if isinstance(value, list) else [value]
            else:
                own[name].append(value)
    assert sorted(shared) == sorted(float(i) for i in range(300) for _ in range(8))
    assert all(values == [float(i) for i in range(300)] for values in own.values())


def test_record_metric_batches_per_step(tmp_path: Path) -> None:
    """Observations of one step become one record: a number, an array, or values with weights where any was weighted."""
    logger = logger_at(tmp_path, timing=SLOW)
    with logger.stream.lock:  # keep the thread, which has just started, from collecting some of them earlier
        logger.set_step(1)
        logger.record_metric("one", 0.5)
        logger.record_metric("many", 1)
        logger.record_metric("many", [2, 3.5])
        logger.record_metric("weighted", 1.0)
        logger.record_metric("weighted", 2.0, weight=8)
        logger.record_metric("weighted", [3.0, math.nan], weight=[1, 2])
        logger.set_step(2)
        logger.record_metric("one", True)
    logger.close()
    assert metrics(records(tmp_path)) == [
        {
            "step": 1,
            "m": {
                "one": 0.5,
                "many": [1, 2, 3.5],
                "weighted": {"v": [1.0, 2.0, 3.0, "NaN"], "w": [1, 8, 1, 2]},
            },
        },
        {"step": 2, "m": {"one": 1}},
    ]


def test_record_metric_takes_summaries_and_groups(tmp_path: Path) -> None:
    """A dict is written at once, as `log` would write it."""
    logger = logger_at(tmp_path)
    logger.record_metric("r", {"n": 2, "sum": 3.0})
    logger.close()
    assert metrics(records(tmp_path)) == [{"m": {"r": {"n": 2, "sum": 3.0}}}]


def test_batches_are_written_by_the_thread_in_time(tmp_path: Path) -> None:
    """Without any barrier an observation reaches the file within the flush interval."""
    logger = logger_at(tmp_path)
    logger.record_metric("a", 1.0)
    soon(tmp_path, lambda found: bool(metrics(found)))
    logger.close()


def test_a_barrier_writes_the_batches_it_covers_before_itself(tmp_path: Path) -> None:
    """Observations of steps up to n stand before barrier(n), those of later steps are not forced out by it."""
    logger = logger_at(tmp_path, timing=SLOW)
    logger.set_step(1)
    with logger.stream.lock:  # keep the thread, which the barrier wakes, from collecting the rest too early
        logger.record_metric("a", 1.0)
        with logger.step(7):
            logger.record_metric("a", 7.0)
        logger.barrier(1)
        waiting = list(logger.stream.buffer._lines)
    logger.close()
    assert [line for line in waiting if '"m":{"a":7' in line] == []
    found = records(tmp_path)
    assert [(record.get("kind"), record.get("step")) for record in found[1:-1]] == [
        (None, 1),
        ("barrier", 1),
        (None, 7),
    ]


def test_a_barrier_reaches_the_file_at_once(tmp_path: Path) -> None:
    """A barrier does not wait for the flush interval."""
    logger = logger_at(tmp_path, timing=SLOW)
    logger.log({"a": 1}, step=1)
    logger.barrier(1)
    soon(tmp_path, lambda found: "barrier" in kinds(found))
    logger.close()


def test_many_bytes_do_not_wait_for_the_interval(tmp_path: Path) -> None:
    """At 256 KiB the thread is woken."""
    logger = logger_at(tmp_path, timing=SLOW)
    for i in range(400):
        logger.log({f"metric{k}": i + k / 7 for k in range(40)}, step=i)
    soon(tmp_path, lambda found: len(found) >= 150)  # the thread may come to it before four more lines are there
    logger.close()


def test_a_barrier_carries_the_time_of_the_call(tmp_path: Path) -> None:
    """However long the disk takes, the barrier's t is when it was called, and no earlier line has a later one."""
    ticks = iter(range(1, 1000))
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk, clock=lambda: NOW + next(ticks))
    logger.log({"a": 1}, step=1)
    logger.record_metric("b", 1)
    logger.barrier(1)
    disk.free.set()
    logger.close()
    by_kind = {record.get("kind", "m" + "".join(record.get("m", {}))): record["t"] for record in records(tmp_path)}
    assert by_kind["ma"] < by_kind["barrier"]
    assert by_kind["mb"] < by_kind["barrier"]


def test_rollback_writes_what_came_before_it_first(tmp_path: Path) -> None:
    """Observations from before the rollback stand before its line, and the step is the one gone back to."""
    logger = logger_at(tmp_path, timing=SLOW)
    logger.set_step(200)
    logger.record_metric("a", 1.0)
    logger.rollback(100)
    logger.log({"a": 2.0})
    logger.close()
    assert [(record.get("kind"), record.get("step")) for record in records(tmp_path)[1:-1]] == [
        (None, 200),
        ("rollback", 100),
        (None, 100),
    ]


def test_going_back_without_rollback_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """set_step behind a barrier is done, but says which call is missing; after rollback it is fine."""
    logger = logger_at(tmp_path)
    logger.barrier(10)
    logger.set_step(5)
    logger.set_step(6)
    assert capsys.readouterr().err.count("rollback(5)") == 1
    logger.rollback(3)
    logger.set_step(3)
    logger.log({"a": 1})
    logger.close()
    assert capsys.readouterr().err == ""
    assert metrics(records(tmp_path)) == [{"step": 3, "m": {"a": 1}}]


def test_a_reduction_is_declared_once_and_new_ones_add_up(tmp_path: Path) -> None:
    """record_metric writes a define line when a reduction is first asked for, before the observation, and not again."""
    logger = logger_at(tmp_path, timing=SLOW)
    with logger.stream.lock:  # keep the thread, which has just started, from collecting in between
        logger.record_metric("reward", 1.0)
        for _ in range(3):
            logger.record_metric("reward", 2.0, Reduce.MEAN, weight=4)
            logger.record_metric("reward", 3.0, "max")
            logger.record_metric("reward", 4.0, [Reduce.MEAN, "max"])
    logger.close()
    found = records(tmp_path)
    assert [record["m"] for record in found if record.get("kind") == "define"] == [
        {"reward": {"reduce": "mean"}},
        {"reward": {"reduce": ["mean", "max"]}},
    ]
    assert metrics(found)[0] == {"m": {"reward": 1.0}}
    assert kinds(found)[1:6] == ["metrics", "define", "event", "metrics", "define"]


def test_define_takes_names_lists_and_dicts(tmp_path: Path) -> None:
    """One metric with its unit, many with their reductions, and keywords that hold for all."""
    logger = logger_at(tmp_path)
    logger.flush()
    logger.define("busy_s", ["max", Reduce.MEAN], unit="s", per_rank=True)
    logger.define({"loss": "mean", "x": {"reduce": "sum", "unit": "tokens"}, "y": None}, unit="nats")
    logger.close()
    assert lines(tmp_path)[1:3] == [
        '{"kind":"define","m":{"busy_s":{"reduce":["max","mean"],"unit":"s","per_rank":true}}}',
        '{"kind":"define","m":{"loss":{"reduce":"mean","unit":"nats"},"x":{"reduce":"sum","unit":"tokens"},'
        '"y":{"unit":"nats"}}}',
    ]


def test_a_definition_never_governs_lines_logged_before_it(tmp_path: Path) -> None:
    """Even if the file is only made after both calls, the define line stands where it was called."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk)
    logger.log({"a": 1}, step=1)
    logger.record_metric("b", 1)
    logger.define({"a": "sum", "b": "sum"})
    disk.free.set()
    logger.close()
    assert kinds(records(tmp_path)) == ["open", "metrics", "metrics", "define", "close"]


def test_wrong_reductions_are_told_and_the_value_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown reduction names what there is; the observation counts under the default."""
    logger = logger_at(tmp_path, timing=SLOW)
    with logger.stream.lock:  # keep the thread, which has just started, from collecting the first alone
        logger.record_metric("a", 1.0, "average")
        logger.record_metric("a", 2.0, "average")
    logger.define("b", "p200")
    logger.define({"c": {"reduce": "mean", "units": "s"}})
    logger.close()
    told = capsys.readouterr().err
    assert told.count("reduce='average' does not exist (that is mean): use one or several of mean, sum") == 1
    assert "define('b'): reduce='p200' does not exist: use" in told
    assert told.count("reduced as if nothing was declared: as the catalogue states, else by its mean") == 2
    assert "['units'] is not known: use reduce, unit, per_rank, stream" in told
    # One record, or two where the writing thread began between the calls.
    assert metrics(records(tmp_path)) in ([{"m": {"a": [1.0, 2.0]}}], [{"m": {"a": 1}}, {"m": {"a": 2}}])


def test_an_unusable_value_is_told_once_and_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names metric, type and what is allowed; the count goes on; the file has an event."""
    logger = logger_at(tmp_path)
    for _ in range(3):
        logger.log({"answer": "yes", "loss": 1.5}, step=1)
    logger.record_metric("other", object())
    assert logger.dropped_values == 4
    logger.close()
    told = capsys.readouterr().err
    assert told.count("'answer' has a value of type str that is no metric; it is left out. Allowed: a number") == 1
    assert told.count("'other' has a value of type object") == 1
    found = records(tmp_path)
    events = [record for record in found if record.get("kind") == "event"]
    assert [event["name"] for event in events] == ["rlship_error", "rlship_error"]
    assert events[0]["attrs"]["where"] == "value"
    assert "'answer'" in events[0]["attrs"]["error"]
    assert metrics(found) == [{"step": 1, "m": {"loss": 1.5}}] * 3


@pytest.mark.parametrize("step", [-1, 2**53, "3", 1.5, True, object(), math.nan])
def test_a_bad_step_drops_the_line_and_counts_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], step: Any) -> None:
    """A record at a wrong step would be a wrong figure: it is left out, told, and a gap in the file."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1}, step=step)
    logger.set_step(step)
    logger.barrier(step)
    logger.log({"a": 2})
    logger.close()
    found = records(tmp_path)
    assert metrics(found) == [{"m": {"a": 2}}]
    assert [record["n"] for record in found if record.get("kind") == "gap"] == [1]
    told = capsys.readouterr().err
    assert f"log: step={step!r} is not a step: use an integer from 0 to 2**53-1" in told
    assert logger.dropped_lines == 1


def test_steps_of_any_integer_type_are_steps(tmp_path: Path) -> None:
    """numpy integers and floats with an integral value are understood."""
    import numpy as np

    logger = logger_at(tmp_path)
    for step in (np.int64(1), np.uint8(2), 3.0, 2**53 - 1, 0, np.float32(4.0), np.array(5), np.array([6.0])):
        logger.log({"a": 1}, step=step)  # type: ignore[arg-type]
    logger.close()
    assert [record["step"] for record in metrics(records(tmp_path))] == [1, 2, 3, 2**53 - 1, 0, 4, 5, 6]


@pytest.mark.parametrize("wrong", [None, 5, ["ab", "cd"]])
def test_what_define_cannot_take_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: Any) -> None:
    """Neither a name nor a dict: nothing is declared, and the message shows what was given."""
    logger = logger_at(tmp_path)
    logger.define(wrong, "max")
    logger.close()
    assert f"define() takes a name, or a dict of names and reductions, not {wrong!r}" in capsys.readouterr().err
    assert not [record for record in records(tmp_path) if record.get("kind") == "define"]


@pytest.mark.parametrize("wrong", [None, 5, "loss", [("a", 1)]])
def test_metrics_that_are_no_dict_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: Any) -> None:
    """The call is left out and counted, and the message shows what was given."""
    logger = logger_at(tmp_path)
    logger.log(wrong)
    logger.log(wrong)
    logger.close()
    assert capsys.readouterr().err.count("log() takes a dict of names and values, not") == 1
    assert logger.dropped_lines == 2
    assert [record["n"] for record in records(tmp_path) if record.get("kind") == "gap"] == [2]


def test_barrier_without_any_step_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to promise without a step."""
    logger = logger_at(tmp_path)
    logger.barrier()
    logger.close()
    assert "barrier() without a step" in capsys.readouterr().err
    assert kinds(records(tmp_path)) == ["open", "event", "close"]


class Explosive:
    def __float__(self) -> float:
        raise RuntimeError("boom")

    def __len__(self) -> int:
        raise RuntimeError("boom")

    def __index__(self) -> int:
        raise RuntimeError("boom")

    def __str__(self) -> str:
        raise RuntimeError("boom")


def test_a_value_that_raises_costs_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a value's own code raises, the other values of the call are kept, and it is reported once by its
    name.
    """
    logger = logger_at(tmp_path, timing=SLOW)
    for _ in range(2):
        logger.log({"a": Explosive(), "b": 1.0}, step=1)
        logger.record_metric("c", Explosive())
    logger.log({"b": 2.0}, step=Explosive())  # type: ignore[arg-type]
    with logger.step(Explosive()):  # type: ignore[arg-type]
        pass
    assert (logger.dropped_values, logger.dropped_lines, logger.errors) == (4, 1, 0)
    logger.close()
    told = capsys.readouterr().err
    assert told.count("'a' is left out: reading its value raised RuntimeError. Allowed: a number") == 1
    assert "log: reading the step raised RuntimeError" in told
    assert metrics(records(tmp_path)) == [{"step": 1, "m": {"b": 1.0}}] * 2


@pytest.mark.parametrize("weight", ["heavy", None, -1.0, float("nan")])
def test_a_bad_weight_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], weight: Any) -> None:
    """The message speaks of the weight, as the value is good."""
    logger = logger_at(tmp_path)
    logger.log({"loss": 1.5}, weight=[weight])
    logger.close()
    told = capsys.readouterr().err
    assert "'loss' is left out: the weight " in told
    assert "of type float" not in told


def test_an_internal_error_never_reaches_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever an argument does, each call returns; the error is counted, told once and in the file."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.log({"a": 1.0}, weight=Explosive())  # type: ignore[arg-type]
        logger.define({Explosive(): "max"})  # type: ignore[dict-item]
    assert (logger.dropped_values, logger.errors) == (2, 2)
    logger.log({"b": 1.0})
    logger.close()
    told = capsys.readouterr().err
    assert told.count("internal error in define, the job goes on: ") == 1
    found = records(tmp_path)
    events = [record["attrs"]["where"] for record in found if record.get("kind") == "event"]
    assert events == ["value", "define"]
    assert metrics(found)[-1] == {"m": {"b": 1.0}}


def test_a_stderr_that_is_gone_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons have no stderr; telling is then left out and logging goes on."""
    logger = logger_at(tmp_path)
    monkeypatch.setattr("sys.stderr", None)
    logger.log({"a": "text", "b": 1.0})
    logger.close()
    assert metrics(records(tmp_path)) == [{"m": {"b": 1.0}}]


def test_calls_after_close_are_dropped_with_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The close record is the last line; later calls change nothing."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1})
    assert logger.close() is True
    assert logger.close() is True
    logger.log({"a": 2})
    logger.record_metric("a", 2)
    logger.barrier(1)
    assert logger.flush() is True
    assert capsys.readouterr().err.count("calls after close() are dropped") == 1
    assert kinds(records(tmp_path)) == ["open", "metrics", "close"]


def test_flush_returns_once_the_lines_are_in_the_file(tmp_path: Path) -> None:
    """What was logged before flush can be read after it."""
    logger = logger_at(tmp_path, timing=SLOW)
    for i in range(5):
        logger.log({"a": i}, step=i)
        logger.record_metric("b", i)
        assert logger.flush() is True
        assert len(metrics(records(tmp_path))) == 2 * i + 2
    logger.close()


def test_flush_and_close_give_up_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that hangs holds neither of them longer than they say, and logging not at all."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk)
    begin = time.monotonic()
    for i in range(1000):
        logger.log({"a": i}, step=i)
    assert time.monotonic() - begin < 5
    assert logger.flush(timeout=0.05) is False
    assert logger.close(timeout=0.05) is False
    assert time.monotonic() - begin < 10
    assert "not everything could be written" in capsys.readouterr().err
    disk.free.set()


def test_a_full_buffer_drops_lines_and_tells_it(tmp_path: Path) -> None:
    """While the disk hangs, what does not fit is dropped; afterwards a gap says how many lines of which steps."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk, buffer_bytes=10_000)
    total = 1000
    for i in range(total):
        logger.log({"a": i}, step=i)
    logger.barrier(total)
    assert logger.dropped_lines > 0
    disk.free.set()
    logger.close()
    found = records(tmp_path)
    kept = [record["step"] for record in metrics(found)]
    gaps = [record for record in found if record.get("kind") == "gap"]
    assert len(kept) + sum(gap["n"] for gap in gaps) == total
    assert kept == list(range(len(kept)))
    assert (gaps[0]["from"], gaps[-1]["to"]) == (len(kept), total - 1)
    assert kinds(found)[-2:] == ["barrier", "close"]


def test_beats_are_written_while_nothing_is_logged(tmp_path: Path) -> None:
    """The promise in `open` is kept by the thread, and logging makes beats unnecessary."""
    logger = logger_at(tmp_path, timing=Timing(**QUICK, beat=0.4))
    logger.start()
    soon(tmp_path, lambda found: kinds(found).count("beat") >= 2)
    for _ in range(20):
        logger.log({"a": 1})
        time.sleep(0.02)
    logger.close()
    found = records(tmp_path)
    assert found[0]["beat"] == 0.4
    before = kinds(found[: kinds(found).index("metrics")])
    assert before.count("beat") >= 2
    assert "beat" not in kinds(found)[kinds(found).index("metrics") :]


class Counting(Disk):
    def __init__(self) -> None:
        self.synced: list[float] = []

    def sync(self, fd: int) -> None:
        self.synced.append(time.monotonic())


def test_only_a_network_filesystem_is_synced(tmp_path: Path) -> None:
    """On a local one a write is visible at once, so that no sync is paid for."""
    local, remote = Counting(), Counting()
    for disk, network in ((local, False), (remote, True)):
        logger = logger_at(tmp_path / str(network), disk=disk, network=lambda path, network=network: network)
        logger.log({"a": 1})
        logger.flush()
        logger.close()
    assert local.synced == []
    assert len(remote.synced) >= 1


def test_syncs_keep_their_distance(tmp_path: Path) -> None:
    """However often it is written, a network filesystem is asked to sync at most once in the interval."""
    disk = Counting()
    logger = logger_at(tmp_path, disk=disk, network=lambda path: True, timing=Timing(**QUICK, sync=0.2))
    end = time.monotonic() + 0.9
    while time.monotonic() < end:
        logger.log({"a": 1})
        logger.barrier(1)
        time.sleep(0.005)
    count = len(disk.synced)
    assert 2 <= count <= 6
    assert all(b - a >= 0.19 for a, b in zip(disk.synced, disk.synced[1:]))
    logger.close()


def test_the_sync_interval_grows_with_the_world(tmp_path: Path) -> None:
    """A file server gets 500 syncs a second up to 1,000 ranks, and 2,000 from 4,000 on; lines wait 2 s in between."""
    worlds = (None, 1, 250, 500, 1000, 4000, 10_000)
    assert [Timing.for_world(world).sync for world in worlds] == [0.5, 0.5, 0.5, 1.0, 2.0, 2.0, 5.0]


def test_a_clock_that_jumps_back_is_harmless(tmp_path: Path) -> None:
    """Times go back with the clock; nothing waits, nothing is lost."""
    times = iter([NOW] * 3 + [NOW - 86400, -5.0, 0.0] + [NOW - 3600] * 1000)
    logger = logger_at(tmp_path, clock=lambda: next(times))
    for i in range(10):
        logger.log({"a": i}, step=i)
        logger.record_metric("b", i)
        logger.barrier(i)
    assert logger.close() is True
    assert len(metrics(records(tmp_path))) == 20


def test_a_signal_handler_may_log(tmp_path: Path) -> None:
    """A handler that runs in the middle of a call logs, sets a barrier and flushes without a deadlock."""
    logger = logger_at(tmp_path)
    hits = 0

    def handler(number: int, frame: Any) -> None:
        nonlocal hits
        hits += 1
        logger.log({"signal": 1})
        logger.record_metric("signals", 1)
        logger.barrier(hits)
        logger.flush(timeout=0.2)
        if hits < 20:  # one at a time: armed again only when this one is done
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.003)

    end = time.monotonic() + 20
    before = signal.signal(signal.SIGVTALRM, handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.003)
    try:
        i = 0
        while hits < 20:
            assert time.monotonic() < end
            i += 1
            logger.log({"a": i})
            logger.record_metric("b", i)
            logger.barrier(10**6 + i)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert logger.close() is True
    found = metrics(records(tmp_path))
    assert sum("signal" in record["m"] for record in found) == hits
    assert sum("a" in record["m"] for record in found) == i
    for name, count in (("signals", hits), ("b", i)):
        values = [record["m"][name] for record in found if name in record["m"]]
        assert sum(len(value) if isinstance(value, list) else 1 for value in values) == count


def test_recovery_is_told_and_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk is said once, that it works again too, and the file has an event; no line is missing."""
    import errno

    class Full(Disk):
        full = True

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(fd, data)

    disk = Full()
    logger = logger_at(tmp_path, disk=disk)
    logger.log({"a": 1}, step=1)
    assert logger.flush(timeout=0.3) is False
    disk.full = False
    assert logger.flush() is True
    logger.log({"a": 2}, step=2)
    logger.close()
    told = capsys.readouterr().err
    assert told.count("No space left on device; keeping lines in memory and trying again") == 1
    assert told.count("again\n") == 2
    found = records(tmp_path)
    assert metrics(found) == [{"step": 1, "m": {"a": 1}}, {"step": 2, "m": {"a": 2}}]
    assert [record["attrs"]["where"] for record in found if record.get("kind") == "event"] == ["disk"]


def test_a_replaced_file_has_an_identity_and_the_definitions(tmp_path: Path) -> None:
    """If the file is removed, the next one has a new id and repeats what was defined, since a definition holds for its
    own file.
    """
    logger = logger_at(tmp_path)
    logger.define("a", "sum")
    logger.log({"a": 1}, step=1)
    logger.flush()
    first = logger.id
    os.unlink(logger.path or "")
    logger.log({"a": 2}, step=2)
    logger.flush()
    logger.close()
    found = records(tmp_path)
    assert found[0]["id"] == logger.id != first
    assert found[1] == {"kind": "define", "m": {"a": {"reduce": "sum"}}}
    assert metrics(found) == [{"step": 2, "m": {"a": 2}}]
