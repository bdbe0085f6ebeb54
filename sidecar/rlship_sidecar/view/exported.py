"""One experiment as one file that opens from disk: which answers go in, in how few bytes."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import orjson

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.view import joined
from rlship_sidecar.view.contract import CONTRACT, MAX_METRICS
from rlship_sidecar.view.packing import tight

MOST_BYTES = 20_000_000
RANKS_BYTES = 16_500_000  # of values by rank
ROLLOUTS_BYTES = 2_000_000  # once deflated
LEAST_BUCKETS = 400
BUCKETS = 2 * LEAST_BUCKETS - 1  # buckets have a power of two of steps: at most so many are at least `LEAST_BUCKETS`
NEWEST_STEPS, MOST_POINTS = 50, "1000"
MOST_METRICS, ROW_POINTS = 500, 2_000
CELLS = 600_000  # numbers of all curves
DIGITS = 9
MOST_EPISODES, MOST_SAMPLES, MOST_SPANS = 100, 64, 60_000

# What is left out where the file would be too large, the first first.
_SPARE = (
    ("newest", "the newest steps by rank one by one"),
    ("rollouts", "the rollouts"),
    ("spans", "the timeline"),
    ("ranks", "the values by rank"),
    ("why", "the answers of why"),
)
_COLUMNS = frozenset(("spans", "lane", "step", "names"))  # objects with these are kept, without what is in them

Ask = Callable[[str, Mapping[str, str]], Any]


def held_by(ask: Ask, experiments: Mapping[str, Any]) -> dict[str, Any]:
    """The answers that the page of an exported file needs: `Embedded` of the contract, with the matrices packed."""
    overview, metrics, alerts = ask("overview", {}), ask("metrics", {}), ask("alerts", {})
    left_out: list[str] = []
    chosen = metrics["metrics"][:MOST_METRICS]
    if len(metrics["metrics"]) > len(chosen):
        left_out.append(f"{len(metrics['metrics']) - len(chosen)} metrics beyond the first {MOST_METRICS}")
    ranks, newest = _by_rank(ask, overview, chosen, left_out)
    held = {
        "contract": CONTRACT,
        "experiments": experiments,
        "metrics": {**metrics, "metrics": [_known(metric, ranks) for metric in chosen]},
        "series": _series(ask, [metric["id"] for metric in chosen]),
        "ranks": ranks,
        "newest": newest,
        "spans": ask("spans", {"limit": str(MOST_SPANS)}),
        "rollouts": _rollouts(ask, left_out),
        "alerts": alerts,
        "why": {
            episode["id"]: ask("why", {"episode": episode["id"]}) for episode in alerts["episodes"][:MOST_EPISODES]
        },
        "ledger": ask("ledger", {"points": str(BUCKETS)}),
        "events": ask("events", {}),
        "run": ask("run", {}),
    }
    notes = [f"This file leaves out {what}." for what in left_out]
    held["overview"] = {**overview, "notes": [*overview["notes"], *notes]}
    return held


def fitting(held: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
    """The page with its data, in at most `most` bytes: what would be too much is left out, and the overview says so."""
    for part, what in (("", ""), *_SPARE):
        if part:
            overview = held["overview"]
            notes = [*overview["notes"], f"This file leaves out {what}: there was no room."]
            held = {**held, part: _emptied(held[part]), "overview": {**overview, "notes": notes}}
        page = one_file(held)
        if len(page) <= most:
            return page
    raise RlshipError(
        f"the page would have {len(page) / 1e6:.1f} MB, and {most / 1e6:.1f} MB are allowed",
        "rlship view shows all of it",
    )


def _emptied(part: Any) -> Any:
    """Such data without content: lists and objects are empty, as deep as they are columns."""
    if isinstance(part, dict):
        if not _COLUMNS & set(part):
            return {}
        kept = {name: _emptied(value) if isinstance(value, (dict, list)) else value for name, value in part.items()}
        return {**kept, "found": None} if "found" in kept else kept
    return []


def one_file(held: Mapping[str, Any]) -> bytes:
    """The page with its data as one file."""
    apart = {name: held[name] for name in ("ranks", "newest")}  # their matrices are deflated already
    rest = {name: part for name, part in held.items() if name not in apart}
    data = orjson.dumps({"z": _deflated(rest), **apart})
    script = joined.join({name: text_of(name) for name in joined.ORDER})
    styles = [text_of(name) for name in joined.STYLES]
    return joined.whole_page(text_of("index.html"), styles, script, data).encode()


def text_of(name: str) -> str:
    """One of the page's files, by its path below `page/`."""
    return resources.files("rlship_sidecar.view").joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def packed_ranks(held: Mapping[str, Any]) -> dict[str, Any]:
    """The same data with the matrices by rank in the shorter form."""
    return {**held, **{part: {key: tight(one) for key, one in held[part].items()} for part in ("ranks", "newest")}}


