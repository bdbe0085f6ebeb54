"""`rlship replay` on a gigabyte of files, in CPU time beside DuckDB on the same bytes, and on two cores."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import time
from functools import partial
from pathlib import Path

from benchmarks.files import T0, barrier_line, file_of, metrics_line, names, open_line, values, writers_folder
from benchmarks.report import Finding, Result, complain, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

SETTLE_S = 0.5  # numpy's idle threads spin for a while after the import
ONE_CORE, TWO_CORES = 1, 2
DUCKDB = {"found": "DuckDB, columns found by itself", "given": "DuckDB, columns given"}

METHOD = (
    "{ranks} ranks x {steps:,} steps x {metrics} metrics, per step and rank one metrics line and one barrier line, "
    "{size:.0f} MB, in the page cache; {rounds} rounds, in turn, each in a fresh process on one core; CPU = its user + "
    "system time after the imports, children included. rlship: the whole replay, every row committed, no sinks. "
    "DuckDB: one thread; read_json of the same files, with barriers, GROUP BY step with means; not like for like: no "
    "order, no coverage, nothing durable; {duckdb_mb:.0f} MB of memory at its peak. Two cores: wall time of --jobs 1 "
    "on one core over that of --jobs 2 on two. Lines that carry {metrics} metrics count as {metrics} lines of the "
    "aggregator, which adds up records of one metric each in dicts after json.loads and does nothing else; "
    "others were found to reach 70,000 to 90,000 lines a second."
)


def measure(folder: Path, quick: bool) -> Result:
    """Make the files in `folder`, run the rounds."""
    ranks, steps, metrics, rounds = (4, 60, 10, 1) if quick else (64, 10_000, 50, 3)
    job, tenth = folder / "job", folder / "tenth"
    size = _write(writers_folder(job), ranks, steps, metrics)
    _write(writers_folder(tenth), ranks, steps // 10, metrics)
    records = folder / "records.jsonl"
    _write_records(records, 20 * steps)
    os.sync()
    place = iter(range(1_000_000))

    def replayed(experiment: Path, jobs: int, cores: int) -> Figures:
        arguments = {"experiment": str(experiment), "out": str(folder / f"out.{next(place)}"), "jobs": jobs}
        return in_child("benchmarks.replay", "rlship_s", {**arguments, "cores": cores})

    subjects = {
        "one": lambda: replayed(job, 1, ONE_CORE),
        "two": lambda: replayed(job, 2, TWO_CORES),
        "tenth": lambda: replayed(tenth, 1, ONE_CORE),
        "aggregator": lambda: in_child("benchmarks.replay", "aggregator_s", {"path": str(records)}),
    }
    if importlib.util.find_spec("duckdb") is None:
        complain("duckdb is not installed and so left out: pip install -e '.[bench]'")
    else:
        files = str(job / "rlship" / "*.jsonl")
        for how in DUCKDB:
            arguments = {"files": files, "metrics": metrics, "how": how}
            subjects[how] = partial(in_child, "benchmarks.replay", "duckdb_s", arguments)
    found = in_turn(subjects, rounds)
    _agree(found, steps)
    rate = [ranks * steps * metrics / 1e6 / cpu for cpu in column(found["one"], "cpu_s")]
    findings = []
    for how, name in DUCKDB.items():
        if how in found:
            theirs = [ranks * steps * metrics / 1e6 / cpu for cpu in column(found[how], "cpu_s")]
            times = ratio(rate, theirs)
            findings.append(
                Finding("metrics, CPU", median(rate), "M/s", name, median(theirs), times, ">= 0.8", times >= 0.8)
            )
    lines = [run["lines"] / run["cpu_s"] for run in found["aggregator"]]
    findings.append(
        Finding(
            *("metrics, CPU", median(rate), "M/s", "Python aggregator", median(lines) / 1e6),
            *(ratio([1e6 * one for one in rate], lines), ">= 40 x 90,000/s", median(rate) >= 40 * 0.09),
        )
    )
    walls = {name: column(found[name], "wall_s") for name in ("one", "two")}
    faster = ratio(walls["one"], walls["two"])
    findings.append(
        Finding(
            *("wall time, --jobs 2", median(walls["two"]), "s", "one core", median(walls["one"])),
            *(faster, ">= 1.7 times as fast", faster >= 1.7),
        )
    )
    both = ratio(column(found["two"], "cpu_s"), column(found["one"], "cpu_s"))
    findings.append(
        Finding(
            *("CPU of all processes, --jobs 2", median(column(found["two"], "cpu_s")), "s", "--jobs 1"),
            *(median(column(found["one"], "cpu_s")), both),
        )
    )
    peak = ratio(column(found["one"], "peak_mb"), column(found["tenth"], "peak_mb"))
    findings.append(
        Finding(
            *("peak memory", median(column(found["one"], "peak_mb")), "MB", "a tenth of the files"),
            *(median(column(found["tenth"], "peak_mb")), peak, "<= 1.1", peak <= 1.1),
        )
    )
    duckdb_mb = median(column(found["given"], "peak_mb")) if "given" in found else float("nan")
    method = METHOD.format(
        ranks=ranks, steps=steps, metrics=metrics, size=size / 1e6, rounds=rounds, duckdb_mb=duckdb_mb
    )
    return Result("all rows again from the files", method, findings)


def _write(folder: Path, ranks: int, steps: int, metrics: int) -> int:
    """Write the files of a whole job; returns their bytes.

    The values of a rank repeat after 200 steps, because making them takes longer than reading them.
    """
    source = random.Random(1)
    size = 0
    for rank in range(ranks):
        logged = [values(metrics, source) for _ in range(min(steps, 200))]
        with file_of(folder, rank).open("wb") as file:
            file.write(open_line(rank, ranks))
            for step in range(steps):
                t = T0 + step
                file.write(metrics_line(step, t, logged[step % len(logged)]) + barrier_line(step, t))
            size += file.tell()
    return size


def _write_records(path: Path, count: int) -> None:
    """A record for each value, as some loggers write them."""
    source = random.Random(2)
    keys = names(50)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            record = {
                "timestamp": T0 + number / 50,
                "rank": number % 64,
                "step": number // 3200,
                "metric": keys[number % 50],
                "value": source.random(),
            }
            file.write(json.dumps(record) + "\n")


def _agree(found: dict[str, list[Figures]], steps: int) -> None:
    """Raise if a subject did less work than it should: its speed would be meaningless."""
    ours = found["one"][0]["sum"]
    for name in ("one", "two", *DUCKDB):
        for run in found.get(name, ()):
            if run["rows"] != steps or abs(run["sum"] - ours) > 1e-9 * abs(ours):
                raise RuntimeError(f"{name}: {run['rows']} rows with the sum {run['sum']}, not {steps} with {ours}")


# Subjects: each runs in a process of its own -------------------------------------------------------------------------


def rlship_s(experiment: str, out: str, jobs: int, cores: int) -> Figures:
    """A replay without sinks."""
    from benchmarks.watching import peak_mb
    from rlship_sidecar.config import Config
    from rlship_sidecar.replay.run import ReplayRequest, replay
    from rlship_sidecar.store.store import Store

    _pin(cores)
    time.sleep(SETTLE_S)
    cpu_s, began = _cpu_s(), time.monotonic()
    found = replay(ReplayRequest(Path(experiment), Config(sinks=[]), out=Path(out), jobs=jobs))
    wall_s, cpu_s, peak = time.monotonic() - began, _cpu_s() - cpu_s, peak_mb()
    (path,) = Path(out).glob("store.*.db")
    store = Store(path, local=True)
    total = 0.0
    for first in range(0, found.rows, 1000):
        for row in store.read_rows(first, 1000):
            total += sum(value for key, value in row.values.items() if key.startswith("trainer/metric_"))
    store.close()
    return {"cpu_s": cpu_s, "wall_s": wall_s, "rows": found.rows, "sum": total, "peak_mb": peak}


def duckdb_s(files: str, metrics: int, how: str) -> Figures:
    """The same means with DuckDB."""
    import duckdb

    from benchmarks.watching import peak_mb

    _pin(ONE_CORE)
    chosen = names(metrics)
    columns = ""
    if how == "given":
        struct = ", ".join(f"{name} DOUBLE" for name in chosen)
        columns = f", columns={{'kind': 'VARCHAR', 'step': 'BIGINT', 't': 'DOUBLE', 'm': 'STRUCT({struct})'}}"
    means = ", ".join(f"avg(m.{name})" for name in chosen)
    source = f"read_json('{files}', format='newline_delimited'{columns})"
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    began = _cpu_s()
    rows = connection.execute(f"select step, {means} from {source} where kind is null group by step").fetchall()
    cpu_s = _cpu_s() - began
    return {"cpu_s": cpu_s, "rows": len(rows), "sum": sum(sum(row[1:]) for row in rows), "peak_mb": peak_mb()}


def aggregator_s(path: str) -> Figures:
    """Sums, counts, least and greatest by step and metric, one record at a time."""
    _pin(ONE_CORE)
    began, count = _cpu_s(), 0
    found: dict[tuple[int, str], dict[str, float]] = {}
    with open(path, "rb") as file:
        for line in file:
            record = json.loads(line)
            key, value = (record["step"], record["metric"]), record["value"]
            partial = found.get(key)
            if partial is None:
                partial = found[key] = {"n": 0, "sum": 0.0, "min": value, "max": value, "m2": 0.0, "mean": 0.0}
            partial["n"] += 1
            partial["sum"] += value
            partial["min"] = min(partial["min"], value)
            partial["max"] = max(partial["max"], value)
            delta = value - partial["mean"]
            partial["mean"] += delta / partial["n"]
            partial["m2"] += delta * (value - partial["mean"])
            count += 1
    return {"cpu_s": _cpu_s() - began, "lines": count}


def _pin(cores: int) -> None:
    """Use only this many cores, children included: the last ones, which other processes use least."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
