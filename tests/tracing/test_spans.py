"""Spans: what is recorded, of which step, in which lane, and what they leave as it was."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.flusher import Timing
from tests.kit.cases import few
from tests.writer.reading import NOW, answers, files, lines, logger_at, metrics, program, records, soon, whole


def spans(folder: Path) -> list[dict[str, Any]]:
    """The span records of the only file there."""
    return [record for record in records(folder) if record.get("kind") == "span"]


def names(folder: Path) -> list[str]:
    return [span["name"] for span in spans(folder)]


def test_a_span_is_one_line(tmp_path: Path) -> None:
    """Start, duration in seconds, step, name and lane, in this form."""
    logger = logger_at(tmp_path)
    logger.set_step(12)
    began = time.perf_counter()
    with logger.span("rollout"):
        time.sleep(0.01)
    took = time.perf_counter() - began
    logger.close()
    (line,) = [line for line in lines(tmp_path) if '"span"' in line]
    dur = json.loads(line)["dur"]
    text = line.replace(f'"dur":{dur!r}', '"dur":D')
    assert text == '{"kind":"span","t":1763600000.125000,"dur":D,"step":12,"name":"rollout","lane":"main"}'
    assert 0.01 <= dur <= took


def test_a_span_without_a_step_has_none(tmp_path: Path) -> None:
    """Where there is no implicit step the record is one of a stream."""
    logger = logger_at(tmp_path)
    with logger.span("x"):
        pass
    logger.close()
    assert sorted(spans(tmp_path)[0]) == ["dur", "kind", "lane", "name", "t"]


def test_the_step_of_a_span_is_the_one_at_its_end(tmp_path: Path) -> None:
    """A span that goes over a barrier belongs to the step after it."""
    logger = logger_at(tmp_path)
    logger.set_step(1)
    with logger.span("over"):
        logger.barrier(1)
    with logger.step(7), logger.span("inside"):
        pass
    logger.close()
    assert [(span["name"], span["step"]) for span in spans(tmp_path)] == [("over", 2), ("inside", 7)]


def test_a_span_of_a_step_comes_before_its_barrier(tmp_path: Path) -> None:
    """What ended before barrier(n) stands before it in the file."""
    logger = logger_at(tmp_path, timing=Timing(flush=30.0))
    logger.set_step(0)
    for step in range(50):
        with logger.span("a"):
            pass
        logger.barrier(step)
    logger.close()
    found = [(record["kind"], record["step"]) for record in records(tmp_path)[1:-1]]
    assert found == [(kind, step) for step in range(50) for kind in ("span", "barrier")]


def test_an_exception_is_named_and_goes_on(tmp_path: Path) -> None:
    """`err` is the exception's type, which the job gets as ever; a generator that is closed early did not fail."""
    logger = logger_at(tmp_path)

    def generator() -> Iterator[int]:
        with logger.span("closed"):
            yield 1

    with pytest.raises(KeyError, match="own"), logger.span("fails"):
        raise KeyError("own")
    iterator = generator()
    next(iterator)
    iterator.close()
    logger.close()
    assert [(span["name"], span.get("err")) for span in spans(tmp_path)] == [("fails", "KeyError"), ("closed", None)]


