"""`rlship diff` on stores."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest

from rlship_sidecar.rows import Coverage, Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.store.changes import MergedRun
from rlship_sidecar.store.store import Changes
from tests.kit.verbs import run_here
from tests.tabular.stores import ODD, row, store


def run(folder: Path, *arguments: object) -> CompletedProcess[str]:
    return run_here("diff", "a", "b", *arguments, cwd=folder, env={"HOME": str(folder)})


def make(folder: Path, rows: list[Row], **said: object) -> None:
    made = store(folder, rows)
    data = RunData(**said)  # type: ignore[arg-type]  # whatever a test says of the run
    made.commit(Changes(run=MergedRun(1, msgspec.json.encode(data), b"[]")))
    made.close()


def rows(changes: dict[int, dict[str, float]], count: int = 10) -> list[Row]:
    """Rows of `count` steps, with other values in some."""
    return [row(no, values={"trainer/loss": 1.0, "trainer/kl": 0.5} | changes.get(no, {})) for no in range(count)]


def test_two_runs_and_where_they_part(tmp_path: Path) -> None:
    """What was said otherwise, the metrics by their first different step with both values, and what only one has."""
    make(tmp_path / "a", rows({3: {"trainer/kl": 0.75}, 7: {"trainer/kl": 2.5}}), config={"lr": 1e-5, "seed": 1})
    make(tmp_path / "b", rows({5: {"trainer/loss": 1.25, "trainer/new": 1}}, 12), config={"lr": 3e-5, "seed": 1})
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "A  a: steps of trainer 0..9",
        "B  b: steps of trainer 0..11",
        "",
        "what was said of the run: 1 key differs",
        "  part    key  A      B",
        "  config  lr   1e-05  3e-05",
        "2 metrics part and 0 are equal, in 10 rows that both have",
        "  from step  metric        A     B     widest",
        "  3          trainer/kl    0.75  0.5   2 at step 7",
        "  5          trainer/loss  1     1.25  0.25 at step 5",
        "only in B: trainer/new",
    ]
    assert run(tmp_path, "--exit-code").returncode == 1


def test_json_has_every_difference(tmp_path: Path) -> None:
    """One object a line; a value that one run lacks is null, and a key that one lacks is absent."""
    make(tmp_path / "a", rows({3: {"trainer/kl": 0.75}}), tags=["x"])
    other = [row(4, coverage=Coverage(("0.0-2",), 3), values={"trainer/loss": 1.0, "trainer/kl": 0.5})]
    make(tmp_path / "b", [one for one in rows({}) if one.row_number != 4] + other)
    assert [json.loads(line) for line in run(tmp_path, "--json").stdout.splitlines()] == [
        {"kind": "run", "part": "run", "key": "tags", "a": ["x"]},
        {"kind": "ranks", "actor": "trainer", "step": 4, "a": ["0.0-3"], "b": ["0.0-2"]},
        {
            "kind": "metric",
            "actor": "trainer",
            "rows": "step",
            "key": "trainer/kl",
            "apart": 1,
            "in_a": 10,
            "in_b": 10,
            "first": {"step": 3, "a": 0.75, "b": 0.5},
            "widest": {"step": 3, "a": 0.75, "b": 0.5},
        },
    ]


def test_tolerances_and_chosen_metrics(tmp_path: Path) -> None:
    """A difference within --rtol or --atol does not count. --metric keeps what fits a pattern; a pattern that fits
    nothing is an error.
    """
    make(tmp_path / "a", rows({3: {"trainer/kl": 0.5 + 2**-40}}))
    make(tmp_path / "b", rows({}))
    exact = run(tmp_path, "--exit-code")
    assert "1 metric parts and 1 is equal, in 10 rows that both have" in exact.stdout.splitlines()
    assert (exact.returncode, "  3          trainer/kl  0.5000000000009095  0.5" in exact.stdout) == (1, True)
    assert run(tmp_path, "--exit-code", "--rtol", "1e-9").returncode == 0
    assert run(tmp_path, "--exit-code", "--atol", "1e-9").returncode == 0
    assert run(tmp_path, "--exit-code", "--metric", "*/loss").returncode == 0
    none = run(tmp_path, "--metric", "nope*")
    assert (none.returncode, none.stdout) == (1, "")
    assert "no step that both have a row of has a metric like nope*" in none.stderr
    assert run(tmp_path, "--rtol", "-1").returncode == run(tmp_path, "--atol", "nan").returncode == 2


def test_names_that_would_move_the_cursor_are_escaped(tmp_path: Path) -> None:
    """In text and in JSON."""
    make(tmp_path / "a", [row(0, values={f"trainer/{ODD}": 1.0})], config={ODD: "\x1b[2J"})
    make(tmp_path / "b", [row(0, values={f"trainer/{ODD}": 2.0})])
    for arguments in ((), ("--json",)):
        printed = run(tmp_path, *arguments).stdout
        assert "u001b[31m" in printed or "x1b[31m" in printed
        assert "\x1b" not in printed


def test_a_side_without_rows_or_with_several_experiments_is_refused(tmp_path: Path) -> None:
    """The message names it and what to do."""
    make(tmp_path / "a", rows({}))
    (tmp_path / "b" / "rlship").mkdir(parents=True)
    (tmp_path / "b" / "rlship" / "trainer-0-r0-n-1-x.jsonl").write_text("")
    unwatched = run(tmp_path)
    assert (unwatched.returncode, "rlship watch --once" in unwatched.stderr) == (1, True)
    several = run_here("diff", "a", ".", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert (several.returncode, "holds 2 experiments" in several.stderr) == (2, True)


@pytest.mark.parametrize(
    "damage",
    [
        "update units set no = 3 where number = 5",
        "update units set actor = x'00' where number = 5",
        "update rows set body = '{}' where no = 5",
    ],
)
def test_a_damaged_store_is_an_error(tmp_path: Path, damage: str) -> None:
    """A row that is not its unit's, a unit without a name, a row that lacks all: exit code 1, with the store's path."""
    for name in "ab":
        make(tmp_path / name, rows({}))
    with closing(sqlite3.connect(tmp_path / "b" / "rlship" / "state" / "store.3.db")) as connection, connection:
        connection.execute(damage)
    done = run(tmp_path)
    assert (done.returncode, "store.3.db cannot be read" in done.stderr) == (1, True)


def test_differences_by_rounding_alone_name_the_tolerance(tmp_path: Path) -> None:
    """The last line counts the metrics that differ by rounding at all steps, and names the options under which they
    agree. Where a tolerance was given, or every metric really differs, it does not stand there.
    """
    make(tmp_path / "a", rows({0: {"trainer/kl": 2.8e-17}, 3: {"trainer/loss": 1.0 + 1e-9}}))
    make(tmp_path / "b", rows({0: {"trainer/kl": 2.6e-17}}))
    limits = "--rtol 1e-06 --atol 1e-12"
    assert run(tmp_path).stdout.splitlines()[-3:] == [
        "  0          trainer/kl    2.8e-17      2.6e-17  2e-18 at step 0",
        "  3          trainer/loss  1.000000001  1.0      1e-09 at step 3",
        f"all that part differ by rounding alone: {limits} takes them as equal",
    ]
    told = run(tmp_path, *limits.split(), "--exit-code")
    assert told.returncode == 0 and "rounding" not in told.stdout
    make(tmp_path / "c", rows({0: {"trainer/kl": 2.6e-17}, 5: {"trainer/loss": 2.0}}))
    told = run_here("diff", "a", "c", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert told.stdout.splitlines()[-1] == f"1 of 2 that part differ by rounding alone: {limits} takes them as equal"
