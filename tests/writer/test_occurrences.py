"""Events, tags of steps and samples, from the call to the line."""

from __future__ import annotations

import asyncio
import enum
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlship import quota
from rlship.encode import MAX_LINE_BYTES
from rlship.logger import Logger
from rlship.records import event_line, sample_line
from tests.writer.reading import NOW, kinds, lines, logger_at, records
from tests.writer.test_logger import SLOW, Stuck


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The records of one kind, without it and without their time."""
    return [
        {key: value for key, value in record.items() if key not in ("kind", "t")}
        for record in found
        if record.get("kind") == kind
    ]


def tags(folder: Path) -> list[tuple[int, str]]:
    """The steps that are tagged, and as what, in the order of the file."""
    found = [record for record in of_kind(records(folder), "event") if record["name"] == "step_tag"]
    return [(record["step"], record["attrs"]["tag"]) for record in found]


def test_the_lines_are_those_of_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of each record, pinned."""
    monkeypatch.setattr(quota, "priority", lambda: 0.125)
    logger = logger_at(tmp_path)
    logger.event("started")
    logger.set_step(12)
    logger.event("weights_pushed", bytes=123, to=["generator", 1.5], name="größe", ok=True, none=None)
    logger.add_step_tag("eval")
    logger.sample("rollouts", {"prompt": 'a "b"\n', "ids": [1, 2], "r": 0.5, "nan": math.nan}, score=0.75)
    logger.sample("rollouts", {}, step=3)
    logger.define("kl", "p99", stream=True)
    logger.close()
    assert lines(tmp_path)[1:-1] == [
        '{"kind":"event","t":1763600000.125000,"name":"started","attrs":{}}',
        '{"kind":"event","t":1763600000.125000,"step":12,"name":"weights_pushed","attrs":{"bytes":123,'
        '"to":["generator",1.5],"name":"größe","ok":true,"none":null}}',
        '{"kind":"event","t":1763600000.125000,"step":12,"name":"step_tag","attrs":{"tag":"eval"}}',
        '{"kind":"sample","t":1763600000.125,"step":12,"table":"rollouts","score":0.75,"pri":0.125,'
        '"row":{"prompt":"a \\"b\\"\\n","ids":[1,2],"r":0.5,"nan":"NaN"}}',
        '{"kind":"sample","t":1763600000.125,"step":3,"table":"rollouts","pri":0.125,"row":{}}',
        '{"kind":"define","m":{"kl":{"reduce":"p99","stream":true}}}',
    ]


def test_the_step_is_the_given_or_the_implicit_one(tmp_path: Path) -> None:
    """As with log: given, of the task, of the process, or none."""
    logger = logger_at(tmp_path)
    logger.event("e")
    logger.barrier(4)
    logger.event("e")
    with logger.step(9):
        logger.sample("s", {})
        logger.event("e", step=2)
    logger.close()
    found = [(record["kind"], record.get("step")) for record in records(tmp_path) if "kind" in record]
    assert found[1:-1] == [("event", None), ("barrier", 4), ("event", 5), ("sample", 9), ("event", 2)]


def test_a_tag_is_written_once_in_its_step(tmp_path: Path) -> None:
    """Adding it again writes nothing; a new step, a rollback and clear_step_tags end it."""
    logger = logger_at(tmp_path)
    logger.set_step(1)
    for _ in range(3):
        logger.add_step_tag("eval")
        logger.add_step_tag("save")
    logger.barrier()
    logger.add_step_tag("eval")
    logger.clear_step_tags()
    logger.clear_step_tags()
    logger.add_step_tag("eval")
    logger.rollback(2)
    logger.add_step_tag("eval")
    logger.close()
    assert tags(tmp_path) == [(1, "eval"), (1, "save"), (2, "eval"), (2, "eval"), (2, "eval")]


def test_tags_are_those_of_the_task(tmp_path: Path) -> None:
    """Tasks that interleave at steps of their own each tag their own step."""
    logger = logger_at(tmp_path)

    async def episode(step: int) -> None:
        with logger.step(step):
            for _ in range(3):
                await asyncio.sleep(0)
                logger.add_step_tag(f"tag{step}")

    async def all_of_them() -> None:
        await asyncio.gather(*(episode(step) for step in range(5)))

    asyncio.run(all_of_them())
    logger.close()
    assert sorted(tags(tmp_path)) == [(step, f"tag{step}") for step in range(5)]


