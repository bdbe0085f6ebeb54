"""What came out, compared with what the files say: for each sink what is lost, there twice, or wrong. Pure.

The store is compared with the slow reference reduction of the files, each sink with the store, row by row; and, without
either, the rows with the writers' values, which are a function of who wrote them.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rlship_sidecar.rows import ALERT, Row, Unit
from tests.endtoend.evidence import newest
from tests.reference.reduction import dead_letters, differing, final_rows
from tests.reference.settings import Settings
from tests.soak.by_hand import judge_by_hand
from tests.soak.evidence import Event, Evidence, Verdict
from tests.soak.promises import as_event, as_table, as_wandb
from tests.soak.sidecars import CLOCK_WINDOW_S, SAMPLES_EVERY, custom_reductions

SETTINGS = Settings(window=CLOCK_WINDOW_S, samples_every=SAMPLES_EVERY, custom=custom_reductions())


def judge(evidence: Evidence) -> list[Verdict]:
    """One verdict for the store, each sink, and the writers' word."""
    return [
        judge_store(evidence),
        judge_alerts(evidence),
        judge_wandb(evidence),
        judge_tensorboard(evidence),
        judge_jsonl(evidence),
        judge_by_hand(evidence),
    ]


def judge_store(evidence: Evidence) -> Verdict:
    """The newest row of every unit is what the reference makes of the files, rows and revisions are numbered without
    holes, and the dead letters are the same. `judge_alerts` looks at what rows of alerts hold.
    """
    should = final_rows(evidence.files, settings=SETTINGS)
    have = {unit: row for unit, row in newest(evidence.rows).items() if unit.kind != ALERT}
    verdict = Verdict("store", len(should))
    verdict.lost += len(should.keys() - have.keys())
    told = differing(should, have)
    verdict.wrong += len(told) - verdict.lost
    for text in told:
        verdict.tell(text)
    revisions: defaultdict[Unit, list[int]] = defaultdict(list)
    for number, row in enumerate(evidence.rows):
        revisions[row.unit].append(row.arrival.revision)
        if row.arrival.row_number != number:
            verdict.wrong += 1
            verdict.tell(f"row {number} has the number {row.arrival.row_number}")
    for unit, numbers in revisions.items():
        repeated = len(numbers) - len(set(numbers))
        verdict.duplicated += repeated
        if numbers != list(range(len(numbers))):
            verdict.wrong += not repeated
            verdict.tell(f"{unit} has the revisions {numbers}")
    _compare_dead(verdict, evidence)
    return verdict


def judge_alerts(evidence: Evidence) -> Verdict:
    """Each episode that a replay finds in the files is in one row, as there; a row without one says nothing."""
    should, have = (alert_rows(rows) for rows in (evidence.replayed, evidence.rows))
    verdict = Verdict("alerts", sum(map(len, map(episodes, should.values()))))
    places = Counter(name for row in have.values() for name in episodes(row))
    for name, count in Counter(name for row in should.values() for name in episodes(row)).items():
        if not places[name]:
            verdict.lost += 1
            verdict.tell(f"the episode {name} is in no row")
        elif places[name] > count:
            verdict.duplicated += places[name] - count
            verdict.tell(f"the episode {name} is in {places[name]} rows")
    for unit in sorted(should.keys() | have.keys()):
        if should.get(unit) != have.get(unit):
            verdict.wrong += 1
            verdict.tell(f"{unit} is  {have.get(unit)}\nnot {should.get(unit)}")
    return verdict


def alert_rows(rows: Sequence[Row]) -> dict[Unit, Row]:
    """The newest rows of alerts, without those that a revision left empty, which are as good as none."""
    found = {unit: row for unit, row in newest(rows).items() if unit.kind == ALERT}
    return {unit: row for unit, row in found.items() if row.values or row.samples}


def episodes(row: Row) -> list[str]:
    """The ids of the episodes that a row tells of."""
    return [sample.row["id"] for samples in row.samples.values() for sample in samples]


def _compare_dead(verdict: Verdict, evidence: Evidence) -> None:
    should, have = Counter(dead_letters(evidence.files)), Counter(evidence.dead)
    for letter, count in (should - have).items():
        verdict.lost += count
        verdict.tell(f"dead letter not told: {letter}")
    for letter, count in (have - should).items():
        verdict.wrong += count
        verdict.tell(f"dead letter of a good line: {letter}")


