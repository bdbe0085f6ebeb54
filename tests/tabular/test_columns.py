"""The tables' columns: a promise to authors of queries and readers of exported files."""

from __future__ import annotations

import re
from itertools import islice, product

from rlship_sidecar.tabular.columns import EVERY, TABLES
from rlship_sidecar.tabular.wide import HEAD, columns
from tests.counting import calls
from tests.guards.tree import ROOT

ROW = "experiment text, row int, actor text, kind text, index int, step int, axis text, x float, t float, revision int"
WRITER = "experiment text, file text, actor text, replica text, rank int, attempt int"
RECORD = f"{WRITER}, step int, t float"
PINNED = {
    "rows": f"{ROW}, ranks texts, ranks_in int, expected int, missing texts, absent texts, attempts ints, gap int, "
    "underivable texts, tags texts, closed text, changed texts, short json, lives int",
    "figures": f"{ROW}, key text, value float, changed bool",
    "per_rank": f"{ROW}, key text, replica text, rank int, value float, changed bool",
    "hists": f"{ROW}, key text, edges floats, counts ints, changed bool",
    "alerts": f"{ROW}, id text, rule text, severity text, state text, place text, first_step int, first_t float, "
    "fired_step int, fired_t float, last_step int, last_t float, ended_step int, ended_t float, lineage json, "
    "evidence json",
    "observations": f"{RECORD}, metric text, value float, weight float, summary json",
    "spans": f"{RECORD}, name text, lane text, dur float, err text",
    "events": f"{RECORD}, name text, attrs json",
    "samples": f"{RECORD}, name text, score float, pri float, content json, cut json",
    "barriers": RECORD,
    "clocks": f"{RECORD}, host text, offset_s float, error_s float",
    "writers": f"{WRITER}, id text, world int, axis text, host text, pid int, parent text, opened_t float, "
    "last_t float, last_step int, last_barrier int, closed text, bytes int, labels json, job text",
    "config": f"{RECORD}, source text, key text, value json",
    "ledger": f"{RECORD}, hop text, key text, n int, part int, parts int, retry int, passes int, why text, "
    "version_from int, version_to int, reward_sum float, advantage_sum float, mask_tokens int, tokens int, "
    "masked_out int, response int, digests json, fingerprint text",
    "run": "experiment text, part text, key text, value json",
    "run_changes": f"{WRITER}, t float, part text, key text, before json, after json",
    "dead_letters": "experiment text, file text, byte int, metric text, reason text, excerpt text",
    "dead_counts": "experiment text, file text, reason text, of text, count int, byte int, excerpt text",
}


def test_columns_stay_as_they_are() -> None:
    """Every table begins with the columns that it always had; new ones stand behind them and are pinned here."""
    now = {name: ", ".join(f"{one.name} {one.type}" for one in table.columns) for name, table in TABLES.items()}
    every = {name + EVERY: columns for name, columns in PINNED.items() if columns.startswith(ROW)}
    assert now == PINNED | every


def test_every_column_is_documented() -> None:
    """docs/query.md has each table and each column."""
    told = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "query.md").read_text(encoding="utf-8")))
    columns = {column.name for table in TABLES.values() for column in table.columns}
    assert {name for name in TABLES if not name.endswith(EVERY)} | columns <= told


def test_names_that_differ_in_case_get_numbers() -> None:
    """Each name its own, whatever is taken; the work grows with the names, not with their square."""
    names = [column.name for column in columns(["a", "A", "a_2", "A_2", "a_3", "step", "STEP"])[len(HEAD) :]]
    assert names == ["a", "A_2", "a_2_2", "A_2_3", "a_3", "step_2", "STEP_3"]

    def spelled(count: int) -> list[str]:
        return ["".join(letters) for letters in islice(product("lL", "oO", "sS", "sS", *["xX"] * 6), count)]

    few, many = (calls(columns, spelled(count)) for count in (300, 600))
    assert many < 3 * few