@pytest.mark.parametrize("attrs", [{}, {"tag": ""}, {"tag": 3}, {"bytes": 7}])
def test_an_event_that_looks_like_a_tag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attrs: dict[str, Any]
) -> None:
    """The name belongs to tags: without one the line would be of no use to the sidecar, so it is reported and left
    out.
    """
    logger = logger_at(tmp_path)
    logger.event("step_tag", step=1, **attrs)
    logger.event("step_tag", step=1, tag="eval")
    logger.close()
    tags = [e for e in of_kind(records(tmp_path), "event") if e["name"] == "step_tag"]
    assert [event["attrs"] for event in tags] == [{"tag": "eval"}]
    assert "call add_step_tag(tag)" in capsys.readouterr().err
    assert logger.dropped_lines == 1


def test_a_tag_that_was_dropped_is_written_by_the_next_call(tmp_path: Path) -> None:
    """While the buffer is full a tag is counted in a gap, and not taken for written."""
    disk = Stuck()
    logger = logger_at(tmp_path, disk=disk, buffer_bytes=2000)
    logger.set_step(1)
    while not logger.dropped_lines:
        logger.log({"a": 1.0})
    logger.add_step_tag("eval")
    disk.free.set()
    assert logger.flush()
    logger.add_step_tag("eval")
    logger.close()
    assert tags(tmp_path) == [(1, "eval")]
    assert sum(record["n"] for record in of_kind(records(tmp_path), "gap")) == logger.dropped_lines


def test_memory_of_tags_is_bounded(tmp_path: Path) -> None:
    """Only the newest steps' tags are remembered."""
    logger = logger_at(tmp_path)
    for step in range(500):
        logger.set_step(step)
        logger.add_step_tag("eval")
    assert len(logger.stream.tagged) <= 64
    logger.close()
    assert len(tags(tmp_path)) == 500


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**70, 2**70),
        (-0.0, -0.0),
        ("half \ud83d", "half \ufffd"),
        ({"role": "user", "n": [{"deep": [None, True]}]}, {"role": "user", "n": [{"deep": [None, True]}]}),
        ((1, "two"), [1, "two"]),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(3.0), 3.0),
        ([np.array([1.5])], [[1.5]]),
        ({1: "a"}, {"1": "a"}),
    ],
)
def test_plain_data_come_back_as_they_are(tmp_path: Path, value: Any, expected: Any) -> None:
    """Numbers, texts, lists, dicts and arrays, in rows and in attributes, without a word about it."""
    logger = logger_at(tmp_path)
    logger.sample("t", {"v": value})
    logger.event("e", v=value)
    assert logger.stream.notices.counts == {}
    logger.close()
    found = records(tmp_path)
    for got in (of_kind(found, "sample")[0]["row"]["v"], of_kind(found, "event")[0]["attrs"]["v"]):
        assert got == expected
        assert math.copysign(1, got) == math.copysign(1, expected) if isinstance(got, float) else True


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("boom")


def test_anything_else_is_its_repr_and_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each column is reported once on stderr and once in the file; the row is kept whatever its parts do."""
    itself: list[Any] = []
    itself.append(itself)
    logger = logger_at(tmp_path)
    for _ in range(3):
        logger.sample(
            "t", {"colour": Colour.RED, "in": [{1, 2}], "huge": 10**400, "deep": itself, "bad": Unreadable(), "": 1}
        )
    logger.close()
    found = of_kind(records(tmp_path), "sample")
    assert len(found) == 3
    row = found[0]["row"]
    assert (row["colour"], row["in"], row["huge"]) == ("<Colour.RED: 1>", ["{1, 2}"], "1" + "0" * 400)
    assert row["bad"] == "<Unreadable>"
    assert "" not in row
    told = capsys.readouterr().err
    assert told.count("sample('t'): 'colour': it has a part of type Colour, which JSON does not have: its repr") == 1
    for column in ("in", "huge", "deep", "bad", ""):
        assert told.count(f"sample('t'): {column!r}: ") == 1
    events = of_kind(records(tmp_path), "event")
    assert [event["attrs"]["where"] for event in events] == ["sample"] * 6
    assert logger.stream.notices.counts["sample t colour"] == 3


def test_keys_of_one_text_are_one_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1 and "1" the last one's value is written, in rows, attributes and what is nested in them, and told."""
    twice: dict[Any, Any] = {1: "first", "b": 2, "1": "last"}
    logger = logger_at(tmp_path)
    logger.sample("t", twice)
    logger.sample("t", {"in": [twice]})
    logger.close()
    texts = [line for line in lines(tmp_path) if '"kind":"sample"' in line]
    assert [line[line.index('"row":') + 6 : -1] for line in texts] == [
        '{"1":"last","b":2}',
        '{"in":[{"1":"last","b":2}]}',
    ]
    told = capsys.readouterr().err
    for column in ("1", "in"):
        assert f"sample('t'): {column!r}: several of its keys are all written the same way" in told


