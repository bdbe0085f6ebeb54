"""Peak memory of the sidecar with many ranks and several steps open at once."""

from __future__ import annotations

import gc
import os
import random
import time
from functools import partial
from pathlib import Path

from benchmarks.files import T0, barrier_line, file_of, metrics_line, open_line, values, writers_folder
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn
from benchmarks.watching import peak_mb, watching
from rlship_sidecar.report.status import Status

LIMIT_MB = 150.0

METHOD = (
    "{ranks:,} ranks x {metrics} metrics, {open_steps} steps open at once: the last rank's lines are held back "
    "until all others' are read, then written, so that the steps close; {times} times over. Peak resident memory "
    "(VmHWM) in MB (10^6 bytes), medians of {rounds} rounds, in turn: the pipeline and its store alone; `rlship "
    "watch --sink jsonl` as a whole; beside, a bare interpreter that has imported the pipeline. The values alone "
    "are {raw:.1f} MB of doubles."
)


def measure(folder: Path, quick: bool) -> Result:
    """Run the rounds in `folder`."""
    ranks, metrics, open_steps, times, rounds = (32, 10, 5, 2, 1) if quick else (1_024, 100, 5, 4, 3)
    job = {"ranks": ranks, "metrics": metrics, "open_steps": open_steps, "times": times}
    place = iter(range(1_000_000))
    found = in_turn(
        {
            "bare": lambda: in_child("benchmarks.memory", "bare_peak", {}),
            "pipeline": lambda: in_child(
                "benchmarks.memory", "pipeline_peak", {"experiment": str(folder / f"job-{next(place)}"), **job}
            ),
            "watch": lambda: watch_peak(folder / f"job-{next(place)}", **job),
        },
        rounds,
    )
    bare = column(found["bare"], "peak_mb")
    findings = []
    for figure, name in (("pipeline and store", "pipeline"), ("rlship watch --sink jsonl", "watch")):
        ours = column(found[name], "peak_mb")
        findings.append(
            Finding(
                figure,
                median(ours),
                "MB",
                "imports alone",
                median(bare),
                ratio(ours, bare),
                f"< {LIMIT_MB:.0f} MB",
                median(ours) < LIMIT_MB,
            )
        )
    raw = ranks * metrics * open_steps * 8 / 1e6
    return Result("peak memory", METHOD.format(**job, rounds=rounds, raw=raw), findings)


class _Ranks:
    """All ranks of a job, which write a few steps at a time; the last one may be held back."""

    def __init__(self, folder: Path, ranks: int, metrics: int) -> None:
        self._paths = [file_of(folder, rank) for rank in range(ranks)]
        self._metrics = metrics
        self._source = random.Random(4)
        for rank, path in enumerate(self._paths):
            path.write_bytes(open_line(rank, ranks))

    def write(self, ranks: slice, steps: range) -> None:
        """Lines and barriers of these ranks for these steps."""
        for path in self._paths[ranks]:
            with path.open("ab") as file:
                for step in steps:
                    drawn = values(self._metrics, self._source)
                    file.write(metrics_line(step, T0 + step, drawn) + barrier_line(step, T0 + step))


def _batches(open_steps: int, times: int) -> list[range]:
    return [range(start, start + open_steps) for start in range(0, open_steps * times, open_steps)]


# Subjects ------------------------------------------------------------------------------------------------------------


def bare_peak() -> Figures:
    """An interpreter that has imported everything that the pipeline needs."""
    import rlship_sidecar.pipeline.experiment  # noqa: F401 - importing it is what is measured

    return {"peak_mb": peak_mb()}


def pipeline_peak(experiment: str, ranks: int, metrics: int, open_steps: int, times: int) -> Figures:
    """The pipeline in this process, which has no other work."""
    from rlship_sidecar.filesystem import filesystem_of
    from rlship_sidecar.pipeline.experiment import Experiment
    from rlship_sidecar.store.store import Store

    folder = writers_folder(Path(experiment))
    job = _Ranks(folder, ranks, metrics)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    filesystem = filesystem_of(os.path.realpath(experiment))
    store = Store(Path(experiment) / "store.db", local=filesystem.local)
    pipeline = Experiment(Path(experiment), store, filesystem, now=time.monotonic())
    for steps in _batches(open_steps, times):
        job.write(slice(None, -1), steps)
        while pipeline.tick(time.monotonic(), time.time()):
            pass
        found = len(pipeline.actors["trainer"].open)
        if found != open_steps:
            raise RuntimeError(f"{found} steps are open, not {open_steps}: the figure is void")
        job.write(slice(-1, None), steps)
        while pipeline.tick(time.monotonic(), time.time()):
            pass
    rows = store.row_count()
    pipeline.close()
    store.close()
    if rows != open_steps * times:
        raise RuntimeError(f"{rows} rows, not {open_steps * times}: the figure is void")
    return {"peak_mb": peak_mb()}


def watch_peak(experiment: Path, ranks: int, metrics: int, open_steps: int, times: int) -> Figures:
    """The daemon; this process writes its input."""
    job = _Ranks(writers_folder(experiment), ranks, metrics)
    with watching(experiment) as watcher:
        for steps in _batches(open_steps, times):
            job.write(slice(None, -1), steps)
            watcher.wait_until(partial(_all_open, open_steps, steps[-1], ranks - 1), f"at {open_steps} open steps")
            job.write(slice(-1, None), steps)
            watcher.wait_until(partial(_rows_made, steps[-1] + 1), "done with the open steps")
        return {"peak_mb": watcher.peak_mb()}


def _all_open(steps: int, newest: int, ranks: int, status: Status) -> bool:
    """Whether this many steps are open, and this many ranks are read up to the newest of them."""
    if not status.actors or status.actors[0].open_units != steps:
        return False
    return sum(writer.step == newest for writer in status.writers) == ranks


def _rows_made(rows: int, status: Status) -> bool:
    return status.rows == rows
