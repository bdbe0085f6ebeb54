"""CPU time of one `log()` of 1, 5 and 20 keys, all included: encoding, the share of its thread, and the write."""

from __future__ import annotations

import json
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.files import values
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

if TYPE_CHECKING:
    import rlship  # each subject imports it in a process of its own

KEYS = (1, 5, 20)
_DISTINCT = 500
_SLICE = 2_000

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


def measure(folder: Path, quick: bool) -> Result:
    """Run the rounds in `folder`."""
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
    return Result("CPU per log()", method, findings)


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
    import wandb

    me = psutil.Process()

    def with_children() -> float:
        # The kernel counts a core process that has ended; a living one is read from /proc.
        spent = os.times()
        alive = [child.cpu_times() for child in me.children(recursive=True)]
        ended_s = spent.children_user + spent.children_system
        return float(time.process_time() + ended_s + sum(t.user + t.system for t in alive))

    figures = {}
    settings = wandb.Settings(
        console="off", silent=True, x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True
    )
    for keys in KEYS:
        dicts = _dicts(keys)
        run = wandb.init(project="benchmark", mode="offline", dir=folder, settings=settings)
        run.log(dicts[0])
        began, began_all = time.process_time(), with_children()
        for step in range(calls):
            run.log(dicts[step % _DISTINCT])
        figures[str(keys)] = _micros(time.process_time() - began, calls)
        run.finish()
        figures[f"{keys} all"] = _micros(with_children() - began_all, calls)
    return figures


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


def _flushed(logger: rlship.Logger) -> None:
    if not logger.flush(60.0):
        raise RuntimeError("rlship could not write within 60 s: the figure is void")


def _dicts(keys: int) -> list[dict[str, float]]:
    source = random.Random(keys)
    return [values(keys, source) for _ in range(_DISTINCT)]


def _micros(seconds: float, calls: int) -> float:
    return seconds / calls * 1e6
