"""docs/architecture.md names each module of the tree once, in the order of the flow, and its way of a value exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.guards.test_imports import ORDER
from tests.guards.tree import PACKAGES, ROOT, modules

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HEADER = "| folder | module | does | pure |"
MAX_FILES_ON_THE_WAY = 20


def listed(page: str, package: str) -> list[str]:
    """The modules in the table below the heading that names `package`, as paths in it without their suffix."""
    heading = re.search(rf"^### .*`{re.escape(package)}/`$", page, re.MULTILINE)
    assert heading is not None, f"no heading for {package}"
    section = page[heading.end() :].split("\n#", 1)[0]
    assert HEADER in section
    found, folder = [], ""
    for row in section.partition(HEADER)[2].splitlines()[2:]:
        first, names = (cell.strip() for cell in row.split("|")[1:3]) if row.startswith("|") else ("", "")
        if first:
            folder = first.strip("`./")
        found += [f"{folder}/{name}" if folder else name for name in re.findall(r"`([^`]+)`", names)]
    return found


def in_tree(top: Path) -> list[str]:
    """The modules of a package but those whose name begins with an underscore, which have a meaning to Python."""
    return [str(file.relative_to(top).with_suffix("")) for file in modules(top) if not file.stem.startswith("_")]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_has_each_module_once(package: str) -> None:
    """The tables of the page list the modules of the tree: none twice, none that is gone, and none is lacking."""
    top = PACKAGES[package]
    told, there = Counter(listed(PAGE, str(top.relative_to(ROOT)))), Counter(in_tree(top))
    assert (sorted(there - told), sorted(told - there)) == ([], []), "(not on the page, not in the tree or twice)"


def test_the_page_has_the_order_of_the_flow() -> None:
    """The sidecar's table has its folders and modules in the order in which they may import one another."""
    seen = [name.partition("/")[0] for name in listed(PAGE, "sidecar/rlship_sidecar")]
    assert list(dict.fromkeys(seen)) == list(ORDER)


def test_the_way_of_a_value_is_short() -> None:
    """From `log()` to W&B it has 20 files at most. Each exists, and the page numbers them."""
    section = PAGE.split("## A value's way\n", 1)[1].split("\n#", 1)[0]
    steps = re.findall(r"^\| (\d+) \| `([^`]+)` \|", section, re.MULTILINE)
    sidecar = PACKAGES["rlship_sidecar"]
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 10 < len(steps) <= MAX_FILES_ON_THE_WAY
    assert [name for _, name in steps if not ((ROOT if name.startswith("rlship/") else sidecar) / name).is_file()] == []


def test_a_module_that_the_page_lacks_is_found() -> None:
    """A table is read row by row: the folder of the row above holds until another one is named."""
    rows = ["| `.` | `a` | x | |", "| `b/` | `c`, `d` | x | |", "| | `e` | `f` | |", "", "`g`"]
    page = "\n".join(["### P: `p/`", "", HEADER, "|---|---|---|---|", *rows])
    assert listed(page, "p") == ["a", "b/c", "b/d", "b/e"]