def test_names_and_lanes_of_any_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Percent signs, quotes and letters of any script are kept; a long name is cut, an empty one gets a name, and both
    are reported once, on stderr and in the file.
    """
    logger = logger_at(tmp_path)
    given = ['50 % "x"\\', "é漢🙂", "x" * 600, "", "\ud800"]

    def work() -> None:
        for name in given * 2:
            with logger.span(name):
                pass

    thread = threading.Thread(target=work, name='%d "t" é')
    thread.start()
    thread.join()
    logger.close()
    assert names(tmp_path) == ['50 % "x"\\', "é漢🙂", "x" * 500, "unnamed", "\ufffd"] * 2
    assert {span["lane"] for span in spans(tmp_path)} == {'%d "t" é'}
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith("the name has 600 characters, 500 are allowed: it is shortened")
    assert told[1:] == ["rlship: span(''): the name is empty: 'unnamed' stands in its place"]
    assert [(where, f"rlship: {text}") for where, text in answers(tmp_path)] == [("span", text) for text in told]


def test_functions_of_every_kind_are_wrapped(tmp_path: Path) -> None:
    """A decorated function stays of its kind, gives what it gave, and its span covers awaits and iteration."""
    logger = logger_at(tmp_path)

    @logger.span("sync")
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @logger.span("coroutine")
    async def later(x: int) -> int:
        await asyncio.sleep(0.02)
        return x

    @logger.span("generator")
    def count(n: int) -> Iterator[Any]:
        got = yield n
        yield got
        return "end"

    @logger.span("async generator")
    async def ticks(n: int) -> AsyncIterator[Any]:
        try:
            got = yield n
            while True:
                got = yield got
        except KeyError:
            yield "caught"

    class Model:
        @logger.span("method")
        def forward(self, x: int) -> int:
            return x * 2

        @classmethod
        @logger.span("class method")
        async def make(cls) -> str:
            return cls.__name__

    async def consume() -> list[Any]:
        source = ticks(5)
        found = [await source.__anext__(), await source.asend("sent"), await source.athrow(KeyError())]  # type: ignore[attr-defined]
        with pytest.raises(StopAsyncIteration):
            await source.__anext__()
        return [*found, await later(3), await Model.make()]

    assert (add(1, b=2), add.__name__, add.__doc__) == (3, "add", "Adds.")
    iterator: Any = count(1)
    assert [next(iterator), iterator.send("x")] == [1, "x"]
    with pytest.raises(StopIteration) as stop:
        next(iterator)
    assert stop.value.value == "end"
    assert asyncio.run(consume()) == [5, "sent", "caught", 3, "Model"]
    assert Model().forward(2) == 4
    assert inspect.iscoroutinefunction(later)
    assert inspect.isgeneratorfunction(count)
    assert inspect.isasyncgenfunction(ticks)
    assert asyncio.run(logger.span("partial")(functools.partial(later, 4))()) == 4
    logger.close()
    found = spans(tmp_path)
    assert [span["name"] for span in found] == [
        "sync",
        "generator",
        "async generator",
        "coroutine",
        "class method",
        "method",
        "coroutine",
        "partial",
    ]
    took = {span["name"]: span["dur"] for span in found}
    assert took["coroutine"] >= 0.02
    assert took["partial"] >= 0.02
    assert not [span for span in found if "err" in span]


def test_an_async_generator_that_is_left_is_closed(tmp_path: Path) -> None:
    """`aclose` reaches the generator inside, and its exceptions reach the consumer."""
    logger = logger_at(tmp_path)
    seen = []

    @logger.span("ticks")
    async def ticks() -> AsyncIterator[int]:
        try:
            yield 1
            raise ValueError("own")
        finally:
            seen.append("closed")

    async def consume() -> None:
        source: Any = ticks()
        assert await source.__anext__() == 1
        await source.aclose()
        with pytest.raises(ValueError, match="own"):
            async for _ in ticks():
                pass

    asyncio.run(consume())
    logger.close()
    assert seen == ["closed", "closed"]
    assert [span.get("err") for span in spans(tmp_path)] == [None, "ValueError"]


def test_without_parentheses_the_function_gives_the_name(tmp_path: Path) -> None:
    """`@span` alone names the span for the function; something that cannot be called is given back and reported."""
    logger = logger_at(tmp_path)

    @logger.span  # type: ignore[arg-type]
    def forward() -> int:
        return 1

    assert forward() == 1  # type: ignore[operator]
    thing: Any = object()
    assert logger.span("x")(thing) is thing
    logger.close()
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["forward"]


def test_around_what_is_no_plain_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Above @staticmethod and @classmethod it measures the function and leaves it what it is; a class, whose instances
    and subclasses would suffer, stays itself, and so does a property.
    """
    logger = logger_at(tmp_path)

    @logger.span("class")
    class Model:
        @logger.span("static")
        @staticmethod
        def double(x: int) -> int:
            return x * 2

        @logger.span("of the class")
        @classmethod
        def make(cls) -> Model:
            return cls()

        @logger.span  # type: ignore[arg-type]
        @classmethod
        def bare(cls) -> str:
            return cls.__name__

        @logger.span("property")
        @property
        def size(self) -> int:
            return 7

    class Larger(Model):
        pass

    assert (Model.double(2), Model().double(3), Model().size) == (4, 6, 7)
    assert type(Larger().make()) is Larger
    assert Larger.bare() == "Larger"  # type: ignore[attr-defined]
    logger.close()
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["static", "static", "of the class", "bare"]
    told = capsys.readouterr().err.splitlines()
    assert "span('property'): it cannot wrap a property, only a function" in told[0]
    assert "span('class'): it cannot wrap the class Model, only a function" in told[1]


