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
from tests.reference.building import T0, event, file, log, sample, stepless_sample


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
    assert f"{sys.executable} -m pip install pyarrow" in result.stderr
    assert not list(tmp_path.glob("r.parquet*"))


def test_a_table_that_is_not_there(experiment: Path, tmp_path: Path) -> None:
    """A table without any sample is an error that names the tables that are there, and nothing is written."""
    target = tmp_path / "out.jsonl"
    result = run("--samples", "rolouts", "-o", target, experiment)
    assert (result.exit_code, result.stdout, target.exists()) == (1, "", False)
    assert result.stderr == "rlship: there is no sample of rolouts\n  there are samples of: other, rollouts\n"


@pytest.mark.parametrize("name", ["s.jsonl", "s.parquet"])
def test_steps(experiment: Path, tmp_path: Path, name: str) -> None:
    """--step keeps the samples of these steps alone; those without a step are of none. None left is no error."""
    steps = {"1": 3, "1:9": 3, ":0": 0}
    for given, count in steps.items():
        result = run("--samples", "rollouts", "--step", given, "-o", tmp_path / name, experiment)
        assert (result.exit_code, result.stderr) == (0, f"{tmp_path / name}: {count} samples of rollouts\n")


@pytest.mark.parametrize("name", ["s.jsonl", "s.parquet"])
def test_dropped_samples_are_told(experiment: Path, tmp_path: Path, name: str) -> None:
    """How many samples the writers did not keep stands behind those that were written, of the chosen steps."""
    lines = [event("samples_dropped", step=step, attrs={"n": n, "pri": 0.5}) for step, n in ((1, 7), (2, 5))]
    (experiment / "rlship" / "c.jsonl").write_bytes(file(*lines, event("samples_dropped", step=1), id="c"))
    told = f"{tmp_path / name}: 4 samples of rollouts; 12 more (of all tables) were dropped by their writers\n"
    assert run("--samples", "rollouts", "-o", tmp_path / name, experiment).stderr == told
    assert "; 7 more" in run("--samples", "rollouts", "--step", "1", "-o", tmp_path / name, experiment).stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--counter", "loss"), "--counter is for a trace"),
        (("--no-align-clocks",), "--no-align-clocks is for a trace"),
        (("-o", "s.parquet.gz"), "write it to s.parquet\n"),
    ],
)
def test_what_no_table_has(experiment: Path, given: tuple[str, ...], told: str) -> None:
    """What has no meaning for a table of samples is a wrong use, and not passed over."""
    result = run("--samples", "rollouts", *given, experiment)
    assert result.exit_code == 2
    assert told in result.stderr


def test_one_thing_at_a_time(experiment: Path) -> None:
    """A trace and a table at once, or neither, is a wrong use."""
    assert run("--samples", "rollouts", "--chrome-trace", experiment).exit_code == 2
    assert run(experiment).exit_code == 2
