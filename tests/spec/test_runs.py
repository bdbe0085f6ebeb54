"""The vectors of what a run is, by the pipeline and by the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlship_formats.reading import RUN_OBJECTS, RUN_TEXTS
from rlship_sidecar.store.run_said import changes_of
from tests.pipeline.simulated import simulation
from tests.reference.runs import run_changes, run_data, tree_of
from tests.spec.vectors import VECTORS

CASES = sorted((VECTORS / "runs").iterdir())
MEMBERS = (*RUN_OBJECTS, *RUN_TEXTS, "tags", "dropped", "outcome")


def files_of(case: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(case.glob("*.jsonl"))}


def expected(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    assert found.pop("about")
    return found


def written(found: dict[str, Any], changes: list[tuple[Any, ...]]) -> str:
    """As a vector has it: without what is not there. 1, 1.0 and true differ."""
    names = ("t", "file", "part", "key", "before", "after")
    said = {member: found[member] for member in MEMBERS if found[member] not in (None, [], {}, "")}
    return json.dumps({**said, "changes": [dict(zip(names, change)) for change in changes]}, sort_keys=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pipeline_makes_it(case: Path) -> None:
    """Live, however small the pieces, and from the files as they lie."""
    files, wanted = files_of(case), json.dumps(expected(case), sort_keys=True)
    for piecewise in (True, False):
        with simulation() as sim:
            for name, data in files.items():
                for line in data.splitlines(keepends=True) if piecewise else [data]:
                    sim.write(name, line)
                    sim.wait(0.3)
                    if piecewise:
                        sim.tick()
            sim.finish()
            data, changes = sim.store.read_run(), changes_of(sim.store.merged_run())
            found = {member: getattr(data, member) for member in MEMBERS}
            told = [(one.t, one.file, one.part, list(one.key), one.before, one.after) for one in changes]
            assert written(found, told) == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_makes_it(case: Path) -> None:
    """So is the reference's."""
    files = files_of(case)
    found = {name: tree_of(value) if name in RUN_OBJECTS else value for name, value in run_data(files).items()}
    changes = [(t, file, part, list(key), *values) for t, file, part, key, *values in run_changes(files)]
    assert written(found, changes) == json.dumps(expected(case), sort_keys=True)
