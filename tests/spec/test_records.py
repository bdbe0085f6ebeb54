"""The vectors of lines: what each is, by the pipeline and by the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlship_formats.reading import KNOWN_KINDS
from tests.spec import decoded
from tests.spec.vectors import VECTORS, RecordCase, record_cases

CASES = record_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pipeline_decodes_the_vectors(case: RecordCase, tmp_path: Path) -> None:
    """Tail and decoder make of each line what the vector says."""
    expected = case.expected()
    path = tmp_path / "f.jsonl"
    path.write_bytes(case.data)
    assert decoded.by_pipeline(path) == {"lines": expected["lines"], "rest": expected["rest"]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_decodes_the_vectors(case: RecordCase) -> None:
    """So does the reference, which shares no code with it."""
    expected = case.expected()
    assert decoded.by_reference(case.data) == {"lines": expected["lines"], "rest": expected["rest"]}


def test_the_vectors_cover_the_page() -> None:
    """Every kind of record, every reason and both ways of being ignored are in some vector; each case says what it is
    about.
    """
    said = [line for case in CASES for line in case.expected()["lines"]]
    assert {line["record"]["kind"] for line in said if "record" in line} == KNOWN_KINDS | {"metrics"}
    reasons = {line["dead"] for line in said if "dead" in line}
    values = {reason for line in said for _, reason in line.get("dead_values", ())}
    assert reasons == {
        *("line too long", "not JSON", "not an object", "no open record", "second open record"),
        *("unsupported format version", "bad open record", "bad step", "bad metrics", "bad define", "bad gap"),
        *("bad span", "bad event", "bad sample", "bad clock", "bad run", "bad ledger"),
    }
    assert values == {"bad value", "bad define"}
    assert {line["ignored"] for line in said if "ignored" in line} == {"blank", "unknown kind"}
    assert all(case.expected()["about"] for case in CASES)


def test_every_file_belongs_to_a_case() -> None:
    """No expectation lies there without its input."""
    names = {path.name.split(".")[0] for path in (VECTORS / "records").iterdir()}
    assert names == {case.name for case in CASES}
