"""CPU of ingesting each shape that values come in, as a multiple of what orjson needs for the same bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.files import (
    T0,
    barrier_line,
    file_of,
    metrics_line,
    open_line,
    span_line,
    stream_line,
    stream_open_line,
    values,
    weighted,
    writers_folder,
)
from benchmarks.ingest import import_pipeline, ingested
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.rounds import Figures, column, in_child, in_turn

RANKS = 64
METRICS = 50
STREAM_EVERY_S = 0.1
LEAST_S = 1e-6  # --quick measures less than the noise

METHOD = (
    "{ranks} ranks; of each shape about a million values where a line has many, {mb:.0f} MB in all, in the page cache. "
    "{rounds} rounds, in turn, each subject in a fresh process. CPU = its user + system time after the imports. Ours: "
    "as `watch --once` reads the files, with every row committed, less the same for a job of as many ranks and one "
    "step, read before in the same process, so that the start is left out. Beside: the same files are read, split into "
    "lines, and orjson.loads called on each, barriers included. A value is one observation: an array "
    "of 4 has four, a summary or a span one. Void unless every step has a complete row and no line or value is dead."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What one rank writes at one step, without the barrier. `values` counts the observations in it.

    `most_times` is the aim for the multiple of orjson's time, `least_rate` that for million values per CPU second.
    `streams`: the ranks are generators that log without steps; `lead`: beside a trainer with a step a second.
    """

    name: str
    steps: int
    values: int
    lines: Callable[[int, int, random.Random], bytes]
    most_times: float | None = 4.0
    least_rate: float | None = None
    streams: bool = False
    lead: bool = False


def _plain(rank: int, step: int, source: random.Random) -> bytes:
    return metrics_line(step, T0 + step, values(METRICS, source))


