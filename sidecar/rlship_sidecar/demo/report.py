"""The demo's final report, from the rows that the sidecar made and from its status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isclose

import orjson

from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.straggler import Straggler
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Row, Unit, count_ranks, rank_words

REWARD = "trainer/reward"
LEAD = "trainer"
STREAMING = "verifier"  # the actor that has no steps
KEYS = (
    REWARD,
    "trainer/loss",
    "trainer/entropy",
    "trainer/kl",
    "trainer/grad_norm",
    "trainer/busy_s",
    "trainer/busy_s/mean",
    "generator/reward",
    "generator/gen_s",
    "reward/score",
    "reward/latency_s",
)
MIN_RISE = 0.3  # of the mean reward, which begins at about 0.2 and is 1 at best
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60


@dataclass(frozen=True, slots=True)
class Change:
    """A value's mean over the first and over the last tenth of the steps; None if no such step has it."""

    key: str
    first: float | None
    last: float | None


def final_rows(lines: Iterable[bytes]) -> dict[Unit, Row]:
    """The newest revision of every unit, from the lines of the jsonl sink's file; a torn line is passed over."""
    rows: dict[Unit, Row] = {}
    for line in lines:
        try:
            row = Row.from_json(line)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
        known = rows.get(row.unit)
        if known is None or known.arrival.revision <= row.arrival.revision:
            rows[row.unit] = row
    return rows


def series(rows: Mapping[Unit, Row], key: str) -> dict[int, float]:
    """Step -> the value of one key."""
    actor = key.partition("/")[0]
    return {
        unit.index: row.values[key]
        for unit, row in sorted(rows.items())
        if unit.actor == actor and unit.kind == "step" and key in row.values
    }


