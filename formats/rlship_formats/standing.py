"""Spans, events and samples: records that stand for a metrics record. The rules: formats/SPEC.md, 5.4 to 5.6."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

from rlship_formats.records import T_MAX, T_MIN, BadRecord
from rlship_formats.values import NONFINITE

STANDING = frozenset(("span", "event", "sample"))
STEP_TAG = "step_tag"
WRONG_USE = "rlship_error"  # the event by which a writer says that a call of the job could not be done as it said
TAGGED = f"event/{STEP_TAG}"  # the metric by which tags count; it has no figures
SPAN_REDUCTIONS = ("mean", "max")
EVENT_REDUCTIONS = ("sum",)
MAX_DURATION_S = 1e9


class SampleFacts(NamedTuple):
    """What selects a sample: its table, its score (None: none, or not a finite one) and its priority in 0..1."""

    table: str
    score: float | None
    pri: float


class Standing(NamedTuple):
    """The metrics record in question: at time `t` the one `metric` ("": none) has `value`; it is reduced by `reduce` if
    nobody says otherwise.
    """

    t: float
    metric: str = ""
    value: float = 0.0
    reduce: tuple[str, ...] = ()
    tag: str = ""
    sample: SampleFacts | None = None


def stands_for(kind: str, record: dict[str, Any], t: float) -> Standing:
    """What a record of a kind in `STANDING` stands for, `t` being its own time; raises BadRecord."""
    if kind == "span":
        return _span(record, t)
    if kind == "event":
        return _event(record, t)
    return _sample(record, t)


def _span(record: dict[str, Any], t: float) -> Standing:
    name, dur = record.get("name"), record.get("dur")
    if not _is_name(name) or not _is_number(dur) or not 0 <= dur <= MAX_DURATION_S:
        raise BadRecord("bad span")
    end = t + dur
    return Standing(end if T_MIN <= end <= T_MAX else t, f"{name}_s", float(dur), SPAN_REDUCTIONS)


def _event(record: dict[str, Any], t: float) -> Standing:
    name = record.get("name")
    if not _is_name(name):
        raise BadRecord("bad event")
    if name != STEP_TAG:
        return Standing(t, f"event/{name}", 1.0, EVENT_REDUCTIONS)
    attrs = record.get("attrs")
    tag = attrs.get("tag") if isinstance(attrs, dict) else None
    if not _is_name(tag):
        raise BadRecord("bad event")
    return Standing(t, f"event/{name}", 1.0, EVENT_REDUCTIONS, tag)


def _sample(record: dict[str, Any], t: float) -> Standing:
    table, pri, score = record.get("table"), record.get("pri"), record.get("score")
    if not _is_name(table) or not isinstance(record.get("row"), dict) or not _is_number(pri) or not 0 <= pri <= 1:
        raise BadRecord("bad sample")
    if score is None or (isinstance(score, str) and score in NONFINITE):
        return Standing(t, sample=SampleFacts(table, None, float(pri)))
    if not _is_number(score):
        raise BadRecord("bad sample")
    return Standing(t, sample=SampleFacts(table, float(score), float(pri)))


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (float, int)) and not isinstance(value, bool)
