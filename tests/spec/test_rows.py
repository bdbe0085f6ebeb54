"""The vectors of experiments: their rows, by the pipeline and by the reference."""

from __future__ import annotations

import pytest

from rlship_sidecar.ledger.judging import COUNTS, SAMPLES
from tests.ledger.groups import PREFIX
from tests.spec import made_rows
from tests.spec.vectors import RowCase, row_cases

CASES = row_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pipeline_makes_the_rows(case: RowCase) -> None:
    """The newest row of each unit in the store is that of the vector, bit by bit."""
    assert made_rows.forms(made_rows.by_pipeline(case)) == case.expected()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_makes_the_rows(case: RowCase) -> None:
    """So is the reference's."""
    assert made_rows.by_reference(case) == case.expected()


def test_the_vectors_cover_the_page() -> None:
    """There are rows of each kind of unit, with every part and every kind of coverage."""
    rows = [row for case in CASES for row in case.expected()]
    assert {row["kind"].partition(":")[0] for row in rows} == {"step", "aligned", "clock", "point", "ledger"}
    assert {part for row in rows for part in row} >= {"hists", "per_rank", "tags", "samples"}
    said = {part for row in rows for part, value in row["coverage"].items() if value}
    always = {"ranks", "expected", "missing", "absent", "attempts", "gap", "underivable"}
    assert said == always | {"short", "lives", "lineage"}
    ends = {key.rpartition("/")[2] for row in rows for key in row["m"]}
    assert ends >= {"mean", "sum", "min", "max", "first", "last", "std", "count", "p90", "p95", "p99"}
    assert ends >= {"nonfinite", "rate", "argmax_rank", "argmax_replica", "spread_s", "last_rank", "policy_lag"}
    counted = {key for row in rows if row["kind"] == "ledger" for key, value in row["m"].items() if value != "0.0"}
    assert {key.removeprefix(PREFIX) for key in counted} >= {*COUNTS, *SAMPLES, "open", "lost", "tokens_differs"}
    assert all(case.case["about"] for case in CASES)