def judge_jsonl(evidence: Evidence) -> Verdict:
    """Line i is row i, byte for byte, and nothing stands after the last."""
    lines = evidence.jsonl.split(b"\n")
    verdict = Verdict("jsonl", len(evidence.rows))
    _compare(
        verdict,
        [(str(row.arrival.row_number), row.to_json().decode()) for row in evidence.rows],
        [(_number_of(line), line.decode(errors="replace")) for line in lines[:-1]],
    )
    if lines[-1]:
        verdict.wrong += 1
        verdict.tell(f"the file ends in half a line: {lines[-1]!r}")
    return verdict


def _number_of(line: bytes) -> str:
    try:
        return str(json.loads(line)["row"])
    except (ValueError, KeyError, TypeError):
        return "no row"


def judge_wandb(evidence: Evidence) -> Verdict:
    """History line i has `_step` i and row i's values; a line that came twice had the same figures both times."""
    found, holes = [], 0
    shown: defaultdict[Unit, set[str]] = defaultdict(set)
    verdict = Verdict("wandb", len(evidence.rows))
    for number, line in enumerate(evidence.history):
        if line is None:
            holes += 1
            continue
        values = json.loads(line)
        step = values.pop("_step", None)
        values.pop("_runtime", None)
        judge_tables(verdict, number, values, evidence)
        if number < len(evidence.rows):
            judge_withdrawn(verdict, evidence.rows[number], values, shown)
        found.append((str(step), _text(without_places(values))))
        if step != number and step is not None:
            found[-1] = (str(step), f"at line {number}: {_text(values)}")
    should = [(str(row.arrival.row_number), _text(as_wandb(row))) for row in evidence.rows]
    _compare(verdict, should, found)
    if holes:
        verdict.tell(f"{holes} lines never came")
    for number, before, after in evidence.rewritten:
        if _figures(before) != _figures(after):
            verdict.wrong += 1
            verdict.tell(f"line {number} was {before}\nand became {after}")
    for name in evidence.other_runs:
        verdict.duplicated += 1
        verdict.tell(f"there is another run: {name}")
    return verdict


def judge_withdrawn(verdict: Verdict, row: Row, values: dict[str, Any], shown: defaultdict[Unit, set[str]]) -> None:
    """A number that an earlier line of the unit shows, and that this revision takes away, is NaN in its line, and no
    other one is. Takes those out of `values`.
    """
    gone = {name for name in shown[row.unit] if is_withdrawn(name, row)}
    for name in sorted(gone - values.keys()):
        verdict.wrong += 1
        verdict.tell(f"line {row.row_number} goes on showing {name}, which its row takes away")
    if row.arrival.revision:  # a row itself has finite numbers only
        for name in [name for name, value in values.items() if _is_nan(value)]:
            del values[name]
            if not is_withdrawn(name, row, row.arrival.changed):
                verdict.wrong += 1
                verdict.tell(f"line {row.row_number} takes {name} away, which its row leaves as it is")
    shown[row.unit] |= {name for name, value in values.items() if isinstance(value, float)}


def is_withdrawn(name: str, row: Row, of_ranks: Sequence[str] = ()) -> bool:
    """Whether a sink's name is that of a key that the row takes away, or of a rank of it or of the keys `of_ranks`."""
    own = name.removeprefix("zz_rlship/").removeprefix("aa_headline/")
    of_rank = _RANK.fullmatch(own)
    ranked = "" if of_rank is None else of_rank[1]
    return own in row.withdrawn or name in row.withdrawn or ranked in row.withdrawn or ranked in of_ranks


_RANK = re.compile(r"(.*)/r[^/]*\.[0-9]+")


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def judge_tables(verdict: Verdict, number: int, values: Mapping[str, Any], evidence: Evidence) -> None:
    """A line's tables that were uploaded hold the samples of its row. (Uploads are the client's own affair: one that
    is killed leaves a reference alone.)
    """
    samples = evidence.rows[number].shipped_samples if number < len(evidence.rows) else {}
    for key, value in values.items():
        if is_table(value) and key in samples and value["path"] in evidence.uploads:
            held = json.loads(evidence.uploads[value["path"]])
            should = as_table(samples[key])
            if _exact([held["columns"], held["data"]]) != _exact(list(should)):
                verdict.wrong += 1
                verdict.tell(f"the table {key} of line {number} holds {held}\nnot {should}")


def is_table(value: object) -> bool:
    """Whether a value of a history line refers to a table."""
    return isinstance(value, dict) and value.get("_type") == "table-file"


