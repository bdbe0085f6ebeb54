"""The oracle: a campaign's rows are found right, and each kind of mistake in each place is noticed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped, unused-ignore]

from rlship.identity import Identity
from rlship.logger import Logger
from rlship_sidecar.rows import ALERT, Row, Sample, Unit
from rlship_sidecar.sinks.tensorboard import events as tfevents
from tests.endtoend.evidence import state_of
from tests.loopback.backend import LoopbackBackend
from tests.soak.evidence import Evidence, Verdict, gather
from tests.soak.oracle import episodes, judge
from tests.soak.sidecars import Sidecars
from tests.soak.values import CREWS, Crew, evaluation, pushes, sample_id, sample_row, sample_score
from tests.soak.word import Word
from tests.soak.writer import DEFINED, log_step, log_stream

pytestmark = pytest.mark.long  # what judges campaigns, which are long themselves

STEPS = 9
TRAINER, SAMPLER = (next(crew for crew in CREWS if crew.actor == actor) for actor in ("trainer", "sampler"))
T0 = 1763600000.0
RANKS = TRAINER.world
ALERTS = 3
KINDS = {"step": STEPS + 1, "aligned": STEPS, "clock": 3, "point": 10, "alert": ALERTS}  # the first with a revision


def logged(folder: Path) -> Iterator[tuple[Crew, Path, Word]]:
    """What a trainer and a sampler log by a clock of their own, half a second a step."""
    now = [T0 - 0.5]
    loggers = {
        (crew, at, rank): Logger(
            str(folder), Identity(crew.actor, at, rank, crew.world, 0, "given", "north"), clock=lambda: now[0]
        )
        for crew in (TRAINER, SAMPLER)
        for at, rank in crew.places()
    }
    for logger in loggers.values():
        assert logger.start()
        logger.define(DEFINED)
    for step in range(STEPS):
        now[0] += 0.5
        for (crew, at, rank), logger in sorted(loggers.items(), key=lambda one: one[0][0].steps):
            if crew.streams:
                log_stream(logger, crew, at, rank, step)
            else:
                log_step(logger, crew, at, rank, step, None)
    for (crew, at, rank), logger in loggers.items():
        assert logger.close()
        assert logger.path is not None
        steps = list(range(STEPS))
        yield crew, Path(logger.path), Word((crew.actor, at, rank), 0, steps, steps, STEPS)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Evidence]]:
    """A small job that real sidecars have shipped to all sinks in two goes, so that there are revisions."""
    folder = tmp_path_factory.mktemp("oracle")
    experiment, home = folder / "job", folder / "home"
    (experiment / "rlship").mkdir(parents=True)
    home.mkdir()
    words = []
    with LoopbackBackend() as backend:
        sidecars = Sidecars(experiment, home, backend.environment(home))
        for go in range(2):
            if go == 0:
                files = list(logged(experiment))
                words = [word for _, _, word in files]
            for crew, path, word in files:
                if go == 1 and crew is TRAINER:
                    late = {"step": 2, "m": {"evaluation": evaluation(crew.actor, "0", word.place[2], 2)}}
                    with open(path, "ab") as file:
                        file.write(json.dumps(late).encode() + b"\nrubbish\n")
            assert list(sidecars.drain(60.0)) == []
        (run,) = backend.runs.values()
        replayed = sidecars.replay(home / "replay")
        yield experiment, gather(experiment, run.history, run.rewritten, [], backend.stored, words, replayed)


def verdicts(evidence: Evidence) -> dict[str, Verdict]:
    """By place."""
    return {verdict.place: verdict for verdict in judge(evidence)}


def unclean(evidence: Evidence) -> dict[str, tuple[int, int, int]]:
    """(lost, duplicated, wrong) of the places where something is."""
    return {name: (v.lost, v.duplicated, v.wrong) for name, v in verdicts(evidence).items() if not v.clean}


def test_what_is_right_is_found_right(shipped: tuple[Path, Evidence]) -> None:
    """All places hold every row once, revisions and dead letters included."""
    _, evidence = shipped
    assert unclean(evidence) == {}, [verdict.differences for verdict in judge(evidence)]
    assert Counter(row.unit.kind.partition(":")[0] for row in evidence.rows) == KINDS
    assert [row.arrival.revision for row in evidence.rows].count(1) == 1
    assert len(evidence.dead) == RANKS
    rows = sum(KINDS.values())
    of_streams = 2 * (STEPS + 3 + 1)  # lines, events and the first point of each
    assert {name: verdict.expected for name, verdict in verdicts(evidence).items()} == {
        "store": rows - 1 - ALERTS,
        "alerts": len(episodes_of(evidence)),
        "wandb": rows,
        "tensorboard": rows,
        "jsonl": rows,
        "writers' word": rows - 1 - ALERTS + STEPS * RANKS + of_streams,
    }
    assert sum(path.startswith("media/table/") for path in evidence.uploads) >= 7


def episodes_of(evidence: Evidence) -> list[str]:
    """The ids of the episodes in the rows, of which there are some."""
    found = [name for row in evidence.rows if row.unit.kind == ALERT for name in episodes(row)]
    assert found
    return found


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with numbers without holes, so that only what the test changed is wrong."""
    return [replace(row, arrival=replace(row.arrival, row_number=no)) for no, row in enumerate(rows)]


