"""From files on disk to rows committed in the store, in metrics per CPU second."""

from __future__ import annotations

import gc
import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.files import names, write_job
from benchmarks.report import Finding, Result, complain, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

if TYPE_CHECKING:
    from rlship_sidecar.store.store import Store  # the subject imports it in a process of its own

PIECE = 1 << 20
SETTLE_S = 0.5  # numpy's idle threads spin for a while after the import
SINGLE = {"POLARS_MAX_THREADS": "1"}

METHOD = (
    "{ranks} ranks x {steps:,} steps x {metrics} metrics, per step and rank one metrics line and one barrier "
    "line, {size:.0f} MB, in the page cache; {rounds} rounds, in turn, each in a fresh process; CPU = its user + "
    "system time after the imports; in millions of metrics per CPU second. rlship: as `watch --once` reads them, "
    "with every row committed (SQLite, synchronous=FULL). orjson: orjson.loads of every line of the same files "
    "and nothing else. polars: one thread; read_ndjson of one file of the metrics lines, unnest, group_by(step) "
    "with means. Not like for like: polars reads no barriers, knows neither coverage nor order, holds everything "
    "in memory ({polars_mb:.0f} MB at its peak, rlship {ours_mb:.0f} MB) and makes nothing durable. DuckDB: "
    "one thread; read_json of the same files, barriers included, told their columns; GROUP BY step with means; nothing "
    "durable either. All means were compared: equal to 1e-9."
)


def measure(folder: Path, quick: bool) -> Result:
    """Make the files in `folder`, run the rounds."""
    ranks, steps, metrics, rounds = (8, 50, 10, 1) if quick else (64, 2_000, 50, 5)
    experiment = folder / "job"
    job = write_job(experiment, ranks=ranks, steps=steps, metrics=metrics)
    os.sync()
    place = iter(range(1_000_000))
    subjects = {
        "rlship": lambda: in_child(
            "benchmarks.ingest",
            "rlship_cpu",
            {"experiment": str(experiment), "store": str(folder / f"store.{next(place)}.db")},
        ),
        "orjson": lambda: in_child("benchmarks.ingest", "orjson_cpu", {"folder": str(job.folder)}),
        "polars": lambda: in_child(
            "benchmarks.ingest", "polars_cpu", {"path": str(job.together), "metrics": metrics}, SINGLE
        ),
    }
    arguments = {"files": str(job.folder / "*.jsonl"), "metrics": metrics, "how": "given"}
    subjects["duckdb"] = lambda: in_child("benchmarks.replay", "duckdb_s", arguments)
    for name in ("polars", "duckdb"):
        if importlib.util.find_spec(name) is None:
            complain(f"{name} is not installed and so left out: pip install -e '.[bench]'")
            del subjects[name]
    found = in_turn(subjects, rounds)
    for runs in found.values():
        _agree(runs[0], found["rlship"][0], steps, ranks)
    total = ranks * steps * metrics / 1e6
    speeds = {name: [total / cpu for cpu in column(runs, "cpu_s")] for name, runs in found.items()}
    ours = speeds["rlship"]
    findings = [
        Finding("ingest", median(ours), "M/s", aim=">= 3 M/s", reached=median(ours) >= 3.0),
        _beside(ours, speeds["orjson"], "bare orjson.loads loop", 0.4),
    ]
    if "polars" in speeds:
        findings.append(_beside(ours, speeds["polars"], "polars, one thread", 0.9))
    if "duckdb" in speeds:
        findings.append(_beside(ours, speeds["duckdb"], "DuckDB, columns given, one thread", 0.5))
    polars_mb = median(column(found["polars"], "peak_mb")) if "polars" in found else float("nan")
    ours_mb = median(column(found["rlship"], "peak_mb"))
    method = METHOD.format(
        ranks=ranks,
        steps=steps,
        metrics=metrics,
        size=job.size / 1e6,
        rounds=rounds,
        polars_mb=polars_mb,
        ours_mb=ours_mb,
    )
    return Result("files on disk to rows in the store", method, findings)


def _beside(ours: list[float], theirs: list[float], name: str, aim: float) -> Finding:
    times = ratio(ours, theirs)
    return Finding("ingest", median(ours), "M/s", name, median(theirs), times, f">= {aim}", times >= aim)


def _agree(found: Figures, ours: Figures, steps: int, ranks: int) -> None:
    """Raise if a subject did less work than it should: its speed would be meaningless."""
    wanted = {"rows": steps, "lines": 2 * steps * ranks + ranks, "sum": ours["sum"]}
    for name in wanted.keys() & found.keys():
        if abs(found[name] - wanted[name]) > 1e-9 * abs(wanted[name]):
            raise RuntimeError(f"{name} is {found[name]}, not {wanted[name]}: the figures are void")


# Subjects: each runs in a process of its own -------------------------------------------------------------------------


def rlship_cpu(experiment: str, store: str) -> Figures:
    """The pipeline as the daemon runs it, up to the last commit."""
    import_pipeline()
    cpu_s, peak, rows = ingested(experiment, store)
    count = rows.row_count()
    total = sum(sum(row.values.values()) for row in rows.read_rows(0, count))
    rows.close()
    return {"cpu_s": cpu_s, "rows": count, "sum": total, "peak_mb": peak}


def import_pipeline() -> None:
    """Import what `ingested` needs, so that its CPU time is that of its work."""
    import rlship_sidecar.pipeline.experiment  # noqa: F401 - importing it is the point

    settle()


def ingested(experiment: str, store: str) -> tuple[float, float, Store]:
    """Commit all rows of an experiment in this process; returns its CPU time, its peak memory in MB, and the store."""
    from benchmarks.watching import peak_mb
    from rlship_sidecar.filesystem import filesystem_of
    from rlship_sidecar.pipeline.experiment import Experiment
    from rlship_sidecar.store.store import Store

    began = time.process_time()
    rows = Store(Path(store), local=filesystem_of(os.path.dirname(os.path.realpath(store))).local)
    pipeline = Experiment(Path(experiment), rows, filesystem_of(os.path.realpath(experiment)), now=time.monotonic())
    while pipeline.tick(time.monotonic(), time.time(), end=True):
        pass
    cpu_s = time.process_time() - began
    peak = peak_mb()
    pipeline.close()
    return cpu_s, peak, rows


def settle() -> None:
    """Wait until the imports are over in all threads, and do with garbage as the daemon does."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    time.sleep(SETTLE_S)


def orjson_cpu(folder: str) -> Figures:
    """Every line of every file through orjson.loads."""
    import orjson

    settle()
    began = time.process_time()
    count = 0
    loads = orjson.loads
    for entry in os.scandir(folder):
        if not entry.name.endswith(".jsonl"):
            continue
        with open(entry.path, "rb") as file:
            rest = b""
            while piece := file.read(PIECE):
                lines = (rest + piece).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    loads(line)
                count += len(lines)
    return {"cpu_s": time.process_time() - began, "lines": count}


def polars_cpu(path: str, metrics: int) -> Figures:
    """The same means with polars."""
    import polars

    from benchmarks.watching import peak_mb

    settle()
    began = time.process_time()
    chosen = [polars.col(name).mean() for name in names(metrics)]
    frame = polars.read_ndjson(path).unnest("m").group_by("step").agg(chosen)
    cpu_s = time.process_time() - began
    peak = peak_mb()
    return {"cpu_s": cpu_s, "rows": frame.height, "sum": sum(frame.drop("step").sum().row(0)), "peak_mb": peak}
