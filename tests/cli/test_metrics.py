"""`rlship metrics`, and the page made of the same data."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from rlship.metrics import METRICS
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.report import catalogue
from tests.guards.tree import ROOT


def run(*args: str) -> Result:
    return CliRunner().invoke(rlship, ["metrics", *args])


def test_everything_is_listed() -> None:
    """Without a pattern there is a heading and one line a metric, on standard output, and the exit code is 0."""
    result = run()
    assert result.exit_code == 0
    assert result.stderr == ""
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["name", "unit", "reductions", "scope", "meaning"]
    assert [line.split()[0] for line in lines] == [metric.name for metric in METRICS]


def test_a_line() -> None:
    """A line has name, unit, reductions, scope and meaning."""
    assert run("gen/kv_u").stdout.splitlines()[1:] == [
        "gen/kv_usage  0-1   max, mean   generator  Share of the KV cache that is in use."
    ]
    assert " max per rank " in run("bal/rank_idle_s").stdout


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("KV_", ["gen/kv_usage", "gen/kv_capacity", "gen/kv_miss_rate", "mem/kv_peak", "mem/kv_peak_bytes"]),
        ("gen/kv_*", ["gen/kv_usage", "gen/kv_capacity", "gen/kv_miss_rate"]),
        ("upd/?????_s", ["upd/optim_s"]),
        ("*/l[r]", ["train/lr"]),
    ],
)
def test_patterns(pattern: str, names: list[str]) -> None:
    """A pattern is a part of a name, or with wildcards the whole of it; case does not matter."""
    own = [json.loads(line)["name"] for line in run("--json", pattern).stdout.splitlines()]
    assert [name for name in own if catalogue.fits(name, pattern)] == names


def test_foreign_names_are_found() -> None:
    """Another framework's name leads to the metric, and shows that name alone."""
    assert run("actor/pg_loss").stdout.splitlines()[1:] == [
        "train/loss_decomp/pg  -     mean        trainer  Policy-gradient part of the loss; weight: tokens.",
        "    verl: actor/pg_loss",
    ]


def test_a_short_name_that_is_a_foreign_name() -> None:
    """`reward` alone has the reductions of `reward/total`, so it stands below it, and other foreign names do not."""
    told = run("reward")
    lines = told.stdout.splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.startswith("reward/total ")]
    assert lines[at + 1] == "    TRL: reward"
    assert [line for line in lines if line.startswith(" ")] == ["    TRL: reward"]
    assert told.stderr == ""


def test_a_short_name_that_is_not_in_the_catalogue() -> None:
    """`grad_norm` alone is reduced by its mean, whatever `train/grad_norm` has; standard output stays as it is."""
    told = run("grad_norm")
    assert [line.split()[0] for line in told.stdout.splitlines()] == ["name", "train/grad_norm"]
    assert told.stderr == (
        "rlship: grad_norm alone is not in the catalogue, so its reduction is the mean (unless its actor is called "
        "train); log it as train/grad_norm, or name its reductions in rlship.define\n"
    )
    assert [run(one).stderr for one in ("train/grad_norm", "grad_nor", "*grad_norm")] == ["", "", ""]


def test_aliases_that_are_asked_for_are_all() -> None:
    """Found by one foreign name, a metric has all of them with --aliases."""
    (metric,) = [metric for metric in METRICS if metric.name == "train/loss_decomp/pg"]
    told = run("actor/pg_loss", "--aliases").stdout.splitlines()[2:]
    assert [line.split()[1] for line in told] == [alias.name for alias in metric.aliases]
    assert len(told) > 1


def test_foreign_names_are_listed_on_request() -> None:
    """--aliases lists below each metric what others call it, with the reduction, unit and factor that differ."""
    told = run("mem/reserved", "--aliases").stdout.splitlines()
    assert told[2:] == [
        "    verl: perf/max_memory_reserved_gb (GiB, x 1073741824)",
        "    verl: actor/perf/max_memory_reserved_gb (GiB, x 1073741824)",
        "    verl: critic/perf/max_memory_reserved_gb (GiB, x 1073741824)",
        "    TorchTitan: memory/max_reserved(GiB) (GiB, x 1073741824)",
    ]
    assert "    verl: critic/rewards/max (max)" in run("--aliases").stdout.splitlines()


def test_json() -> None:
    """--json prints an object a line with every field."""
    (line,) = run("--json", "buf/evicted").stdout.splitlines()
    assert json.loads(line) == {
        "name": "buf/evicted",
        "unit": "count",
        "reduce": ["sum", "rate"],
        "scope": ["buffer"],
        "per_rank": False,
        "meaning": "Samples that a buffer threw away.",
        "evidence": {
            "kind": "level",
            "direction": "up",
            "size": 2.0,
            "floor": 0.0,
            "source": "proposed, not measured",
        },
        "aliases": [
            {"name": name, "framework": framework, "reduce": None, "unit": None, "scale": 1.0}
            for framework, name in (
                ("verl", "training/off_policy/evicted_samples"),
                ("Forge", "buffer/evict/sum_episodes_evicted"),
            )
        ],
    }
    assert len(run("--json").stdout.splitlines()) == len(METRICS)


def test_nothing_like_it() -> None:
    """A pattern that finds nothing ends with exit code 1 and the nearest name, or where to find all."""
    result = run("train/los_decomp/pg")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "rlship: the catalogue has no metric like 'train/los_decomp/pg'\n  did you mean train/loss_decomp/pg?\n"
    )
    assert "all of them: rlship metrics" in run("!!!!").stderr


def test_the_table_for_terminals() -> None:
    """On a terminal the same cells are in a table, foreign names among them."""
    from rich.console import Console

    console = Console(width=200, record=True, force_terminal=False)
    with console.capture() as told:
        console.print(catalogue.table(catalogue.matching("mem/reserved"), aliases=True))
    lines = [line.split("  ") for line in told.get().splitlines()]
    assert any("mem/reserved" in "  ".join(line) and "bytes" in "  ".join(line) for line in lines)
    assert any("verl: perf/max_memory_reserved_gb (GiB, x 1073741824)" in "  ".join(line) for line in lines)


def test_the_page_is_fresh() -> None:
    """docs/metrics.md is what `python -m rlship_sidecar.report.catalogue > docs/metrics.md` makes it."""
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == catalogue.page()


def test_the_page_has_everything() -> None:
    """Every metric and every foreign name stands on the page, and its tables are not broken by a name."""
    page = catalogue.page()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for metric in METRICS:
        assert f"\n| `{metric.name}` | {metric.unit} | " in page
        assert all(f"`{alias.name}`" in page for alias in metric.aliases)
    assert {row.count(" | ") for row in rows} == {1, 4, 5}