def place_of(evidence: Evidence, kind: str, index: int = 0, actor: str = TRAINER.actor) -> int:
    """The number of the row of a step, or of the index-th row of another kind."""
    found = [row for row in evidence.rows if row.unit.kind.startswith(kind) and row.unit.actor == actor]
    return next(
        row for row in found if row.unit.index == index or (kind != "step" and row is found[index])
    ).arrival.row_number


def changed(evidence: Evidence, place: int, **parts: Any) -> Evidence:
    """With other parts of one row."""
    rows = list(evidence.rows)
    rows[place] = replace(rows[place], **parts)
    return replace(evidence, rows=rows)


def test_a_row_that_the_store_lacks(shipped: tuple[Path, Evidence]) -> None:
    """A unit without a row is lost, and so is what its writers were promised; a row number left out is wrong."""
    _, evidence = shipped
    without = [row for row in evidence.rows if row.unit != Unit("trainer", "step", 3)]
    found = unclean(replace(evidence, rows=numbered(without)))
    assert found["store"] == (1, 0, 0)
    assert found["writers' word"] == (RANKS, 0, 0)
    assert verdicts(replace(evidence, rows=without))["store"].wrong > 0


def test_a_row_that_the_store_has_twice(shipped: tuple[Path, Evidence]) -> None:
    """The same revision of a unit under two numbers is a duplicate, though its figures are right."""
    _, evidence = shipped
    assert unclean(replace(evidence, rows=numbered([*evidence.rows, evidence.rows[-1]])))["store"] == (0, 1, 0)


def test_an_episode_that_is_lost_there_twice_or_another_one(shipped: tuple[Path, Evidence]) -> None:
    """Each episode of a replay is in one row, as there. A row that a revision left empty is as good as none."""
    _, evidence = shipped
    place = max(no for no, row in enumerate(evidence.rows) if episodes(row))
    row = evidence.rows[place]
    count = len(episodes(row))
    without = [one for one in evidence.rows if one.unit != row.unit]
    assert unclean(replace(evidence, rows=numbered(without)))["alerts"] == (count, 0, 1)
    assert unclean(changed(evidence, place, values={}, samples={}))["alerts"] == (count, 0, 1)
    again = replace(row, unit=Unit("", ALERT, 99))
    assert unclean(replace(evidence, rows=numbered([*evidence.rows, again])))["alerts"] == (0, count, 1)
    (table, (sample, *others)) = next(iter(row.samples.items()))
    other = sample._replace(row={**sample.row, "last_step": 7})
    assert unclean(changed(evidence, place, samples={table: [other, *others]}))["alerts"] == (0, 0, 1)
    assert unclean(changed(evidence, place, values={"zz_rlship/alert/campaign": 0.5}))["alerts"] == (0, 0, 1)
    empty = replace(row, unit=Unit("", ALERT, 99), values={}, samples={})
    assert "alerts" not in unclean(replace(evidence, rows=numbered([*evidence.rows, empty])))


