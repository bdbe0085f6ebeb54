"""What CONTRIBUTING.md shows works as it stands there."""

from __future__ import annotations

import re
import sys
import types
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from rlship_sidecar.reduce import custom
from tests.contributing.page import PAGE, code_below
from tests.foreign.made_up import reading
from tests.guards.tree import ROOT
from tests.pipeline.simulated import simulation
from tests.reference.building import barrier, define, file, log


def names_below(heading: str) -> dict[str, Any]:
    """The names that the first Python block below a heading defines."""
    names: dict[str, Any] = {"__name__": "mypkg"}
    exec(code_below(heading)[0], names)
    return names


def test_the_places_exist() -> None:
    """Every folder and file that the page draws or names is there."""
    text = PAGE.read_text(encoding="utf-8")
    tree = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert tree is not None
    folders: list[str] = []
    for line in tree[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name]
        assert (ROOT / "".join(folders)).exists(), line
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / link).exists(), link


def test_a_reduction() -> None:
    """The reduction of the page merges without loss, and its value is in a row."""
    kind = names_below("Add a reduction")["Range"]
    custom.check(kind, [(1.0, 1.0), (2.5, 1.0), (-3.0, 1.0)])
    mypkg = types.ModuleType("mypkg")
    mypkg.Range = kind  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mypkg", mypkg)
        installed = custom.Customs([EntryPoint("mypkg.range", "mypkg:Range", custom.GROUP)])
        with simulation(customs=installed) as sim:
            for rank, x in ((0, 1.0), (1, 4.5)):
                records = define(reward=["mypkg.range"]), log(0, reward=x), barrier(0)
                sim.write(f"{rank}.jsonl", file(*records, rank=rank, world=2, id=str(rank)))
            sim.finish()
            (row,) = sim.rows()
            assert row.values["trainer/reward"] == 3.5


def test_a_format() -> None:
    """The reader of the page turns a line into a row."""
    reader = names_below("Add a format")["READER"]
    with reading(reader), simulation() as sim:
        (sim.directory / "history").mkdir()
        (sim.directory / "history" / "a.jsonl").write_bytes(b'{"epoch":3,"loss":0.5}\n')
        sim.finish()
        (row,) = sim.rows()
        assert (row.x, row.values) == ({"global_step": 3}, {"trainer/loss": 0.5})
