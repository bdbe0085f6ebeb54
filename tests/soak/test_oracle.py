"""The oracle: a campaign's rows are found right, and each kind of mistake in each place is noticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped, unused-ignore]

from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.sinks import tfevents
from tests.endtoend.evidence import state_of
from tests.endtoend.sidecar import rlship
from tests.loopback.backend import LoopbackBackend
from tests.soak.oracle import Evidence, Verdict, gather, judge
from tests.soak.values import CREWS, evaluation, loss, mark

STEPS = 6
CREW = CREWS[0]


def line(rank: int, step: int) -> bytes:
    """One rank's two lines of a step."""
    metrics = {"loss": loss(CREW.actor, "0", rank, step), "who": mark(CREW, "0", rank)}
    records = [{"t": 1763600001.5 + step, "step": step, "m": metrics}, {"kind": "barrier", "step": step}]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def begin(rank: int) -> bytes:
    """What stands at the beginning of a file."""
    who = {"actor": CREW.actor, "replica": "0", "rank": rank, "world": CREW.world, "attempt": 0, "id": f"id{rank}"}
    records = [
        {"kind": "open", "rlship": 1, **who, "t": 1763600001.0},
        {"kind": "define", "m": {"loss": {"reduce": ["mean", "count"]}, "who": {"reduce": "sum"}}},
    ]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Evidence]]:
    """A small job that real sidecars have shipped to all sinks in two goes, so that there are revisions."""
    folder = tmp_path_factory.mktemp("oracle")
    experiment, home = folder / "job", folder / "home"
    (experiment / "rlship").mkdir(parents=True)
    home.mkdir()
    sinks = [word for sink in ("wandb", "tensorboard", "jsonl") for word in ("--sink", sink)]
    with LoopbackBackend() as backend:
        for go in range(2):
            for rank in range(CREW.world):
                with open(experiment / "rlship" / f"r{rank}.jsonl", "ab") as file:
                    if go == 0:
                        file.write(begin(rank) + b"".join(line(rank, step) for step in range(STEPS)))
                    else:
                        late = {"step": 2, "m": {"evaluation": evaluation(CREW.actor, "0", rank, 2)}}
                        file.write(json.dumps(late).encode() + b"\nrubbish\n")
            settings = {**backend.environment(home), "RLSHIP_LEASE_TTL_S": "1"}
            done = rlship(home, "watch", experiment, "--once", *sinks, settings=settings)
            assert done.returncode == 3 * go, done.stderr  # dead letters are incomplete data
        (run,) = backend.runs.values()
        promised = {(CREW.actor, "0", rank): set(range(STEPS)) for rank in range(CREW.world)}
        yield experiment, gather(experiment, run.history, run.rewritten, [], promised)


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
    assert [row.arrival.revision for row in evidence.rows].count(1) == 1 and len(evidence.rows) == STEPS + 1
    assert len(evidence.dead) == CREW.world
    assert {name: verdict.expected for name, verdict in verdicts(evidence).items()} == {
        "store": STEPS,
        "wandb": STEPS + 1,
        "tensorboard": STEPS + 1,
        "jsonl": STEPS + 1,
        "writers' word": STEPS + STEPS * CREW.world,
    }


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with numbers without holes, so that only what the test changed is wrong."""
    return [replace(row, arrival=replace(row.arrival, no=no)) for no, row in enumerate(rows)]


def test_a_row_that_the_store_lacks(shipped: tuple[Path, Evidence]) -> None:
    """A unit without a row is lost, and so is what its writers were promised; a row number left out is wrong."""
    _, evidence = shipped
    without = [row for row in evidence.rows if row.unit.index != 3]
    found = unclean(replace(evidence, rows=numbered(without)))
    assert found["store"] == (1, 0, 0)
    assert found["writers' word"] == (CREW.world, 0, 0)
    assert verdicts(replace(evidence, rows=without))["store"].wrong > 0


def test_a_row_that_the_store_has_twice(shipped: tuple[Path, Evidence]) -> None:
    """The same revision of a unit under two numbers is a duplicate, though its figures are right."""
    _, evidence = shipped
    assert unclean(replace(evidence, rows=numbered([*evidence.rows, evidence.rows[-1]])))["store"] == (0, 1, 0)


def test_a_figure_that_is_wrong_in_the_store(shipped: tuple[Path, Evidence]) -> None:
    """One bit more is noticed against the files and, without them, against the writers' values; so is a unit that no
    file tells of, and a revision left out.
    """
    _, evidence = shipped
    rows = list(evidence.rows)
    figures = dict(rows[4].figures)
    figures["trainer/loss"] = figures["trainer/loss"] * (1 + 2**-52)
    rows[4] = replace(rows[4], figures=figures)
    found = unclean(replace(evidence, rows=rows))
    assert found["store"] == (0, 0, 1)
    # Four writers were promised this step, and nothing that the row says of them can be trusted.
    assert found["writers' word"] == (CREW.world, 0, 1)

    more = replace(evidence.rows[0], unit=Unit("trainer", "step", 99))
    assert verdicts(replace(evidence, rows=numbered([*evidence.rows, more])))["store"].wrong == 1
    rows = list(evidence.rows)
    rows[-1] = replace(rows[-1], arrival=replace(rows[-1].arrival, revision=2))
    assert verdicts(replace(evidence, rows=rows))["store"].wrong == 1


def test_a_writer_counted_twice(shipped: tuple[Path, Evidence]) -> None:
    """A mark that is in the sum twice is another writer's, so that the mean does not fit."""
    _, evidence = shipped
    rows = list(evidence.rows)
    rows[1] = replace(rows[1], figures={**rows[1].figures, "trainer/who": rows[1].figures["trainer/who"] + 1})
    assert verdicts(replace(evidence, rows=rows))["writers' word"].wrong == 1


def test_dead_letters_are_compared(shipped: tuple[Path, Evidence]) -> None:
    """One that is not told is lost, one that is none is wrong."""
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
    experiment, _ = shipped
    for number, (change, expected) in enumerate(
        (
            (lambda records: records[:3] + records[4:], (1, 0)),
            (lambda records: [*records, records[3]], (0, 1)),
            (lambda records: [*records[:3], altered(records[3]), *records[4:]], (0, 0)),
            (lambda records: [*records[:2], records[3], records[2], *records[4:]], (0, 0)),
        )
    ):
        copy = tmp_path / str(number)
        shutil.copytree(experiment, copy)
        part = sorted((state_of(copy) / "tensorboard").glob("events.*"))[0]
        data = part.read_bytes()
        records = [data[frame.start : frame.start + frame.size] for frame in tfevents.frames(part)]
        part.write_bytes(b"".join(map(tfevents.encode, change(records))))
        evidence = gather(copy, shipped[1].history, [], [], shipped[1].promised)
        found = unclean(evidence)
        assert found.keys() == {"tensorboard"}
        assert found["tensorboard"][:2] == expected and found["tensorboard"][2] > 0


def altered(record: bytes) -> bytes:
    """The event with its first value made larger by the least that float32 can."""
    event = Event.FromString(record)
    event.summary.value[-1].simple_value *= 1.0000002
    return bytes(event.SerializeToString())