def shared(depth: int) -> list[Any]:
    """Lists in lists, each of which holds the next one twice."""
    value: list[Any] = [0]
    for _ in range(depth):
        value = [value, value]
    return value


def chain(depth: int, end: Any) -> Any:
    for _ in range(depth):
        end = [end]
    return end


@pytest.mark.parametrize(
    ("make_value", "shown"),
    [
        (lambda: set(range(1_000_000)), '"<set of 1000000>"'),
        (lambda: [{1: {"a"}}, frozenset(range(300_000))], '[{"1":"{\'a\'}"},"<frozenset of 300000>"]'),
        (lambda: chain(30, shared(60)), "[" * 30 + '"<list of 2>"' + "]" * 30),
        (lambda: {"few", "x" * 100}, None),
    ],
    ids=["set", "nested", "deep", "few"],
)
def test_a_repr_that_would_take_long_is_not_made(make_value: Callable[[], Any], shown: str | None) -> None:
    """Of a large set, or of lists that share their parts and are too deep, the row has type and length instead."""
    value = make_value()
    told: list[str] = []
    line = sample_line("t", {"v": value}, None, 0.5, 1, NOW, lambda name, why: told.append(why))
    assert '"row":{"v":%s}' % (json.dumps(repr(value)) if shown is None else shown) in line
    assert len(told) == 1


def test_lists_that_share_their_parts_end_where_the_line_does() -> None:
    """However deep they are, the beginning of their JSON is kept, in bounded time."""
    told: list[str] = []
    line = sample_line("t", {"v": shared(100)}, None, 0.5, 1, NOW, lambda name, why: told.append(why))
    record = json.loads(line)
    assert record["row"]["v"].startswith("[" * 30 + '"<list of 2>","<list of 2>"],["<list')
    assert (len(line) <= MAX_LINE_BYTES, record["cut"]) == (True, {"v": 2})