def _two_calls(rank: int, step: int, source: random.Random) -> bytes:
    items = [*values(METRICS, source).items()]
    halves = dict(items[: METRICS // 2]), dict(items[METRICS // 2 :])
    return b"".join(metrics_line(step, T0 + step, half) for half in halves)


def _by_step(rank: int, step: int, source: random.Random) -> bytes:
    """The last ten metrics are logged at every tenth step only, by all ranks, as an evaluation is."""
    logged = values(METRICS if step % 10 == 0 else METRICS - 10, source)
    return metrics_line(step, T0 + step, logged)


def _varying(rank: int, step: int, source: random.Random) -> bytes:
    """Each of the last ten metrics is logged in turn, and by another rank at each step."""
    logged = values(METRICS, source)
    chosen = METRICS - 10 + (rank + step) % 10
    return metrics_line(
        step, T0 + step, {name: x for at, (name, x) in enumerate(logged.items()) if at < METRICS - 10 or at == chosen}
    )


def _drawn(rank: int, step: int, source: random.Random) -> bytes:
    """Four fifths of the metrics, drawn anew for each line: hardly two lines have the same keys."""
    logged = values(METRICS, source)
    chosen = set(source.sample([*logged], METRICS * 4 // 5))
    return metrics_line(step, T0 + step, {name: x for name, x in logged.items() if name in chosen})


def _arrays(rank: int, step: int, source: random.Random) -> bytes:
    return metrics_line(
        step, T0 + step, {name: [x, x / 3, x / 7, x / 9] for name, x in values(METRICS, source).items()}
    )


def _line_each(rank: int, step: int, source: random.Random) -> bytes:
    return b"".join(metrics_line(step, T0 + step, {name: x}) for name, x in values(METRICS, source).items())


def _spans(rank: int, step: int, source: random.Random) -> bytes:
    return b"".join(span_line(step, T0 + step, f"part_{n:02}", source.random() / 20) for n in range(20))


def _one_weighted(rank: int, step: int, source: random.Random) -> bytes:
    logged: dict[str, object] = {**values(METRICS, source)}
    logged["metric_020"] = weighted(source)
    return metrics_line(step, T0 + step, logged)


def _all_weighted(rank: int, step: int, source: random.Random) -> bytes:
    return metrics_line(step, T0 + step, {name: weighted(source) for name in values(METRICS, source)})


def _one_nan(rank: int, step: int, source: random.Random) -> bytes:
    logged: dict[str, object] = {**values(METRICS, source)}
    logged["metric_020"] = "NaN"
    return metrics_line(step, T0 + step, logged)


def _summaries(rank: int, step: int, source: random.Random) -> bytes:
    return metrics_line(
        step,
        T0 + step,
        {
            name: {"n": 32, "sum": x * 32, "min": 0.0, "max": 1.0, "m2": x}
            for name, x in values(METRICS, source).items()
        },
    )


def _wide(rank: int, step: int, source: random.Random) -> bytes:
    return metrics_line(step, T0 + step, values(2_100, source))


def _stream(rank: int, step: int, source: random.Random) -> bytes:
    return stream_line(T0 + step * STREAM_EVERY_S, values(20, source))


SHAPES: Mapping[str, Shape] = {
    "plain": Shape("plain, 50 metrics a line", 300, METRICS, _plain, 2.8),
    "two-calls": Shape("two log calls a step", 300, METRICS, _two_calls),
    "by-step": Shape("keys that vary by step", 300, METRICS - 9, _by_step),
    "by-rank": Shape("keys that vary by rank and step", 300, METRICS - 9, _varying),
    "drawn": Shape("keys drawn for each line", 300, METRICS * 4 // 5, _drawn),
    "streams": Shape("streams, 20 keys", 750, 20, _stream, None, 2.0, streams=True),
    "streams-lead": Shape("streams, 20 keys, beside a lead's steps", 750, 20, _stream, None, streams=True, lead=True),
    "arrays": Shape("arrays of 4", 100, METRICS * 4, _arrays),
    "line-each": Shape("a line per metric", 150, METRICS, _line_each),
    "spans": Shape("spans, 20 a step", 250, 20, _spans, None, 1.0),
    "one-weighted": Shape("one weighted value among 50", 200, METRICS, _one_weighted),
    "all-weighted": Shape("all values weighted", 200, METRICS, _all_weighted),
    "one-nan": Shape('one "NaN" among 50', 200, METRICS, _one_nan),
    "summaries": Shape("summaries", 150, METRICS, _summaries),
    "wide": Shape("2,100 metrics a line", 8, 2_100, _wide),
}
PARTS = tuple(SHAPES)


def measure(folder: Path, quick: bool, parts: Sequence[str] = PARTS) -> Result:
    """Make the files of these shapes in `folder`, run the rounds."""
    ranks, rounds = (8, 1) if quick else (RANKS, 3)
    findings: list[Finding] = []
    size = 0
    for part in parts:
        shape = SHAPES[part]
        steps = max(3, shape.steps // 10) if quick else shape.steps
        found, written = _measured(folder / part, shape, ranks, steps, rounds)
        findings += found
        size += written
    return Result("each shape of values", METHOD.format(ranks=ranks, mb=size / 1e6, rounds=rounds), findings)


def _measured(folder: Path, shape: Shape, ranks: int, steps: int, rounds: int) -> tuple[list[Finding], int]:
    size = write_shape(folder / "job", shape, ranks, steps)
    write_shape(folder / "start", shape, ranks, 1)
    os.sync()
    place = iter(range(1_000_000))

    def ours() -> Figures:
        arguments = {"folder": str(folder), "store": str(folder / f"store.{next(place)}.db")}
        found = in_child("benchmarks.shapes", "rlship_cpu", arguments)
        _check(shape, found, steps)
        return found

    def orjson() -> Figures:
        return in_child("benchmarks.ingest", "orjson_cpu", {"folder": str(folder / "job" / "rlship")})

    found = in_turn({"ours": ours, "orjson": orjson}, rounds)
    net = {name: column(runs, "cpu_s") for name, runs in found.items()}
    times = ratio(net["ours"], net["orjson"])
    count = ranks * (steps - 1) * shape.values / 1e6
    rate = count / median(net["ours"])
    wanted, least = shape.most_times, shape.least_rate
    return [
        Finding(
            *(shape.name, median(net["ours"]) * 1e3, "ms"),
            *("bare orjson.loads loop", median(net["orjson"]) * 1e3, times),
            *(("", None) if wanted is None else (f"<= {wanted:g}", times <= wanted)),
        ),
        Finding(
            *(f"{shape.name}, values per CPU second", rate, "M/s", "", None, None),
            *(("", None) if least is None else (f">= {least:g} M/s", rate >= least)),
        ),
    ], size


def _check(shape: Shape, found: Figures, steps: int) -> None:
    """Raise if a line was left out: the speed would be meaningless."""
    wanted = {"dead": 0, "incomplete": 0}
    if not shape.streams:
        wanted["rows"] = steps
    elif not found["rows"]:
        raise RuntimeError(f"{shape.name}: there are no rows: the figures are void")
    for name, count in wanted.items():
        if found[name] != count:
            raise RuntimeError(f"{shape.name}: {name} is {found[name]:.0f}, not {count}: the figures are void")


def write_shape(experiment: Path, shape: Shape, ranks: int, steps: int) -> int:
    """Write the files of a whole job; returns their bytes."""
    folder = writers_folder(experiment)
    source = random.Random(1)
    size = 0
    for rank in range(ranks):
        with file_of(folder, rank).open("wb") as file:
            file.write(stream_open_line(rank, T0) if shape.streams else open_line(rank, ranks))
            for step in range(steps):
                barrier = b"" if shape.streams else barrier_line(step, T0 + step)
                file.write(shape.lines(rank, step, source) + barrier)
            size += file.tell()
    if shape.lead:
        with file_of(folder, ranks).open("wb") as file:
            file.write(open_line(0, 1))
            for step in range(max(1, round(steps * STREAM_EVERY_S))):
                file.write(metrics_line(step, T0 + step, values(5, source)) + barrier_line(step, T0 + step))
            size += file.tell()
    return size


# Subjects: each runs in a process of its own -------------------------------------------------------------------------


def rlship_cpu(folder: str, store: str) -> Figures:
    """The pipeline as the daemon runs it, up to the last commit, less what it takes for a job of one step."""
    import_pipeline()
    warm_s, start_s = (_ingested_s(folder, "start", f"{store}.{n}") for n in range(2))
    cpu_s, _, rows = ingested(os.path.join(folder, "job"), store)
    found = rows.read_rows(0, rows.row_count())
    figures = {
        "cpu_s": max(LEAST_S, cpu_s - min(warm_s, start_s)),
        "rows": len(found),
        "incomplete": sum(bool(row.coverage.missing) for row in found),
        "dead": sum(count for _, _, _, count, *_ in rows.dead_counts()),
    }
    rows.close()
    return figures


def _ingested_s(folder: str, job: str, store: str) -> float:
    cpu_s, _, rows = ingested(os.path.join(folder, job), store)
    rows.close()
    return cpu_s
