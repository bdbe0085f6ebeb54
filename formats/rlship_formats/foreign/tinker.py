"""tinker-cookbook's log folder: `metrics.jsonl`, whose lines have no time; `timing_spans.jsonl`; and for each iteration
`*_rollout_summaries.jsonl`, with a line for each trajectory. Summaries have lengths and rewards, and neither text nor
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import duration_of, is_number, is_time, parse, step_of, time_of
from rlship_formats.foreign.reduced import reduced
from rlship_formats.foreign.rollouts import TRAIN, opened, rollout_of_step

_METRICS, _SPANS, _SUMMARIES = "metrics.jsonl", "timing_spans.jsonl", "_rollout_summaries.jsonl"
_NAMES = {"group_idx": "group", "total_reward": "reward"}


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The one process that logs."""
    found = parse(line)
    if path == _METRICS:
        # A line with a time is prime-rl's, and one whose values are an object is verl's.
        numbers = [name for name, value in found.items() if name != "step" and is_number(value)]
        known = "step" in found and numbers and not is_time(found.get("time"))
        return (Translation({"actor": "trainer"}, read_metrics),) if known else ()
    if path == _SPANS:
        return (Translation({"actor": "trainer"}, read_spans),) if isinstance(found.get("spans"), list) else ()
    if "total_reward" not in found or "iteration" not in found:
        return ()
    name = path.rsplit("/", 1)[-1].removesuffix(_SUMMARIES) or TRAIN
    return (Translation(opened(path, step_of(found["iteration"])), partial(read_rollout, name)),)


def read_metrics(raw: bytes) -> list[Record]:
    """The metrics of a line."""
    found = parse(raw)
    if "step" not in found:
        raise BadRecord("no step")  # and no time either
    step = step_of(found.pop("step"))
    return reduced(found, step)


def read_spans(raw: bytes) -> list[Record]:
    """The spans of a step."""
    found = parse(raw)
    step, spans = step_of(found.get("step")), found.get("spans")
    if not isinstance(spans, list):
        raise BadRecord("no spans")
    return [_span(span, step) for span in spans]


def _span(span: Any, step: int) -> Record:
    if not isinstance(span, dict) or not isinstance(span.get("name"), str) or not span["name"]:
        raise BadRecord("bad span")
    record: Record = {"kind": "span", "step": step, "name": span["name"], "dur": duration_of(span.get("duration"))}
    t = time_of(span.get("wall_start"))
    return record if t is None else {**record, "t": t}


def read_rollout(table: str, raw: bytes) -> list[Record]:
    """The sample in a line."""
    found = parse(raw)
    if "total_reward" not in found:
        raise BadRecord("no rollout")
    step = step_of(found.pop("iteration", None))
    row = {_NAMES.get(name, name): value for name, value in found.items() if name != "schema_version"}
    return rollout_of_step(raw, table, row, step)


READER = Reader("tinker-cookbook", (_METRICS, _SPANS, f"iteration_*/*{_SUMMARIES}"), bind)
