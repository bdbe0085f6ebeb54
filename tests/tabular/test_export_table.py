"""`rlship export` of tables: what is read back is what was there."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow.parquet  # type: ignore[import-untyped, unused-ignore]
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.cli.group import rlship
from rlship_sidecar.rows import Row
from rlship_sidecar.tabular.writing import csv_line
from tests.reference.building import T0, event, file, log, sample, span
from tests.tabular.stores import ODD, experiment, rich_rows, row

FORMATS = pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])


def run(*args: object) -> Result:
    return CliRunner().invoke(rlship, ["export", *map(str, args)])


@pytest.fixture
def grpo(tmp_path: Path) -> Path:
    """An experiment with rows of all kinds, and the name that all formats have to quote."""
    return experiment(tmp_path / "grpo", rich_rows())


def exported(folder: Path, form: str, *options: object) -> list[dict[str, Any]]:
    """What is read back from an exported file: by pyarrow, by DuckDB from CSV, by orjson from lines."""
    target = folder.parent / f"out.{form}"
    result = run(folder, "-o", target, *options)
    assert result.exit_code == 0, result.stderr
    if form == "jsonl":
        return [orjson.loads(line) for line in target.read_bytes().splitlines()]
    if form == "parquet":
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(target).to_pylist()
        return found
    asked = duckdb.connect().execute(
        f"from read_csv('{target}', header=true, all_varchar=true, delim=',', quote='\"', escape='\"', "
        "strict_mode=true, allow_quoted_nulls=false, new_line='\\n')"
    )
    names = [column[0] for column in asked.description or ()]
    return [{n: _value(n, text) for n, text in zip(names, values)} for values in asked.fetchall()]


def _value(name: str, text: str | None) -> Any:
    texts = {"experiment", "actor", "kind", "axis", "key", "closed", "replica"}
    return text if text is None or name in texts else json.loads(text)


def final() -> list[Row]:
    """The rows that are the last of their units."""
    return rich_rows()[1:]


def bits(value: float) -> str:
    return value.hex()


@FORMATS
def test_figures(grpo: Path, form: str) -> None:
    """A line for each figure of the last revisions, with every bit of its value."""
    told = exported(grpo, form)
    assert [(one["row"], one["key"], bits(one["value"])) for one in told] == [
        (one.arrival.row_number, key, bits(value)) for one in final() for key, value in one.values.items()
    ]
    first = {key: told[0][key] for key in ("experiment", "actor", "kind", "index", "step", "axis", "x", "t", "changed")}
    assert first == {
        "experiment": "grpo",
        "actor": "trainer",
        "kind": "step",
        "index": 1,
        "step": 1,
        "axis": "global_step",
        "x": 1.0,
        "t": 1763600001.25,
        "changed": True,
    }
    assert [(one["index"], one["step"]) for one in told if one["kind"] == "point:9f2c"] == [(2**53 - 1, None)]


@FORMATS
def test_every_revision(grpo: Path, form: str) -> None:
    """With _all behind the table's name each revision is there, with what it changed."""
    told = exported(grpo, form, "--table", "figures_all")
    assert [(one["row"], one["revision"], one["key"], one["changed"]) for one in told if one["step"] == 0][:4] == [
        (0, 0, "trainer/loss", True),
        (0, 0, "trainer/tokens", True),
        (0, 0, "trainer/low", True),
        (2, 0, "generator/policy_lag", True),
    ]
    assert [(one["key"], one["changed"]) for one in told if one["row"] == 7] == [
        ("trainer/loss", True),
        ("trainer/tokens", False),
    ]


@FORMATS
def test_wide(grpo: Path, form: str) -> None:
    """A line for each row, a column for each figure under its key, null where the row has none."""
    told = exported(grpo, form, "--wide")
    keys = sorted({key for one in final() for key in one.values})
    assert list(told[0])[19:] == keys
    for one, line in zip(final(), told, strict=True):
        assert {key: bits(line[key]) for key in keys if line[key] is not None} == {
            key: bits(value) for key, value in one.values.items()
        }


