"""Which metrics become panels, in which section, and under which names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from rlship_formats.catalogue.metrics import METRICS
from rlship_sidecar.panels.charted import Charted, charted
from rlship_sidecar.panels.placing import (
    FIRST,
    HEADLINE,
    IN_USE,
    LIMITS,
    LOAD,
    MEMORY,
    PATTERNS,
    STABILITY,
    STAGES,
    TITLES,
)
from rlship_sidecar.panels.sections import MAX_CHARTS, Section, sections
from rlship_sidecar.rows import Coverage, Row, Unit
from rlship_sidecar.sinks.names import SinkNames, place
from rlship_sidecar.sinks.wandb.point import point
from tests.tabular.stores import row


def made(rows: Sequence[Row], *, ranks: bool = False, **names: Any) -> list[Section]:
    return sections(charted(rows, SinkNames(**names)).metrics, "trainer", ranks=ranks)


def titles(found: Sequence[Section]) -> dict[str, list[str]]:
    return {section.title: [chart.title for chart in section.charts] for section in found}


def names(found: Sequence[Section]) -> set[str]:
    return {name for section in found for chart in section.charts for name in chart.names}


def steps(values: dict[str, float], **more: Any) -> list[Row]:
    """One row of the trainer."""
    return [row(0, values={f"trainer/{key}": value for key, value in values.items()}, **more)]


def test_each_metric_has_its_section_and_the_headline_comes_first() -> None:
    """Metrics of the catalogue by their names there, others by the last part of theirs; the rest has no panel."""
    values = ["loss", "reward", "perf/step_s", "perf/stage_s/rollout", "perf/stage_s/update", "bal/rank_tokens"]
    values += ["mem/allocated", "my_mem_gb", "grad_norm", "kl", "correctness/k3_kl", "upd/comm_s", "busy_s", "colour"]
    alerts = Row(Unit("", "alert", 1), 1.0, {"global_step": 1}, {"zz_rlship/alert/nan": 1.0}, Coverage((), 0))
    found = made([*steps(dict.fromkeys(values, 1.0)), alerts])
    assert [section.title for section in found] == list(TITLES) == [HEADLINE, STAGES, LOAD, MEMORY, STABILITY]
    shown = titles(found)
    about = ["Alerts that fire", "Ranks that rows lack", "Ranks short of a metric"]
    assert shown[HEADLINE] == ["Reward", "Loss", "trainer/perf/step_s", *about]
    assert shown[STAGES] == [STAGES, "trainer/perf/step_s"]
    assert shown[LOAD] == ["trainer/bal/rank_tokens", "trainer/upd/comm_s", "trainer/busy_s"]
    assert shown[MEMORY] == ["trainer/mem/allocated", "trainer/my_mem_gb"]
    assert shown[STABILITY] == [
        f"trainer/{name}" for name in ("reward", "loss", "kl", "grad_norm", "correctness/k3_kl")
    ]
    assert not any("colour" in name for name in names(found))


def test_reductions_share_a_chart_and_the_greatest_rank_has_its_own() -> None:
    """A chart has mean, least and greatest value; the number of the rank stands beside, only where load matters."""
    reductions = {f"busy_s{end}": 1.0 for end in ("", "/min", "/max", "/argmax_rank", "/nonfinite")}
    found = made(steps(reductions, per_rank={"trainer/busy_s": [("0.0", 1.0), ("0.1", 2.0)]}))
    (load,) = (section for section in found if section.title == LOAD)
    assert [(chart.title, chart.names) for chart in load.charts] == [
        ("trainer/busy_s", ("trainer/busy_s", "zz_rlship/trainer/busy_s/min", "zz_rlship/trainer/busy_s/max")),
        ("trainer/busy_s: rank with the most", ("zz_rlship/trainer/busy_s/argmax_rank",)),
    ]


@pytest.mark.parametrize(
    ("values", "stacked"),
    [
        (["perf/stage_s/update", "perf/stage_s/rollout"], True),
        (["update_s", "rollout_s"], False),  # spans may lie within each other
    ],
)
def test_stages_are_in_their_order_and_add_up_where_they_are_known_to(values: list[str], stacked: bool) -> None:
    """Rollouts come before the update; only the catalogue's stages of one actor stand upon each other."""
    found = made(steps(dict.fromkeys(values, 1.0)))
    (stages,) = (section for section in found if section.title == STAGES)
    assert ["rollout" in name for name in stages.charts[0].names] == [True, False]
    assert stages.charts[0].stacked is stacked