def test_a_name_that_cannot_be_read(tmp_path: Path) -> None:
    """It raises nothing into the job: the span is there without a name."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no name")

    logger = logger_at(tmp_path)
    with logger.span(Odd()):  # type: ignore[arg-type]
        pass
    logger.close()
    assert names(tmp_path) == ["unnamed"]


def test_lanes_are_threads_and_tasks(tmp_path: Path) -> None:
    """The main thread is `main`, others and asyncio tasks have their own names; what nests in a lane nests in time."""
    logger = logger_at(tmp_path, clock=time.time)

    def work() -> None:
        with logger.span("in thread"):
            pass

    async def rollout(delay: float) -> None:
        with logger.span("outer"):
            await asyncio.sleep(delay)
            with logger.span("inner"):
                await asyncio.sleep(0.005)

    async def both() -> None:
        await asyncio.gather(*(asyncio.create_task(rollout(0.002 * i), name=f"rollout {i}") for i in range(3)))

    with logger.span("here"):
        pass
    for _ in range(2):  # a thread's number is used again, its lane is not
        thread = threading.Thread(target=work, name=f"worker {_}")
        thread.start()
        thread.join()
    asyncio.run(both())
    logger.close()
    found = spans(tmp_path)
    assert [(span["name"], span["lane"]) for span in found[:3]] == [
        ("here", "main"),
        ("in thread", "worker 0"),
        ("in thread", "worker 1"),
    ]
    for i in range(3):
        inner, outer = [span for span in found if span["lane"] == f"rollout {i}"]
        assert (inner["name"], outer["name"]) == ("inner", "outer")
        assert outer["t"] <= inner["t"]
        assert inner["dur"] < outer["dur"]


def test_one_object_may_be_open_many_times(tmp_path: Path) -> None:
    """Nested in itself, in threads at once and in interleaved tasks, each entry is ended by its own exit."""
    logger = logger_at(tmp_path)
    shared = logger.span("shared")
    gate = threading.Barrier(4)

    def work(delay: float) -> None:
        with shared:
            gate.wait(10)
            with shared:
                time.sleep(delay)
            gate.wait(10)

    async def task(delay: float) -> None:
        with shared:
            await asyncio.sleep(delay)

    async def tasks() -> None:
        await asyncio.gather(*(asyncio.create_task(task(0.01 * i), name=f"task {i}") for i in (3, 1, 2)))

    threads = [threading.Thread(target=work, args=(0.01 * i,), name=f"thread {i}") for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(tasks())
    logger.close()
    found: dict[str, list[float]] = {}
    for span in spans(tmp_path):
        found.setdefault(span["lane"], []).append(span["dur"])
    assert sorted(found) == sorted([*(f"thread {i}" for i in range(4)), *(f"task {i}" for i in (1, 2, 3))])
    for i in range(4):
        inner, outer = found[f"thread {i}"]
        assert 0.01 * i <= inner <= outer
    for i in (1, 2, 3):
        assert len(found[f"task {i}"]) == 1
        assert found[f"task {i}"][0] >= 0.01 * i * 0.9


def test_a_span_may_end_in_another_lane(tmp_path: Path) -> None:
    """A `with` inside an async generator that another task closes is recorded once."""
    logger = logger_at(tmp_path)

    async def ticks() -> AsyncIterator[int]:
        with logger.span("ticks"):
            yield 1

    async def main() -> None:
        source: Any = ticks()
        await asyncio.create_task(source.__anext__())
        await asyncio.create_task(source.aclose())

    asyncio.run(main())
    logger.close()
    assert names(tmp_path) == ["ticks"]


def test_many_spans_are_all_there(tmp_path: Path) -> None:
    """More than are kept waiting, from several threads, while the writing thread writes: no span is lost or doubled."""
    logger = logger_at(tmp_path)

    def work(n: int) -> None:
        for i in range(3000):
            with logger.span(f"{n}/{i}"):
                pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.close()
    found = names(tmp_path)
    assert len(found) == 9000
    assert set(found) == {f"{n}/{i}" for n in range(3) for i in range(3000)}


def test_a_full_buffer_drops_spans_and_says_so(tmp_path: Path) -> None:
    """Spans that do not fit are counted as any other line, with their steps."""
    logger = logger_at(tmp_path, buffer_bytes=5000, timing=Timing(flush=30.0))
    logger.set_step(3)
    for _ in range(500):
        with logger.span("a"):
            pass
    logger.close()
    found = records(tmp_path)
    (gap,) = [record for record in found if record.get("kind") == "gap"]
    kept = len([record for record in found if record.get("kind") == "span"])
    assert 0 < kept < 500
    assert (gap["n"], gap["from"], gap["to"]) == (500 - kept, 3, 3)
    assert logger.dropped_lines == 500 - kept


def test_a_span_that_is_open_at_a_fork_is_the_parents(tmp_path: Path) -> None:
    """The child that leaves the block writes nothing for it; its own spans are its own."""
    program(
        """