@FORMATS
def test_coverage(grpo: Path, form: str) -> None:
    """What a row is made of comes with it: lists stay lists, and an empty one is not null."""
    (line,) = (one for one in exported(grpo, form, "--table", "rows") if one["row"] == 1)
    short = line["short"] if isinstance(line["short"], dict) else json.loads(line["short"])  # Parquet has JSON as text
    assert {name: line[name] for name in list(line)[10:]} | {"short": short} == {
        "ranks": ["0.0-1", "1.0"],
        "ranks_in": 3,
        "expected": 4,
        "missing": ["0.2"],
        "absent": ["1.1-2"],
        "attempts": [0, 2],
        "gap": 17,
        "underivable": ["trainer/std"],
        "tags": ["slow", ODD],
        "closed": "complete",
        "changed": ["trainer/loss", f"trainer/{ODD}"],
        "short": {f"trainer/{ODD}": ["0.0-1"]},
        "lives": 1,
    }
    without = exported(grpo, form, "--table", "rows")[1]
    assert (without["missing"], without["short"]) == ([], None)


@FORMATS
def test_ranks_and_histograms(grpo: Path, form: str) -> None:
    """Values of ranks have a line each, histograms one with their edges and exact counts."""
    ranks = exported(grpo, form, "--table", "per_rank")
    assert [(one["key"], one["replica"], one["rank"], one["value"]) for one in ranks] == [
        ("trainer/busy_s", "0", 0, 0.25),
        ("trainer/busy_s", "a.b", 11, 1e-9),
    ]
    (hist,) = exported(grpo, form, "--table", "hists")
    assert (hist["edges"], hist["counts"]) == ([0.5, 1.5, 2.5], [3, 2**53 + 1])


def test_choosing(grpo: Path) -> None:
    """--actor, --kind and --step leave the rest out, of wide columns too."""
    assert [one["row"] for one in exported(grpo, "jsonl", "--table", "rows", "--step", "0:1")] == [1, 2, 7]
    assert [one["row"] for one in exported(grpo, "jsonl", "--table", "rows", "--kind", "point", "--kind", "clock")] == [
        3,
        4,
    ]
    wide = exported(grpo, "jsonl", "--wide", "--actor", "generator", "--kind", "aligned")
    assert list(wide[0])[19:] == ["generator/policy_lag"]


@FORMATS
def test_records(tmp_path: Path, form: str) -> None:
    """Tables of records need no store: values in their forms, NaN, JSON as it is, and null for what is not there."""
    folder = tmp_path / "raw"
    (folder / "rlship").mkdir(parents=True)
    values = {"a": 2**53 + 2, "b": [1.5, None, "NaN"], "c": {"v": [1], "w": [0.5]}, "d": {"n": 2, "sum": 3.0}}
    lines = (log(1, **values), span("fwd", 0.5), event(ODD, attrs={"big": 2**63}), sample(None), {"bad": 1})
    (folder / "rlship" / "a.jsonl").write_bytes(file(*lines))
    target = tmp_path / f"out.{form}"

    def back(table: str) -> list[dict[str, Any]]:
        assert run(folder, "--table", table, "-o", target).exit_code == 0
        if form == "parquet":
            return pyarrow.parquet.read_table(target).to_pylist()  # type: ignore[no-any-return]
        if form == "jsonl":
            return [orjson.loads(line) for line in target.read_bytes().splitlines()]
        return list(csv.DictReader(io.StringIO(target.read_text(), newline="")))

    told = back("observations")
    nothing = "" if form == "csv" else None
    assert [one["metric"] for one in told] == ["a", "b", "b", "c", "d"]
    assert [str(float(one["value"])) for one in told[:4]] == ["9007199254740994.0", "1.5", "nan", "1.0"]
    assert [one["weight"] for one in told[:3]] == [nothing] * 3
    assert (float(told[3]["weight"]), told[4]["value"]) == (0.5, nothing)
    (one,) = back("events")
    assert one["name"] == ODD
    assert (one["attrs"] if form == "jsonl" else json.loads(one["attrs"])) == {"big": 2**63}
    assert [one["score"] for one in back("samples")] == [nothing]
    assert [float(one["dur"]) for one in back("spans")] == [0.5]
    (writer,) = back("writers")
    assert (writer["closed"], float(writer["last_t"]), float(writer["bytes"])) == (
        nothing,
        T0 + 1,
        (folder / "rlship" / "a.jsonl").stat().st_size,
    )


