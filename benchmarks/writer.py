"""CPU time of one `log()` of 1, 5 and 20 keys, all included: encoding, the share of its thread, and the write.

In a tight loop, and in one that leaves the caches cold and ends each step with a barrier, as a job does.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.files import values
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

if TYPE_CHECKING:
    import rlship  # each subject imports it in a process of its own

KEYS = (1, 5, 20)
_DISTINCT = 500
_SLICE = 2_000
LOOP_KEYS = 5
SWEPT_BYTES = 16 << 20
SLEEP_S = 0.003
ALL_IN_MOST, CALLING_MOST = 1.5, 0.8  # times json.dumps + os.write

METHOD = (
    "{calls:,} calls of rlship and of json.dumps + os.write, {wandb:,} of wandb, {board:,}/keys of tensorboardX; "
    "{rounds} rounds, each subject in a fresh process, in turn. CPU = user + system time of the process with all "
    "its threads, until the last byte is handed to the kernel, over the calls; µs. Values are random doubles of "
    "full precision. rlship's own thread writes while the calls go on, flushed every {slice:,} calls so that "
    "nothing is dropped: every line is counted in the file afterwards. json: one os.write per call of the same "
    'record {{"t", "step", "m"}}. wandb: offline, console, statistics and metadata off; the row that the aim is '
    "about counts the calling process during the calls alone, the other one also wandb-core and finish(). "
    "tensorboardX: a queue that never fills, close() included."
)
LOOP_METHOD = (
    "Loop: {steps:,} steps of {keys} keys, {rounds} rounds, in turn. Each step reads through {swept} MB, so that the "
    "caches are cold, makes its calls, and sleeps {sleep:g} ms. All-in: the CPU of all threads less that of the "
    "reading and sleeping; calling thread: the CPU of its calls alone; µs a step. Beside are one write per step of the "
    "same record, and json.dumps into a file with Python's buffer, which reaches the disk when that is full; and "
    "wandb offline, whose calling process alone counts. The tight "
    "loop with barriers has neither reading nor sleep. Every line and barrier is counted in the file afterwards."
)
PARTS = ("tight", "loop")


def measure(folder: Path, quick: bool, parts: Sequence[str] = PARTS) -> Result:
    """Run these loops in `folder`."""
    both = [(_measure_loop if part == "loop" else _measure_tight)(folder, quick) for part in parts]
    return Result("CPU per log()", " ".join(method for method, _ in both), [one for _, found in both for one in found])


def _measure_tight(folder: Path, quick: bool) -> tuple[str, list[Finding]]:
    rounds, calls, wandb_calls, board_calls = (1, 2_000, 100, 100) if quick else (5, 40_000, 4_000, 8_000)
    counts = {"rlship": calls, "json": calls, "wandb": wandb_calls, "tensorboardx": board_calls}
    place = iter(range(1_000_000))

    def run(subject: str) -> Figures:
        own = folder / f"{subject}-{next(place)}"
        own.mkdir()
        return in_child("benchmarks.writer", f"{subject}_cpu", {"folder": str(own), "calls": counts[subject]})

    found = in_turn({name: partial(run, name) for name in counts}, rounds)
    findings = []
    for keys in KEYS:
        ours = column(found["rlship"], str(keys))
        for name, subject, figure in (
            ("wandb run.log, calling process", "wandb", f"{keys}"),
            ("wandb with wandb-core", "wandb", f"{keys} all"),
            ("tensorboardX add_scalar", "tensorboardx", f"{keys}"),
            ("json.dumps + os.write", "json", f"{keys}"),
        ):
            beside = column(found[subject], figure)
            times = ratio(ours, beside)
            aim, limit = _aim(keys, figure, subject)
            findings.append(
                Finding(
                    f"log of {keys} keys", median(ours), "µs", name, median(beside), times, aim, _reached(times, limit)
                )
            )
    method = METHOD.format(slice=_SLICE, calls=calls, wandb=wandb_calls, board=board_calls, rounds=rounds)
    return method, findings


_OURS = {"rlship log": "log", "rlship log + barrier": "log + barrier"}
_WANDB = "wandb run.log, calling process"
_LOOPS = (*_OURS, "json.dumps + os.write", "json.dumps, buffered", "orjson + os.write", _WANDB)


def _measure_loop(folder: Path, quick: bool) -> tuple[str, list[Finding]]:
    rounds, steps = (1, 30) if quick else (5, 600)
    place = iter(range(1_000_000))

    def run(subject: str, cold: bool) -> Figures:
        path = folder / f"loop-{next(place)}"
        path.mkdir()
        arguments = {"folder": str(path), "subject": subject, "steps": steps if cold else 10 * steps, "cold": cold}
        return in_child("benchmarks.writer", "loop_cpu", arguments)

    found = in_turn({name: partial(run, name, True) for name in _LOOPS}, rounds)
    tight = in_turn({name: partial(run, name, False) for name in _LOOPS[1:3]}, rounds)
    findings = []
    for ours, name in _OURS.items():
        aims = {"all": ALL_IN_MOST, "calling": CALLING_MOST} if "barrier" in ours else {}
        for which, figure in (("all", "all-in"), ("calling", "calling thread")):
            mine = column(found[ours], which)
            for other in _LOOPS[2:]:
                theirs = column(found[other], which)
                times, most = ratio(mine, theirs), aims.get(which) if other == "json.dumps + os.write" else None
                findings.append(
                    Finding(
                        *(f"loop, {name}, {figure}", median(mine), "µs", other, median(theirs), times),
                        *("" if most is None else f"<= {most:g}", _reached(times, most)),
                    )
                )
    mine, theirs = (column(tight[name], "all") for name in _LOOPS[1:3])
    findings.append(
        Finding("tight, log + barrier, all-in", median(mine), "µs", _LOOPS[2], median(theirs), ratio(mine, theirs))
    )
    method = LOOP_METHOD.format(
        steps=steps, keys=LOOP_KEYS, rounds=rounds, swept=SWEPT_BYTES >> 20, sleep=SLEEP_S * 1e3
    )
    return method, findings


def _aim(keys: int, figure: str, subject: str) -> tuple[str, float | None]:
    if keys == 5 and subject == "json":
        return "< 1", 1.0
    if figure == "5" and subject == "wandb":
        return "<= 1/15", 1 / 15
    return "", None


def _reached(times: float, limit: float | None) -> bool | None:
    return None if limit is None else times <= limit


# Subjects: each runs in a process of its own and returns µs of CPU per call, by number of keys -----------------------


def rlship_cpu(folder: str, calls: int) -> Figures:
    """The worker's `log`, with its writing thread."""
    import rlship

    figures = {}
    for keys in KEYS:
        logger = rlship.init(os.path.join(folder, str(keys)), actor="trainer", rank=0, world=1)
        dicts = _dicts(keys)
        logger.log(dicts[0], step=0)
        _flushed(logger)
        began = time.process_time()
        for start in range(0, calls, _SLICE):
            for step in range(start, min(calls, start + _SLICE)):
                logger.log(dicts[step % _DISTINCT], step=step)
            _flushed(logger)
        figures[str(keys)] = _micros(time.process_time() - began, calls)
        assert logger.path is not None
        written = Path(logger.path).read_bytes().count(b'"m":')
        if written != calls + 1 or logger.dropped_lines:
            raise RuntimeError(
                f"{written} lines for {calls + 1} calls, {logger.dropped_lines} dropped: the figure is void"
            )
    return figures


