"""Lines of single metrics laid together: a step's spans, or a job that calls `log` for each metric. Pure.

What a line costs from here on does not depend on how many metrics it has. So lines of few metrics that come once or
equally often at each step become one: its values, then the time of each metric, then the byte where its line begins.
The lines of one metric stay in their order.
"""

from __future__ import annotations

from struct import Struct

from rlship_sidecar.decode.lines import Batch, Run
from rlship_sidecar.decode.schemas import Schemas

_NARROW, FEWEST = 2, 4  # metrics that a line may have, and runs that are worth it


def bundle(batch: Batch, schemas: Schemas) -> None:
    """Lay together the runs of a batch that have lines of the same steps."""
    if len(batch.runs) < FEWEST:
        return
    groups: dict[tuple[int, tuple[int, ...]], list[Run]] = {}
    for run in batch.runs.values():
        if 0 < len(run.schema.names) <= _NARROW and run.schema.is_plain:
            groups.setdefault((run.segment, tuple(run.steps)), []).append(run)
    for (segment, _), runs in groups.items():
        if len(runs) < FEWEST:
            continue
        runs.sort(key=lambda run: run.schema.names)
        laid = _laid(segment, runs, schemas)
        if laid is not None:
            for run in runs:
                del batch.runs[segment, run.schema]
            held = batch.runs.get((segment, laid.schema))  # lines that were read together are laid together already
            if held is not None:
                laid.extend(held)
                laid.sort()
            batch.runs[segment, laid.schema] = laid


def _laid(segment: int, runs: list[Run], schemas: Schemas) -> Run | None:
    """One run of several; None if a metric is in two of them."""
    schema = schemas.bundle(tuple([run.schema for run in runs]))
    if schema is None:
        return None
    ts, offsets = [*zip(*[run.ts for run in runs])], [*zip(*[run.offsets for run in runs])]
    each = [len(run.schema.names) for run in runs]
    pack = Struct(f"{2 * len(schema.names)}d").pack
    if max(each) == 1:
        places = [pack(*t, *offset) for t, offset in zip(ts, offsets)]
    else:
        places = [pack(*_repeated(t, each), *_repeated(offset, each)) for t, offset in zip(ts, offsets)]
    values = zip(*[run.data for run in runs])
    data = [b"".join((*parts, place)) for parts, place in zip(values, places)]
    return Run(segment, schema, [*runs[0].steps], [*map(max, ts)], [*map(min, offsets)], data)


def _repeated(numbers: tuple[float, ...], times: list[int]) -> list[float]:
    return [number for number, count in zip(numbers, times) for _ in range(count)]
