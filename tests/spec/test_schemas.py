"""The schemas against what Python writes, what it reads, and what the reference makes of random experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from rlship_formats.reading import KNOWN_KINDS
from rlship_formats.values import REDUCTIONS
from tests.kit.cases import statistical
from tests.pipeline.simulated import simulation
from tests.reference import strict_json
from tests.reference.experiments import experiments
from tests.spec import decoded
from tests.spec.made_rows import by_pipeline
from tests.spec.schemas import documents, faults, faults_in
from tests.spec.vectors import RecordCase, RowCase, record_cases, row_cases

# What a schema cannot say: where 3.0 is no integer, lengths that have to be equal, and which of two is the greater.
BEYOND = {
    b'{"step":3.0,"m":{}}',
    b'{"step":3e0,"m":{}}',
    b'{"step":1,"m":{"x":{"n":2.0,"sum":1}}}',
    b'{"step":1,"m":{"x":{"n":18446744073709551616,"sum":1}}}',
    b'{"kind":"gap","n":1e0}',
    b'{"step":1.0,"m":{"x":1}}',
    b'{"kind":"gap","n":2.0}',
    b'{"kind":"gap","n":2,"from":3,"to":1}',
    b'{"kind":"run","exit_code":1.0}',
    b'{"kind":"run","name":"kept?","exit_code":1e0}',
    b'{"kind":"ledger","hop":"h","key":"k","n":1.0}',
    b'{"kind":"ledger","hop":"h","key":"k","n":1,"version":[2,1]}',
    b'{"kind":"ledger","hop":"h","key":"k","n":1,"part":[1,1]}',
    b'{"kind":"open","rlship":1.0,"id":"a","actor":"a"}',
}
PLACE = ("no open record", "second open record")  # what makes these dead is where they stand


def test_the_schemas_are_schemas() -> None:
    """Each is valid by the draft, has its own name as its id, and there is one for each kind of record."""
    for name, document in documents().items():
        Draft202012Validator.check_schema(document)
        assert document["$id"] == f"urn:rlship:1:{name}"
    assert documents().keys() == KNOWN_KINDS | {"metrics", "record", "row", "common"}
    assert documents()["common"]["$defs"]["reduction"]["anyOf"][0]["enum"] == list(REDUCTIONS)


@pytest.mark.parametrize("case", record_cases(), ids=lambda case: case.name)
def test_valid_is_what_a_reader_uses_whole(case: RecordCase) -> None:
    """A record that is valid makes no dead letter and no dead value; of one that does, the schema finds a fault, but
    for a few rules that are beyond JSON Schema.
    """
    for said in case.expected()["lines"]:
        line = case.data[said["at"] :].split(b"\n", 1)[0]
        if said.get("dead") in ("not JSON", "line too long", *PLACE) or said.get("ignored") == "blank":
            continue
        wrong = faults("record", strict_json.parse(line))
        if "dead" in said or "dead_values" in said or "ignored" in said:
            assert wrong or line in BEYOND, line[:200]
        elif wrong:
            assert _lenient(said["record"], strict_json.parse(line)), (line[:200], wrong)


def _lenient(record: dict[str, Any], written: dict[str, Any]) -> bool:
    """Whether a reader may well use a record that a writer should not write."""
    odd_t = "t" in written and repr(written["t"]) not in (record["t"], record["t"].removesuffix(".0"))
    passed_over = {"open": {"host", "pid", "pid_space", "labels", "writer", "continues"}, "span": {"lane"}}
    passed_over |= {"event": {"attrs"}, "define": {"m"}, "sample": {"cut"}}
    if record["kind"] == "metrics" and not odd_t:  # bins that cannot be used are as if absent
        left = [name for name, value in written["m"].items() if type(value) is dict and "edges" in value]
        return any("edges" not in record["m"][name] for name in left)
    return odd_t or bool(passed_over.get(record["kind"], set()) & written.keys())


def test_each_rule_beyond_the_schemas_has_a_case() -> None:
    """Every line that the schemas let pass although it is dead is in a vector, and is dead."""
    dead = set()
    for case in record_cases():
        for said in case.expected()["lines"]:
            if "dead" in said or "dead_values" in said:
                dead.add(case.data[said["at"] :].split(b"\n", 1)[0])
    assert dead >= BEYOND
    for line in BEYOND:
        assert not faults("record", json.loads(line)), line


@statistical(60)
@given(files=experiments())
def test_valid_lines_of_random_files_are_used(files: dict[str, bytes]) -> None:
    """In random files no line that is valid is dead, unless for its place or a rule beyond JSON Schema."""
    for data in files.values():
        for said in decoded.by_reference(data)["lines"]:
            if "dead" not in said and "dead_values" not in said:
                continue
            line = data[said["at"] :].split(b"\n", 1)[0]
            if said.get("dead") in ("not JSON", "line too long", *PLACE):
                continue
            record = strict_json.parse(line)
            assert faults("record", record) or _beyond(record), line[:300]


def _beyond(record: dict[str, Any]) -> bool:
    """Whether a record breaks a rule that JSON Schema cannot tell: equal lengths, from <= to, 3.0 for an integer."""
    text = repr(record)
    uneven = any(
        isinstance(value, dict) and "v" in value and len(value["v"]) != len(value["w"])
        for value in (record.get("m") or {}).values()
    )
    return uneven or record.get("from", 0) > record.get("to", 0) or ".0" in text or "e+" in text


@pytest.mark.parametrize("case", row_cases(), ids=lambda case: case.name)
def test_rows_are_valid(case: RowCase) -> None:
    """Every row of the vectors is valid as the pipeline writes it into rows.jsonl."""
    for row in by_pipeline(case):
        assert not faults("row", orjson.loads(row.to_json()))


@statistical(60)
@given(files=experiments())
def test_rows_of_random_experiments_are_valid(files: dict[str, bytes]) -> None:
    """So are all rows, revisions too, of random experiments."""
    with simulation() as running:
        for name, data in files.items():
            running.write(name, data)
        running.tick()
        running.finish()
        assert [fault for row in running.rows() for fault in faults("row", orjson.loads(row.to_json()))] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"row": -1}, "$.row"),
        ({"t": "1"}, "$.t"),
        ({"kind": "window"}, "$.kind"),
        ({"m": {"x": None}}, "$.m.x"),
        ({"m": {"x": True}}, "$.m.x"),
        ({"x": {}}, "$.x"),
        ({"more": 1}, "$"),
        ({"tags": []}, "$.tags"),
        ({"arrival": {"revision": 0, "changed": [], "closed": "soon"}}, "$.arrival.closed"),
        ({"hists": {"h": {"edges": [0], "counts": [1]}}}, "$.hists.h.edges"),
        ({"samples": {"t": [{"why": ["best"], "rank": "0.0", "t": 1, "row": {}}]}}, "$.samples.t[0].why[0]"),
    ],
)
def test_what_is_no_row_is_told(change: dict[str, Any], told: str) -> None:
    """The schema of rows finds each of these faults, and none in the row that they were put into."""
    case = next(case for case in row_cases() if case.name.startswith("01"))
    row = orjson.loads(by_pipeline(case)[0].to_json())
    assert not faults("row", row)
    assert any(fault.startswith(told) for fault in faults("row", row | change))


def test_invalid_lines_of_a_writer_are_told(tmp_path: Path) -> None:
    """What the tests of the writer look for after each test is found; torn lines and blank ones are passed over."""
    folder = tmp_path / "rlship"
    folder.mkdir()
    good = b'{"kind":"beat","t":7}\n\n{"kind":"be\n{"step":1,"m":{"x":1}}\n'
    (folder / "a.jsonl").write_bytes(good)
    assert faults_in(tmp_path) == []
    (folder / "a.jsonl").write_bytes(good + b'{"kind":"barrier"}\n')
    (told,) = faults_in(tmp_path)
    assert told.startswith("a.jsonl: b'{\"kind\":\"barrier\"}': $: 'step' is a required property")
