"""Which metrics stand in which section of the view, and which of them share a chart. Pure.

A metric that the catalogue knows has its section by the catalogue's name, any other one by the last part of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_formats.catalogue.metrics import lookup_evidence
from rlship_sidecar.panels.charted import Charted
from rlship_sidecar.report.trends import Slot, slot_of
from rlship_sidecar.rows import ALERT
from rlship_sidecar.sinks.names import EXTRAS, place

HEADLINE, STAGES, LOAD, MEMORY, STABILITY = (
    "Headline",
    "Stages of a step",
    "Load of each rank",
    "Memory",
    "Training stability",
)
TITLES = (HEADLINE, STAGES, LOAD, MEMORY, STABILITY)
MAX_CHARTS = 30  # of a section
MAX_LINES = 20  # of a chart
MAX_TITLE = 80

_PART = "perf/stage_s/*"
_STEP_S = "perf/step_s"
# Patterns of the catalogue's names; the first section that has one of them counts.
PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        STAGES,
        (
            *(_STEP_S, _PART, "perf/bubble_ratio", "data/batch_create_s", "data/loading_s", "upd/forward_s"),
            *("upd/backward_s", "upd/optim_s", "lp/forward_s", "sync/push_s", "sync/pull_s", "rwd/latency_s"),
            *("env/step_s", "gen/request_s", "gen/queue_s", "buf/get_s"),
        ),
    ),
    (
        LOAD,
        (
            *("bal/*", "upd/comm_s", "perf/*", "gen/decode_tokens_per_s", "gen/requests_*", "node/gpu_util"),
            *(
                "proc/gpu_util",
                "node/cpu",
                "proc/cpu",
                "rwd/batch_tokens",
                "rwd/tokens_per_s",
                "svc/replica_queue_depth",
            ),
            *("buf/size", "buf/queue_depth", "train/microbatch_tokens", "lp/microbatch_tokens", "data/step_tokens"),
        ),
    ),
    (
        MEMORY,
        (
            *("mem/*", "gen/kv_*", "node/gpu_mem", "node/gpu_mem_limit", "node/gpu_mem_frac", "node/gpu_mem_other"),
            *(
                "node/host_mem",
                "node/host_mem_limit",
                "node/host_mem_frac",
                "node/swap",
                "proc/host_mem",
                "proc/gpu_mem",
            ),
        ),
    ),
    (
        STABILITY,
        (
            *("reward/*", "rwd/part/*", "train/*", "correctness/*", "eval/*", "moe/*", "policy_version", "async/*"),
            *("data/response_len", "data/episode_len", "data/clip_ratio", "data/aborted_ratio", "data/dup_ids"),
        ),
    ),
)
# The same for names that the catalogue lacks, by their last part.
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MEMORY, re.compile(r"(^|_)(mem|memory|vram|kv_cache|kv_usage|allocated|reserved)(_|$)")),
    (LOAD, re.compile(r"(^|_)(tokens?|busy|idle|active|comm|wait|waiting|straggler|last_rank|spread)(_|$)")),
    (STAGES, re.compile(r"_s$")),
    (
        STABILITY,
        re.compile(
            r"(^|_)(rewards?|score|return|kl|entropy|clip|clipfrac|loss|grad|norm|ratio|advantages?|mismatch|lag|"
            r"staleness|accuracy)(_|$)"
        ),
    ),
)
# The order of the stages of a step, by words in their names.
_ORDER = (
    *("rollout", "gen", "sampl", "reward", "verif", "score", "log_?p", "ref", "value", "adv", "update", "train"),
    *("optim", "sync", "weight", "ckpt", "checkpoint", "save", "eval"),
)
_WHOLE = re.compile(r"(^|_)(step|total|iter|iteration|epoch|round)(_|$)")  # no stage of a step, but all of it
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


@dataclass(slots=True)
class _Placed:
    """A metric with what is known of it."""

    one: Charted
    section: str
    catalogued: str
    is_stage: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_stage = self.section == STAGES and (
            place(self.catalogued, (_PART,)) is not None
            if self.catalogued
            else _last(self.one).endswith("_s") and _WHOLE.search(_last(self.one)) is None
        )


def sections(metrics: Iterable[Charted], lead: str, *, ranks: bool) -> list[Section]:
    """The sections of the view, without those that have no chart. `ranks`: values of single ranks are at W&B, too."""
    known = [_known(one, lead) for one in metrics]
    charts: dict[str, list[Chart]] = {title: [] for title in TITLES}
    charts[HEADLINE] = [*_headline(known, lead)]
    charts[STAGES] = [*_stages([one for one in known if one.is_stage])]
    together = {name for chart in charts[STAGES] for name in chart.names}
    for one in sorted(known, key=lambda one: _place_of(one, lead)):
        if one.section in charts and one.one.name not in together:
            charts[one.section] += _of_metric(one, ranks=ranks)
    return [
        Section(title, tuple(found[:MAX_CHARTS]), max(0, len(found) - MAX_CHARTS))
        for title, found in charts.items()
        if found
    ]


def _known(one: Charted, lead: str) -> _Placed:
    """A metric with its section, "" for one that has none."""
    entry = lookup_evidence(one.actor, one.metric, lead) if one.actor else None
    name = "" if entry is None else entry.name
    if name:
        section = next((title for title, patterns in PATTERNS if place(name, patterns) is not None), "")
    else:
        section = next((title for title, words in _WORDS if words.search(_last(one).lower())), "")
        section = section or (LOAD if one.ranks else "")
    if not one.actor or one.metric.startswith(("ranks/", "event/")) or one.metric == "revision":
        section = ""  # what rlship counts, of which the headline shows the most important
    return _Placed(one, section, name)


def _last(one: Charted) -> str:
    return one.metric.rpartition("/")[2]


def _place_of(known: _Placed, lead: str) -> tuple[object, ...]:
    """Where a metric comes in its section: the lead first, and the catalogue's order within an actor."""
    patterns = dict(PATTERNS).get(known.section, ())
    at = place(known.catalogued, patterns) if known.catalogued else None
    return known.one.actor != lead, known.one.actor, len(patterns) if at is None else at, known.one.metric


