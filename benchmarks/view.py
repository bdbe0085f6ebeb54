"""The server of `rlship view`: how soon it shows a long history, and what five viewers of a live job cost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks import page
from benchmarks.files import T0, file_of, open_line, writers_folder
from benchmarks.report import Finding, Result, median, percentile
from benchmarks.rounds import ROOT, clean_environment
from benchmarks.viewing import Server, serving
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.store import Store

USUAL = ("history", "live")
PARTS = (*USUAL, *page.PARTS)  # the others need Chromium, and one of them ten minutes
VIEWERS = 5
METHOD = (
    "The server is a process of its own. History: a store of {steps} rows of steps with {metrics} metrics and "
    "{by_rank} metrics by rank of {ranks} ranks, {gb:.1f} GB; from the start of `rlship view` to an answer with all "
    "curves, and the greatest resident memory. Live: {viewers} streams of a store to which a row of {live_ranks} ranks "
    "is committed every {pause_ms:.0f} ms: the time from the end of the commit to the event at a viewer, and the "
    "commits beside those without viewers, with both kinds of journals. CPU: {viewers} viewers of a job of "
    "{live_ranks} writers with a step a second and a sidecar."
)


def measure(folder: Path, quick: bool, parts: Sequence[str] = USUAL) -> Result:
    """Measure in `folder`."""
    size = _Size(200, 10, 2, 16, 8, 40, 4.0, 0.02) if quick else _Size(10_000, 100, 8, 1024, 64, 400, 30.0, 0.1)
    findings: list[Finding] = []
    gigabytes = 0.0
    if "history" in parts:
        found, gigabytes = _history(folder, size)
        findings += found
    if "live" in parts:
        findings += _latency(folder, size) + _cpu(folder, size)
    if "page" in parts:
        _write_history(folder / "shown", size)
        findings += page.first_chart(folder, folder / "shown") + page.seen(folder, quick=quick)
        findings += page.frames(folder)
    if "day" in parts:
        findings += page.day(folder, *page.day_of(quick=quick))
    method = METHOD.format(
        steps=size.steps,
        metrics=size.metrics,
        by_rank=size.by_rank,
        ranks=size.ranks,
        gb=gigabytes,
        viewers=VIEWERS,
        live_ranks=size.live_ranks,
        pause_ms=size.pause_s * 1000,
    )
    if {*parts} & {*page.PARTS}:
        method = page.method(quick=quick) if not {*parts} & {*USUAL} else f"{method} {page.method(quick=quick)}"
    return Result("rlship view", method, findings)


class _Size(NamedTuple):
    steps: int
    metrics: int
    by_rank: int
    ranks: int
    live_ranks: int
    commits: int
    watched_s: float
    pause_s: float


# A long history ---------------------------------------------------------------------------------------------------


def _history(folder: Path, size: _Size) -> tuple[list[Finding], float]:
    experiment = folder / "history"
    written = _write_history(experiment, size)
    findings = []
    first_s, _, whole_s, peak_mb = _shown(experiment, size)
    findings.append(Finding("first curves, no rollup there", first_s, "s"))
    findings.append(Finding("all rows in the curves, no rollup there", whole_s, "s"))
    findings.append(Finding("memory meanwhile", peak_mb, "MB", aim="< 200", reached=peak_mb < 200))
    again_s, cpu_s, whole_s, peak_mb = _shown(experiment, size)
    findings.append(Finding("first curves, rollup there", again_s, "s", aim="<= 1.5", reached=again_s <= 1.5))
    findings.append(Finding("CPU of the server until then", cpu_s, "s"))
    findings.append(Finding("all rows in the curves, rollup there", whole_s, "s"))
    findings.append(Finding("memory then", peak_mb, "MB", aim="< 200", reached=peak_mb < 200))
    rollup = next((experiment / "rlship" / "state").glob("*.rollup"), None)
    findings.append(Finding("size of the rollup", 0.0 if rollup is None else rollup.stat().st_size / 1e6, "MB"))
    return findings, written / 1e9


def _write_history(experiment: Path, size: _Size) -> int:
    state = experiment / "rlship" / "state"
    state.mkdir(parents=True)
    Store(state / "store.1.db", local=True).close()
    draw = np.random.default_rng(1)
    names = [f"0.{rank}" for rank in range(size.ranks)]
    by_rank = [
        orjson.dumps(
            {f"trainer/r{key}": dict(zip(names, draw.random(size.ranks).tolist())) for key in range(size.by_rank)}
        )
        for _ in range(32)
    ]
    with closing(sqlite3.connect(state / "store.1.db", isolation_level=None)) as connection:
        connection.execute("pragma synchronous=off")
        connection.execute("begin")
        for step in range(size.steps):
            values = dict(zip([f"trainer/m{key}" for key in range(size.metrics)], draw.random(size.metrics).tolist()))
            row = Row(
                Unit("trainer", "step", step),
                T0 + step,
                {"global_step": step},
                values,
                Coverage((f"0.0-{size.ranks - 1}",), size.ranks, attempts=(0,)),
                Arrival(step, 0, (), "complete"),
            )
            body = row.to_json()[:-1] + b',"per_rank":' + by_rank[step % len(by_rank)] + b"}"
            connection.execute("insert into rows values (?, ?)", (step, body))
            connection.execute("insert into units values ('trainer', 'step', ?, ?, 0, 0)", (step, step))
        connection.execute("commit")
    return (state / "store.1.db").stat().st_size


def _shown(experiment: Path, size: _Size) -> tuple[float, float, float, float]:
    """Seconds to the first curves, CPU time until then, seconds to curves of all rows, the greatest memory in MB."""
    began = time.monotonic()
    with serving(experiment) as server:
        path = server.experiment()
        first_s = cpu_s = 0.0
        while True:
            series = server.ask(f"{path}/series?m={','.join(_ids(server, path))}")
            if not first_s and len(series["curves"]) >= size.metrics:
                first_s, cpu_s = time.monotonic() - began, server.cpu_s()
            if series["row"] == size.steps:
                whole_s = time.monotonic() - began
                break
            time.sleep(0.05)
        server.ask(f"{path}/ranks?m={_ids(server, path, by_rank=True)[0]}")
        return first_s, cpu_s, whole_s, server.peak_mb()


def _ids(server: Server, path: str, *, by_rank: bool = False) -> list[str]:
    found = server.ask(f"{path}/metrics")["metrics"]
    return [one["id"] for one in found if one["per_rank"] == by_rank]


# Live -------------------------------------------------------------------------------------------------------------


class _Viewer(threading.Thread):
    """A stream, and when each row came."""

    def __init__(self, server: Server, path: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, float] = {}
        self.ready = threading.Event()
        self._stream = server.open(path)

    def run(self) -> None:
        """Read until the server ends."""
        for line in self._stream:
            at = time.monotonic()
            event = orjson.loads(line)
            self.ready.set()
            for row in event.get("rows", ()):
                self.seen[row["no"]] = at


def _live_row(no: int, size: _Size, names: list[str]) -> Row:
    ranks = {f"trainer/r{key}": [(name, no + key / 8) for name in names] for key in range(size.by_rank)}
    values = {f"trainer/m{key}": no + key / 7 for key in range(size.metrics)}
    whole = Coverage((f"0.0-{size.live_ranks - 1}",), size.live_ranks, attempts=(0,))
    unit = Unit("trainer", "step", no)
    return Row(unit, T0 + no, {"global_step": no}, values, whole, Arrival(no, 0, (), "complete"), per_rank=ranks)


def _latency(folder: Path, size: _Size) -> list[Finding]:
    findings = []
    names = [f"0.{rank}" for rank in range(size.live_ranks)]
    for journal, local in (("write-ahead log", True), ("rollback journal", False)):
        experiment = folder / f"live-{local}"
        state = experiment / "rlship" / "state"
        state.mkdir(parents=True)
        made = Store(state / "store.1.db", local=local)
        made.commit(Changes(rows=[_live_row(0, size, names)]))
        alone = _commits(made, 1, size, names)[1]
        with serving(experiment) as server:
            path = server.experiment()
            viewers = [_Viewer(server, f"{path}/live") for _ in range(VIEWERS)]
            for viewer in viewers:
                viewer.start()
            for viewer in viewers:
                viewer.ready.wait(60)
            committed, beside = _commits(made, 1 + size.commits, size, names)
            last = 2 * size.commits
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and not all(last in viewer.seen for viewer in viewers):
                time.sleep(0.01)
            late = [viewer.seen[no] - at for viewer in viewers for no, at in committed.items() if no in viewer.seen]
        made.close()
        p99 = percentile(late, 0.99)
        aim = "< 0.7"
        findings.append(Finding(f"row committed to event, p99, {journal}", p99, "s", aim=aim, reached=p99 < 0.7))
        cost = median(beside) / median(alone)
        reached = cost <= 1.05
        name = f"commit with {VIEWERS} viewers, {journal}"
        findings.append(
            Finding(name, median(beside) * 1e3, "ms", "without", median(alone) * 1e3, cost, "<= 1.05", reached)
        )
    return findings


def _commits(made: Store, first: int, size: _Size, names: list[str]) -> tuple[dict[int, float], list[float]]:
    """When each row was committed, and how long each commit took."""
    at, took = {}, []
    for no in range(first, first + size.commits):
        row = _live_row(no, size, names)
        began = time.monotonic()
        made.commit(Changes(rows=[row]))
        at[no] = time.monotonic()
        took.append(at[no] - began)
        time.sleep(size.pause_s)
    return at, took


def _cpu(folder: Path, size: _Size) -> list[Finding]:
    """The server's CPU with viewers of a real live job."""
    experiment = folder / "job"
    stop = threading.Event()
    job = threading.Thread(target=_write_job, args=(experiment, size, stop))
    job.start()
    while not (experiment / "rlship").is_dir():
        time.sleep(0.01)
    command = [sys.executable, "-m", "rlship", "watch", "--quiet", "--sink", "jsonl", os.fspath(experiment)]
    sidecar = subprocess.Popen(command, cwd=ROOT, env=clean_environment(), stdout=subprocess.DEVNULL)
    try:
        while not (experiment / "rlship" / "state" / "status.json").exists():
            time.sleep(0.05)
        with serving(experiment) as server:
            path = server.experiment()
            while not _ids(server, path):
                time.sleep(0.2)
            viewers = [_Viewer(server, f"{path}/live") for _ in range(VIEWERS)]
            for viewer in viewers:
                viewer.start()
            for viewer in viewers:
                viewer.ready.wait(60)
            time.sleep(2)
            before, began = server.cpu_s(), time.monotonic()
            time.sleep(size.watched_s)
            share = (server.cpu_s() - before) / (time.monotonic() - began)
            rows = min(len(viewer.seen) for viewer in viewers)
            memory = server.peak_mb()
    finally:
        stop.set()
        job.join()
        sidecar.terminate()
        sidecar.wait()
    return [
        Finding(f"CPU of the server with {VIEWERS} viewers", 100 * share, "%", aim="< 5", reached=share < 0.05),
        Finding("rows that each of them got", rows, "rows"),
        Finding("memory of the server", memory, "MB", aim="< 200", reached=memory < 200),
    ]


def _write_job(experiment: Path, size: _Size, stop: threading.Event) -> None:
    """Append a step a second to the files of all ranks."""
    folder = writers_folder(experiment)
    files = [file_of(folder, rank).open("ab", buffering=0) for rank in range(size.live_ranks)]
    entries = {f"r{key}": {"reduce": ["max"], "per_rank": True} for key in range(size.by_rank)}
    define = json.dumps({"kind": "define", "m": entries}).encode() + b"\n"
    for rank, file in enumerate(files):
        file.write(open_line(rank, size.live_ranks) + define)
    step = 0
    while not stop.wait(1.0):
        t = time.time()
        for rank, file in enumerate(files):
            metrics = {f"m{key}": step + key + rank / 64 for key in range(size.metrics)}
            metrics |= {f"r{key}": rank + key + step / 8 for key in range(size.by_rank)}
            said = [{"t": t, "step": step, "m": metrics}, {"kind": "barrier", "t": t, "step": step}]
            file.write(b"".join(orjson.dumps(one) + b"\n" for one in said))
        step += 1
    for file in files:
        file.close()