def without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """A history line in which tables say nothing but their size: where they are is the client's choice."""
    return {
        key: {"_type": "table-file", "ncols": value["ncols"], "nrows": value["nrows"]} if is_table(value) else value
        for key, value in values.items()
    }


def _figures(line: str) -> str:
    return _text(without_places({key: value for key, value in json.loads(line).items() if key != "_runtime"}))


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(_exact(values), sort_keys=True)


def _exact(value: Any) -> Any:
    """Every bit of every number: 1 and 1.0 are the same to W&B, 0.0 and -0.0 are not."""
    if isinstance(value, (int, float)):
        return float(value).hex()
    if isinstance(value, Mapping):
        return {key: _exact(held) for key, held in value.items()}
    return [_exact(held) for held in value] if isinstance(value, (list, tuple)) else value


def judge_tensorboard(evidence: Evidence) -> Verdict:
    """One event for each row, in order, with all of its numbers as float32; in each reader's charts each step of a tag
    once, in the order of steps, with its newest value.
    """
    should: list[Event] = []
    points: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in evidence.rows:
        values = as_event(row)
        place = int(next(iter(row.x.values())))
        should.append((row.t, place, values))
        if row.arrival.revision:
            for tag in points:
                if is_withdrawn(tag, row, row.arrival.changed):  # ranks of a key that changed come all together
                    points[tag].pop(place, None)
        for tag, value in values.items():
            if isinstance(value, float):
                points[tag][place] = value
    verdict = Verdict("tensorboard", len(evidence.rows))
    _compare(verdict, _told_apart(should), _told_apart(evidence.events))
    for charts in evidence.charts:
        for tag in sorted(points.keys() | charts.keys()):
            if _curve(tag, charts.get(tag, ())) != sorted(points.get(tag, {}).items()):
                verdict.wrong += 1
                verdict.tell(f"the tag {tag} does not have its {len(points.get(tag, {}))} points")
    return verdict


def _curve(tag: str, points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points as they are. Over time several may have one step, a whole second: the last of them."""
    over_time = tag.split("/", 2)[:2] in (["zz_rlship", "clock"], ["zz_rlship", "point"]) or tag.startswith("clock/")
    following = [step for step, _ in points[1:]]
    # The first point of a chart stays, as NaN, where a revision takes it away.
    return [
        point
        for point, behind in zip(points, [*following, None])
        if not (over_time and point[0] == behind) and not math.isnan(point[1])
    ]


def _told_apart(events: Sequence[Event]) -> list[tuple[str, str]]:
    """The events as (key, body). Those of alerts have no number of a revision, and may show the same ones again: they
    are counted.
    """
    found: list[tuple[str, str]] = []
    seen: Counter[str] = Counter()
    for event in events:
        key, body = _event(event)
        if all(tag.startswith("zz_rlship/alert/") for tag in event[2]):
            seen[key] += 1
            key = f"{key}, number {seen[key]}"
        found.append((key, body))
    return found


def _event(event: Event) -> tuple[str, str]:
    t, step, values = event
    actors = [tag.removesuffix("/ranks/in") for tag in values if tag.endswith("/ranks/in")]
    revision = [values.get(f"{actor}/revision", 0.0) for actor in actors]
    # What stands over time may share its place, which is a whole number, with others.
    when = "" if actors and not actors[0].startswith("zz_rlship/clock/") else f" t {t.hex()}"
    which = actors or _text(values)
    return f"{which} step {step} revision {revision}{when}", f"{t.hex()} {_text(values)}"


def _compare(verdict: Verdict, should: Sequence[tuple[str, str]], have: Sequence[tuple[str, str]]) -> None:
    """Compare sequences of (key, body) whose keys in `should` are all different."""
    bodies, counts = dict(should), Counter(key for key, _ in have)
    for key, body in should:
        if not counts[key]:
            verdict.lost += 1
            verdict.tell(f"{key} is lost: {body}")
    for key, count in counts.items():
        if key not in bodies:
            verdict.wrong += count
            verdict.tell(f"{key} should not be there ({count} times)")
        elif count > 1:
            verdict.duplicated += count - 1
            verdict.tell(f"{key} is there {count} times")
    for key, body in have:
        if key in bodies and body != bodies[key]:
            verdict.wrong += 1
            verdict.tell(f"{key} is  {body}\nnot {bodies[key]}")
    if verdict.clean and [key for key, _ in should] != [key for key, _ in have]:
        verdict.wrong += 1
        verdict.tell("the order is another one")
