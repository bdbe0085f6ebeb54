"""`rlship export --samples`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet  # type: ignore[import-untyped, unused-ignore]
import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import rlship
from tests.reference.building import T0, file, log, sample, stepless_sample


def run(*args: object) -> Result:
    return CliRunner().invoke(rlship, ["export", *map(str, args)])


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Two ranks with samples of two tables, one of them without a step, one without a score."""
    folder = tmp_path / "grpo"
    (folder / "rlship").mkdir(parents=True)
    first = sample(0.5, 0.25, t=T0 + 1, row={"prompt": "hi", "n": 3, "ok": True}, cut={"prompt": 900})
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    lines = file(log(1, x=1), first, sample(None, 0.5, row={"n": 1.5, "prompt": ["a"]}), sample(1, table="other"))
    late = orjson.dumps(sample(1)).replace(b'{"is":1}', b'{"deep":' + b"[" * 300 + b"]" * 300 + b',"n":1}')
    (folder / "rlship" / "a.jsonl").write_bytes(lines + b"no JSON\n" + late + b"\n")
    (folder / "rlship" / "b.jsonl").write_bytes(file(stepless_sample(2, after=3), rank=1, id="b") + b'{"torn')
    return folder


def test_json_lines(experiment: Path) -> None:
    """Every sample of the table in all files, in file order, with who wrote it; lines that cannot be used are not."""
    result = run("--samples", "rollouts", experiment)
    assert result.exit_code == 0
    assert result.stderr == "standard output: 4 samples of rollouts\n"
    found = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert found[0] == {
        "table": "rollouts",
        "actor": "trainer",
        "replica": "0",
        "rank": 0,
        "attempt": 0,
        "step": 1,
        "t": T0 + 1,
        "score": 0.5,
        "pri": 0.25,
        "row": {"prompt": "hi", "n": 3, "ok": True},
        "cut": {"prompt": 900},
    }
    assert [(one["rank"], one["step"], one["score"], one["t"]) for one in found[1:]] == [
        (0, 1, None, T0 + 1),
        (0, 1, 1.0, T0 + 1),
        (1, None, 2.0, T0 + 3),
    ]
    assert found[2]["row"] == {"deep": "(nested too deeply to be shown)", "n": 1}


def test_parquet(experiment: Path, tmp_path: Path) -> None:
    """The samples' own columns have the type of their values: numbers, bools, else text, with JSON for the rest."""
    target = tmp_path / "rollouts.parquet"
    assert run("--samples", "rollouts", "-o", target, experiment).exit_code == 0
    table = pyarrow.parquet.read_table(target)
    assert table.column_names[:8] == ["actor", "replica", "rank", "attempt", "step", "t", "score", "pri"]
    assert {name: str(table.schema.field(name).type) for name in table.column_names[8:]} == {
        "row.prompt": "string",
        "row.n": "double",
        "row.ok": "bool",
        "row.deep": "string",
        "row.is": "int64",
        "cut": "string",
    }
    assert table.column("row.prompt").to_pylist() == ["hi", '["a"]', None, None]
    assert table.column("row.n").to_pylist() == [3.0, 1.5, 1.0, None]
    assert table.column("step").to_pylist() == [1, 1, 1, None]
    assert table.column("cut").to_pylist()[0] == '{"prompt":900}'


def test_parquet_without_its_package(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pyarrow is not installed the answer says how to get it, with exit code 2, and no file is left."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("--samples", "rollouts", "-o", tmp_path / "r.parquet", experiment)
    assert result.exit_code == 2
    assert "pip install pyarrow" in result.stderr
    assert not list(tmp_path.glob("r.parquet*"))


def test_a_table_that_is_not_there(experiment: Path) -> None:
    """No sample of a table is no error; the tables that are there are named."""
    result = run("--samples", "rolouts", experiment)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("there are samples of: other, rollouts\n")


def test_one_thing_at_a_time(experiment: Path) -> None:
    """A trace and a table at once, or neither, is a wrong use."""
    assert run("--samples", "rollouts", "--chrome-trace", experiment).exit_code == 2
    assert run(experiment).exit_code == 2
