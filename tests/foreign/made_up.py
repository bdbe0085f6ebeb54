"""Readers of made-up formats, for what the contract allows and no framework does all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_sidecar.tail import discover, opening
from rlship_sidecar.tail.foreign.readers import Readers


@contextmanager
def reading(*given: Reader, problems: dict[str, str] | None = None) -> Iterator[Readers]:
    """Only these readers are installed."""
    made = Readers(list(given), problems or {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "readers", lambda: made)
        patch.setattr(discover, "readers", lambda: made)
        yield made


def shared_bind(path: str, line: bytes) -> Sequence[Translation]:
    """Two writers share a file: `{"n": step, "a": value, "b": value, …}`. `"back"` rolls a back; b has weights by
    `define`, a tag, a sample and a span. No reader takes a line that only has `x`.
    """
    if "n" not in parse(line):
        return ()
    return (Translation({"actor": "a"}, read_a, "a"), Translation({"actor": "b", "rank": 3}, read_b, "b"))


def read_a(raw: bytes) -> list[Record]:
    found = parse(raw)
    if "back" in found:
        return [{"kind": "rollback", "step": step_of(found["back"])}]
    if "a" not in found:
        return []
    return [{"step": step_of(found.get("n")), "m": {"v": found["a"], "again": found["a"]}}]


def read_b(raw: bytes) -> list[Record]:
    found = parse(raw)
    if "b" not in found:
        return []
    at = {"t": 1.7e9 + step_of(found.get("n")), "step": found["n"]}
    records: list[Record] = [{"kind": "define", "m": {"w": {"reduce": ["sum", "max"]}}}, {**at, "m": {"w": found["b"]}}]
    records.append({"kind": "event", **at, "name": "step_tag", "attrs": {"tag": "odd"}})
    records.append({"kind": "sample", **at, "table": "t", "pri": 0.25, "score": 1.0, "row": {"n": found["n"]}})
    return [*records, {"kind": "span", **at, "name": "s", "dur": 0.5}]


def document_lines(text: bytes) -> list[bytes]:
    if not text.endswith(b"end\n"):
        raise BadRecord("not whole")
    return text.split(b"\n")[:-2]


def falling_bind(path: str, line: bytes) -> Sequence[Translation]:
    """A process that is started again appends: `{"f": step, "v": value, "w": value}`."""
    return (Translation({"actor": "f"}, read_falling, restarts=True),) if "f" in parse(line) else ()


def read_falling(raw: bytes) -> list[Record]:
    found = parse(raw)
    if "f" not in found:
        return []
    how = {"reduce": ["sum", "count"]}
    metrics = {name: found[name] for name in ("v", "w") if name in found}
    step = step_of(found["f"])
    return [{"kind": "define", "m": dict.fromkeys(metrics, how)}, {"t": 1.7e9 + step, "step": step, "m": metrics}]


FALLING = Reader("falling", ("*.falling.jsonl",), falling_bind)
SHARED = Reader("shared", ("*.shared.jsonl", "logs/*.shared.jsonl"), shared_bind)
DOCUMENT = Reader("document", ("d*/state.json",), shared_bind, document_lines)
