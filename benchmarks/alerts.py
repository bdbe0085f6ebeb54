"""CPU time of rules of alerts in a sidecar: for each step, and for a late line near the beginning of a long job."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Finding, Result, median
from benchmarks.rounds import Figures, in_child

if TYPE_CHECKING:
    from rlship_sidecar.alerts.frames import StepFrame
    from rlship_sidecar.pipeline.alert_book import AlertBook
    from rlship_sidecar.rows import Row
    from rlship_sidecar.store.store import Store

METRICS = 100  # of which no rule knows any, beside those that rules know
STEPS = {8: 50_000, 1_024: 2_000}  # by ranks
LATE = 10  # the step of the late line
TIMES = 9
AT_ONCE = 100  # rows of a look while history is made
MOST_MS = 10.0

METHOD = (
    "Rows of the lead as of a simulated healthy run, with all metrics that rules look at, four of them by rank, and "
    f"{METRICS} others; {{steps}}, a tenth of them one by one. "
    "CPU = the thread's time in the evaluation, without the commit. A late line: the evaluation starts again, as "
    f"with the sidecar, and takes one more step in; then the row of step {LATE} changes; the median of {TIMES} times. "
    "It changes the gradient's norm alone, or every metric and one rank's values."
)


def measure(folder: Path, quick: bool) -> Result:
    """Keep stores in `folder`."""
    steps = dict.fromkeys(STEPS, 100) if quick else STEPS
    findings = []
    for ranks, count in steps.items():
        given = {"path": str(folder / f"{ranks}.db"), "count": count, "ranks": ranks}
        found = in_child("benchmarks.alerts", "costs", given)
        findings += [
            Finding(f"a step, {ranks:,} ranks", found["step"], "ms"),
            Finding(
                f"a late line of one metric, {ranks:,} ranks",
                found["one"],
                "ms",
                aim=f"below {MOST_MS:g} ms",
                reached=found["one"] < MOST_MS,
            ),
            Finding(f"a late line of all metrics, {ranks:,} ranks", found["all"], "ms"),
        ]
    said = ", ".join(f"{count:,} steps of {ranks:,} ranks" for ranks, count in steps.items())
    return Result("CPU of the rules of alerts", METHOD.format(steps=said), findings)


def costs(path: str, count: int, ranks: int) -> Figures:
    """In a fresh process: milliseconds of a step, and of a late line of one metric and of all."""
    from rlship_sidecar.store.store import Store
    from tests.alerts.healthy import healthy

    gc.set_threshold(50_000, 20, 100)  # as the sidecar does
    frames = healthy(1, count + 4 * TIMES, ranks)
    every = [(frame.index, frame) for frame in frames]
    store = Store(Path(path), local=True)
    book = _book(store)
    found: dict[str, list[float]] = {"step": [], "one": [], "all": []}
    measured = count // 10
    rows = (_row(frame, ranks, number) for number, (_, frame) in enumerate(every[: count - measured]))
    while some := list(islice(rows, AT_ONCE)):
        _look(book, store, some)
    for _, frame in every[count - measured : count]:
        found["step"].append(_look(book, store, [_row(frame, ranks, store.row_count())]))
    later = iter(every[count:])
    late = next(frame for index, frame in every if index == LATE)
    for kind in ("one", "all"):
        for number in range(TIMES):
            book = _book(store)
            _look(book, store, [_row(next(later)[1], ranks, store.row_count())])
            late = _changed(late, 1.001, ("train/grad_norm",) if kind == "one" else late.values)
            row = _row(late, ranks, store.row_count(), revision=number + 1)
            found[kind].append(_look(book, store, [row]))
    store.close()
    return {name: 1000 * median(times) for name, times in found.items()}


def _book(store: Store) -> AlertBook:
    from rlship_sidecar.alerts.rules import rules_of
    from rlship_sidecar.pipeline.alert_book import AlertBook, Alerting

    book = AlertBook(store, Alerting(rules_of()), "trainer")
    book.load([], 0.0)
    return book


def _look(book: AlertBook, store: Store, rows: list[Row]) -> float:
    """One look at new rows: the CPU seconds of their evaluation."""
    from rlship_sidecar.store.changes import Changes

    began = time.thread_time()
    made = book.rows(rows, 0.0)
    spent = time.thread_time() - began
    store.commit(Changes(rows=[*rows, *made], dirty=list(book.revisions.unsaved), revised=book.take_done()))
    book.revisions.unsaved.clear()
    return spent


def _changed(frame: StepFrame, by: float, names: tuple[str, ...] | Mapping[str, float]) -> StepFrame:
    """A frame with other values of these metrics, and of the last rank if all are named."""
    values = {name: value * by if name in names else value for name, value in frame.values.items()}
    if len(names) == 1:
        return replace(frame, values=values)
    ranks = {name: [*found[:-1], (found[-1][0], found[-1][1] * by)] for name, found in frame.ranks.items()}
    return replace(frame, values=values, ranks=ranks)


def _row(frame: StepFrame, ranks: int, number: int, revision: int = 0) -> Row:
    """A frame as a row of the lead."""
    from rlship_sidecar.rows import STEP, Arrival, Coverage, Row, Unit

    values = {f"trainer/{name}": value for name, value in frame.values.items() if not name.startswith("coverage/")}
    values |= {f"trainer/other_{at}": 1.0 for at in range(METRICS)}
    by_rank = {
        f"trainer/{name}": [(place.partition("/")[2], value) for place, value in found]
        for name, found in frame.ranks.items()
    }
    return Row(
        Unit("trainer", STEP, frame.index),
        frame.t,
        {"global_step": frame.index},
        values,
        Coverage((f"0.0-{ranks - 1}",), ranks, attempts=(0,)),
        Arrival(number, revision, tuple(values), "complete"),
        per_rank=by_rank,
    )
