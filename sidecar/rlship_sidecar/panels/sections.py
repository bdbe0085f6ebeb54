"""The sections of the view with their charts: which metrics share one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rlship_sidecar.panels.charted import Charted
from rlship_sidecar.panels.placing import (
    HEADLINE,
    LOAD,
    MEMORY,
    STAGES,
    STEP_S,
    TITLES,
    MetricPlace,
    is_stage,
    last_part,
    order,
    placed,
)
from rlship_sidecar.report.trends import Slot, slot_of
from rlship_sidecar.rows import ALERT
from rlship_sidecar.sinks.names import EXTRAS

MAX_CHARTS = 30  # of a section
MAX_LINES = 20  # of a chart
MAX_TITLE = 80

# The order of the stages of a step, by words in their names.
_ORDER = (
    *("rollout", "gen", "sampl", "reward", "verif", "score", "log_?p", "ref", "value", "adv", "update", "train"),
    *("optim", "sync", "weight", "ckpt", "checkpoint", "save", "eval"),
)
_BESIDE = ("", "mean", "min", "max", "p50", "p90", "p99")  # reductions that share a chart
_GREATEST = "argmax_rank"
_HEADLINE_SLOTS = ("Reward", "Loss", "Tokens per second")


class Chart(NamedTuple):
    """One chart: the names of its lines, or a pattern of them, over an axis. `stacked`: the lines add up."""

    title: str
    axis: str
    names: tuple[str, ...]
    stacked: bool = False
    pattern: str = ""


class Section(NamedTuple):
    """One section with its charts. `left_out` counts those for which it has no room."""

    title: str
    charts: tuple[Chart, ...]
    left_out: int


class _PlacedMetric(NamedTuple):
    """A metric with where it belongs."""

    one: Charted
    placed: MetricPlace


def sections(metrics: Iterable[Charted], lead: str, *, ranks: bool) -> list[Section]:
    """The sections of the view, without those that have no chart. `ranks`: values of single ranks are at W&B, too."""
    known = [_known(one, lead) for one in metrics]
    charts: dict[str, list[Chart]] = {title: [] for title in TITLES}
    charts[HEADLINE] = [*_headline(known, lead)]
    charts[STAGES] = [*_stages([one for one in known if is_stage(one.placed, one.one.metric)])]
    together = {name for chart in charts[STAGES] for name in chart.names}
    for one in sorted(known, key=lambda one: order(one.placed, one.one.actor, one.one.metric, lead)):
        if one.placed.section in charts and one.one.name not in together:
            charts[one.placed.section] += _of_metric(one, ranks=ranks)
    return [
        Section(title, tuple(found[:MAX_CHARTS]), max(0, len(found) - MAX_CHARTS))
        for title, found in charts.items()
        if found
    ]


def _known(one: Charted, lead: str) -> _PlacedMetric:
    return _PlacedMetric(one, placed(one.actor, one.metric, lead, by_rank=bool(one.ranks)))


def _headline(known: Sequence[_PlacedMetric], lead: str) -> Iterable[Chart]:
    """Reward, loss, speed, the duration of a step, then what is wrong: alerts and ranks that rows lack."""
    for number, title in enumerate(_HEADLINE_SLOTS):
        fits = [(slot.fit, one.one.actor != lead, one.one) for one in known if (slot := _slot(one, number)) is not None]
        if fits:
            best = min(fits, key=lambda found: (*found[:2], found[2].actor, found[2].metric))[2]
            yield Chart(title, best.axis, (best.name,))
    for one in known:
        if one.placed.catalogued == STEP_S or one.placed.catalogued.startswith("eval/"):
            yield _chart(one.one)
    alerts = [one.one for one in known if not one.one.actor and one.one.kind == ALERT]
    yield from _together("Alerts that fire", alerts)
    yield from _together("Ranks that rows lack", [one.one for one in known if one.one.metric == "ranks/missing"])
    yield from _together("Ranks short of a metric", [one.one for one in known if one.one.metric == "ranks/short"])


def _slot(known: _PlacedMetric, number: int) -> Slot | None:
    slot = slot_of(known.one.actor, known.one.metric) if known.one.actor else None
    return slot if slot is not None and slot.number == number else None


def _together(title: str, metrics: Sequence[Charted]) -> Iterable[Chart]:
    """One chart of several metrics for each axis that they have."""
    for axis in dict.fromkeys(one.axis for one in metrics):
        names = [one.name for one in metrics if one.axis == axis]
        yield Chart(title, axis, tuple(names[:MAX_LINES]))


def _stages(stages: Sequence[_PlacedMetric]) -> Iterable[Chart]:
    """The stages of a step in their order, of all actors on one axis, and the slowest rank of each.

    They stand upon each other where they add up to a step: as one actor has them under the catalogue's names. Other
    spans may lie within each other, and actors work side by side.
    """
    for axis in dict.fromkeys(one.one.axis for one in stages):
        known = sorted((one for one in stages if one.one.axis == axis), key=lambda one: _follows(one.one))[:MAX_LINES]
        if len(known) < 2:
            continue
        adds_up = all(one.placed.catalogued for one in known) and len({one.one.actor for one in known}) == 1
        yield Chart(STAGES, axis, tuple(one.one.name for one in known), stacked=adds_up)
        slowest = tuple(one.one.names["max"] for one in known if "max" in one.one.names)
        if slowest:
            yield Chart("Slowest rank of each stage", axis, slowest)


def _follows(one: Charted) -> tuple[int, str, str]:
    last = last_part(one.metric).lower()
    return next((at for at, word in enumerate(_ORDER) if re.search(word, last)), len(_ORDER)), one.actor, one.metric


def _of_metric(known: _PlacedMetric, *, ranks: bool) -> Iterable[Chart]:
    """The charts of one metric: its reductions, which rank has the greatest value, the values of all ranks."""
    one = known.one
    yield _chart(one)
    if known.placed.section not in (LOAD, MEMORY):
        return
    if _GREATEST in one.names:
        yield Chart(_title(f"{one.actor}/{one.metric}: rank with the most"), one.axis, (one.names[_GREATEST],))
    if ranks and one.ranks:
        pattern = f"^{_literal(f'{EXTRAS}/{one.ranks}')}[^/]*$"
        yield Chart(_title(f"{one.actor}/{one.metric}: each rank"), one.axis, (), pattern=pattern)


def _chart(one: Charted) -> Chart:
    beside = tuple(one.names[reduction] for reduction in _BESIDE if reduction in one.names)
    return Chart(_title(f"{one.actor}/{one.metric}"), one.axis, beside or (one.name,))


def _title(text: str) -> str:
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"


def _literal(text: str) -> str:
    """A pattern of this text alone, as all dialects of patterns read it."""
    return re.sub(r"[.^$*+?()\[\]{}|\\]", lambda found: f"\\{found[0]}", text)
