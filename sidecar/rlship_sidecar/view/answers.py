"""The answers of contract.py about one experiment. Worker threads call these."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rlship_sidecar.alerts.frames import JOINED, FrameNames
from rlship_sidecar.alerts.rules import blind, rules_of, wanted
from rlship_sidecar.diff.partings import KINDS, Tolerance, compare
from rlship_sidecar.diff.said import compare_run_data
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.ownership import last_status
from rlship_sidecar.report.terminal import clean, date
from rlship_sidecar.rows import ALERT, LEDGER
from rlship_sidecar.run_data.merging import RunChange, RunData
from rlship_sidecar.tabular.asked import explained
from rlship_sidecar.tabular.source import ExperimentTables
from rlship_sidecar.view import asking, charts, contract, said
from rlship_sidecar.view.asking import Parameters
from rlship_sidecar.view.charts import KeyPlace
from rlship_sidecar.view.entries import actors_of, facts_of, no_facts
from rlship_sidecar.view.records import FoundRecord, SoughtRecords
from rlship_sidecar.view.rollouts import Rolls
from rlship_sidecar.view.shown import Shown
from rlship_sidecar.view.texts import plain, text
from rlship_sidecar.view.timeline import MAIN, MAX_NAME, SpanTimeline, lane_id
from rlship_sidecar.why.asking import Question
from rlship_sidecar.why.graph import graph_of
from rlship_sidecar.why.text import Text, form

NEWEST_STEPS = 10  # whose spans are shown where nothing is asked for
SPANNED = ("span", "barrier")  # the records of a timeline
_CHART = ("m", "axis", "from", "to", "points")
Answer = dict[str, Any]


def overview(shown: Shown, given: Parameters) -> Answer:
    """All facts of the status."""
    asking.only(given, ())
    state = shown.state()
    entry = shown.viewed.entry(shown.id, shown.path)
    with shown.reading:
        rollup = shown.rollup()
        axes = {actor: family.axis for (actor, kind), family in rollup.families.items() if kind == "step"}
        panels, extent, steps = shown.panels(), charts.extent(rollup), charts.steps_of(rollup, shown.lead)
    if state is None:
        facts: Answer = {**no_facts("no sidecar has watched it"), "actors": []}
    else:
        ended = last_status.ended(state.status)
        words = shown.sidecar_words(state)
        facts = {**facts_of(state.status, ended, time.time(), words), "actors": actors_of(state.status, axes)}
    return {
        **shown.head(),
        "entry": entry,
        "progress": shown.progress,
        "doing": shown.doing,
        **facts,
        "lead": text(shown.lead),
        "extent": extent,
        "panels": panels,
        "lead_steps": steps,
    }


def metrics(shown: Shown, given: Parameters) -> Answer:
    """All metrics."""
    asking.only(given, ())
    with shown.reading:
        rollup = shown.rollup()
        found = charts.metrics_of(rollup, shown.lead)
        return {**shown.head(), "metrics": found, "left_out": len(rollup.left_out) + len(rollup.left_out_by_rank)}


def series(shown: Shown, given: Parameters) -> Answer:
    """Curves of metrics."""
    asking.only(given, _CHART)
    span = asking.span(given, contract.USUAL_POINTS, contract.MAX_POINTS)
    names = asking.words(given, "m", contract.MAX_METRICS)
    with shown.reading:
        head = shown.head()  # rows that are read from now on may be in the answer, those before are
        index = shown.index()
        if not given.get("m"):
            names = [one["id"] for one in charts.metrics_of(shown.rollup(), shown.lead) if one["headline"] is not None]
        wanted = {name: index[name] for name in names if name in index}
    near = {place.family: shown.near(place.family, span) for place in wanted.values()}
    with shown.reading:
        grids, curves = charts.series_of(shown.rollup(), wanted, span, lambda name, _: near.get(name))
        return {**head, "grids": grids, "curves": curves}


def ranks(shown: Shown, given: Parameters) -> Answer:
    """A metric by rank."""
    asking.only(given, (*_CHART, "stat", "rank"))
    span = asking.span(given, contract.USUAL_RANK_POINTS, contract.MAX_RANK_POINTS)
    stats = asking.words(given, "stat", 3) or ["mean"]
    if not {*stats} <= {"mean", "min", "max"}:
        raise UsageProblem(f"stat={','.join(stats)[:80]}: a matrix has mean, min or max", "such as stat=mean")
    with shown.reading:
        place = shown.index().get(given.get("m", ""))
    if place is None:
        raise UsageProblem(f"no metric has the id {given.get('m', '')[:40]!r}", "/metrics lists them")
    hosts = shown.hosts(place.family[0])
    near = shown.near(place.family, span)
    with shown.reading:
        family = near or shown.rollup().families[place.family]
        if place.key not in family.ranks:
            raise UsageProblem(f"rows do not have {place.key[:200]!r} by rank", "/metrics names those that they have")
        return {**shown.head(), **charts.ranks_of(place, family, span, stats, hosts, given.get("rank", ""))}


# Records of the files -------------------------------------------------------------------------------------------------


def spans(shown: Shown, given: Parameters) -> Answer:
    """Spans of all processes."""
    asking.only(given, ("from", "to", "step", "first", "last", "lane", "limit"))
    limit = asking.integer(given, "limit", contract.USUAL_SPANS, 1, contract.MAX_SPANS)
    sought = _sought(shown, given)
    blocks, clocks = shown.where()
    lanes = set(asking.words(given, "lane", 1_000))
    timeline = SpanTimeline(limit, shown.lead, by_step=sought.by_step)
    found = shown.files.find(sought, SPANNED, blocks, clocks)
    timeline.take(one for one in found if not lanes or _lane_id(one) in lanes)
    problems = shown.files.problems
    if timeline.steps is not None and not sought.by_step and shown.files.starts_again(blocks):
        # Whether a step was done again at another time than is asked for.
        timeline.know(shown.files.find(SoughtRecords(*timeline.steps), SPANNED, blocks, clocks))
        problems = list(dict.fromkeys([*problems, *shown.files.problems]))
    return {**shown.head(), **timeline.answer(), "note": text("; ".join(problems[:5]))}


def _lane_id(one: FoundRecord) -> str:
    name = text(one.entry.body.lane, MAX_NAME) if one.entry.kind == "span" else MAIN
    return lane_id(one.file, name)


def _sought(shown: Shown, given: Parameters) -> SoughtRecords:
    """Which records are asked for: of steps, or of a stretch of time; without either those of the newest steps."""
    one = asking.step(given, "step")
    first, last = asking.step(given, "first"), asking.step(given, "last")
    since, until = asking.real(given, "from"), asking.real(given, "to")
    if one is not None:
        return SoughtRecords(one, one)
    if first is not None or last is not None:
        return SoughtRecords(first, last)
    if since is not None or until is not None:
        return SoughtRecords(since=since, until=until)
    with shown.reading:
        newest = charts.extent(shown.rollup())["step"]
    if newest is None:
        return SoughtRecords()
    back = shown.from_store(lambda store: store.gone_back_to(), None)
    # Beyond a step that the lead went back to there are former doings alone.
    reached, last = (int(newest[1]), int(newest[1]) + 1) if back is None else (back, back)
    return SoughtRecords(max(0, reached - NEWEST_STEPS + 1), last)


def rollouts(shown: Shown, given: Parameters) -> Answer:
    """The samples of a step."""
    asking.only(given, ("step", "table", "actor", "limit"))
    limit = asking.integer(given, "limit", 200, 1, contract.MAX_SAMPLES)
    steps = shown.steps_with_samples()
    asked = asking.step(given, "step")
    step = asked if asked is not None else steps[-1] if steps else None
    notes: list[str] = []
    rolls = _rolls_of(shown, given, limit, step, notes)
    answered = step or 0
    if not rolls.tables and steps:
        step = min(steps, key=lambda one: (abs(one - answered), one))
        rolls = _rolls_of(shown, given, limit, step, notes)
    near = sorted(steps, key=lambda one: abs(one - answered))[:2_000]
    return {
        **shown.head(),
        "step": step if rolls.tables else None,
        "steps": sorted({*near, *([step] if step is not None and rolls.tables else [])}),
        "tables": rolls.answer(),
        "note": text("; ".join(notes[:5])),
    }


def _rolls_of(shown: Shown, given: Parameters, limit: int, step: int | None, notes: list[str]) -> Rolls:
    rolls = Rolls(limit, given.get("table", ""))
    if step is None:
        return rolls
    rows = [row for row in shown.shows_of(step) if given.get("actor", row.unit.actor) == row.unit.actor]
    shown_ones = (one for row in rows for samples in row.samples.values() for one in samples)
    rolls.shows = {(one.rank, one.t, one.score): one.why for one in shown_ones}
    blocks, clocks = shown.where()
    found = shown.files.find(SoughtRecords(step, step), ("sample", "event"), blocks, clocks)
    rolls.take(one for one in found if given.get("actor", one.opened.actor) == one.opened.actor)
    notes += shown.files.problems
    if not rolls.tables:
        for row in rows:
            rolls.take_row(row)
    return rolls


def events(shown: Shown, given: Parameters) -> Answer:
    """What happened in processes."""
    asking.only(given, ("first", "last", "name", "limit", "from", "to"))
    limit = asking.integer(given, "limit", 500, 1, contract.MAX_EVENTS)
    first, last = asking.step(given, "first"), asking.step(given, "last")
    since, until = asking.real(given, "from"), asking.real(given, "to")
    blocks, clocks = shown.where()
    found = shown.files.find(SoughtRecords(first, last, since, until), ("event",), blocks, clocks)
    names: dict[str, None] = {}
    kept: list[FoundRecord] = []
    left_out = 0
    for one in found:
        names[text(one.entry.body.name, 200)] = None
        if given.get("name", one.entry.body.name) == one.entry.body.name:
            kept.append(one)
            if len(kept) >= 4 * limit:
                kept = sorted(kept, key=lambda each: each.t)[-limit:]
                left_out += 3 * limit
    kept.sort(key=lambda each: each.t)
    left_out += max(0, len(kept) - limit)
    entries = [_event(one) for one in kept[-limit:]]
    note = text("; ".join(shown.files.problems[:5]))
    return {**shown.head(), "events": entries, "names": sorted(names)[:1_000], "left_out": left_out, "note": note}


def _event(one: FoundRecord) -> dict[str, Any]:
    return {
        "t": one.t,
        "step": one.entry.step,
        "actor": text(one.opened.actor),
        "rank": text(f"{one.opened.replica}.{one.opened.rank}"),
        "attempt": one.opened.attempt,
        "name": text(one.entry.body.name, 200),
        "attrs": plain(one.entry.body.attrs),
    }


# Verdicts, and what was said of the run -------------------------------------------------------------------------------


def alerts(shown: Shown, given: Parameters) -> Answer:
    """The episodes."""
    asking.only(given, ())
    settings = shown.viewed.settings_of(shown.path)
    rules = {rule.name: rule for rule in rules_of(settings.alert)}
    names = FrameNames(wanted(tuple(rules.values())), settings.lead)
    found = said.episodes_of(shown.newest_rows(ALERT), rules)
    if (state := shown.state()) is not None:
        found = said.followed(found, state.status)
    with shown.reading:
        rollup = shown.rollup()
        last = charts.extent(rollup)["step"]
        kept = {name: family for name, family in rollup.families.items() if name[1] in JOINED}
        seen = names.seen((name[0], key) for name, family in kept.items() for key in family.metrics)
    unseen = [] if last is None else blind(rules.values(), seen)
    note = "" if last is not None else "no step of the lead has a row, and rules look at these"
    needs = [rule.needs for rule in rules.values()] if settings.alerts else []
    if not settings.alerts:
        note = "alerts = false: no rule looks at this run"
    last_step = None if last is None else int(last[1])
    return {**shown.head(), "episodes": found, "last_step": last_step, "blind": unseen, "needs": needs, "note": note}


def why(shown: Shown, given: Parameters) -> Answer:
    """The causes of an episode."""
    asking.only(given, ("episode", "step", "metric"))
    settings = shown.viewed.settings_of(shown.path)
    graph = graph_of(settings.why)
    step = asking.step(given, "step")
    if given.get("episode"):
        episodes = said.episodes_of(shown.newest_rows(ALERT), {})
        one = next((one for one in episodes if one["id"] == given["episode"]), None)
        if one is None:
            raise UsageProblem(f"no episode has the id {given['episode'][:80]!r}", "/alerts lists them")
        step = one["fired"].get("step")
    followed = shown.find_store()
    with followed.whole() as snapshot:
        source = ExperimentTables(shown.path.resolve().name, shown.path, snapshot, state_dir=followed.state_dir)
        reply = explained(source, Question(given.get("metric", ""), step), settings, graph)
    lines = list(Text(source.name, graph, clean, date).lines(reply))
    return {**shown.head(), "answer": plain(form(source.name, reply, graph)), "text": [text(line) for line in lines]}


def ledger(shown: Shown, given: Parameters) -> Answer:
    """What became of groups of samples."""
    asking.only(given, ("axis", "from", "to", "points"))
    span = asking.span(given, contract.USUAL_POINTS, contract.MAX_POINTS)
    with shown.reading:
        name = "", LEDGER
        family = shown.rollup().families.get(name)
        if family is None or not family.table.used:
            empty: Answer = {"logged": False, "grid": None, "curves": {}, "totals": {}, "wrong": []}
            return {**shown.head(), **empty}
        wanted = {said.ledger_name(key): KeyPlace(name, key) for key in family.last}
        grids, curves = charts.series_of(shown.rollup(), wanted, span, lambda *_: None)
        totals = charts.totals_of(family)
    found = {said.ledger_name(key): value for key, value in totals.items()}
    for key, place in wanted.items():
        if not said.adds_up(key):
            found[key] = family.last[place.key][1]
    answer: Answer = {"logged": True, "grid": grids[0], "curves": curves, "totals": found}
    return {**shown.head(), **answer, "wrong": said.wrong_of(found)}


def run(shown: Shown, given: Parameters) -> Answer:
    """What the job said of the run."""
    asking.only(given, ())
    nothing: tuple[RunData, list[RunChange]] = RunData(), []
    data, changes = shown.from_store(lambda store: (store.run_data(), store.run_changes()), nothing)
    keys, left_out = said.run_keys(data)
    return {**shown.head(), "keys": keys, "changes": said.run_changes(changes), "left_out": left_out}


def diff(shown: Shown, given: Parameters, other: Shown) -> Answer:
    """What two runs differ in."""
    tolerance = Tolerance(asking.real(given, "rtol") or 0.0, asking.real(given, "atol") or 0.0)
    if min(tolerance) < 0:
        raise UsageProblem("a tolerance is a number from 0 on", "such as rtol=1e-6")
    with shown.find_store().open() as left, other.find_store().open() as right:
        keys = compare_run_data(left.run_data(), right.run_data())
        found = compare(left.rows_by_unit(KINDS), right.rows_by_unit(KINDS), tolerance)
    return dict(said.diff_of(shown.path.resolve().name, other.path.resolve().name, keys, found))


ANSWERS: dict[str, Callable[[Shown, Parameters], Answer]] = {
    "overview": overview,
    "metrics": metrics,
    "series": series,
    "ranks": ranks,
    "spans": spans,
    "rollouts": rollouts,
    "events": events,
    "alerts": alerts,
    "why": why,
    "ledger": ledger,
    "run": run,
}
OF_THE_MOMENT = ("overview", "run")  # these change without a new row


def unknown_error(name: str) -> RlshipError:
    """The error for a request that there is not."""
    return UsageProblem(f"there is no request {name[:80]!r}", f"there are {', '.join((*ANSWERS, 'diff', 'live'))}")
