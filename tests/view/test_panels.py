"""The panels of the page: they have the metrics of the same sections as the view at W&B."""

from __future__ import annotations

from typing import Any

from rlship_sidecar.panels.charted import charted
from rlship_sidecar.panels.placing import LOAD, MEMORY, STABILITY
from rlship_sidecar.panels.sections import sections
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.names import SinkNames
from rlship_sidecar.view import charts
from rlship_sidecar.view.lean import decoded
from rlship_sidecar.view.rollup import Rollup
from tests.tabular.stores import row

BY_RANK = ("bal/rank_tokens", "upd/comm_s", "busy_s", "mem/allocated", "mem/reserved", "mem/capacity", "colour")
PLAIN = ("loss", "reward", "perf/step_s", "perf/tokens_per_s", "perf/stage_s/rollout", "grad_norm", "kl", "my_mem_gb")


def shown(rows: list[Row]) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """The keys of each panel, and the metrics by key."""
    rollup = Rollup()
    rollup.take([decoded(one.to_json()) for one in rows])
    entries = {one["id"]: dict(one) for one in charts.metrics_of(rollup, "trainer")}
    panels = charts.panels(rollup, "trainer")
    return (
        {panel: [entries[one]["key"] for one in ids] for panel, ids in panels.items()},
        {entry["key"]: entry for entry in entries.values()},
    )


def test_a_panel_has_the_metrics_of_its_section() -> None:
    """In the same order; reductions stand in the chart of their metric alone, and the map of ranks has what rows have
    by rank.
    """
    ends = ("", "/min", "/max")
    values = dict.fromkeys([f"trainer/{name}{end}" for name in (*BY_RANK, *PLAIN) for end in ends], 1.0)
    ranks = {f"trainer/{name}": [("0.0", 1.0), ("0.1", 2.0)] for name in BY_RANK}
    alerts = row(1, actor="", kind="alert", values={"zz_rlship/alert/entropy": 1.0})
    rows = [row(0, values=values, per_rank=ranks), alerts]
    panels, entries = shown(rows)
    at_wandb = {
        section.title: [chart.names[0] for chart in section.charts]
        for section in sections(charted(rows, SinkNames()).metrics, "trainer", ranks=False)
    }
    assert panels["stability"] == at_wandb[STABILITY] != []
    assert panels["memory"] == at_wandb[MEMORY] != []
    assert panels["ranks"] == [key for key in at_wandb[LOAD] if key in ranks]
    assert panels["ranks"] == [f"trainer/{name}" for name in ("bal/rank_tokens", "upd/comm_s", "busy_s", "colour")]
    headlines = sorted((one["headline"], key) for key, one in entries.items() if one["headline"] is not None)
    named = ("reward", "loss", "kl", "grad_norm", "perf/tokens_per_s", "perf/step_s")
    assert [key for _, key in headlines] == [f"trainer/{name}" for name in named]


def test_memory_knows_its_limit_and_what_is_in_use() -> None:
    """By the ids of the metrics, where rows have these by rank."""
    names = ("mem/allocated", "mem/reserved", "mem/capacity")
    ranks = {f"trainer/{name}": [("0.0", 1.0)] for name in names}
    _, entries = shown([row(0, values={}, per_rank=ranks), row(1, actor="node", values={"node/gpu_mem": 1.0})])
    allocated, reserved, capacity = (entries[f"trainer/{name}"] for name in names)
    assert [one["limit"] for one in (allocated, reserved, capacity)] == [capacity["id"], capacity["id"], None]
    assert [one["in_use"] for one in (allocated, reserved, capacity)] == [None, allocated["id"], None]
    assert entries["node/gpu_mem"]["limit"] is None
