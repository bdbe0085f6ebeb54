"""What an export reads of a file is what the rows read of it: the same records, at the same times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.decode.lines import SampleLine, TagLine
from rlship_sidecar.export.reading import WriterFile, entries
from rlship_sidecar.tail.tail import Descriptors, Tail
from tests.kit.cases import few
from tests.pipeline.test_decode import decoded

T = 1763600000
OPEN = b'{"kind":"open","id":"a","actor":"trainer","t":1763600000}'
BODIES = (
    '"kind":"sample","table":"t","pri":0.5,"row":{}',
    '"kind":"sample","table":"t","pri":0.5,"row":{},"score":"NaN"',
    '"kind":"sample","table":"t","pri":7,"row":{}',
    '"kind":"sample","table":"","pri":0.5,"row":{}',
    '"kind":"span","name":"s","dur":2',
    '"kind":"span","name":"s","dur":-2',
    '"kind":"event","name":"e"',
    '"kind":"event","name":"step_tag"',
    '"kind":"barrier"',
    '"kind":"rollback"',
    '"kind":"define","m":{}',
    '"kind":"define"',
    '"kind":"gap","n":1',
    '"kind":"gap","n":0',
    '"kind":"clock","offset":1,"err":0',
    '"kind":"clock","offset":1',
    '"kind":"beat"',
    '"kind":"close","reason":"roll"',
    '"kind":"later version"',
    '"kind":[]',
    '"kind":null',
    '"kind":"open","id":"b","actor":"b"',
    '"m":{"x":1}',
    '"m":{"x":[1,2]}',
    '"m":7',
)
TIMES = ("", "", ',"t":{}', ',"t":{}.5', ',"t":1', ',"t":true', ',"t":"x"', ',"t":null')
STEPS = ("", "", ',"step":1', ',"step":1', ',"step":2', ',"step":null', ',"step":-1', ',"step":3.0')


@st.composite
def files(draw: st.DrawFn) -> list[bytes]:
    """Lines of all kinds, sound and unsound, with and without times and steps, behind an `open` or before it."""
    parts = st.tuples(st.sampled_from(BODIES), st.sampled_from(TIMES), st.sampled_from(STEPS))
    drawn = draw(st.lists(parts, max_size=12))
    lines = [f"{{{body}{t.format(T + i)}{step}}}".encode() for i, (body, t, step) in enumerate(drawn)]
    lines.insert(0 if draw(st.integers(0, 7)) else min(1, len(lines)), OPEN)
    return lines


def as_exported(path: Path) -> tuple[list[tuple[Any, ...]], Counter[str]]:
    """The samples, stream metrics and barriers in file order, and why lines cannot be used."""
    file = WriterFile(path.name, Tail(str(path), Descriptors(1, keep=False)))
    found = [
        (entry.kind, entry.step, entry.t)
        for entry in entries(file)
        if entry.kind in ("sample", "barrier", "metrics", "clock")
    ]
    return found, Counter(file.unusable)


def as_rows_read(lines: list[bytes]) -> tuple[list[tuple[Any, ...]], Counter[str]]:
    """The same by the decoder of rows."""
    batch = decoded(*lines)
    found: dict[int, tuple[Any, ...]] = {}
    offset = 0
    starts = {}
    for line in lines:
        starts[offset] = line
        offset += len(line) + 1
    for sample in batch.samples:
        found[sample.offset] = ("sample", sample.step, sample.t)
    for barriers in batch.barriers:
        for step, t, at, _ in barriers.each():
            found[at] = ("barrier", step, t)
    for metrics in (*batch.lines, *batch.streams):
        if not isinstance(metrics, TagLine) and b'"kind"' not in starts[metrics.offset]:
            found[metrics.offset] = ("metrics", None if metrics.step < 0 else metrics.step, metrics.t)
        elif b'"sample"' in starts[metrics.offset]:
            found[metrics.offset] = ("sample", None if metrics.step < 0 else metrics.step, metrics.t)
    clocks = iter(batch.clocks)
    bad = {dead.offset for dead in batch.dead}
    for start, line in starts.items():
        if b'"clock"' in line and start not in bad:
            found[start] = ("clock", None, next(clocks).t)
    return [found[start] for start in sorted(found)], Counter(dead.reason for dead in batch.dead)


@settings(max_examples=few(300), deadline=None)
@given(lines=files())
def test_exports_and_rows_agree(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    """The same records count, at the same times, and lines cannot be used for the same reasons: neither a dead letter
    nor a record of an unknown kind hands its time on.
    """
    path = tmp_path_factory.mktemp("reading") / "a.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert as_exported(path) == as_rows_read(lines)


def test_a_time_is_handed_on_by_what_counts_alone(tmp_path: Path) -> None:
    """A sample without a time takes that of the last record that could be used."""
    sample = {"kind": "sample", "table": "t", "pri": 0.5, "row": {}}
    bad = [{"kind": "later", "t": T + 1}, {"kind": "gap", "n": 0, "t": T + 2}, sample | {"pri": 7, "t": T + 3}]
    later = [*bad, {"kind": "beat", "t": T + 4}]
    lines = [OPEN, *(orjson.dumps(record) for other in later for record in (other, sample))]
    (tmp_path / "a").write_bytes(b"\n".join(lines) + b"\n")
    assert [
        entry.t - T for entry in entries(WriterFile("a", Tail(str(tmp_path / "a"), Descriptors(1, keep=False))))
    ] == [0, 0, 0, 4]
    assert [line.t - T for line in decoded(*lines).streams if isinstance(line, SampleLine)] == [0, 0, 0, 4]
