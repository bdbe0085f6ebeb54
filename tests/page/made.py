"""What an exported file holds, made up: a run of any size with known values, and texts of a hostile job."""

from __future__ import annotations

import base64
import math
from array import array
from typing import Any, cast

import numpy as np

from rlship_sidecar.view.contract import CONTRACT, Embedded

BEGAN = 1_760_000_000.0
STEP_S = 10.0
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>\u202eabc\u0000 \u2028"
STAGES = ("rollout", "reward", "logprob", "update", "checkpoint")
SHARES = (0.45, 0.1, 0.15, 0.22, 0.04)
ROWS = (
    ("trainer", "reward/mean", "", lambda s: 1 - math.exp(-s / 80)),
    ("trainer", "actor/kl", "", lambda s: 0.01 + 0.002 * math.sin(s / 5)),
    ("trainer", "actor/entropy", "", lambda s: 2 * math.exp(-s / 200)),
    ("trainer", "actor/grad_norm", "", lambda s: 1 + 0.2 * math.sin(s / 3) + (4 if s == 120 else 0)),
    ("trainer", "actor/clipfrac", "", lambda s: 0.05 + 0.02 * math.cos(s / 7)),
    ("trainer", "actor/logprob_mismatch", "", lambda s: 0.001 * (1 + s / 100)),
    ("trainer", "mem/allocated", "B", lambda s: 40e9 + 1e8 * math.sin(s / 4)),
    ("trainer", "mem/reserved", "B", lambda s: 60e9),
)
PER_RANK = (
    ("perf/tokens", "", 4096.0),
    ("perf/active_s", "s", 8.0),
    ("mem/allocated", "B", 40e9),
    ("mem/reserved", "B", 60e9),
)


def packed(matrix: Any) -> dict[str, Any]:
    """A matrix as an answer of the server holds it."""
    data = np.ascontiguousarray(matrix, dtype="<f4")
    return {"rows": data.shape[0], "columns": data.shape[1], "f32": base64.b64encode(data.tobytes()).decode()}


def grid(steps: int, axis: str = "step") -> dict[str, Any]:
    return {
        "actor": "trainer",
        "kind": "step",
        "axis": axis,
        "width": 1,
        "x": list(range(steps)),
        "t": [BEGAN + STEP_S * (step + 1) for step in range(steps)],
        "rows": [1] * steps,
        "partial": [int(step in (50, 51, 52)) for step in range(steps)],
        "revised": [0] * steps,
    }


