"""What came out, compared with what the files say: for each sink what is lost, there twice, or wrong.

Pure but for `gather`. The store is compared with the slow reference reduction of the files, each sink with the store,
row by row; and, without either, the rows with the writers' values, which are a function of who wrote them.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Row, Unit, count_ranks
from rlship_sidecar.store import Store
from tests.endtoend.evidence import files_of, newest, state_of
from tests.reference.reduction import dead_letters, exactly, final_rows
from tests.soak.values import CREWS, Crew, marked, mean_loss

Event = tuple[float, int, dict[str, float]]
Dead = tuple[str, int, str, str | None]
SHOWN = 12
# What the keys of coverage begin with, by the kind of a unit.
SAID_OF = {"step": "{}", "aligned": "{}/aligned", "clock": "clock/{}"}


@dataclass(frozen=True)
class Evidence:
    """All that is there after a round. `history` are the lines at the W&B server (None: never came) and `rewritten`
    those that came again with another text; `events` are TensorBoard's, as its own reader gives them: (wall time,
    step, values by tag), and `points` those of each tag; `promised` are the steps that each (actor, replica, rank)
    logged before a flush that succeeded.
    """

    files: Mapping[str, bytes]
    rows: Sequence[Row]
    dead: Sequence[Dead]
    history: Sequence[str | None]
    rewritten: Sequence[tuple[int, str, str]]
    other_runs: Sequence[str]
    jsonl: bytes
    events: Sequence[Event]
    points: Mapping[str, Sequence[tuple[int, float]]]
    promised: Mapping[tuple[str, str, int], set[int]]


@dataclass
class Verdict:
    """What one place holds of the `expected` rows."""

    place: str
    expected: int
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    differences: list[str] = field(default_factory=list)
    """The first of them, in words."""

    @property
    def clean(self) -> bool:
        return self.lost == self.duplicated == self.wrong == 0

    def tell(self, text: str) -> None:
        """Keep a difference for the report."""
        if len(self.differences) < SHOWN:
            self.differences.append(text[:1500])


def judge(evidence: Evidence) -> list[Verdict]:
    """One verdict for the store, each sink, and the writers' word."""
    return [
        judge_store(evidence),
        judge_wandb(evidence),
        judge_tensorboard(evidence),
        judge_jsonl(evidence),
        judge_by_hand(evidence),
    ]


def judge_store(evidence: Evidence) -> Verdict:
    """The newest row of every unit is what the reference makes of the files, rows and revisions are numbered without
    holes, and the dead letters are the same.
    """
    should, have = exactly(final_rows(evidence.files)), exactly(newest(evidence.rows))
    verdict = Verdict("store", len(should))
    for unit in should:
        if unit not in have:
            verdict.lost += 1
            verdict.tell(f"{unit} has no row; it should be {should[unit]}")
        elif have[unit] != should[unit]:
            verdict.wrong += 1
            verdict.tell(f"{unit} is     {have[unit]}\n{' ' * len(unit)} not    {should[unit]}")
    for unit in have.keys() - should.keys():
        verdict.wrong += 1
        verdict.tell(f"{unit} has a row that the files do not give: {have[unit]}")
    revisions: defaultdict[Unit, list[int]] = defaultdict(list)
    for number, row in enumerate(evidence.rows):
        revisions[row.unit].append(row.arrival.revision)
        if row.arrival.no != number:
            verdict.wrong += 1
            verdict.tell(f"row {number} has the number {row.arrival.no}")
    for unit, numbers in revisions.items():
        repeated = len(numbers) - len(set(numbers))
        verdict.duplicated += repeated
        if numbers != list(range(len(numbers))):
            verdict.wrong += not repeated
            verdict.tell(f"{unit} has the revisions {numbers}")
    _compare_dead(verdict, evidence)
    return verdict


def _compare_dead(verdict: Verdict, evidence: Evidence) -> None:
    should, have = Counter(dead_letters(evidence.files)), Counter(evidence.dead)
    for letter, count in (should - have).items():
        verdict.lost += count
        verdict.tell(f"dead letter not told: {letter}")
    for letter, count in (have - should).items():
        verdict.wrong += count
        verdict.tell(f"dead letter that is none: {letter}")