def _headline(known: Sequence[_Placed], lead: str) -> Iterable[Chart]:
    """Reward, loss, speed, the duration of a step, then what is wrong: alerts and ranks that rows lack."""
    for number, title in enumerate(_HEADLINE_SLOTS):
        fits = [(slot.fit, one.one.actor != lead, one.one) for one in known if (slot := _slot(one, number)) is not None]
        if fits:
            best = min(fits, key=lambda found: (*found[:2], found[2].actor, found[2].metric))[2]
            yield Chart(title, best.axis, (best.name,))
    for one in known:
        if one.catalogued == _STEP_S or one.catalogued.startswith("eval/"):
            yield _chart(one.one)
    alerts = [one.one for one in known if not one.one.actor and one.one.kind == ALERT]
    yield from _together("Alerts that fire", alerts)
    yield from _together("Ranks that rows lack", [one.one for one in known if one.one.metric == "ranks/missing"])
    yield from _together("Ranks short of a metric", [one.one for one in known if one.one.metric == "ranks/short"])


def _slot(known: _Placed, number: int) -> Slot | None:
    slot = slot_of(known.one.actor, known.one.metric) if known.one.actor else None
    return slot if slot is not None and slot.number == number else None


def _together(title: str, metrics: Sequence[Charted]) -> Iterable[Chart]:
    """One chart of several metrics for each axis that they have."""
    for axis in dict.fromkeys(one.axis for one in metrics):
        names = [one.name for one in metrics if one.axis == axis]
        yield Chart(title, axis, tuple(names[:MAX_LINES]))


def _stages(stages: Sequence[_Placed]) -> Iterable[Chart]:
    """The stages of a step in their order, of all actors on one axis, and the slowest rank of each.

    They stand upon each other where they add up to a step: as one actor has them under the catalogue's names. Other
    spans may lie within each other, and actors work side by side.
    """
    for axis in dict.fromkeys(one.one.axis for one in stages):
        known = sorted((one for one in stages if one.one.axis == axis), key=lambda one: _follows(one.one))[:MAX_LINES]
        if len(known) < 2:
            continue
        adds_up = all(one.catalogued for one in known) and len({one.one.actor for one in known}) == 1
        yield Chart(STAGES, axis, tuple(one.one.name for one in known), stacked=adds_up)
        slowest = tuple(one.one.names["max"] for one in known if "max" in one.one.names)
        if slowest:
            yield Chart("Slowest rank of each stage", axis, slowest)


def _follows(one: Charted) -> tuple[int, str, str]:
    last = _last(one).lower()
    return next((at for at, word in enumerate(_ORDER) if re.search(word, last)), len(_ORDER)), one.actor, one.metric


def _of_metric(known: _Placed, *, ranks: bool) -> Iterable[Chart]:
    """The charts of one metric: its reductions, which rank has the greatest value, the values of all ranks."""
    one = known.one
    yield _chart(one)
    if known.section not in (LOAD, MEMORY):
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
