"""What cannot be encoded when its time comes is lost alone: everything else of the process is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlship.flusher import Timing
from tests.writer.reading import NOW, logger_at, metrics, records

SLOW = Timing(flush=30.0)


class Name(str):
    """A name that is good until it is looked at closely."""

    def __str__(self) -> str:
        return self

    def isascii(self) -> bool:
        raise RuntimeError("no look")


class Task(asyncio.Task[Any]):
    """A task of a library of its own, which cannot say its name."""

    def get_name(self) -> str:
        raise RuntimeError("no name")


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in found if record.get("kind") == kind]


def test_an_observation_that_cannot_be_encoded_costs_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those before and behind it are written, of its step as well, and barriers; a gap counts it, it is reported
    once.
    """
    logger = logger_at(tmp_path, timing=SLOW)
    for step in (3, 4):
        logger.set_step(step)
        logger.record_metric("a", 1.0)
        logger.record_metric(Name("b"), 2.0)
        logger.record_metric("a", [3.0, 4.0])
        logger.barrier()
    logger.record_metric("a", 5.0)
    assert logger.close()
    found = records(tmp_path)
    assert metrics(found) == [
        {"step": 3, "m": {"a": [1, 3, 4]}},
        {"step": 4, "m": {"a": [1, 3, 4]}},
        {"step": 5, "m": {"a": 5}},
    ]
    assert [record["step"] for record in of_kind(found, "barrier")] == [3, 4]
    assert [(gap["n"], gap["from"], gap["to"]) for gap in of_kind(found, "gap")] == [(1, 3, 3), (1, 4, 4)]
    assert [event["attrs"]["where"] for event in of_kind(found, "event")] == ["record_metric"]
    assert (logger.dropped_lines, logger.errors) == (2, 2)
    told = capsys.readouterr().err
    assert told.count("internal error in record_metric, the job goes on: RuntimeError: no look") == 1


def test_a_span_that_cannot_be_encoded_costs_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that cannot say its name loses its spans; others are written, with what else was logged."""
    logger = logger_at(tmp_path, timing=SLOW)

    async def work() -> None:
        with logger.span("inside"):
            logger.log({"a": 1.0})

    with logger.span("before"):
        pass
    loop = asyncio.new_event_loop()
    loop.set_task_factory(lambda loop, coroutine, **more: Task(coroutine, loop=loop, **more))  # type: ignore[arg-type]
    logger.set_step(7)
    try:
        for _ in range(2):
            loop.run_until_complete(work())
    finally:
        loop.close()
    with logger.span("after"):
        pass
    assert logger.close()
    found = records(tmp_path)
    assert [span["name"] for span in of_kind(found, "span")] == ["before", "after"]
    assert [record["m"] for record in metrics(found)] == [{"a": 1}, {"a": 1}]
    assert [(gap["n"], gap["from"], gap["to"]) for gap in of_kind(found, "gap")] == [(2, 7, 7)]
    assert capsys.readouterr().err.count("internal error in span, the job goes on: RuntimeError: no name") == 1


def test_observations_that_cannot_be_encoded_together_are_lost_together(tmp_path: Path) -> None:
    """Where each could be a line, but all of them cannot, all are counted and no value is tried for ever."""
    logger = logger_at(tmp_path, timing=SLOW)
    logger.log({"a": 1.0}, step=3)
    logger.set_step(3)
    logger.record_metric("b", 1.0)
    logger.record_metric("b", 2.0)

    def one(found: dict[str, Any], step: int | None, t: float) -> list[str]:
        if any(len(value) > 3 for value in found.values()):
            raise MemoryError
        return [f'{{"t":{NOW},"step":{step},"m":{{}}}}\n']

    logger.stream.encoder.pack = one  # type: ignore[method-assign]
    logger.barrier()
    assert logger.close()
    found = records(tmp_path)
    assert metrics(found) == [{"step": 3, "m": {"a": 1}}]
    assert [(gap["n"], gap["from"], gap["to"]) for gap in of_kind(found, "gap")] == [(2, 3, 3)]
    assert of_kind(found, "barrier") and of_kind(found, "close")


def test_lines_in_the_buffer_are_written_whatever_becomes_of_others(tmp_path: Path) -> None:
    """An error of gathering, even one of ours, holds back nothing that was logged before or after it."""
    logger = logger_at(tmp_path)

    def broken(upto: int | None = None) -> None:
        raise RuntimeError("broken")

    logger.stream.collect = broken  # type: ignore[method-assign]
    logger.log({"a": 1.0})
    assert logger.flush()
    assert [record["m"] for record in metrics(records(tmp_path))] == [{"a": 1}]
    del logger.stream.collect
    assert logger.close()
