"""What docs/foreign.md says of readers is so."""

from __future__ import annotations

import re
from typing import Any

from rlship_formats.foreign.registry import installed
from tests.foreign.made_up import reading
from tests.guards.tree import ROOT
from tests.pipeline.simulated import simulation

PAGE = (ROOT / "docs" / "foreign.md").read_text(encoding="utf-8")


def test_the_page_has_every_reader_and_its_places() -> None:
    """Each format stands in the table, with where its files are."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    for reader in installed()[0]:
        (told,) = [line for line in lines if line.startswith(f"| `{reader.name}`")]
        assert [place for place in reader.places if f"`{place}`" not in told] == []


def test_the_reader_on_the_page_works() -> None:
    """It is a whole reader."""
    source = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert source is not None
    module: dict[str, Any] = {}
    exec(source[1], module)
    with reading(module["READER"]), simulation() as sim:
        (sim.directory / "mylogs").mkdir()
        (sim.directory / "mylogs" / "a.jsonl").write_bytes(b'{"iteration":3,"wall":1763600000.5,"loss":0.5}\n')
        sim.finish()
        (row,) = sim.rows()
        assert (row.x, row.values, row.t) == ({"global_step": 3}, {"trainer/loss": 0.5}, 1763600000.5)