def judge_jsonl(evidence: Evidence) -> Verdict:
    """Line i is row i, byte for byte, and nothing stands after the last."""
    lines = evidence.jsonl.split(b"\n")
    verdict = _compare(
        "jsonl",
        [(str(row.arrival.no), row.to_json().decode()) for row in evidence.rows],
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
    for number, line in enumerate(evidence.history):
        if line is None:
            holes += 1
            continue
        values = json.loads(line)
        step = values.pop("_step", None)
        values.pop("_runtime", None)
        found.append((str(step), _text(values)))
        if step != number and step is not None:
            found[-1] = (str(step), f"at line {number}: {_text(values)}")
    should = [(str(row.arrival.no), _text({"_timestamp": row.t, **flat(row)})) for row in evidence.rows]
    verdict = _compare("wandb", should, found)
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


def _figures(line: str) -> str:
    return _text({key: value for key, value in json.loads(line).items() if key != "_runtime"})


def _text(values: Mapping[str, Any]) -> str:
    """Every bit of every number: 1 and 1.0 are the same to W&B, 0.0 and -0.0 are not."""
    return json.dumps(
        {key: float(value).hex() if isinstance(value, (int, float)) else value for key, value in values.items()},
        sort_keys=True,
    )


def flat(row: Row) -> dict[str, float | int | str]:
    """A row's keys and values as the sinks promise them."""
    of, coverage = SAID_OF[row.unit.kind].format(row.unit.actor), row.coverage
    keys: dict[str, float | int | str] = {
        f"{of}/ranks/in": count_ranks(coverage.ranks),
        f"{of}/ranks/expected": coverage.expected,
        f"{of}/ranks/missing": count_ranks(coverage.missing),
        **row.x,
    }
    if coverage.missing:
        keys[f"{of}/missing_ranks"] = " ".join(coverage.missing)
    if row.arrival.revision:
        keys[f"{of}/revision"] = row.arrival.revision
    changed = row.figures if row.arrival.revision == 0 else row.arrival.changed
    return {**keys, **{key: row.figures[key] for key in changed if key in row.figures}}


def judge_tensorboard(evidence: Evidence) -> Verdict:
    """One event for each row, in order, with all of its numbers as float32; and so in each tag's own points."""
    should = []
    points: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in evidence.rows:
        values = {tag: _float32(value) for tag, value in flat(row).items() if not isinstance(value, str)}
        place = int(next(iter(row.x.values())))
        should.append(_event((row.t, place, values)))
        for tag, value in values.items():
            points[tag].append((place, value))
    verdict = _compare("tensorboard", should, [_event(event) for event in evidence.events])
    for tag in sorted(points.keys() | evidence.points.keys()):
        if list(evidence.points.get(tag, ())) != points.get(tag, []):
            verdict.wrong += 1
            verdict.tell(f"the tag {tag} does not have its {len(points.get(tag, []))} points")
    return verdict


def _event(event: Event) -> tuple[str, str]:
    t, step, values = event
    actors = [tag.removesuffix("/ranks/in") for tag in values if tag.endswith("/ranks/in")]
    revision = [values.get(f"{actor}/revision", 0.0) for actor in actors]
    return f"{actors} step {step} revision {revision}", f"{t.hex()} {_text(values)}"


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def judge_by_hand(evidence: Evidence) -> Verdict:
    """Without the files and the reference: each row's mean is that of the ranks whose marks are in it, and each step
    that a writer was told is flushed has that writer in its row, unless the row says that lines were lost.
    """
    rows = newest(evidence.rows)
    promises = sum(len(steps) for steps in evidence.promised.values())
    verdict = Verdict("writers' word", len(rows) + promises)
    places: dict[Unit, set[tuple[str, int]]] = {}
    for unit, row in rows.items():
        crew = next(one for one in CREWS if one.actor == unit.actor)
        who = row.figures.get(f"{unit.actor}/who")
        if who is None:
            continue  # a row of late lines alone
        try:
            places[unit] = _checked(crew, row, who)
        except ValueError as problem:
            verdict.wrong += 1
            verdict.tell(f"{unit}: {problem}")
    for (actor, replica, rank), steps in evidence.promised.items():
        for step in sorted(steps):
            unit = Unit(actor, "step", step)
            excused = unit in rows and rows[unit].coverage.gap > 0
            if (replica, rank) not in places.get(unit, ()) and not excused:
                verdict.lost += 1
                verdict.tell(f"{unit} lacks {replica}.{rank}, which had flushed it")
    return verdict


def _checked(crew: Crew, row: Row, who: float) -> set[tuple[str, int]]:
    places = marked(crew, who)
    count, mean = row.figures.get(f"{crew.actor}/loss/count"), row.figures.get(f"{crew.actor}/loss")
    should = mean_loss(crew.actor, places, row.unit.index)
    if count != len(places) or mean != should:
        raise ValueError(f"the mean over {places} is {should}, not {mean} over {count}")
    return set(places)


def _compare(place: str, should: Sequence[tuple[str, str]], have: Sequence[tuple[str, str]]) -> Verdict:
    """Compare sequences of (key, body) whose keys in `should` are all different."""
    verdict = Verdict(place, len(should))
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
    return verdict


# What is there


def gather(
    experiment: Path,
    history: Sequence[str | None],
    rewritten: Iterable[tuple[int, str, str]],
    other_runs: Iterable[str],
    promised: Mapping[tuple[str, str, int], set[int]],
) -> Evidence:
    """Read all that an experiment's folder holds; its daemons must have ended."""
    state_dir = state_of(experiment)
    path = max(state_dir.glob("store.*.db"), key=lambda path: int(path.suffixes[0][1:]))
    store = Store(path, local=True)
    try:
        rows = store.read_rows(0, 1 << 30)
        dead = [(file, one.offset, one.reason, one.metric) for file, one in store.dead_letters(1 << 30)]
    finally:
        store.close()
    jsonl = state_dir / "rows.jsonl"
    folder = state_dir / "tensorboard"
    return Evidence(
        files=files_of(experiment),
        rows=rows,
        dead=dead,
        history=history,
        rewritten=list(rewritten),
        other_runs=list(other_runs),
        jsonl=jsonl.read_bytes() if jsonl.exists() else b"",
        events=tensorboard_events(folder),
        points=tensorboard_points(folder),
        promised=promised,
    )


def tensorboard_events(folder: Path) -> list[Event]:
    """Every event with values, part after part, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event as Record

    events = []
    for part in sorted(folder.glob("events.*")):
        for data in RawEventFileLoader(str(part)).Load():
            record = Record.FromString(data)
            if record.HasField("summary"):
                values = {value.tag: value.simple_value for value in record.summary.value}
                events.append((record.wall_time, record.step, values))
    return events


def tensorboard_points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every tag, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.exists():
        return {}
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }
