"""Makes writers' files as a job leaves them, without the job."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

T0 = 1_763_600_000.0


def writers_folder(experiment: Path) -> Path:
    """The folder of a new experiment for its writers' files."""
    folder = experiment / "rlship"
    folder.mkdir(parents=True)
    return folder


def file_of(folder: Path, rank: int) -> Path:
    """A rank's file."""
    return folder / f"trainer-0-r{rank}.jsonl"


def open_line(rank: int, world: int) -> bytes:
    """The first line of a rank's file."""
    record = {
        "kind": "open",
        "rlship": 1,
        "id": f"w{rank}",
        "actor": "trainer",
        "replica": "0",
        "rank": rank,
        "world": world,
        "t": T0,
    }
    return orjson.dumps(record) + b"\n"


def stream_open_line(number: int, t: float) -> bytes:
    """The first line of a generator's file: one rank, in a replica of its own."""
    record = {
        "kind": "open",
        "rlship": 1,
        "id": f"g{number}",
        "actor": "generator",
        "replica": str(number),
        "rank": 0,
        "world": 1,
        "t": t,
    }
    return orjson.dumps(record) + b"\n"


def names(metrics: int) -> list[str]:
    """Names of metrics, all of the same length."""
    return [f"metric_{index:03}" for index in range(metrics)]


def values(metrics: int, source: random.Random) -> dict[str, float]:
    """A value for each of this many metrics: doubles of full precision, the most expensive to write and to read."""
    return {name: source.random() for name in names(metrics)}


def weighted(source: random.Random) -> object:
    """A value with the weight of a batch, as `log({"loss": x}, weight=n_tokens)` writes it."""
    return {"v": [source.random()], "w": [source.randrange(1, 4096)]}


def metrics_line(step: int, t: float, metrics: Mapping[str, object]) -> bytes:
    """The line that `log(metrics, step)` writes."""
    return b'{"t":%.3f,"step":%d,"m":%b}\n' % (t, step, orjson.dumps(metrics))


def stream_line(t: float, metrics: dict[str, float]) -> bytes:
    """The line that `log(metrics)` writes without a step."""
    return b'{"t":%.3f,"m":%b}\n' % (t, orjson.dumps(metrics))


def span_line(step: int, t: float, name: str, seconds: float) -> bytes:
    """The line that a span of a step writes."""
    return b'{"kind":"span","t":%.6f,"dur":%.9g,"step":%d,"name":"%b","lane":"main"}\n' % (
        t,
        seconds,
        step,
        name.encode(),
    )


def barrier_line(step: int, t: float) -> bytes:
    """The line that `barrier(step)` writes."""
    return b'{"kind":"barrier","step":%d,"t":%.3f}\n' % (step, t)


class Job(NamedTuple):
    """The files of a whole job in `folder`, their bytes, and a file of all metrics lines, one rank after the other."""

    folder: Path
    size: int
    together: Path


def write_job(experiment: Path, *, ranks: int, steps: int, metrics: int) -> Job:
    """Write the files of a whole job in a new experiment: per step a metrics line and a barrier."""
    source = random.Random(1)
    folder = writers_folder(experiment)
    job = Job(folder, 0, experiment / "metrics-lines.ndjson")
    with job.together.open("wb") as copy:
        for rank in range(ranks):
            logged = [metrics_line(step, T0 + step, values(metrics, source)) for step in range(steps)]
            copy.writelines(logged)
            with file_of(folder, rank).open("wb") as file:
                file.write(open_line(rank, ranks))
                for step, line in enumerate(logged):
                    file.write(line + barrier_line(step, T0 + step))
                job = job._replace(size=job.size + file.tell())
    return job