def test_a_file_appears_whole(grpo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until an export is through, and if it fails, the name keeps what it had, and no other file is left."""
    target = tmp_path / "rows.csv"
    target.write_text("before")

    def failing(*_: object) -> Iterator[Any]:
        yield ("one",)
        assert target.read_text() == "before"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlship_sidecar.cli.export_table.wide_records", failing)
    result = run(grpo, "--wide", "-o", target)
    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert (target.read_text(), sorted(one.name for one in tmp_path.iterdir())) == ("before", ["grpo", "rows.csv"])


def test_standard_output_and_compression(grpo: Path, tmp_path: Path) -> None:
    """Without -o the table is on standard output and the talk on standard error; .gz compresses."""
    result = run(grpo, "--format", "csv")
    assert result.stderr == "standard output: 8 records of figures\n"
    assert run(grpo, "-o", tmp_path / "x.csv.gz").exit_code == 0
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == result.stdout_bytes


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "export needs to know what to write"),
        (("-o", "x.txt"), "x.txt does not say what to write"),
        (("--chrome-trace", "--wide"), "one thing at a time"),
        (("--samples", "t", "--format", "csv"), "one thing at a time"),
        (("--wide",), "in which format?"),
        (("-o", "x.txt", "--table", "rows"), "x.txt does not say in which format"),
        (("-o", "x.parquet.gz"), "Parquet is compressed already"),
        (("-o", "x.csv", "--table", "figurs"), "did you mean figures"),
        (("-o", "x.csv", "--table", "writers", "--step", "1"), "--step chooses nothing in writers"),
        (("-o", "x.csv", "--table", "spans", "--kind", "step"), "--kind chooses nothing in spans"),
        (("-o", "x.csv", "--table", "spans", "--wide"), "--wide is a form of rows"),
        (("-o", "x.csv", "--counter", "loss"), "--counter is for a trace"),
        (
            ("-o", "x.csv", "--actor", "trainer", "--actor", "nope"),
            "has no actor nope\n  its actors are: generator, tr",
        ),
        (("-o", "x.csv", "--table", "spans", "--actor", "nope"), "has no actor nope\n  its actors are: "),
        (("-o", "x.csv", "--wide", "--actor", "nope"), "has no actor nope"),
        (("-o", "x.csv", "--table", "steps"), "there is no table steps\n  there are: rows"),
        (
            ("-o", "x.csv", "--table", "trainer_steps"),
            "no table trainer_steps, which query has\n  write it with --wide --actor trainer --kind step; or: "
            "rlship query --csv ",
        ),
        (
            ("-o", "x.csv", "--kind", "clock", "--kind", "point", "--step", "1:3"),
            "--step 1:3 chooses nothing of --kind clock, point: these rows have no step\n  leave one of them out, or ",
        ),
        (
            ("-o", "x.csv", "--kind", "steps"),
            "--kind steps: there is no such kind of rows\n  did you mean step? there are: step, aligned, ",
        ),
        (
            ("-o", "x.csv", "--kind", "x"),
            "there is no such kind of rows\n  there are: step, aligned, clock, point, ledger, alert\n",
        ),
        (
            ("--chrome-trace", "-o", "x.json", "--actor", "nope"),
            "--actor nope is for a table of rows or records; a trace shows all actors\n  leave it out",
        ),
        (
            ("--samples", "rollouts", "--actor", "trainer", "--kind", "step"),
            "--table samples -o rollouts.csv --actor trainer\n",
        ),
    ],
)
def test_wrong_use(grpo: Path, given: tuple[str, ...], told: str) -> None:
    """What makes no sense is refused with what to do instead, and writes nothing."""
    result = run(grpo, *given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


@pytest.mark.parametrize("options", [("--table", "rows"), (), ("--wide",), ("--table", "rows", "--actor", "generator")])
def test_steps_that_are_not_there(grpo: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A table that has records, but none of these steps, is not written, and the steps that there are are named."""
    target = tmp_path / "x.csv"
    result = run(grpo, "-o", target, *options, "--step", "500:")
    assert (result.exit_code, result.stdout, target.exists()) == (1, "", False)
    last = 0 if "generator" in options else 6
    assert f"{grpo} has none of the steps 500:: it has steps 0 to {last}\n  choose others, or" in result.stderr
    if not options:
        assert run(grpo, "--table", "spans", "--format", "csv", "--step", "500:").exit_code == 0


@pytest.mark.parametrize("options", [(), ("--wide",), ("--table", "hists")])
def test_kinds_that_are_not_there(grpo: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A kind of rows that no chosen actor has is no empty table: the kinds that there are are named."""
    target = tmp_path / "x.csv"
    result = run(grpo, "-o", target, *options, "--actor", "trainer", "--kind", "aligned", "--step", "0:1")
    assert (result.exit_code, result.stdout, target.exists()) == (1, "", False)
    assert f"{grpo} has no rows of --kind aligned of --actor trainer: it has step" in result.stderr
    assert "choose others, or leave --kind out" in result.stderr


def test_an_experiment_that_was_never_watched(tmp_path: Path) -> None:
    """Without rows the answer says how to have them made, and no file is left."""
    (tmp_path / "new" / "rlship").mkdir(parents=True)
    result = run(tmp_path / "new", "-o", tmp_path / "x.csv")
    assert (result.exit_code, (tmp_path / "x.csv").exists()) == (1, False)
    assert "rlship watch --once" in result.stderr


def test_parquet_without_its_package(grpo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pyarrow is not installed the answer names the command that installs it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run(grpo, "-o", tmp_path / "x.parquet")
    assert result.exit_code == 2
    assert f"{sys.executable} -m pip install duckdb pyarrow pytz" in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["grpo"]


@given(st.lists(st.none() | st.text() | st.integers() | st.booleans() | st.floats(), min_size=2))
def test_csv_is_read_back(values: list[Any]) -> None:
    """Whatever the values, a reader of CSV gets as many fields, texts as they were and every bit of numbers."""
    text = csv_line(values)
    (back,) = csv.reader(io.StringIO(text + "\n", newline=""), strict=True)
    expected = ["" if one is None else one if isinstance(one, str) else None for one in values]
    assert [b if e is not None else None for b, e in zip(back, expected, strict=True)] == expected
    for one, read in zip(values, back):
        if isinstance(one, float):
            assert bits(float(read)) == bits(one) or one != one
        elif isinstance(one, int):
            assert read == json.dumps(one)


def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    """Ten times the rows take no more memory, beside a bit for each."""

    def peak(count: int) -> int:
        folder = experiment(tmp_path / str(count), (row(no) for no in range(count)))
        run(folder, "--wide", "-o", tmp_path / "warm.jsonl")
        tracemalloc.start()
        try:
            assert run(folder, "--wide", "-o", tmp_path / "out.jsonl").exit_code == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(10_000) < 1.1 * peak(1_000) + 10_000 / 8


def test_a_cell_of_csv_may_begin_like_a_formula(tmp_path: Path) -> None:
    """CSV holds what was logged, to the byte; the help says what a spreadsheet makes of it."""
    folder = experiment(tmp_path / "a", [row(0, values={'=HYPERLINK("x")': 1.0})])
    assert '"=HYPERLINK(""x"")"' in run(folder, "--format", "csv").stdout
    assert "A cell of CSV may begin with =" in " ".join(run("--help").stdout.split())
