"""Bare names are evidence, and nothing else: rows and sinks have of `loss` what they have of any unknown name."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_formats.catalogue.evidence import BARE
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.decode.known import known
from rlship_sidecar.sinks.names import flatten
from tests.kit.cases import few
from tests.kit.files import barrier, file, log
from tests.pipeline.simulated import simulation

NAMES = sorted(name for _, names in BARE for name in names.split())
LEAD = "learner"
NUMBERS = st.integers(-64, 64).map(lambda n: n / 8) | st.just("NaN")
VALUES = st.dictionaries(st.sampled_from(NAMES), NUMBERS | st.lists(NUMBERS, min_size=1, max_size=4), max_size=4)


def written(metrics: list[list[dict[str, Any]]], end: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """The rows of ranks that log these metrics, by rank and step, under their names with `end` behind them: as JSON,
    and as sinks have them; without the end.
    """
    files = {}
    for rank, steps in enumerate(metrics):
        records = []
        for step, values in enumerate(steps):
            named = {f"{name}{end}": value for name, value in values.items()}
            records += [log(step, **named) | {"t": 1.0 * step}, barrier(step)]
        files[f"r{rank}.jsonl"] = file(*records, id=f"r{rank}", actor=LEAD, rank=rank, world=len(metrics))
    with simulation(alerts=rules_of()) as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        rows = [row for row in sim.rows() if row.unit.actor == LEAD]
        forms = [json.loads(row.to_json().decode().replace(end or "\0", "")) for row in rows]
        for form in forms:
            form["arrival"]["changed"].sort()  # its order is that of the files
        flat = [{key.replace(end or "\0", ""): value for key, value in flatten(row).items()} for row in rows]
        return forms, flat


@given(
    metrics=st.integers(1, 3).flatmap(
        lambda ranks: st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=ranks, max_size=ranks)
    )
)
@settings(max_examples=few(20), deadline=None)
def test_rows_do_not_know_bare_names(metrics: list[list[dict[str, Any]]]) -> None:
    """Their keys, values, reductions and coverage, and what sinks make of them, are those of names that stand for
    nothing.
    """
    assert written(metrics, "") == written(metrics, "~own")


def test_bare_names_have_no_definition() -> None:
    """No reduction and no unit comes from the catalogue for them."""
    assert [name for name in NAMES if known(LEAD, name) is not None] == []