def embedded(
    *, steps: int = 200, ranks: int = 16, per_host: int = 8, span_steps: int = 20, hostile: bool = False
) -> Embedded:
    """A run of `ranks` ranks; rank 3 is slow from half of the steps on, and missing at steps 50 to 52."""
    name = HOSTILE if hostile else "grpo-7b"
    where = {"store": "made", "row": steps}
    metrics, curves = [], {}
    for at, (actor, key, unit, value) in enumerate(ROWS):
        found = [value(step) for step in range(steps)]
        metrics.append(
            {
                "id": f"m{at}",
                "key": f"{actor}/{key}",
                "name": HOSTILE if hostile and at == 0 else key,
                "actor": actor,
                "kind": "step",
                "unit": unit,
                "about": f"about {key}",
                "headline": at + 1 if at < 6 else None,
                "per_rank": False,
                "limit": None,
                "in_use": None,
                "last": found[-1],
            }
        )
        if hostile and at == 0:
            metrics[-1]["key"] = HOSTILE
        curves[f"m{at}"] = {"grid": 0, "mean": found, "min": None, "max": None, "n": None}
    names = [f"0.{rank}" for rank in range(ranks)]
    hosts = [HOSTILE if hostile else f"node{rank // per_host:03}" for rank in range(ranks)]
    held = {}
    for at, (key, unit, usual) in enumerate(PER_RANK):
        metrics.append(
            {
                "id": f"r{at}",
                "key": f"trainer/{key}",
                "name": key,
                "actor": "trainer",
                "kind": "step",
                "unit": unit,
                "about": "",
                "headline": None,
                "per_rank": True,
                "limit": None,
                "in_use": "r2" if key == "mem/reserved" else None,
                "last": usual,
            }
        )
        curves[f"r{at}"] = {"grid": 0, "mean": [usual] * steps, "min": None, "max": None, "n": None}
        held[f"r{at}"] = {**where, "metric": f"r{at}", **by_rank(steps, names, hosts, usual)}
    return cast(
        Embedded,
        {
            "contract": CONTRACT,
            "experiments": {
                "contract": CONTRACT,
                "version": "0.0",
                "folder": "/made",
                "single": True,
                "now": BEGAN + STEP_S * steps,
                "experiments": [entry(name, steps, ranks)],
                "left_out": {},
            },
            "overview": {
                **where,
                "entry": entry(name, steps, ranks),
                "sidecar": "",
                "progress": None,
                "doing": "",
                "lead": "trainer",
                "actors": [actor_overview(steps, ranks)],
                "writers": [],
                "writers_in_all": ranks,
                "hosts": sorted(set(hosts)),
                "sinks": [],
                "refused": [
                    {
                        "what": "lines",
                        "where": "trainer-0-r1.jsonl",
                        "reason": "no JSON",
                        "count": 2,
                        "excerpt": HOSTILE,
                    }
                ],
                "refused_in_all": 2,
                "notes": [],
                "lacking": [],
                "short": [],
                "nonfinite": [],
                "run": None,
                "extent": {"step": (0, steps - 1), "time": (BEGAN, BEGAN + STEP_S * steps)},
                "panels": {
                    "stability": [f"m{at}" for at in range(6)],
                    "memory": ["r2", "r3"],
                    "ranks": ["r0", "r1"],
                },
                "lead_steps": steps,
            },
            "metrics": {**where, "metrics": metrics, "left_out": 0},
            "series": {**where, "grids": [grid(steps)], "curves": curves},
            "ranks": held,
            "newest": {},
            "spans": spans(steps, ranks, span_steps, hosts),
            "rollouts": {str(step): rollouts(step) for step in (10, 20)},
            "alerts": {
                **where,
                "episodes": [episode()],
                "last_step": steps - 1,
                "blind": [],
                "needs": [0, 20, 40],
                "note": "",
            },
            "why": {},
            "ledger": {**where, "logged": False, "grid": None, "curves": {}, "totals": {}, "wrong": []},
            "events": {
                **where,
                "events": [
                    {
                        "t": BEGAN + 15,
                        "step": 1,
                        "actor": "trainer",
                        "rank": "0.0",
                        "attempt": 0,
                        "name": "saved",
                        "attrs": {"path": HOSTILE},
                    }
                ],
                "names": ["saved"],
                "left_out": 0,
                "note": "",
            },
            "run": {
                **where,
                "keys": [
                    {"part": "config", "key": "lr", "value": 1e-6},
                    {"part": "config", "key": "model", "value": HOSTILE},
                ],
                "changes": [],
                "left_out": 0,
            },
        },
    )


def entry(name: str, steps: int, ranks: int) -> dict[str, Any]:
    return {
        "id": "made",
        "name": name,
        "state": "running",
        "note": "",
        "step": steps - 1,
        "steps_per_s": 0.1,
        "ranks": ranks,
        "expected": ranks,
        "rows": steps,
        "began": BEGAN,
        "newest": BEGAN + STEP_S * steps,
        "firing": 1,
        "episodes": 1,
        "complete": False,
        "trouble": ["rank 0.3 was missing at 3 steps"],
        "sparks": [
            {
                "key": "reward/mean",
                "unit": "",
                "value": 0.9,
                "first": 0,
                "last": steps - 1,
                "points": [0.1, 0.4, 0.6, 0.9],
            }
        ],
    }


def actor_overview(steps: int, ranks: int) -> dict[str, Any]:
    return {
        "actor": "trainer",
        "lead": True,
        "axis": "global_step",
        "step": steps - 1,
        "open_step": steps,
        "steps_per_s": 0.1,
        "lag_s": 0.2,
        "ranks": ranks,
        "expected": ranks,
        "missing": [],
        "absent": [],
        "note": "",
    }


