"""The writers' word: what rows say, compared with what the writers logged, without the reference reduction.

Every value is a function of who logged it when, every rank adds a mark of its own, every sample is unlike any other,
and everything of a stream is in one row. So what is lost, there twice or taken from another writer shows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rlship_sidecar.rows import ALERT, Row, Sample, Unit
from tests.endtoend.evidence import newest
from tests.soak import values
from tests.soak.evidence import Evidence, Verdict
from tests.soak.sidecars import SAMPLES_EVERY
from tests.soak.values import CREWS, Crew, marked
from tests.soak.word import Place, Word

Ranks = list[tuple[str, int]]
COUNTED: Mapping[str, Callable[[int], bool]] = {"ticks": lambda tick: True, "event/refilled": values.refills}
"""What a line of a stream counts in, by metric."""


def judge_by_hand(evidence: Evidence) -> Verdict:
    """What is wrong in a row by itself, and what a writer was told is flushed and is in none."""
    rows = {unit: row for unit, row in newest(evidence.rows).items() if unit.kind != ALERT}
    verdict = Verdict("writers' word", len(rows))
    gaps = lost_lines(evidence.files)
    for unit, row in rows.items():
        for problem in wrong_in(row):
            verdict.wrong += 1
            verdict.tell(f"{unit}: {problem}")
    for actor_and_rank, steps in promised(evidence.words).items():
        verdict.expected += len(steps)
        for step in sorted(steps):
            unit = Unit(actor_and_rank[0], "step", step)
            if unit in rows and rows[unit].coverage.gap > 0:
                continue
            for what in lacking(rows.get(unit), actor_and_rank, step):
                verdict.lost += 1
                verdict.tell(f"{unit} lacks {what} of {actor_and_rank}, which had flushed it")
    judge_streams(verdict, list(rows.values()), evidence.words, gaps)
    return verdict


def crew_of(actor: str) -> Crew:
    """By name."""
    return next(one for one in CREWS if one.actor == actor)


def promised(words: Iterable[Word]) -> dict[Place, set[int]]:
    """The steps that each rank logged before a flush that succeeded, in any attempt."""
    steps: dict[Place, set[int]] = {}
    for word in words:
        if crew_of(word.place[0]).steps:
            steps.setdefault(word.place, set()).update(word.flushed)
    return steps


def lost_lines(files: Mapping[str, bytes]) -> Counter[str]:
    """How many lines the writers of each actor say they had to drop."""
    lost: Counter[str] = Counter()
    for data in files.values():
        lines = data.split(b"\n")[:-1]
        gaps = [json.loads(line)["n"] for line in lines if line.startswith(b'{"kind":"gap"')]
        if gaps:
            lost[json.loads(lines[0])["actor"]] += sum(gaps)
    return lost


# Rows of steps


def wrong_in(row: Row) -> Iterator[str]:
    """What no row can say, whatever was lost."""
    crew = crew_of(row.unit.actor)
    for table, samples in row.samples.items():
        yield from wrong_samples(row, crew, table, samples)
    yield from wrong_lag(row)
    if row.unit.kind != "step":
        return
    yield from wrong_occurrences(row, crew)
    who = row.values.get(f"{crew.actor}/who")
    if who is None:
        return  # a row of late lines alone
    try:
        places = marked(crew, who)
    except ValueError as problem:
        yield str(problem)
        return
    should = expected_of(crew, places, row.unit.index)
    for key, figure in should.items():
        if row.values.get(key) != figure:
            yield f"{key} over {places} is {figure}, not {row.values.get(key)}"
    losses = [(f"{at}.{rank}", values.loss(crew.actor, at, rank, row.unit.index)) for at, rank in places]
    if row.per_rank.get(f"{crew.actor}/loss") != losses:
        yield f"the losses by rank are {losses}, not {row.per_rank.get(f'{crew.actor}/loss')}"
    hist = row.hists.get(f"{crew.actor}/lengths/hist")
    if hist is None or sum(hist.counts) != 3 * len(places):
        yield f"the histogram of {places} is {hist}"


def expected_of(crew: Crew, places: Ranks, step: int) -> dict[str, float]:
    """Figures of the metrics that stand in one line with the marks of these ranks."""
    actor = crew.actor
    losses = [values.loss(actor, at, rank, step) for at, rank in places]
    lengths = sorted(length for at, rank in places for length in values.lengths(actor, at, rank, step))
    greatest = places[losses.index(max(losses))]
    tenth = len(lengths) // 10
    kept = lengths[tenth : len(lengths) - tenth]
    found = {
        "loss": values.mean_loss(actor, places, step),
        "loss/count": float(len(places)),
        "loss/max": max(losses),
        "loss/argmax_rank": float(greatest[1]),
        "lengths": float(max(lengths)),
        "lengths/count": float(len(lengths)),
        "lengths/p50": (lengths[(len(lengths) - 1) // 2] + lengths[len(lengths) // 2]) / 2,
        "lengths/mypkg.trimmed_mean": sum(kept) / len(kept),
        "policy_version": float(min(values.policy(actor, at, rank, step) for at, rank in places)),
    }
    return {f"{actor}/{name}": figure for name, figure in found.items()}


def wrong_occurrences(row: Row, crew: Crew) -> Iterator[str]:
    """Tags, and events and spans, which happen once for each rank and step."""
    actor, step = crew.actor, row.unit.index
    if row.tags not in ((), (values.tag(step),)):
        yield f"it has the tags {row.tags}"
    for key in (f"{actor}/event/pushed", f"{actor}/work_s"):
        for name, count in row.per_rank.get(key, ()):
            if count != 1:
                yield f"{key} of {name} is {count}"
    for name, _ in row.per_rank.get(f"{actor}/event/pushed", ()):
        if not values.pushes(actor, *_rank(name), step):
            yield f"{name} never pushed"


def wrong_lag(row: Row) -> Iterator[str]:
    """In rows that stand beside the steps, the lag is the step less the version."""
    actor = row.unit.actor
    lag, version = row.values.get(f"{actor}/policy_lag"), row.values.get(f"{actor}/policy_version")
    beside = row.unit.kind in ("step", "aligned")
    if beside and (None if version is None else row.unit.index - version) != lag:
        yield f"the policy's lag is {lag} at the version {version}"


def wrong_samples(row: Row, crew: Crew, table: str, samples: list[Sample]) -> Iterator[str]:
    """Each sample once, under its own rank, at its own step and with its own content; of steps only the last go."""
    names = [str(sample.row.get("id")) for sample in samples]
    if len(set(names)) != len(names):
        yield f"{table} has a sample twice: {names}"
    goes: dict[str, set[tuple[str, ...]]] = {}
    for name, sample in zip(names, samples):
        actor, replica, rank, step, *go, _ = name.split("/")
        goes.setdefault(sample.rank, set()).add(tuple(go))
        if (actor, f"{replica}.{rank}") != (crew.actor, sample.rank) or (
            row.unit.kind == "step" and step != str(row.unit.index)
        ):
            yield f"{table} has {name} of {sample.rank}"
        if (sample.row, sample.score) != (values.sample_row(name), values.sample_score(name)):
            yield f"{table} has {sample} as {name}"
    if row.unit.kind == "step" and any(len(found) > 1 for found in goes.values()):
        yield f"{table} has samples of several attempts of one rank: {names}"


def lacking(row: Row | None, place: Place, step: int) -> Iterator[str]:
    """What a row has to have of a rank that had flushed the step."""
    actor, replica, rank = place
    if row is None:
        yield "all"
        return
    name = f"{replica}.{rank}"
    try:
        marks = marked(crew_of(actor), row.values.get(f"{actor}/who", 0.0))
    except ValueError:  # said elsewhere
        marks = []
    if (replica, rank) not in marks:
        yield "the marks"
    if values.pushes(*place, step) and name not in dict(row.per_rank.get(f"{actor}/event/pushed", ())):
        yield "the event"
    if name not in dict(row.per_rank.get(f"{actor}/work_s", ())):
        yield "the span"
    if values.tag(step) and not row.tags:
        yield "the tag"
    if step % SAMPLES_EVERY == 0 and name not in {sample.rank for sample in row.samples.get("judged", ())}:
        yield "the sample"


# Streams


def judge_streams(verdict: Verdict, rows: Sequence[Row], words: Sequence[Word], gaps: Counter[str]) -> None:
    """Over all windows of time, each rank has as many lines and events as it was told are in the file, and no more
    than it logged; beside steps no value is twice; no sample is in two rows; points are of lines that were logged, each
    once, and each file's first is among them.
    """
    for crew in CREWS:
        if not crew.streams:
            continue
        of_crew = [row for row in rows if row.unit.actor == crew.actor]
        of_words = [word for word in words if word.place[0] == crew.actor]
        for place in crew.places():
            own = [word for word in of_words if word.place[1:] == place]
            for metric, counts in COUNTED.items():
                least = sum(counts(tick) for word in own for tick in word.flushed) - gaps[crew.actor]
                most = sum(counts(tick) for word in own for tick in (*word.logged, word.following))
                verdict.expected += max(0, least)
                found = _over(of_crew, "clock", f"clock/{crew.actor}/{metric}", place)
                if found < least:
                    verdict.lost += int(least - found)
                    verdict.tell(f"{crew.actor} {place} has {found} of {least} {metric} over time")
                beside = _over(of_crew, "aligned", f"{crew.actor}/{metric}", place)
                if max(found, beside) > most:
                    verdict.duplicated += int(max(found, beside) - most)
                    verdict.tell(f"{crew.actor} {place} has {found} and {beside} {metric}, and logged {most}")
        _samples_of_streams(verdict, of_crew)
        _points(verdict, crew, of_crew, of_words, gaps)


def _over(rows: list[Row], kind: str, key: str, place: tuple[str, int]) -> float:
    name = f"{place[0]}.{place[1]}"
    return sum(dict(row.per_rank.get(key, ())).get(name, 0.0) for row in rows if row.unit.kind == kind)


def _samples_of_streams(verdict: Verdict, rows: list[Row]) -> None:
    for kind in ("clock", "aligned"):
        names = Counter(
            str(sample.row.get("id"))
            for row in rows
            if row.unit.kind == kind
            for sample in row.samples.get(values.STREAMED, ())
        )
        for name, count in names.items():
            if count > 1:
                verdict.duplicated += count - 1
                verdict.tell(f"the sample {name} is in {count} rows")


def _points(verdict: Verdict, crew: Crew, rows: list[Row], words: list[Word], gaps: Counter[str]) -> None:
    of_points = [row for row in rows if row.unit.kind == "point"]
    found = Counter(row.values.get(f"point/{crew.actor}/gauge") for row in of_points)
    known = set()
    for word in words:
        bit = crew.places().index(word.place[1:])
        known |= {values.gauge(bit, word.attempt, tick) for tick in (*word.logged, word.following)}
        if word.flushed and not gaps[crew.actor]:
            verdict.expected += 1
            first = values.gauge(bit, word.attempt, word.logged[0])
            if first not in found:
                verdict.lost += 1
                verdict.tell(f"the first point of {word.place}, attempt {word.attempt}, is not there: {first}")
    for value, count in found.items():
        if count > 1:
            verdict.duplicated += count - 1
            verdict.tell(f"{crew.actor} has {count} points of {value}")
        if value not in known:
            verdict.wrong += 1
            verdict.tell(f"{crew.actor} has a point of {value}, which no writer logged")


def _rank(name: str) -> tuple[str, int]:
    replica, _, rank = name.rpartition(".")
    return replica, int(rank)