def test_a_tensor_on_a_device_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its numbers are in the row, and the wait for the device is said once."""

    class Tensor:
        is_cuda = True

        def tolist(self) -> list[float]:
            return [0.5]

    logger = logger_at(tmp_path)
    logger.sample("t", {"v": Tensor()})
    logger.sample("t", {"v": Tensor()})
    logger.close()
    assert of_kind(records(tmp_path), "sample")[1]["row"] == {"v": [0.5]}
    assert capsys.readouterr().err.count("it is on a GPU, and reading it waits for the device") == 1


@pytest.mark.parametrize(
    ("sign", "times"), [("x", 3_000_000), ("\n", 1_500_000), ("ü", 900_000), ("😀", 700_000), ('"', 1_048_576)]
)
def test_long_texts_are_shortened_to_fit_a_line(sign: str, times: int) -> None:
    """The line is at most 1 MiB and nearly that; what is kept is the beginning, and `cut` has the whole length."""
    text = sign * times
    row = {"prompt": "short", "response": text, "n": 3}
    line = sample_line("t", row, "0.5", 0.5, 12, NOW, lambda column, why: None)
    assert MAX_LINE_BYTES * 0.95 < len(line.encode()) <= MAX_LINE_BYTES
    found = json.loads(line)
    assert found["cut"] == {"response": len(text)}
    assert (found["row"]["prompt"], found["row"]["n"]) == ("short", 3)
    assert text.startswith(found["row"]["response"])


@pytest.mark.parametrize("shape", [(4_000_000,), (4000, 1000), (2, 2000, 1000), (1000, 4000, 1), (4, 1, 1_000_000)])
def test_of_a_large_array_only_the_beginning_is_read(shape: tuple[int, ...]) -> None:
    """What does not fit in a line costs neither time nor memory: a row may hold all logits of a step."""
    read: list[int] = []

    class Array(np.ndarray[Any, Any]):
        def tolist(self) -> Any:
            read.append(self.size)
            return super().tolist()

    array = np.zeros(shape, dtype=np.int8).view(Array)
    row = json.loads(sample_line("t", {"logits": array}, None, 0.5, 1, 2.0, lambda name, why: None))
    assert row["row"]["logits"].startswith("[" * len(shape) + "0")
    assert set(row["row"]["logits"]) == set("[,0]" if shape[-1] < 1_000_000 else "[,0")
    assert len(row["row"]["logits"]) > 1_000_000
    assert row["cut"] == {"logits": shape[0]}
    assert sum(read) <= 1 << 20


def test_the_longest_values_are_shortened_to_one_length() -> None:
    """Short values stay; a list or dict that is too long becomes a text, the beginning of its JSON."""
    row = {"a": "a" * 700_000, "b": "b" * 600_000, "c": "c" * 100_000, "ids": list(range(400_000)), "d": {"k": "d" * 9}}
    found = json.loads(sample_line("t", row, None, 0.5, None, NOW, lambda column, why: None))
    assert found["cut"] == {"a": 700_000, "b": 600_000, "ids": 400_000}
    assert (found["row"]["c"], found["row"]["d"]) == (row["c"], row["d"])
    assert abs(len(found["row"]["a"]) - len(found["row"]["b"])) <= 2
    assert json.dumps(row["ids"], separators=(",", ":")).startswith(found["row"]["ids"])


def test_events_are_shortened_too() -> None:
    """An attribute of 2 MB does not make a line that no reader takes."""
    found = event_line("e", {"text": "x" * 2_000_000}, 1, NOW, lambda attribute, why: None)
    assert len(found) <= MAX_LINE_BYTES
    assert json.loads(found)["cut"] == {"text": 2_000_000}


def test_a_row_that_cannot_fit_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred thousand columns are reported once and counted; the file says that lines are missing."""
    logger = logger_at(tmp_path)
    logger.sample("t", {f"column {i}": "x" * 100 for i in range(100_000)})
    logger.close()
    assert capsys.readouterr().err.count("its 100000 values do not fit in a line of 1 MiB") == 1
    assert logger.dropped_lines == 1
    assert of_kind(records(tmp_path), "gap") == [{"n": 1}]


@pytest.mark.parametrize("score", [math.nan, math.inf, "high", [1, 2], object(), 10**400])
def test_a_score_that_is_none_keeps_the_row(tmp_path: Path, capsys: pytest.CaptureFixture[str], score: Any) -> None:
    """The sample is written without a score, and that is said once."""
    logger = logger_at(tmp_path)
    logger.sample("t", {"a": 1}, score=score)
    logger.sample("t", {"a": 1}, score=score)
    logger.close()
    assert [("score" in found, found["row"]) for found in of_kind(records(tmp_path), "sample")] == [
        (False, {"a": 1}),
        (False, {"a": 1}),
    ]
    assert capsys.readouterr().err.count("the row is kept without a score") == 1


def test_scores_of_any_scalar_are_scores(tmp_path: Path) -> None:
    """numpy scalars, one-element arrays, ints and bools rank rows."""
    logger = logger_at(tmp_path)
    for score in (np.float32(0.5), np.array([2.0]), 3, True):
        logger.sample("t", {}, score=score)
    logger.close()
    assert [found["score"] for found in of_kind(records(tmp_path), "sample")] == [0.5, 2.0, 3, 1]


@pytest.mark.parametrize("name", ["", "x" * 1001])
def test_names_that_cannot_be_used_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """An empty or endless name of an event, a tag or a table leaves its call out, counted and told."""
    logger = logger_at(tmp_path)
    logger.set_step(1)
    for _ in range(2):
        logger.event(name)
        logger.add_step_tag(name)
        logger.sample(name, {})
    logger.close()
    told = capsys.readouterr().err
    for call in ("event", "add_step_tag", "sample"):
        assert told.count(f"{call}({name[:40]!r}): the name ") == 1
    assert logger.dropped_lines == 6
    assert kinds(records(tmp_path)).count("sample") == 0