def _deflated(data: Any) -> str:
    plain = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    return base64.b64encode(zlib.compress(plain, 6)).decode()


def _known(metric: dict[str, Any], ranks: Mapping[str, Any]) -> dict[str, Any]:
    return {**metric, "per_rank": metric["id"] in ranks}


def _series(ask: Ask, ids: list[str]) -> dict[str, Any]:
    points = max(BUCKETS, min(ROW_POINTS, CELLS // (3 * max(len(ids), 1))))
    found: dict[str, Any] = {"grids": [], "curves": {}}
    for at in range(0, len(ids), MAX_METRICS):
        said = ask("series", {"m": ",".join(ids[at : at + MAX_METRICS]), "points": str(points)})
        for key, curve in said["curves"].items():
            short = {name: _short(curve[name]) for name in ("mean", "min", "max")}
            found["curves"][key] = {**curve, **short, "grid": curve["grid"] + len(found["grids"])}
        found = {**said, "grids": [*found["grids"], *said["grids"]], "curves": found["curves"]}
    return found


def _short(column: Any) -> list[float | None] | None:
    """A column whose numbers have at most `DIGITS` significant digits."""
    if column is None:
        return None
    return [None if value is None or value != value else float(f"{value:.{DIGITS}g}") for value in column]


def _by_rank(
    ask: Ask, overview: Mapping[str, Any], metrics: list[dict[str, Any]], left_out: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values by rank: in buckets for the whole run, and step by step for the newest. Those of panels come first."""
    first = [*overview["panels"].get("ranks", ()), *overview["panels"].get("memory", ())]
    order = {key: at for at, key in enumerate(dict.fromkeys(first))}
    wanted = sorted((one for one in metrics if one["per_rank"]), key=lambda one: order.get(one["id"], len(order)))
    ranks: dict[str, Any] = {}
    newest: dict[str, Any] = {}
    size = 0
    without = 0
    for metric in wanted:
        said = tight(ask("ranks", {"m": metric["id"], "points": str(BUCKETS), "stat": "mean,min,max"}))
        late = newest_of(said["grid"])
        recent = None if late is None else tight(ask("ranks", {"m": metric["id"], **late, "points": MOST_POINTS}))
        weight = len(orjson.dumps([said, recent]))
        if size + weight > RANKS_BYTES:
            without += 1
            continue
        size += weight
        ranks[metric["id"]] = said
        if recent is not None:
            newest[metric["id"]] = recent
    if without:
        left_out.append(f"the values by rank of {without} metrics")
    return ranks, newest


def newest_of(grid: Mapping[str, Any]) -> dict[str, str] | None:
    """The range of the newest rows of a grid, also where steps lie apart; None if each has a bucket of its own."""
    x, rows, width = grid["x"], grid["rows"], grid["width"]
    if grid["axis"] != "step" or max(rows, default=0) <= 1:
        return None
    at, before = len(x) - 1, 0
    while at > 0 and before < NEWEST_STEPS:
        at -= 1
        before += rows[at]
    apart = (x[-1] - x[at]) / before if before else 1.0
    end = x[-1] + width - 1
    first = math.floor(min(x[-1] + (rows[-1] - 1) * apart, end) - NEWEST_STEPS * apart) + 1
    return {"from": str(int(max(first, 0))), "to": str(int(end))}


def _rollouts(ask: Ask, left_out: list[str]) -> dict[str, Any]:
    """Samples of the newest steps that have some, as many as there is room for."""
    found: dict[str, Any] = {}
    said = ask("rollouts", {"limit": str(MOST_SAMPLES)})
    size = 0
    steps = sorted(said["steps"], reverse=True)
    for step in steps:
        said = ask("rollouts", {"step": str(step), "limit": str(MOST_SAMPLES)})
        size += len(_deflated(said["tables"]))
        if size > ROLLOUTS_BYTES:
            break
        found[str(step)] = {**said, "steps": []}
    if len(found) < len(steps):
        left_out.append(f"the rollouts of {len(steps) - len(found)} earlier steps")
    return found