def test_a_figure_that_is_wrong_in_the_store(shipped: tuple[Path, Evidence]) -> None:
    """One bit more is noticed against the files and, without them, against the writers' values; so is a unit that no
    file tells of, and a revision left out.
    """
    _, evidence = shipped
    place = place_of(evidence, "step", 4)
    figures = dict(evidence.rows[place].values)
    figures["trainer/loss"] = figures["trainer/loss"] * (1 + 2**-52)
    found = unclean(changed(evidence, place, values=figures))
    assert found["store"] == (0, 0, 1)
    assert found["writers' word"] == (0, 0, 1)

    more = replace(evidence.rows[0], unit=Unit("trainer", "step", 99))
    assert verdicts(replace(evidence, rows=numbered([*evidence.rows, more])))["store"].wrong == 1
    rows = list(evidence.rows)
    rows[-1] = replace(rows[-1], arrival=replace(rows[-1].arrival, revision=2))
    assert verdicts(replace(evidence, rows=rows))["store"].wrong == 1


def test_a_writer_counted_twice(shipped: tuple[Path, Evidence]) -> None:
    """A mark that is in the sum twice is another writer's, so that the mean does not fit."""
    _, evidence = shipped
    place = place_of(evidence, "step", 1)
    figures = evidence.rows[place].values
    wrong = changed(evidence, place, values={**figures, "trainer/who": figures["trainer/who"] - 1})
    assert verdicts(wrong)["writers' word"].wrong > 1


def test_parts_of_rows_that_are_wrong_in_the_store(shipped: tuple[Path, Evidence]) -> None:
    """A histogram, a rank's value, a tag or a sample that is another one is noticed against the files."""
    _, evidence = shipped
    place = place_of(evidence, "step", 0)
    row = evidence.rows[place]
    key, hist = next(iter(row.hists.items()))
    ranks = row.per_rank["trainer/work_s"]
    for parts in (
        {"hists": {**row.hists, key: hist._replace(counts=(hist.counts[0] + 1, *hist.counts[1:]))}},
        {"per_rank": {**row.per_rank, "trainer/work_s": ranks[:-1]}},
        {"tags": ()},
        {"samples": {**row.samples, "judged": row.samples["judged"][1:]}},
    ):
        assert unclean(changed(evidence, place, **parts))["store"] == (0, 0, 1), parts