def json_cpu(folder: str, calls: int) -> Figures:
    """The code that a person would write by hand."""
    figures = {}
    for keys in KEYS:
        dicts = _dicts(keys)
        fd = os.open(os.path.join(folder, f"{keys}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        began = time.process_time()
        for step in range(calls):
            os.write(fd, (json.dumps({"t": time.time(), "step": step, "m": dicts[step % _DISTINCT]}) + "\n").encode())
        figures[str(keys)] = _micros(time.process_time() - began, calls)
        os.close(fd)
    return figures


def wandb_cpu(folder: str, calls: int) -> Figures:
    """wandb's offline mode; "<keys> all" also counts its core process and finish()."""
    import psutil

    me = psutil.Process()

    def with_children() -> float:
        # The kernel counts a core process that has ended; a living one is read from /proc.
        spent = os.times()
        alive = [child.cpu_times() for child in me.children(recursive=True)]
        ended_s = spent.children_user + spent.children_system
        return float(time.process_time() + ended_s + sum(t.user + t.system for t in alive))

    figures = {}
    for keys in KEYS:
        dicts = _dicts(keys)
        run = _wandb_run(folder)
        run.log(dicts[0])
        began, began_all = time.process_time(), with_children()
        for step in range(calls):
            run.log(dicts[step % _DISTINCT])
        figures[str(keys)] = _micros(time.process_time() - began, calls)
        run.finish()
        figures[f"{keys} all"] = _micros(with_children() - began_all, calls)
    return figures


def _wandb_run(folder: str) -> Any:
    import wandb

    settings = wandb.Settings(
        console="off", silent=True, x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True
    )
    return wandb.init(project="benchmark", mode="offline", dir=folder, settings=settings)


def tensorboardx_cpu(folder: str, calls: int) -> Figures:
    """tensorboardX, with one add_scalar for each key."""
    from tensorboardX import SummaryWriter

    figures = {}
    for keys in KEYS:
        dicts = _dicts(keys)
        count = max(1, calls // keys)
        writer = SummaryWriter(os.path.join(folder, str(keys)), max_queue=count * keys + 10, flush_secs=3600)
        writer.add_scalar("warm", 0.0, 0)
        began = time.process_time()
        for step in range(count):
            for name, value in dicts[step % _DISTINCT].items():
                writer.add_scalar(name, value, step)
        writer.close()
        figures[str(keys)] = _micros(time.process_time() - began, count)
    return figures


def loop_cpu(folder: str, subject: str, steps: int, cold: bool) -> Figures:
    """One way to write a step's record, in a loop: the CPU of all threads, and of the calling one in its calls."""
    dicts = _dicts(LOOP_KEYS)
    swept = bytearray(SWEPT_BYTES)
    calling_ns = others_ns = 0
    with _stepper(Path(folder), subject) as write:
        write(0, dicts[0])
        others_ns = time.process_time_ns() - time.thread_time_ns()
        for step in range(1, steps + 1):
            if cold:
                swept.count(1)
            began = time.thread_time_ns()
            write(step, dicts[step % _DISTINCT])
            calling_ns += time.thread_time_ns() - began
            if cold:
                time.sleep(SLEEP_S)
        began = time.thread_time_ns()
    calling_ns += time.thread_time_ns() - began
    others_ns = time.process_time_ns() - time.thread_time_ns() - others_ns
    if subject != _WANDB:
        (path,) = Path(folder).rglob("*.jsonl")
        _all_there(path, b'"m":', steps)
    if "barrier" in subject:
        _all_there(path, b'"barrier"', steps)
    return {"calling": calling_ns / steps / 1e3, "all": (calling_ns + others_ns) / steps / 1e3}


@contextmanager
def _stepper(folder: Path, subject: str) -> Iterator[Callable[[int, dict[str, float]], object]]:
    """What writes one step's record; at the end all of it has reached the kernel."""
    if subject in _OURS:
        with _rlship_stepper(folder, barriers="barrier" in subject) as write:
            yield write
        return
    if subject == _WANDB:  # the interpreter's exit finishes it: only the calls count
        run = _wandb_run(str(folder))
        yield lambda step, metrics: run.log(metrics)
        return
    fd = os.open(folder / "job.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if subject == "orjson + os.write":
        import orjson

        yield lambda step, metrics: os.write(fd, orjson.dumps({"t": time.time(), "step": step, "m": metrics}) + b"\n")
        os.close(fd)
    elif subject == "json.dumps, buffered":
        with open(fd, "w", encoding="utf-8") as file:
            yield lambda step, metrics: file.write(json.dumps({"t": time.time(), "step": step, "m": metrics}) + "\n")
    else:
        yield lambda step, metrics: os.write(
            fd, (json.dumps({"t": time.time(), "step": step, "m": metrics}) + "\n").encode()
        )
        os.close(fd)


@contextmanager
def _rlship_stepper(folder: Path, *, barriers: bool) -> Iterator[Callable[[int, dict[str, float]], object]]:
    import rlship

    logger = rlship.init(folder, actor="trainer", rank=0, world=1)

    def write(step: int, metrics: dict[str, float]) -> None:
        logger.log(metrics, step=step)
        if barriers:
            logger.barrier(step)

    yield write
    _flushed(logger)


def _all_there(path: Path, part: bytes, steps: int) -> None:
    found = path.read_bytes().count(part)
    if found != steps + 1:
        raise RuntimeError(f"{path} has {found} of {steps + 1} lines with {part!r}: the figure is void")


def _flushed(logger: rlship.Logger) -> None:
    if not logger.flush(60.0):
        raise RuntimeError("rlship could not write within 60 s: the figure is void")


def _dicts(keys: int) -> list[dict[str, float]]:
    source = random.Random(keys)
    return [values(keys, source) for _ in range(_DISTINCT)]


def _micros(seconds: float, calls: int) -> float:
    return seconds / calls * 1e6