import os, sys, rlship
rlship.init(sys.argv[1], "trainer")
with rlship.span("open"):
    child = os.fork() == 0
if child:
    with rlship.span("child"): pass
    rlship.flush()
    os._exit(0)
os.wait()
""",
        tmp_path,
    )
    found = [[r["name"] for r in map(json.loads, whole(path)) if r.get("kind") == "span"] for path in files(tmp_path)]
    assert sorted(found) == [["child"], ["open"]]


def test_spans_of_the_module_begin_with_init(tmp_path: Path) -> None:
    """A function that was decorated before `init` is recorded after it, and does its work without or disabled."""
    source = """
import sys, rlship
@rlship.span("work")
def work(): return 1
assert work() == 1
rlship.init(sys.argv[1], "trainer")
assert work() == 1
with rlship.span("block"): pass
"""
    done = program(source, tmp_path / "on")
    assert done.stderr.count("nothing is logged before rlship.init") == 1
    assert names(tmp_path / "on") == ["work", "block"]
    program(source, tmp_path / "off", env={"RLSHIP_DISABLE": "1"})
    assert not (tmp_path / "off").exists()


def test_a_timeout_inside_a_span_passes_through(tmp_path: Path) -> None:
    """An exception of the job's signal handler ends the block; no span is lost or doubled at any moment."""

    class TooLateError(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise TooLateError

    logger = logger_at(tmp_path)
    logger.start()
    logger.set_step(0)
    before = signal.signal(signal.SIGALRM, handler)
    hits = whole_spans = 0
    try:
        for i in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + (i % 50) * 0.00002)
                while True:
                    for _ in range(20):
                        with logger.span("a"):
                            pass
                        whole_spans += 1
                    logger.barrier(i)
            except TooLateError:
                hits += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    logger.close()
    assert hits == 150
    # The block that an alarm ended may or may not have been recorded.
    assert whole_spans <= len(spans(tmp_path)) <= whole_spans + hits
    assert logger.errors == 0


def test_a_misspelt_timer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no timer is said once, and the CPU's clock is used."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        with logger.span("x", timer="cuda"):
            pass
    logger.close()
    assert capsys.readouterr().err.count("span('x', timer='cuda'): use 'cpu' or 'gpu'") == 1
    assert [where for where, _ in answers(tmp_path)] == ["span"]
    assert names(tmp_path) == ["x", "x"]


def test_nothing_is_written_by_the_caller(tmp_path: Path) -> None:
    """Spans reach the file by the writing thread, in time, without a barrier."""
    logger = logger_at(tmp_path)
    with logger.span("x"):
        pass
    soon(tmp_path, lambda found: any(record.get("kind") == "span" for record in found))
    logger.close()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 2)),
        st.tuples(st.just("exit"), st.just(0)),
        st.tuples(st.just("step"), st.integers(0, 20)),
        st.tuples(st.just("barrier"), st.just(0)),
        st.tuples(st.just("metric"), st.integers(0, 2)),
        st.tuples(st.just("collect"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=few(40), deadline=None)
@given(actions=ACTIONS)
def test_spans_steps_and_barriers_in_any_order(tmp_path_factory: pytest.TempPathFactory, actions: list[Any]) -> None:
    """Whatever the order of calls: each span once, at the step of its end, before the barrier that covers it."""
    folder = tmp_path_factory.mktemp("spans")
    logger = logger_at(folder, timing=Timing(flush=30.0))
    logger.start()
    step, model, open_spans = 0, [], []
    logger.set_step(0)
    for action, n in actions:
        if action == "enter":
            open_spans.append((logger.span(f"s{n}"), f"s{n}"))
            open_spans[-1][0].__enter__()
        elif action == "exit" and open_spans:
            span, name = open_spans.pop()
            span.__exit__(None, None, None)
            model.append((name, step))
        elif action == "step" and n >= step:
            step = n
            logger.set_step(n)
        elif action == "barrier":
            logger.barrier()
            model.append(("barrier", step))
            step += 1
        elif action == "metric":
            logger.record_metric(f"m{n}", 1.5)
        elif action == "collect":
            logger.stream.collect()
    logger.close()
    found = records(folder)
    said = [
        (record.get("name", "barrier"), record["step"]) for record in found if record.get("kind") in ("span", "barrier")
    ]
    assert said == model
    observed = sum(
        len(value) if isinstance(value, list) else 1 for record in metrics(found) for value in record["m"].values()
    )
    assert observed == sum(action == "metric" for action, _ in actions)
    assert all(record["t"] == NOW for record in found if record.get("kind") == "span")