def test_what_is_wrong_in_a_row_by_itself(shipped: tuple[Path, Evidence]) -> None:
    """Without files: counts of events and spans, tags, histograms, the policy's lag, and samples that are there twice,
    of another rank, step or attempt, or with another content.
    """
    _, evidence = shipped
    place = place_of(evidence, "step", 0)
    row = evidence.rows[place]
    ranks = row.per_rank
    judged, rollouts = row.samples["judged"], row.samples["rollouts"]
    elsewhere = judged[0]._replace(rank="0.1")
    other_step = sampled(judged[0], 8, 0)
    later = sampled(judged[0], 0, 1)._replace(why=())
    wrong_parts: list[dict[str, Any]] = [
        {"per_rank": {**ranks, "trainer/work_s": [("0.0", 2.0), *ranks["trainer/work_s"][1:]]}},
        {"per_rank": {**ranks, "trainer/event/pushed": [(name, 2.0) for name, _ in pushers(0)]}},
        {"per_rank": {**ranks, "trainer/event/pushed": [(f"0.{rank}", 1.0) for rank in range(RANKS)]}},
        {"per_rank": {**ranks, "trainer/loss": ranks["trainer/loss"][::-1]}},
        {"tags": ("train",)},
        {"hists": {}},
        {"values": {**row.values, "trainer/policy_lag": 1.0}},
        {"values": {**row.values, "trainer/lengths/p50": row.values["trainer/lengths/p50"] + 1}},
        {"samples": {"judged": [*judged, judged[0]], "rollouts": rollouts}},
        {"samples": {"judged": [elsewhere, *judged[1:]], "rollouts": rollouts}},
        {"samples": {"judged": [other_step, *judged[1:]], "rollouts": rollouts}},
        {"samples": {"judged": [later, *judged], "rollouts": rollouts}},
        {"samples": {"judged": [judged[0]._replace(row={**judged[0].row, "tokens": 7}), *judged[1:]]}},
        {"samples": {"judged": [judged[0]._replace(score=7.0), *judged[1:]]}},
    ]
    for parts in wrong_parts:
        _, doubled, wrong = unclean(changed(evidence, place, **parts))["writers' word"]
        assert doubled == 0 and wrong > 0, parts


def pushers(step: int) -> list[tuple[str, float]]:
    """The ranks of the trainer that have the event at a step."""
    found = [(f"0.{rank}", 1.0) for rank in range(RANKS) if pushes(TRAINER.actor, "0", rank, step)]
    assert 0 < len(found) < RANKS
    return found


def sampled(sample: Sample, step: int, attempt: int) -> Sample:
    """The sample that the same rank would have offered at another step or in another attempt."""
    actor, replica, rank, _, _, part, number = str(sample.row["id"]).split("/")
    name = sample_id(actor, replica, int(rank), step, attempt, int(part), int(number))
    return sample._replace(row=sample_row(name), score=sample_score(name))


def test_what_flushed_steps_lack(shipped: tuple[Path, Evidence]) -> None:
    """The event, the span, the tag or the sample of a rank that had flushed the step is missed, but where the row says
    that lines were lost.
    """
    _, evidence = shipped
    place = place_of(evidence, "step", 0)
    row = evidence.rows[place]
    events = {**row.per_rank, "trainer/event/pushed": pushers(0)[1:]}
    spans = {**row.per_rank, "trainer/work_s": row.per_rank["trainer/work_s"][1:]}
    lacking_parts: list[tuple[dict[str, Any], int]] = [
        ({"per_rank": events}, 1),
        ({"per_rank": spans}, 1),
        ({"tags": ()}, RANKS),
        ({"samples": {**row.samples, "judged": row.samples["judged"][:-1]}}, 1),
    ]
    for parts, lost in lacking_parts:
        assert unclean(changed(evidence, place, **parts))["writers' word"] == (lost, 0, 0), parts
        excused = changed(evidence, place, **parts, coverage=replace(row.coverage, gap=1))
        assert "writers' word" not in unclean(excused)


def test_streams_are_counted(shipped: tuple[Path, Evidence]) -> None:
    """A line or an event of a stream that is in no window is lost, in two it is a duplicate, also beside the steps; so
    are points and samples; a point of a value that no writer logged is wrong.
    """
    _, evidence = shipped
    for kind, of in (("clock", "clock/sampler"), ("aligned", "sampler")):
        place = place_of(evidence, kind, 0, "sampler")
        ranks = evidence.rows[place].per_rank
        for metric, change, expected in (
            ("ticks", -1, {"clock": (1, 0, 0)}),
            ("ticks", 2, {"clock": (0, 1, 0), "aligned": (0, 1, 0)}),
            ("event/refilled", -1, {"clock": (1, 0, 0)}),
            ("event/refilled", 2, {"clock": (0, 1, 0), "aligned": (0, 1, 0)}),
        ):
            (name, count), *others = ranks[f"{of}/{metric}"]
            values = {**ranks, f"{of}/{metric}": [(name, count + change), *others]}
            found = unclean(changed(evidence, place, per_rank=values))
            assert found.get("writers' word") == expected.get(kind), (kind, metric, change)

    samples = [row for row in evidence.rows if "requests" in row.samples and row.unit.kind == "aligned"]
    assert samples
    other = place_of(evidence, "aligned", 1, "sampler")
    assert unclean(changed(evidence, other, samples=samples[0].samples))["writers' word"][1] > 0

    first, last = place_of(evidence, "point", 0, "sampler"), place_of(evidence, "point", 9, "sampler")
    held = evidence.rows[last].values
    assert unclean(changed(evidence, first, values=held))["writers' word"] == (1, 1, 0)
    assert unclean(changed(evidence, last, values={"point/sampler/gauge": 7777.0}))["writers' word"] == (0, 0, 1)


def test_dead_letters_are_compared(shipped: tuple[Path, Evidence]) -> None:
    """One that is not reported is lost, one of a good line is wrong."""
    _, evidence = shipped
    assert unclean(replace(evidence, dead=evidence.dead[1:])) == {"store": (1, 0, 0)}
    assert unclean(replace(evidence, dead=[*evidence.dead, evidence.dead[0]])) == {"store": (0, 0, 1)}


def test_mistakes_in_the_history_at_the_server(shipped: tuple[Path, Evidence]) -> None:
    """Lost, never come, twice, altered, at another line, of another run, and rewritten with another figure."""
    _, evidence = shipped
    history = list(evidence.history)
    assert unclean(replace(evidence, history=history[:-1])) == {"wandb": (1, 0, 0)}
    assert unclean(replace(evidence, history=[*history[:2], None, *history[3:]])) == {"wandb": (1, 0, 0)}
    # Line 6 is then a second line 5: its step does not fit its line either.
    assert unclean(replace(evidence, history=[*history, history[-1]])) == {"wandb": (0, 1, 1)}
    altered = json.dumps({**json.loads(str(history[2])), "trainer/loss": 0.0})
    assert unclean(replace(evidence, history=[*history[:2], altered, *history[3:]])) == {"wandb": (0, 0, 1)}
    swapped = [history[1], history[0], *history[2:]]
    assert unclean(replace(evidence, history=swapped)) == {"wandb": (0, 0, 2)}
    assert unclean(replace(evidence, other_runs=["another"])) == {"wandb": (0, 1, 0)}
    assert unclean(replace(evidence, rewritten=[(2, altered, str(history[2]))])) == {"wandb": (0, 0, 1)}
    place = place_of(evidence, "step", 0)
    line = json.loads(str(history[place]))
    table, hist = line["trainer/samples/judged"], line["trainer/lengths/hist"]
    for key, value in (
        ("trainer/samples/judged", {**table, "nrows": 1}),
        ("trainer/lengths/hist", {**hist, "values": [*hist["values"][:-1], 99]}),
        ("zz_rlship/trainer/tags", "train"),
        ("zz_rlship/trainer/loss/r0.0", 0.0),
    ):
        assert line[key] != value
        other = [*history[:place], json.dumps({**line, key: value}), *history[place + 1 :]]
        assert unclean(replace(evidence, history=other)) == {"wandb": (0, 0, 1)}, key
    # A table that was never uploaded is not missed, one with other rows is.
    assert unclean(replace(evidence, uploads={})) == {}
    held = json.loads(evidence.uploads[table["path"]])
    uploads = {**evidence.uploads, table["path"]: json.dumps({**held, "data": held["data"][::-1]}).encode()}
    assert unclean(replace(evidence, uploads=uploads)) == {"wandb": (0, 0, 1)}
    later = json.dumps({**json.loads(str(history[2])), "_runtime": 1e9})
    assert unclean(replace(evidence, rewritten=[(2, later, str(history[2]))])) == {}