def change(rows: Mapping[Unit, Row], key: str, steps: int) -> Change:
    """How a value changed over the job."""
    tenth = max(1, steps // 10)
    values = series(rows, key)
    return Change(
        key,
        _mean([value for step, value in values.items() if step < tenth]),
        _mean([value for step, value in values.items() if step >= steps - tenth]),
    )


def problems(rows: Mapping[Unit, Row], status: Status | None, plan: JobPlan) -> list[str]:
    """Every fault of the result, for people; empty if the job has learned and all rows are complete."""
    found = []
    for actor, ranks in ranks_of(plan).items():
        found += _row_problems(rows, actor, ranks, plan.steps)
    if not any(unit.actor == STREAMING for unit in rows):
        found.append(f"{STREAMING}: no rows of what it logged without steps")
    reward = change(rows, REWARD, plan.steps)
    if reward.first is None or reward.last is None:
        found.append(f"{REWARD} is not in the rows of the first and last steps, so nothing shows that the job learned")
    elif reward.last - reward.first < MIN_RISE:
        found.append(f"{REWARD} went from {reward.first:.2f} to {reward.last:.2f}: a rise of {MIN_RISE} was expected")
    if status is None:
        return [*found, "the sidecar has written no status"]
    if status.dead_letter_count or status.dead_value_count:
        found.append(f"{status.dead_letter_count} dead letters and {status.dead_value_count} dead values")
    for sink in status.sinks:
        if sink.next_row < status.rows or sink.error:
            reason = f": {sink.error}" if sink.error else ""
            found.append(f"sink {sink.name} ({sink.state}) has {sink.next_row} of {status.rows} rows{reason}")
    return found


def ranks_of(plan: JobPlan) -> dict[str, int]:
    """Actor -> the number of its ranks, of the actors that have steps."""
    buffer = {"buffer": 1} if plan.detailed else {}
    return {"trainer": plan.trainers, "generator": plan.generators, "reward": 1, **buffer}


def episodes(lines: Iterable[bytes]) -> Iterator[str]:
    """What the rules of alerts say of the rows in the jsonl sink's file, one line for each episode."""
    history = History(rules_of(), LEAD)
    history.take(map(Row.from_json, lines))
    history.settle()
    for one in history.episodes():
        place = f" at {one.place}" if one.place else ""
        signals = ", ".join(f"{name} {value:.3g}" for name, value in one.evidence)
        steps = f"since {one.first.step}, fired {one.fired.step}"
        yield f"{steps:<22}  {one.severity:<8}  {one.rule}{place}: {signals}"
    if not history.episodes():
        yield "no rule fired"


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """The values as bars from lowest to highest; more than `width` of them are averaged in groups of neighbours."""
    if len(values) > width:
        edges = [len(values) * place // width for place in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if not values:
        return ""
    low, high = min(values), max(values)
    if isclose(low, high):
        return BARS[0] * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def summary(rows: Mapping[Unit, Row], status: Status | None, straggler: Straggler | None, plan: JobPlan) -> list[str]:
    """The tables, the curve and the straggler, as lines of text."""
    tenth = max(1, plan.steps // 10)
    lines = [f"{'value':<22}{f'first {tenth} steps':>16}{f'last {tenth} steps':>16}"]
    for key in KEYS:
        moved = change(rows, key, plan.steps)
        lines.append(f"{key:<22}{_number(moved.first):>16}{_number(moved.last):>16}")
    lines += ["", f"{'actor':<12}{'rows':>6}{'complete':>10}{'ranks':>10}"]
    for actor, ranks in {**ranks_of(plan), STREAMING: 1}.items():
        own = [row for unit, row in rows.items() if unit.actor == actor]
        complete = sum(_complete(row, ranks) for row in own)
        seen = max((count_ranks(row.coverage.ranks) for row in own), default=0)
        lines.append(f"{actor:<12}{len(own):>6}{complete:>10}{f'{seen} of {ranks}':>10}")
    if status is not None:
        lines.append(f"dead letters {status.dead_letter_count}, dead values {status.dead_value_count}")
    lines += ["", *_curve(rows), "", _verdict(straggler)]
    return lines


def _curve(rows: Mapping[Unit, Row]) -> list[str]:
    rewards = list(series(rows, REWARD).values())
    if not rewards:
        return [f"{REWARD}: no rows"]
    return [f"{REWARD} by step, {min(rewards):.2f} to {max(rewards):.2f}", sparkline(rewards)]


def _verdict(straggler: Straggler | None) -> str:
    if straggler is None:
        return "straggler: none; no trainer rank was last in most of the steps"
    last = round(straggler.share * straggler.steps)
    return (
        f"straggler: {straggler.name}, last at the barrier in {last} of {straggler.steps} steps, "
        f"{straggler.extra_s * 1000:.0f} ms (median) later than the others"
    )


def _row_problems(rows: Mapping[Unit, Row], actor: str, ranks: int, steps: int) -> list[str]:
    own = {unit.index: row for unit, row in rows.items() if unit.actor == actor and unit.kind == "step"}
    lacking = [step for step in range(steps) if step not in own]
    found = []
    if lacking:
        found.append(f"{actor}: no row for {len(lacking)} of {steps} steps, the first is step {lacking[0]}")
    partial = sorted(step for step, row in own.items() if not _complete(row, ranks))
    if partial:
        coverage, are = own[partial[0]].coverage, "row is" if len(partial) == 1 else "rows are"
        found.append(
            f"{actor}: {len(partial)} {are} incomplete, the first is of step {partial[0]}: "
            f"ranks {_names(coverage.ranks)}, missing {_names(coverage.missing)}, absent {_names(coverage.absent)}, "
            f"lines dropped {coverage.gap}"
        )
    return found


def _complete(row: Row, ranks: int) -> bool:
    # As in the status, a value that cannot be derived lacks no data: a rate of the first and the last window of time,
    # during less than half of which the streams ran.
    coverage = row.coverage
    lacks = coverage.missing or coverage.absent or coverage.gap
    return not lacks and count_ranks(coverage.ranks) == coverage.expected == ranks


def _names(ranks: Sequence[str]) -> str:
    return ", ".join(rank_words(ranks)) or "none"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
