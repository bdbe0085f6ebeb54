"""The logs of TorchTitan's pull-request stack on observability.

`experiment_logs/{source}_rank_{rank}_experiment.jsonl` has one line per metric, which names its reduction.
`system_logs/{source}_rank_{rank}_system.jsonl` has one line per begin and end of a span, and per scalar.

By default a span's time is in both. Both files describe one rank, and the experiment's has the higher attempt: its
metrics count where both have them.

A restart appends to both. In the system's file the process's own count of lines starts again at 0, which is a rollback.
In the experiment's file a falling step shows it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import is_number, parse, step_of
from rlship_formats.reading import MAIN_LANE
from rlship_formats.records import MAX_WORLD

_REDUCTIONS = {
    "MeanMetric": "mean",
    "MaxMetric": "max",
    "MinMetric": "min",
    "SumMetric": "sum",
    "NoOpMetric": "last",  # all ranks log the same value
}
_EXPERIMENT, _SYSTEM = "experiment_logs/", "system_logs/"


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The process that writes the file."""
    found = parse(line)
    if path.startswith(_EXPERIMENT):
        if not isinstance(found.get("reduce"), str) or not isinstance(found.get("key"), str):
            return ()
        known = _known(t=found.get("timestamp"), attempt=1)
        return (Translation(_rank(found, found) | known, read_metric, restarts=True),)
    numbers, texts = _columns(found)
    if texts.get("log_type") != "event":
        return ()
    known = _known(t=_time(numbers), pid=numbers.get("pid"), host=texts.get("host_name"))
    return (Translation(_rank(texts, numbers) | known, partial(read_event, line)),)


def read_metric(raw: bytes) -> list[Record]:
    """The records of a line of `experiment_logs`."""
    found = parse(raw)
    key, how = found.get("key"), found.get("reduce")
    if not isinstance(key, str) or not isinstance(how, str):
        raise BadRecord("no key or reduce")
    record: Record = {"t": found.get("timestamp"), "step": step_of(found.get("step")), "m": {key: _value(found)}}
    reduction = "mean" if "sum" in found else _REDUCTIONS.get(how)
    return [{"kind": "define", "m": {key: {"reduce": reduction}}}, record] if reduction else [record]


def read_event(head: bytes, raw: bytes) -> list[Record]:
    """The records of a line of `system_logs`; `head` is the file's first line."""
    found = parse(raw)
    numbers, texts = _columns(found)
    name, event = texts.get("log_type_name"), texts.get("event_name", "")
    if not isinstance(name, str) or not name or not isinstance(event, str):
        raise BadRecord("no log_type_name")
    doubles, t = found.get("double"), _time(numbers)
    value = doubles.get("value") if isinstance(doubles, dict) else None
    step = {"step": step_of(numbers["step"])} if "step" in numbers else {}
    record: Record
    if event and name.endswith("_start"):
        return [{"kind": "rollback", "t": t, "step": 0}] if numbers.get("seq_id") == 0 and raw != head else []
    if event and value is not None and name.endswith("_end"):
        if not is_number(value) or isinstance(value, str) or value < 0:
            raise BadRecord("bad duration")
        dur = value / 1000
        record = {"kind": "span", "t": t - dur, "dur": dur, "name": event.removesuffix("_s") or event}
        record["lane"] = MAIN_LANE if numbers.get("tid") == numbers.get("pid") else f"thread {numbers.get('tid')}"
    elif event and name == "metric_value":
        if not is_number(value):
            raise BadRecord("bad value")
        record = {"t": t, "m": {event: value}}
    else:  # any other line has no name but that of its type
        record = {"kind": "event", "t": t, "name": name}
    return [record | step, *_tags(found, t, step)]


def _rank(texts: Record, numbers: Record) -> Record:
    source, rank = texts.get("source"), numbers.get("rank")
    if not isinstance(source, str) or not source.isprintable() or not source:
        raise BadRecord("bad source")
    if type(rank) is not int or not 0 <= rank < MAX_WORLD:
        raise BadRecord("bad rank")
    return {"actor": source, "rank": rank}


def _known(**fields: Any) -> Record:
    """The fields of an `open` record that are plain values."""
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, (int, float)) or (isinstance(value, str) and value.isprintable())
    }


def _columns(found: Record) -> tuple[Record, Record]:
    numbers, texts = found.get("int"), found.get("normal")
    if not isinstance(numbers, dict) or not isinstance(texts, dict):
        raise BadRecord("not in typed columns")
    return numbers, texts


def _value(found: Record) -> Any:
    """The observation in a line. Of a mean only the sum and the weight are known, so it becomes a summary of one."""
    if "sum" not in found:
        if not is_number(found.get("value")):
            raise BadRecord("bad value")
        return found["value"]
    total, weight = found["sum"], found.get("weight")
    if not is_number(total) or not is_number(weight):
        raise BadRecord("bad value")
    if isinstance(total, str):
        return {"v": [total], "w": [weight]}
    return {"n": 1, "w": weight, "sum": total}


def _tags(found: Record, t: float, step: Record) -> list[Record]:
    vectors = found.get("normvector")
    tags = vectors.get("step_tags") if step and isinstance(vectors, dict) else None
    if not isinstance(tags, list):
        return []
    return [
        {"kind": "event", "t": t, "name": "step_tag", "attrs": {"tag": tag}} | step
        for tag in tags
        if isinstance(tag, str) and tag
    ]


def _time(numbers: Record) -> float:
    stamp = numbers.get("time_us")
    if type(stamp) is not int:
        raise BadRecord("bad time")
    return stamp / 1e6


READER = Reader("torchtitan-stack", (f"{_EXPERIMENT}*.jsonl", f"{_SYSTEM}*.jsonl"), bind)