def test_mistakes_in_the_jsonl_file(shipped: tuple[Path, Evidence]) -> None:
    """Lost, twice, altered, out of order, half, and what is no row."""
    _, evidence = shipped
    lines = evidence.jsonl.splitlines(keepends=True)
    for data, expected in (
        (b"".join(lines[1:]), (1, 0, 0)),
        (b"".join([*lines, lines[0]]), (0, 1, 0)),
        (evidence.jsonl.replace(b'"expected":4', b'"expected":5', 1), (0, 0, 1)),
        (b"".join([lines[1], lines[0], *lines[2:]]), (0, 0, 1)),
        (evidence.jsonl + b'{"row":', (0, 0, 1)),
        (evidence.jsonl + b"[]\n", (0, 0, 1)),
    ):
        assert unclean(replace(evidence, jsonl=data)) == {"jsonl": expected}


def test_mistakes_in_tensorboard_files(shipped: tuple[Path, Evidence], tmp_path: Path) -> None:
    """An event that is left out of the real file, is there twice, or has another value or time, as TensorBoard reads
    it; each also shows in the points of its tags.
    """
    experiment, evidence = shipped
    at = place_of(evidence, "step", 0) + 1  # behind the version of the file
    changes: list[tuple[Callable[[list[bytes]], list[bytes]], tuple[int, int]]] = [
        (lambda records: records[:at] + records[at + 1 :], (1, 0)),
        (lambda records: [*records, records[at]], (0, 1)),
        (lambda records: [*records[:at], records[at + 1], records[at], *records[at + 2 :]], (0, 0)),
    ]
    changes += [(partial(with_altered, at, what), (0, 0)) for what in ("simple_value", "histo", "tensor")]
    for number, (change, expected) in enumerate(changes):
        copy = tmp_path / str(number)
        shutil.copytree(experiment, copy)
        part = sorted((state_of(copy) / "tensorboard").rglob("events.*"))[0]
        data = part.read_bytes()
        records = [data[frame.start : frame.start + frame.size] for frame in tfevents.frames(part)]
        part.write_bytes(b"".join(map(tfevents.encode, change(records))))
        found = unclean(gather(copy, evidence.history, [], [], evidence.uploads, evidence.words, evidence.replayed))
        assert found.keys() == {"tensorboard"}
        assert found["tensorboard"][:2] == expected and found["tensorboard"][2] > 0


def test_mistakes_in_events_of_alerts(shipped: tuple[Path, Evidence]) -> None:
    """Two revisions of a row of alerts may show the same: one that is left out, or there once more, is noticed."""
    _, evidence = shipped
    events = list(evidence.events)
    at = max(
        no for no, (_, _, values) in enumerate(events) if any(tag.startswith("zz_rlship/alert/") for tag in values)
    )
    for twice in (events, [*events, events[at]]):
        rows = [*evidence.rows, evidence.rows[at]] if twice is not events else list(evidence.rows)
        of_both = replace(evidence, rows=rows, events=twice)
        assert verdicts(of_both)["tensorboard"].clean
        assert unclean(replace(of_both, events=[*twice[:at], *twice[at + 1 :]]))["tensorboard"] == (1, 0, 0)
        assert unclean(replace(of_both, events=[*twice, events[at]]))["tensorboard"] == (0, 0, 1)


def with_altered(at: int, what: str, records: list[bytes]) -> list[bytes]:
    """The events, with the first value of a kind in one of them made another by as little as there is."""
    event = Event.FromString(records[at])
    value = next(value for value in event.summary.value if value.HasField(what))
    if what == "simple_value":
        value.simple_value = value.simple_value * 1.0000002 + 1e-30
    elif what == "histo":
        value.histo.bucket[0] += 1
    else:
        value.tensor.string_val[0] += b"."
    return [*records[:at], bytes(event.SerializeToString()), *records[at + 1 :]]