def test_other_wrong_calls_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tag without a step, a bad step, a row that is no dict: each left out with one answer."""
    logger = logger_at(tmp_path)
    for _ in range(2):
        logger.add_step_tag("eval")
        logger.clear_step_tags()
        logger.event("e", step=1.5)  # type: ignore[arg-type]
        logger.sample("t", {}, step=-1)
        logger.sample("t", ["a", "b"])  # type: ignore[arg-type]
        logger.sample("t", None)  # type: ignore[arg-type]
    logger.close()
    told = capsys.readouterr().err
    assert told.count("add_step_tag('eval') without a step: call set_step(n) before") == 1
    assert told.count("event: step=1.5 is not a step") == 1
    assert told.count("sample: step=-1 is not a step") == 1
    assert told.count("sample('t') takes a row as a dict of columns, not ['a', 'b']") == 1
    assert logger.dropped_lines == 8


def test_samples_beyond_the_budget_are_counted_before_the_barrier(tmp_path: Path) -> None:
    """A step's file stays below twice the budget; the samples with the smallest `pri` are all there; the rest is in
    one event with its number and its smallest `pri`.
    """
    logger = logger_at(tmp_path)
    drawn = []
    for i in range(6000):
        logger.sample("t", {"i": i, "text": "x" * 1000}, step=1)
    logger.sample("t", {"i": -1}, step=2)
    logger.barrier(1)
    logger.close()
    found = records(tmp_path)
    kept = [record for record in of_kind(found, "sample") if record["step"] == 1]
    drawn = [record["pri"] for record in kept]
    assert len(json.dumps(kept)) < 2 * quota.BYTES_PER_STEP
    dropped = [record for record in of_kind(found, "event") if record["name"] == "samples_dropped"]
    assert sum(event["attrs"]["n"] for event in dropped) == 6000 - len(kept)
    assert {event["step"] for event in dropped} == {1}
    assert sum(pri < min(event["attrs"]["pri"] for event in dropped) for pri in drawn) >= 5
    assert kinds(found).index("barrier") > max(
        i for i, record in enumerate(found) if record.get("name") == "samples_dropped"
    )
    assert kinds(found)[-1] == "close"


def test_what_was_dropped_is_told_at_the_end_too(tmp_path: Path) -> None:
    """Without a barrier the count of the last step stands before `close`, that of one before where the next begins."""
    logger = logger_at(tmp_path, timing=SLOW, buffer_bytes=64 << 20)
    for step in (1, 2):
        for _ in range(4000):
            logger.sample("t", {"text": "x" * 1000}, step=step)
    logger.rollback(1)
    for _ in range(4000):
        logger.sample("t", {"text": "x" * 1000})
    logger.close()
    found = [
        (record["kind"], record.get("step"))
        for record in records(tmp_path)
        if record.get("name") == "samples_dropped" or record.get("kind") in ("rollback", "close")
    ]
    assert found == [("event", 1), ("event", 2), ("rollback", 1), ("event", 1), ("close", None)]


def test_samples_do_not_touch_the_jobs_random_numbers(tmp_path: Path) -> None:
    """A seeded job draws the same numbers, whether it samples or not."""
    import random

    logger = logger_at(tmp_path)
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    for _ in range(100):
        logger.sample("t", {})
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index]
    logger.close()
    drawn = [record["pri"] for record in of_kind(records(tmp_path), "sample")]
    assert len(set(drawn)) == 100
    assert all(0 <= pri < 1 for pri in drawn)
    assert 0.3 < sum(drawn) / 100 < 0.7


def test_threads_may_say_things_at_once(tmp_path: Path) -> None:
    """Events, samples and tags of eight threads are all in the file, whole."""
    logger = logger_at(tmp_path)

    def work(name: int, logger: Logger = logger) -> None:
        for i in range(100):
            logger.event("e", who=name, i=i)
            logger.sample(f"t{name}", {"i": i}, step=i)
            with logger.step(i):
                logger.add_step_tag("shared")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.close()
    found = records(tmp_path)
    said = [(event["attrs"]["who"], event["attrs"]["i"]) for event in of_kind(found, "event") if event["name"] == "e"]
    assert sorted(said) == [(name, i) for name in range(8) for i in range(100)]
    assert len(of_kind(found, "sample")) == 800
    assert {step for step, _ in tags(tmp_path)} == set(range(100))
