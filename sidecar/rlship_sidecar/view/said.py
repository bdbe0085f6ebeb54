"""Answers about episodes, the ledger, run data and the differences of two runs, out of a store's rows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rlship_formats.reading import RUN_TEXTS
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.verdict_rows import TABLE as EPISODES
from rlship_sidecar.diff.partings import Apart, Comparison, Metric, is_of_time
from rlship_sidecar.diff.said import ABSENT, PARTS, SaidTwice
from rlship_sidecar.ledger.rows import PREFIX as LEDGER_PREFIX
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunChange as MergedChange
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.run_data.trees import leaves
from rlship_sidecar.view.charts import metric_id
from rlship_sidecar.view.contract import Alert, ChangedKey, Diff, Parted, RunKey
from rlship_sidecar.view.texts import number, plain, text

GOING_ON = ("firing", "clearing")
MAX_EPISODES, MAX_KEYS, MAX_CHANGES, MAX_PARTED = 2_000, 10_000, 5_000, 5_000
# What the ledger counts without anything being wrong.
_HARMLESS = ("groups", "open", "open_samples", "generated_samples", "trained_samples", "dropped_samples")
_LEVELS = ("open", "open_samples")


def episodes_of(rows: Iterable[Row], rules: Mapping[str, Rule]) -> list[Alert]:
    """The episodes that rows of alerts hold: those that go on first, then by step."""
    found: dict[str, Alert] = {}
    for row in rows:
        for sample in row.samples.get(EPISODES, ()):
            one = _episode(sample.row, rules)
            if one is not None:
                found[one["id"]] = one
    order = sorted(found.values(), key=lambda one: (one["state"] not in GOING_ON, one["first"].get("step") or 0))
    return order[:MAX_EPISODES]


def followed(episodes: Iterable[Alert], status: Status) -> list[Alert]:
    """The episodes with what rows leave out of those that go on, as the status has it: whether one is clearing, and the
    step of its last breach.
    """
    now = {one.id: one for one in status.alerts}
    found = []
    for one in episodes:
        seen = now.get(one["id"]) if one["state"] in GOING_ON else None
        if seen is not None:
            one = {**one, "state": seen.state, "last": {"step": seen.last_step, "t": None}}
        found.append(one)
    return found


def _episode(said: Mapping[str, Any], rules: Mapping[str, Rule]) -> Alert | None:
    def moment(name: str) -> dict[str, Any] | None:
        step, t = said.get(f"{name}_step"), said.get(f"{name}_t")
        return None if step is None else {"step": plain(step), "t": number(t)}

    identity, rule = said.get("id"), rules.get(str(said.get("rule")))
    if not isinstance(identity, str):
        return None
    evidence = said.get("evidence")
    return {
        "id": text(identity),
        "rule": text(said.get("rule", "")),
        "severity": text(said.get("severity", "")),
        "state": text(said.get("state", "")),
        "place": text(said.get("place") or ""),
        "lineage": plain(list(said.get("lineage") or ())),
        "first": moment("first") or {},
        "fired": moment("fired") or {},
        "last": moment("last") or {},
        "ended": moment("ended"),
        "evidence": {text(name): number(value) for name, value in dict(evidence or {}).items()},
        "about": text(rule.about) if rule is not None else "",
        "look": text(rule.look) if rule is not None else "",
    }


def wrong_of(totals: Mapping[str, float]) -> list[str]:
    """The keys of the ledger that should be 0 and are not."""
    return [key for key, value in totals.items() if value and not key.startswith(_HARMLESS)]


def ledger_name(key: str) -> str:
    """A key of the ledger's rows without what all of them begin with."""
    return text(key.removeprefix(f"{LEDGER_PREFIX}/"))


def adds_up(key: str) -> bool:
    """Whether a key of the ledger counts what happened, rather than what is there."""
    return key not in _LEVELS


def run_keys(data: RunData) -> tuple[list[RunKey], int]:
    """The keys of the run's data, and how many are left out."""
    found: list[RunKey] = []
    for part in PARTS:
        tree = getattr(data, part)
        found += [{"part": part, "key": text(".".join(key)), "value": plain(value)} for key, value in leaves(tree)]
    for name in (*RUN_TEXTS, "tags", "outcome", "dropped", "left_out"):
        if value := getattr(data, name):
            found.append({"part": "run", "key": name, "value": plain(value)})
    return found[:MAX_KEYS], max(0, len(found) - MAX_KEYS)


def run_changes(changes: Collection[MergedChange]) -> list[ChangedKey]:
    """The newest changes of keys."""
    return [
        {
            "part": one.part,
            "key": text(".".join(one.key)),
            "t": one.t,
            "who": text(f"{one.actor}/{one.replica}.{one.rank}"),
            "before": plain(one.before),
            "after": plain(one.after),
        }
        for one in sorted(changes, key=lambda one: one.t)[-MAX_CHANGES:]
    ]


def diff_of(a: str, b: str, said: Iterable[SaidTwice], found: Comparison) -> Diff:
    """The differences of two runs, the earliest first."""
    parted, of_one = found.parted(), found.of_one()
    return {
        "a": text(a),
        "b": text(b),
        "both": found.both,
        "equal": len(found.metrics) - len(parted) - len(of_one),
        "run": [
            {"part": one.part, "key": text(one.key)}
            | {side: plain(value) for side, value in (("a", one.a), ("b", one.b)) if value is not ABSENT}
            for one in said
            if one.differs
        ][:MAX_KEYS],
        "ranks": [
            {"actor": text(one.actor), "step": one.step, "a": plain(one.a), "b": plain(one.b)}
            for one in found.ranks.values()
        ],
        "metrics": [_parted(one) for one in (*parted, *of_one)[:MAX_PARTED]],
    }


def _parted(one: Metric) -> Parted:
    return {
        "id": metric_id(one.actor, one.kind, one.key),
        "key": text(one.key),
        "actor": text(one.actor),
        "kind": one.kind,
        "in_a": one.in_a,
        "in_b": one.in_b,
        "apart": one.apart,
        "first": _apart(one.first),
        "widest": _apart(one.widest),
        "of_time": is_of_time(one),
    }


def _apart(one: Apart | None) -> dict[str, Any] | None:
    return None if one is None else {"step": one.step, "a": number(one.a), "b": number(one.b)}
