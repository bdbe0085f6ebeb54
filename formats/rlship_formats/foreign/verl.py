"""verl's `file` backend: one line per step, written by the driver. Lines have no time, NaN and infinity are null, and a
restart truncates the file.
"""

from __future__ import annotations

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.reduced import reduced


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The driver. What it logs natively or through W&B's calls counts before the file, metric by metric."""
    found = parse(line)
    if set(found) != {"step", "data"} or not isinstance(found["data"], dict):
        return ()
    step_of(found["step"])
    return (Translation({"actor": "trainer"}, read),)


def read(raw: bytes) -> list[Record]:
    """The records of a line."""
    found = parse(raw)
    data = found.get("data")
    if not isinstance(data, dict):
        raise BadRecord("no data")
    return reduced(data, step_of(found.get("step")))


READER = Reader("verl", ("*.jsonl",), bind)