def by_rank(steps: int, names: list[str], hosts: list[str], usual: float) -> dict[str, Any]:
    """Values of ranks around `usual`, rank 3 half as much again in the second half."""
    rank, step = np.mgrid[0 : len(names), 0:steps]
    matrix = usual * (1 + 0.03 * np.sin(rank * 1.7 + step / 9))
    if len(names) > 3:
        matrix[3, steps // 2 :] *= 1.5
        matrix[3, 50:53] = np.nan
    return {
        "grid": grid(steps),
        "ranks": names,
        "hosts": hosts,
        "mean": packed(matrix),
        "min": None,
        "max": None,
        "low": np.nanmin(matrix, 0).tolist(),
        "median": np.nanmedian(matrix, 0).tolist(),
        "high": np.nanmax(matrix, 0).tolist(),
        "low_rank": np.nanargmin(matrix, 0).tolist(),
        "high_rank": np.nanargmax(matrix, 0).tolist(),
        "only": -1,
        "missing": [["0.3"] if 50 <= step < 53 and len(names) > 3 else [] for step in range(steps)],
    }


def spans(steps: int, ranks: int, newest: int, hosts: list[str]) -> dict[str, Any]:
    """The stages of the newest steps on each rank; rank 3 takes longer to update."""
    columns: dict[str, Any] = {
        "lane": array("i"),
        "name": array("i"),
        "t": array("d"),
        "dur": array("d"),
        "step": array("i"),
        "depth": array("i"),
    }
    first = max(steps - newest, 0)
    seconds = [[share * STEP_S for _ in range(steps - first)] for share in SHARES]
    for rank in range(ranks):
        for step in range(first, steps):
            at = STEP_S * (step - first)
            for name, share in enumerate(SHARES):
                for column, value in zip(columns.values(), (rank, name, at, share * STEP_S, step, 0)):
                    column.append(value)
                at += share * STEP_S
    return {
        "store": "made",
        "row": steps,
        "origin": BEGAN + STEP_S * first,
        "found": (BEGAN + STEP_S * first, BEGAN + STEP_S * steps),
        "lanes": [
            {"id": f"l{rank}", "actor": "trainer", "rank": f"0.{rank}", "host": hosts[rank], "attempt": 0, "name": ""}
            for rank in range(ranks)
        ],
        "names": list(STAGES),
        "spans": {**{name: list(column) for name, column in columns.items()}, "err": {}},
        "barriers": {
            "lane": [0] * (steps - first),
            "step": list(range(first, steps)),
            "t": [STEP_S * (step - first + 1) for step in range(first, steps)],
        },
        "stages": {
            "step": list(range(first, steps)),
            "t": [BEGAN + STEP_S * step for step in range(first, steps)],
            "dur": [STEP_S] * (steps - first),
            "names": list(STAGES),
            "seconds": seconds,
            "bubble": [STEP_S * (1 - sum(SHARES))] * (steps - first),
        },
        "left_out": 0,
        "note": "",
    }


def rollouts(step: int) -> dict[str, Any]:
    samples = [
        {
            "id": f"{step}-{at}",
            "group": f"prompt-{at // 4}",
            "rank": "0.0",
            "t": BEGAN + step * STEP_S,
            "score": at / 8,
            "advantage": at / 8 - 0.5,
            "why": ["top"] if at == 7 else [],
            "prompt": [
                {"role": "system", "content": "You are careful."},
                {"role": "user", "content": f"What is {at} + 1? {HOSTILE}"},
            ],
            "response": [
                {
                    "role": "assistant",
                    "content": "I count.",
                    "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}],
                },
                {"role": "tool", "content": str(at + 1)},
                {"role": "assistant", "content": f"It is {at + 1}."},
            ]
            if at % 2
            else f"It is {at + 1}.",
            "tokens": None
            if at % 2
            else {
                "text": ["It", " is", f" {at + 1}", "."],
                "columns": {
                    "logp_diff": [0.0, 0.1, -1.2, 0.4],
                    "importance_ratio": [1.0, 1.1, 0.3, 1.5],
                    "mask": [0, 1, 1, 1],
                },
            },
            "row": {"length": 4 + at},
            "cut": None,
        }
        for at in range(8)
    ]
    table = {
        "actor": "trainer",
        "table": "rollouts",
        "kept": 8,
        "taken": 64,
        "shown": 8,
        "groups": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "samples": samples,
        "measure": "reward",
        "rewards": {"edges": [0, 0.25, 0.5, 0.75, 1], "counts": [2, 2, 2, 2]},
    }
    return {"store": "made", "row": 200, "step": step, "steps": [10, 20], "tables": [table], "note": ""}


def episode() -> dict[str, Any]:
    return {
        "id": "e1",
        "rule": "grad_norm_peak",
        "severity": "warning",
        "state": "firing",
        "place": "",
        "lineage": [0, 0, 0],
        "first": {"step": 118, "t": BEGAN + 1180},
        "fired": {"step": 120, "t": BEGAN + 1200},
        "last": {"step": 126, "t": BEGAN + 1260},
        "ended": None,
        "evidence": {"actor/grad_norm": 5.0},
        "about": HOSTILE,
        "look": "rlship why",
    }
