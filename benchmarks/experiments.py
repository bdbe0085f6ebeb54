"""The cost of a sidecar with a thousand finished experiments and a few running ones, and how soon it works."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

from benchmarks.files import T0, barrier_line, file_of, metrics_line, open_line, values, writers_folder
from benchmarks.report import Finding, Result
from benchmarks.rounds import SubjectFailed
from benchmarks.watching import Watcher, resident_mb, watching
from rlship_sidecar.sinks.contract import SinkContext
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.loopback.backend import LoopbackBackend

METRICS = 5
FILES = ("jsonl", "tensorboard")
ONLINE = (*FILES, "wandb")
FEW = 256
CPU, MEMORY_MB, DESCRIPTORS, THREADS, START_S, NOTICED_S = 3.0, 200.0, 200, 30, 5.0, 10.0

METHOD = (
    "{finished:,} finished experiments of {steps:,} steps and {running} running ones, each of one writer with "
    "{metrics} metrics, in one folder. First `rlship watch --sink jsonl --sink tensorboard` delivers all of it under "
    "`ulimit -n 256`. Then it is started again without that limit, after each running one logged a step: seconds "
    "until rows.jsonl of the last of them has the row. Once all finished ones are at rest (their leases are released): "
    "CPU in a window of {window:.0f} s in which nothing is logged, from /proc/<pid>/stat; resident memory, descriptors "
    "and threads of the process at its end. Then a finished one grows by a step: seconds until rows.jsonl has it. "
    "The same with W&B online against a server on 127.0.0.1: the stores of the finished ones record that it has "
    "confirmed all of their rows, and the running ones are delivered before the start. Clients are counted apart."
)


def measure(folder: Path, quick: bool) -> Result:
    """Make the experiments in `folder` and watch them three times."""
    finished, running, steps, window_s = (6, 2, 20, 1.0) if quick else (1_000, 20, 1_000, 30.0)
    outputs = _Outputs(folder / "outputs", finished, running, steps)
    limit_s = 60.0 if quick else 1_800.0
    with watching(outputs.folder, sinks=FILES, nofile=FEW):
        began = time.monotonic()
        delivered = outputs.wait_until_all_have(steps, limit_s)
        took = time.monotonic() - began
    findings = [
        Finding(
            f"experiments with all rows, ulimit -n {FEW}",
            delivered,
            "",
            aim=f"{finished + running:,}",
            reached=delivered == finished + running,
        ),
        Finding("until all have all rows", took, "s"),
    ]
    with watching(outputs.folder, sinks=FILES) as watcher:
        findings += _measure(watcher, outputs, "files", window_s)
        grown = outputs.done[0]
        began = time.monotonic()
        outputs.log_step(grown)
        _until(lambda: outputs.has_row(grown), 60.0, "noticed that a finished experiment grew")
        noticed = time.monotonic() - began
        name = "a finished one that grows is noticed, files"
        findings.append(Finding(name, noticed, "s", aim=f"< {NOTICED_S:.0f} s", reached=noticed < NOTICED_S))
    home = folder / "home"
    home.mkdir()
    with LoopbackBackend() as backend:
        env = backend.environment(home)
        outputs.confirm(env)

        def in_history() -> bool:
            lines = {name: len(run.history) for (_, name), run in backend.runs.items()}
            return all(lines.get(outputs.store_id(one)) == outputs.steps[one] for one in outputs.running)

        with watching(outputs.folder, sinks=ONLINE, env=env):
            _until(in_history, 600.0, "shipped the running ones to W&B")
        with watching(outputs.folder, sinks=ONLINE, env=env) as watcher:
            began = time.monotonic()
            findings += _measure(watcher, outputs, "W&B", window_s)
            _until(in_history, 600.0, "shipped a row of each running one to W&B")
            arrived = max(
                run.arrived[-1]
                for (_, name), run in backend.runs.items()
                if name in map(outputs.store_id, outputs.running)
            )
            findings.append(
                Finding("until W&B has rows of all running ones", arrived - time.time() + time.monotonic() - began, "s")
            )
            clients = psutil.Process(watcher.pid).children(recursive=True)
            findings.append(Finding("processes of W&B clients", len(clients), ""))
            findings.append(Finding("their memory", sum(resident_mb(client.pid) for client in clients), "MB"))
    method = METHOD.format(finished=finished, steps=steps, running=running, metrics=METRICS, window=window_s)
    return Result("many experiments in one folder", method, findings)


def _measure(watcher: Watcher, outputs: _Outputs, sinks: str, window_s: float) -> list[Finding]:
    began = time.monotonic()
    for experiment in outputs.running:
        outputs.log_step(experiment)
    _until(lambda: all(map(outputs.has_row, outputs.running)), 300.0, "shipped rows of the running ones")
    start_s = time.monotonic() - began
    _until(lambda: all(map(_is_released, outputs.done)), 600.0, "put all finished experiments to rest")
    time.sleep(min(10.0, 2 * window_s))  # idle threads end after a while
    began, before = time.monotonic(), watcher.cpu_s()
    time.sleep(window_s)
    cpu = (watcher.cpu_s() - before) / (time.monotonic() - began) * 100
    descriptors, threads, memory = watcher.held()
    return [
        _finding(f"rows of running ones after a start, {sinks}", start_s, "s", START_S),
        _finding(f"CPU, {sinks}", cpu, "%", CPU),
        _finding(f"memory, {sinks}", memory, "MB", MEMORY_MB),
        _finding(f"descriptors, {sinks}", descriptors, "", DESCRIPTORS),
        _finding(f"threads, {sinks}", threads, "", THREADS),
    ]


def _finding(figure: str, value: float, unit: str, limit: float) -> Finding:
    return Finding(figure, value, unit, aim=f"< {limit:g} {unit}".rstrip(), reached=value < limit)


@dataclass(slots=True)
class _Outputs:
    """A folder of experiments. `steps` counts the steps logged so far."""

    folder: Path
    done: Sequence[Path]
    running: Sequence[Path]
    steps: dict[Path, int]

    def __init__(self, folder: Path, finished: int, running: int, steps: int) -> None:
        self.folder = folder
        self.done = [folder / f"done-{number:04}" for number in range(finished)]
        self.running = [folder / f"running-{number:02}" for number in range(running)]
        self.steps = dict.fromkeys([*self.done, *self.running], steps)
        source = random.Random(9)
        # All log the same numbers: making others would take longer than reading them.
        lines = b"".join(
            metrics_line(step, T0 + step, values(METRICS, source)) + barrier_line(step, T0 + step)
            for step in range(steps)
        )
        long_ago = time.time() - 86_400.0
        for experiment in self.steps:
            path = file_of(writers_folder(experiment), 0)
            data = open_line(0, 1) + lines
            if experiment in self.done:
                path.write_bytes(data + b'{"kind":"close","reason":"exit","t":%.3f}\n' % (T0 + steps))
                os.utime(path, (long_ago, long_ago))
            else:
                path.write_bytes(data)

    def log_step(self, experiment: Path) -> None:
        """Log one more step of an experiment."""
        step = self.steps[experiment]
        data = metrics_line(step, T0 + step, values(METRICS, random.Random(step))) + barrier_line(step, T0 + step)
        with file_of(experiment / "rlship", 0).open("ab") as file:
            file.write(data)
        self.steps[experiment] = step + 1

    def has_row(self, experiment: Path) -> bool:
        """Whether rows.jsonl of an experiment has the row of its last step."""
        path = experiment / "rlship" / "state" / "rows.jsonl"
        wanted = b'{"row":%d,' % (self.steps[experiment] - 1)
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 8192))
                return wanted in file.read()
        except FileNotFoundError:
            return False

    def wait_until_all_have(self, steps: int, limit_s: float) -> int:
        """Wait until all have the rows of this many steps, at most `limit_s`; returns how many have."""
        left = set(self.steps)
        deadline = time.monotonic() + limit_s
        while left and time.monotonic() < deadline:
            left = {experiment for experiment in left if not self.has_row(experiment)}
            time.sleep(0.2)
        return len(self.steps) - len(left)

    def store_id(self, experiment: Path) -> str:
        """The id of the store, which is also in W&B's run."""
        with closing(sqlite3.connect(_store(experiment))) as store:
            return str(store.execute("select value from meta where key = 'store_id'").fetchone()[0])

    def confirm(self, env: Mapping[str, str]) -> None:
        """Make the stores of the finished experiments record that the server confirmed all of their rows."""
        for experiment in self.done:
            state, store_id = experiment / "rlship" / "state", self.store_id(experiment)
            sink = WandbSink(env={**os.environ, **env})
            name = sink.destination(SinkContext(experiment.name, experiment, state, store_id, self.steps[experiment]))
            with closing(sqlite3.connect(_store(experiment))) as store, store:
                store.execute(
                    "insert or replace into cursors values (?, (select max(no) + 1 from rows))",
                    (f"wandb (confirmed by {name})",),
                )


def _store(experiment: Path) -> Path:
    return max((experiment / "rlship" / "state").glob("store.*.db"))


def _is_released(experiment: Path) -> bool:
    leases = (experiment / "rlship" / "state").glob("lease.*")
    newest = max(leases, key=lambda path: int(path.suffix[1:]), default=None)
    try:
        return newest is not None and b'"released":true' in newest.read_bytes()
    except FileNotFoundError:
        return False


def _until(ready: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            raise SubjectFailed(f"rlship watch: has not {what} after {limit_s:.0f} s")
        time.sleep(0.05)
