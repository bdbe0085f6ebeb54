"""TorchTitan's structured logger: `structured_logs/{source}.global_rank_{rank}.{time}-{random}.jsonl`, one file per
process, one line per span's begin and end, instant or scalar.
"""

from __future__ import annotations

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The writer of a file that has such a line."""
    found = parse(line)
    source, rank = found.get("source"), found.get("rank")
    if not isinstance(source, str) or type(rank) is not int or found.get("log_type") not in ("event", "instant"):
        return ()
    return (Translation({"actor": source, "rank": rank, "t": _time(found)}, read),)


def read(raw: bytes) -> list[Record]:
    """What a line says."""
    found = parse(raw)
    if found.get("log_type") != "instant" or found.get("log_type_name") != "metric_value":
        return []
    record: Record = {"t": _time(found)}
    if "step" in found:
        record["step"] = step_of(found["step"])
    record["m"] = {found["event_name"]: found["value"]}
    return [record]


def _time(found: Record) -> float:
    stamp = found.get("time_us")
    if type(stamp) is not int:
        raise BadRecord("bad time")
    return stamp / 1e6


READER = Reader("torchtitan", ("structured_logs/*.jsonl",), bind)