RICH = [
    row(0, values={"trainer/loss": 1.0, "trainer/kl": 0.1, "trainer/kl/max": 0.2, "trainer/reward": 0.5}, tags=("t",)),
    row(1, actor="generator", kind="aligned", values={"generator/reward": 1.0, "generator/reward/aligned": 1.0}),
    row(2, actor="generator", kind="clock", values={"clock/generator/tokens": 3.0}),
    row(3, actor="generator", kind="point:9f2c", values={"point/generator/kl": 1.0}),
    row(4, actor="trainer.epoch", values={"trainer.epoch/kl": 1.0, "trainer.epoch/_step": 1.0}),
    row(5, per_rank={"trainer/busy_s": [("0.0", 1.0)]}, values={"trainer/busy_s": 1.0, "trainer/busy_s/max": 1.0}),
    row(6, revision=1, changed=("trainer/loss",), values={"trainer/loss": 2.0}),
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"extras": False},
        {"first": ("*/reward", "trainer/kl/max")},
        {"own": ("trainer",)},
        {"over_time": True},
    ],
)
def test_names_are_those_of_the_lines_that_the_sink_writes(options: dict[str, Any]) -> None:
    """Every name and axis in a panel is a key of a history line, whatever the sink's settings."""
    shown = SinkNames(**options)
    keys = {key for one in RICH for key in json.loads(point(one, shown).data)}
    found = made(RICH, **options)
    assert names(found) and names(found) <= keys
    assert {chart.axis for section in found for chart in section.charts} <= {*keys, "_step"}
    assert any("clock/" in name for name in names(found)) == bool(options.get("over_time"))


HOSTILE = [
    *(
        '"]}],"x":[{"',
        "<script>alert(1)</script>",
        "a\u202eb",
        "a\nb",
        "a\0b",
        "x" * 5000,
        "\ud800",
        "${x}",
        "*",
        "a\\",
    ),
    *("mem`|](x)", "ключ", "😀", "", " "),
]


def test_a_hostile_name_stays_a_name() -> None:
    """It is in the spec as it is, over its own axis or, where W&B reads a pattern, over W&B's; or it is left out."""
    values = {f"{name}_kl": 1.0 for name in HOSTILE}
    found = charted(steps(values), SinkNames())
    shown = {one.name: one.axis for one in found.metrics if one.metric in values}
    out = {"a\u202eb", "a\nb", "a\0b", "x" * 5000, "\ud800"}
    assert shown == {
        f"trainer/{name}_kl": "_step" if set(name) & set("*\\") else "global_step"
        for name in HOSTILE
        if name not in out
    }
    assert found.left_out == len(out)


def test_a_name_that_a_panel_reads_otherwise_is_left_out() -> None:
    """Metrics of a job that calls W&B have bare names; `config.lr` would be a part of the run's configuration."""
    shown = SinkNames(own=("trainer",))
    found = charted(steps({"config.kl": 1.0, "summary:kl": 1.0, "system/kl": 1.0, "kl": 1.0}), shown)
    assert ([one.name for one in found.metrics if "kl" in one.metric], found.left_out) == (["kl"], 3)


def test_a_section_has_room_for_so_many_charts() -> None:
    """What it has no room for is counted."""
    (*_, stability) = made(steps({f"m{number}_kl": 1.0 for number in range(MAX_CHARTS + 7)}))
    assert (len(stability.charts), stability.left_out) == (MAX_CHARTS, 7)


def test_each_rank_has_a_line_where_the_sink_shows_ranks() -> None:
    """A pattern matches the names of the ranks of one metric, whose own signs are literal, and no others."""
    busy = "trainer/a.b+(c)_busy"
    rows = [row(0, values={busy: 1.0}, per_rank={busy: [("0.0", 1.0), ("a.1", 2.0)]})]
    patterns = [chart.pattern for section in made(rows, ranks=True) for chart in section.charts if chart.pattern]
    (pattern,) = patterns
    assert [bool(re.search(pattern, f"zz_rlship/{busy}{end}")) for end in ("/r0.0", "/ra.1", "/max", "/r0.0/x")] == [
        True,
        True,
        False,
        False,
    ]
    assert not re.search(pattern, "zz_rlship/trainer/axb+(c)_busy/r0.0")
    assert not any(chart.pattern for section in made(rows) for chart in section.charts)


def test_every_pattern_names_metrics_of_the_catalogue() -> None:
    """A metric that was renamed in the catalogue does not silently lose its panel."""
    known = [metric.name for metric in METRICS]
    for _, patterns in PATTERNS:
        assert [one for one in patterns if not any(place(name, (one,)) is not None for name in known)] == []
    named = {name for names, _ in FIRST for name in names} | {*LIMITS, *LIMITS.values(), *IN_USE, *IN_USE.values()}
    assert named <= {*known}


def test_the_steps_have_the_chart_of_what_an_actor_logs_both_ways() -> None:
    """Rows of steps come before rows over time, whichever comes first."""
    rows = [
        row(0, actor="generator", kind="clock", values={"clock/generator/kl": 1.0}),
        row(1, actor="generator", values={"generator/kl": 1.0}),
    ]
    expected = [Charted("generator", "kl", "step", "global_step", {"": "generator/kl"}, "")]
    for order in (rows, rows[::-1]):
        found = charted(order, SinkNames(over_time=True))
        assert [one for one in found.metrics if one.metric == "kl"] == expected
