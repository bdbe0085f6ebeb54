"""CPU time of one span and of one record_metric, all included, and the effect of 20 metrics on the steps of a busy
loop.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.files import values
from benchmarks.report import Finding, Result, median, percentile, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

_SLICE = 10_000
_KEYS = 20
_STEP_S = 0.01  # work of one step of the busy loop

METHOD = (
    "{calls:,} calls each; {rounds} rounds, each subject in a fresh process, in turn. CPU = user + system time of the "
    "process with all its threads, until the last byte is handed to the kernel, over the calls; µs. span: enter and "
    "exit of an empty `with rlship.span(name)`. record_metric: 20 metrics a step with a declared reduction, random "
    "doubles. Both are flushed every {slice:,} calls, and every one of them is counted in the file afterwards. "
    "logging: one line for each by a FileHandler, formatted with %. log-a-line: a dict for each through a handler "
    "that writes json.dumps and flushes, as TorchTitan's stack does. accumulate: sums and counts in a dict, which "
    "never reach a file, as Forge's do until its flush. Busy loop: {steps:,} steps of {work:g} ms of arithmetic, in "
    "turns of 50 with and without 20 record_metric, a span and a barrier in each; the step's wall time, "
    "which others on the machine lengthen too, and its thread's CPU time, which they hardly do."
)


def measure(folder: Path, quick: bool) -> Result:
    """Run the rounds in `folder`."""
    rounds, calls, steps = (1, 10_000, 100) if quick else (5, 60_000, 1_500)
    place = iter(range(1_000_000))

    def run(subject: str) -> Figures:
        own = folder / f"{subject}-{next(place)}"
        own.mkdir()
        return in_child("benchmarks.tracing", subject, {"folder": str(own), "calls": calls})

    names = ("rlship_cpu", "logging_cpu", "line_cpu", "accumulate_cpu")
    found = in_turn({name: partial(run, name) for name in names}, rounds)
    findings = []
    for figure, limit in (("span", 3.0), ("record_metric", 1.5)):
        ours = column(found["rlship_cpu"], figure)
        for name, subject in (
            ("logging, a line each", "logging_cpu"),
            ("log-a-line, json.dumps and flush", "line_cpu"),
            ("accumulate in memory, not written", "accumulate_cpu"),
        ):
            beside = column(found[subject], figure)
            findings.append(
                Finding(
                    figure,
                    median(ours),
                    "µs",
                    name,
                    median(beside),
                    ratio(ours, beside),
                    f"< {limit:g} µs",
                    median(ours) < limit,
                )
            )
    loops = [
        in_child("benchmarks.tracing", "busy_loop", {"folder": str(folder), "calls": steps, "place": f"loop-{i}"})
        for i in range(rounds)
    ]
    for share in ("p50", "p99", "CPU p50", "CPU p99"):
        ours, beside = column(loops, f"with {share}"), column(loops, f"without {share}")
        times = ratio(ours, beside)
        aim, reached = ("< 1.1", times < 1.1) if share == "p99" else ("", None)
        name = f"step of a busy loop, {share}"
        findings.append(Finding(name, median(ours), "ms", "without logging", median(beside), times, aim, reached))
    method = METHOD.format(calls=calls, rounds=rounds, slice=_SLICE, steps=steps, work=_STEP_S * 1e3)
    return Result("spans and record_metric", method, findings)


# Subjects: each runs in a process of its own and returns µs of CPU per call ------------------------------------------


def rlship_cpu(folder: str, calls: int) -> Figures:
    """rlship itself, with its writing thread."""
    import rlship

    logger = rlship.init(folder, actor="trainer", rank=0, world=1)

    def span(step: int) -> None:
        with rlship.span("rollout"):
            return

    def flushed() -> None:
        if not logger.flush(60.0):
            raise RuntimeError("rlship could not write within 60 s: the figure is void")

    figures = _both(span, rlship.record_metric, calls, rlship.set_step, flushed)
    logger.close()
    assert logger.path is not None
    lines = [json.loads(line) for line in Path(logger.path).read_bytes().splitlines()]
    spans = sum(line.get("kind") == "span" for line in lines)
    metrics = sum(
        len(value) if isinstance(value, list) else 1
        for line in lines
        if "kind" not in line
        for value in line["m"].values()
    )
    # A first round of each warms up.
    if (spans, metrics) != (calls + _SLICE, calls + _SLICE) or logger.dropped_lines:
        raise RuntimeError(f"{spans} spans and {metrics} metrics for {calls + _SLICE} calls: the figures are void")
    return figures


def logging_cpu(folder: str, calls: int) -> Figures:
    """Python's logging: a line for each."""
    handler = logging.FileHandler(os.path.join(folder, "log"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    return _logged(handler, calls, lambda logger, name, value: logger.info("%s=%r", name, value))


def line_cpu(folder: str, calls: int) -> Figures:
    """A JSON line for each, with a handler that flushes."""

    class Lines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return json.dumps(record.msg)

    handler = logging.FileHandler(os.path.join(folder, "log"))
    handler.setFormatter(Lines())

    def log(logger: logging.Logger, name: str, value: float) -> None:
        entry = {"key": name, "reduce": "MeanMetric", "sum": value, "weight": 1, "step": 1, "timestamp": time.time()}
        logger.info(entry)

    return _logged(handler, calls, log)


def accumulate_cpu(folder: str, calls: int) -> Figures:
    """Sums and counts in memory."""
    sums: dict[str, list[float]] = {}

    def record(name: str, value: float, reduction: str) -> None:
        entry = sums.get(name)
        if entry is None:
            sums[name] = [value, 1.0]
        else:
            entry[0] += value
            entry[1] += 1.0

    def span(step: int) -> None:
        with _Timed("rollout", lambda name, value: record(name, value, "mean")):
            return

    return _both(span, record, calls, lambda step: None, lambda: None)


def busy_loop(folder: str, calls: int, place: str) -> Figures:
    """Wall and CPU times of steps, ms, in turns with and without logging."""
    import rlship

    logger = rlship.init(os.path.join(folder, place), actor="trainer", rank=0, world=1)
    names = [f"metric/{i}" for i in range(_KEYS)]
    rounds = _rounds()
    times: dict[tuple[bool, str], list[float]] = {(logs, of): [] for logs in (False, True) for of in ("", "CPU ")}
    for step in range(calls):
        logs = step // 50 % 2 == 1
        began, began_cpu = time.perf_counter(), time.thread_time()
        if logs:
            with rlship.span("work"):
                found = _work(rounds)
            for name in names:
                rlship.record_metric(name, found, "mean")
            rlship.barrier(step)
        else:
            found = _work(rounds)
        times[logs, "CPU "].append((time.thread_time() - began_cpu) * 1e3)
        times[logs, ""].append((time.perf_counter() - began) * 1e3)
    logger.close()
    return {
        f"{'with' if logs else 'without'} {of}p{share:.0f}": percentile(taken, share / 100)
        for (logs, of), taken in times.items()
        for share in (50.0, 99.0)
    }


class _Timed:
    """A hand-written span: it calls `report` with its time."""

    def __init__(self, name: str, report: Callable[[str, float], None]) -> None:
        self._name = name
        self._report = report

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._report(self._name, time.perf_counter() - self._began)


def _logged(handler: logging.Handler, calls: int, log: Callable[[logging.Logger, str, float], None]) -> Figures:
    logger = logging.getLogger("benchmark")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)

    def span(step: int) -> None:
        with _Timed("rollout", lambda name, value: log(logger, name, value)):
            return

    def record(name: str, value: float, reduction: str) -> None:
        log(logger, name, value)

    return _both(span, record, calls, lambda step: None, handler.flush)


def _both(
    span: Callable[[int], None],
    record: Callable[..., Any],
    calls: int,
    set_step: Callable[[int], object],
    flush: Callable[[], object],
) -> Figures:
    """µs of CPU for each span and each record."""
    rows = [values(_KEYS, source) for source in _sources(100)]

    def spans(count: int) -> None:
        for start in range(0, count, _SLICE):
            for step in range(start, start + _SLICE):
                span(step)
            flush()

    def records(count: int) -> None:
        for start in range(0, count // _KEYS, _SLICE // _KEYS):
            for step in range(start, start + _SLICE // _KEYS):
                set_step(step)
                for name, value in rows[step % len(rows)].items():
                    record(name, value, "mean")
            flush()

    figures = {}
    for name, run in (("span", spans), ("record_metric", records)):
        run(_SLICE)
        began = time.process_time()
        run(calls)
        figures[name] = (time.process_time() - began) / calls * 1e6
    return figures


def _sources(count: int) -> list[Any]:
    import random

    return [random.Random(seed) for seed in range(count)]


def _work(rounds: int) -> float:
    total = 0.0
    for i in range(rounds):
        total += math.sqrt(i)
    return total


def _rounds() -> int:
    """How much arithmetic fills a step's time."""
    best = math.inf
    for _ in range(20):
        began = time.perf_counter()
        _work(10_000)
        best = min(best, time.perf_counter() - began)
    return max(1, round(10_000 * _STEP_S / best))
