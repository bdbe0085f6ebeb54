"""The benchmarks run and say what they found; how fast anything is, no test asks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS, PARTS
from benchmarks.documents import block, renewed, tables_in
from benchmarks.report import Finding, Result, percentile, ratio, table
from benchmarks.shapes import SHAPES
from tests.guards.tree import ROOT
from tests.kit.cases import long
from tests.kit.tools import needed

BESIDE_LOG = ("json.dumps + os.write", "wandb with wandb-core", "tensorboardX add_scalar")
# Figures and what each is compared with, where that needs no optional package.
WANTED = {
    "writer": {
        *((f"log of {keys} keys", name) for keys in (1, 5, 20) for name in BESIDE_LOG),
        *(
            (f"loop, log + barrier, {whose}", name)
            for whose in ("all-in", "calling thread")
            for name in (
                "json.dumps + os.write",
                "json.dumps, buffered",
                "orjson + os.write",
                "wandb run.log, calling process",
            )
        ),
        ("tight, log + barrier, all-in", "json.dumps + os.write"),
    },
    "tracing": {
        *((name, "logging, a line each") for name in ("span", "record_metric")),
        ("step of a busy loop, p99", "without logging"),
    },
    "ingest": {("ingest", ""), ("ingest", "bare orjson.loads loop")},
    "latency": {(f"{n} writers, {p}", f"fdatasync, {p}") for n in (8, 64) for p in ("p50", "p99")},
    "idle": {("200 idle files", "bare os.stat loop")},
    "experiments": {
        *(
            (f"{name}, {sinks}", "")
            for name in ("CPU", "memory", "descriptors", "threads")
            for sinks in ("files", "W&B")
        ),
        *((f"rows of running ones after a start, {sinks}", "") for sinks in ("files", "W&B")),
        ("experiments with all rows, ulimit -n 256", ""),
        ("a finished one that grows is noticed, files", ""),
    },
    "streams": {("8 generators, windows of 2 s", "bare read + orjson loop"), ("end of a window to its row, p99", "")},
    "memory": {("pipeline and store", "imports alone"), ("rlship watch --sink jsonl", "imports alone")},
    "restart": {
        ("start with 100 files", "20 files"),
        *((f"peak memory {what}", "a tenth of the history") for what in ("while reading it all", "after going on")),
    },
    "replay": {
        *(("metrics, CPU", "Python aggregator"), ("wall time, --jobs 2", "one core")),
        ("peak memory", "a tenth of the files"),
    },
    "sysmon": {("CPU", ""), ("memory, most", "imports alone"), ("memory, last fifth / second fifth", "")},
    "query": {
        ("all values", ""),
        *((name, "all values") for name in ("one metric", "barriers of a rank", "columns", "one metric of all rows")),
        *((f"memory: {name}", "a tenth of the history") for name in ("one metric", "one metric of all rows")),
    },
    "shapes": {
        *((shape.name, "bare orjson.loads loop") for shape in SHAPES.values()),
        ("streams, 20 keys, values per CPU second", ""),
    },
    "live": {
        *((f"{ranks} ranks, mixed: {what}", "") for ranks in (4, 16, 64, 156) for what in ("CPU", "lag, p99")),
        ("156 ranks, plain: steps behind at the end", ""),
        ("64 ranks, mixed: memory, last third", "first third"),
    },
    "network": {
        *(
            (f"{case}: {what}", "")
            for case in ("16 files, 0.5 ms", "64 files, 0.5 ms", "64 files, 0 ms", "156 files, 0.5 ms")
            for what in ("opens, idle", "first row after that", "opens, a step a second", "lag, p50")
        )
    },
    "view": {
        *((f"{what}, {how}", "") for what in ("first curves", "all rows in the curves") for how in ("rollup there",)),
        ("size of the rollup", ""),
        *((f"row committed to event, p99, {journal}", "") for journal in ("write-ahead log", "rollback journal")),
        *((f"commit with 5 viewers, {journal}", "without") for journal in ("write-ahead log", "rollback journal")),
        ("CPU of the server with 5 viewers", ""),
    },
    "alerts": {
        (f"{what}, {ranks} ranks", "")
        for what in ("a step", "a late line of one metric", "a late line of all metrics")
        for ranks in ("8", "1,024")
    },
    "hook": {
        *(
            (f"{how}, {what} RLSHIP_DIR", "bare")
            for how in ("PYTHONPATH", "files in the environment")
            for what in ("without", "with")
        )
    },
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m benchmarks` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )


SHORT = ("ingest", "hook")


COMPILED = ("network",)  # a C compiler makes what it needs


@pytest.mark.parametrize(
    "name",
    [
        *SHORT,
        *long(*(name for name in WANTED if name not in SHORT + COMPILED)),
        *(pytest.param(name, marks=[pytest.mark.long, pytest.mark.toolchain]) for name in COMPILED),
    ],
)
def test_each_benchmark_runs(name: str, tmp_path: Path) -> None:
    """`--quick` runs a benchmark to its end, finds what it promises in finite numbers, judges none of them, and leaves
    no files behind.
    """
    if name in COMPILED:
        needed("gcc")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = run(name, "--quick", "--dir", str(scratch), "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    findings = found[name]["findings"]
    assert {(one["figure"], one["beside_name"]) for one in findings} >= WANTED[name]
    for one in findings:
        numbers = [one["ours"]] + ([one["beside"], one["ratio"]] if one["beside_name"] else [])
        assert all(math.isfinite(number) and number >= 0 for number in numbers), one
        assert one["reached"] is None
        assert one["figure"] in done.stdout
    assert list(scratch.iterdir()) == []


def test_an_unknown_name_is_refused() -> None:
    """A benchmark that does not exist is named, with those that do."""
    done = run("ingset")
    assert done.returncode == 2
    assert (
        "no benchmark 'ingset': choose from "
        "writer tracing ingest latency idle experiments streams memory restart replay sysmon query shapes live network "
        "hook" in done.stderr
    )


def test_an_unknown_part_is_refused() -> None:
    """A part that a benchmark does not have is named, with those that it has."""
    done = run("shapes:plain,plane")
    assert done.returncode == 2
    assert "shapes has no part 'plane': choose from plain two-calls" in done.stderr
    done = run("idle:few")
    assert done.returncode == 2
    assert "idle has no part 'few': choose from none" in done.stderr


def test_tables_in_documents_are_renewed_alone() -> None:
    """A new table takes the place of the old one, and everything around it stays."""
    text = "a\n<!-- benchmarks idle -->\nold\n<!-- end -->\nb\n<!-- benchmarks live -->\nold\n<!-- end -->\nc\n"
    assert tables_in(text) == ["idle", "live"]
    found = renewed(text, "live", block("live", Result("", "", [Finding("x", 1.0, "s", reached=False)]), "it", "busy"))
    before, _, after = found.partition("<!-- benchmarks live -->\n")
    assert before == "a\n<!-- benchmarks idle -->\nold\n<!-- end -->\nb\n"
    assert after.startswith("`.venv/bin/python -m benchmarks live`, as of ")
    assert after.endswith("| x | 1 s |  |  |  |  | **no** |\n\n<!-- end -->\nc\n")


def test_each_documented_table_has_its_benchmark() -> None:
    """A table in docs/benchmarks.md names a benchmark, and parts that it has."""
    for word in tables_in((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")):
        name, _, parts = word.partition(":")
        assert name in BENCHMARKS
        assert set(parts.split(",")) - {""} <= set(PARTS.get(name, ()))


def test_a_document_without_the_table_is_refused(tmp_path: Path) -> None:
    """Nothing is measured for a table that is not there."""
    (tmp_path / "page.md").write_text("<!-- benchmarks idle -->\n<!-- end -->\n")
    done = run("live", "--docs", str(tmp_path / "page.md"))
    assert done.returncode == 2
    assert "page.md has no table of live: choose from idle" in done.stderr


def test_ratios_are_of_rounds() -> None:
    """A ratio is the median of the rounds' own, so that a slow round does not count against one side."""
    assert ratio([1.0, 20.0, 3.0], [2.0, 40.0, 3.0]) == 0.5


def test_percentiles_are_observed_values() -> None:
    """A percentile is the smallest value that this share of all does not exceed."""
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0


def test_the_table_tells_misses() -> None:
    """A figure that misses its aim says so; one without an aim says nothing."""
    lines = table([Finding("a", 1234.5, "µs", "b", 2.0, 0.1234, "< 1", False), Finding("c", 1.0, "MB")]).splitlines()
    assert lines[2].split() == ["a", "1,234", "µs", "2", "µs", "b", "0.123", "<", "1", "NO"]
    assert lines[3].split() == ["c", "1", "MB"]
