"""The samples that rows show: chosen from all ranks, read from the files when the row is made."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from rlship_sidecar.reduce.samples import TOO_DEEP, SampleChoice
from rlship_sidecar.rows import Row, Unit
from tests.pipeline.simulated import REMOTE, Simulation, simulation
from tests.reference.building import T0, barrier, file, log, sample, stepless_sample
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import Settings

UNIT = Unit("trainer", "step", 1)


def rank(number: int, *records: dict[str, Any], world: int = 2) -> bytes:
    return file(*records, rank=number, world=world, id=f"r{number}", beat=10)


def shown(row: Row, table: str = "rollouts") -> list[tuple[float | str | None, str, str]]:
    """Score, reasons and rank of a row's samples."""
    return [(one.score, " ".join(one.why), one.rank) for one in row.samples.get(table, [])]


def test_rows_show_the_content_of_samples() -> None:
    """A row has the samples of all ranks with why, rank, time, score, content and what was cut; a long one too."""
    text = "x" * 100_000
    with simulation(samples=SampleChoice(1, 1)) as sim:
        sim.write("a.jsonl", rank(0, log(1, loss=1), sample(2, 0.9, t=T0 + 3, row={"prompt": text}, cut={"prompt": 5})))
        sim.write("b.jsonl", rank(1, sample(1, 0.1), sample(1.5, 0.2)))
        sim.finish()
        row = sim.final()[UNIT]
    assert shown(row) == [(2.0, "top", "0.0"), (1.0, "bottom random", "0.1")]
    assert row.samples["rollouts"][0].row == {"prompt": text}
    assert (row.samples["rollouts"][0].t, row.samples["rollouts"][0].cut) == (T0 + 3, {"prompt": 5})
    assert Row.from_json(row.to_json()) == row
    assert row.arrival.changed == ("trainer/loss", "trainer/samples/rollouts")


def test_a_table_that_comes_seldom_is_shown_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Of each ten steps the first one that has a table shows it: an evaluation at steps 7, 17 and 27 each time, a table
    of each step at 0, 10 and 20. What is left out is said once.
    """
    steps = [
        record
        for step in range(30)
        for record in (sample(1, step=step), *([sample(2, step=step, table="eval")] if step % 10 == 7 else ()))
    ]
    with simulation(samples=SampleChoice(4, 10)) as sim:
        sim.write("a.jsonl", file(*steps, beat=10))
        sim.finish()
        rows = {unit.index: row for unit, row in sim.final().items()}
    assert [step for step, row in rows.items() if "eval" in row.samples] == [7, 17, 27]
    assert [step for step, row in rows.items() if "rollouts" in row.samples] == [0, 10, 20]
    (said,) = [text for text in caplog.messages if "samples_every" in text]
    assert said.startswith("rollouts of trainer: W&B, TensorBoard and rows show one step in each 10")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_sample_of_an_earlier_step_takes_the_place(restarts: bool) -> None:
    """The row of the later step, which had shown the table, no longer does; after a restart, too. Further tables and
    the next ten steps stay. So live rows are those of a replay, and of the rules.
    """
    lines = [log(step, loss=1.0) for step in (3, 5, 12)]
    samples = [sample(1, step=5), sample(2, step=5, table="eval"), sample(3, step=12)]
    late = [sample(4, step=3)]
    with simulation(samples=SampleChoice(4, 10)) as sim:
        sim.write("a.jsonl", file(*lines, *samples, barrier(12), beat=10))
        sim.tick()
        assert [unit.index for unit, row in sim.final().items() if "rollouts" in row.samples] == [5, 12]
        if restarts:
            sim.restart()
        sim.write("a.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in late))
        sim.finish()
        final = sim.final()
        files = {"a.jsonl": file(*lines, *samples, barrier(12), *late, beat=10)}
        assert not differing(final_rows(files, settings=Settings(samples_every=10)), final)
    assert [unit.index for unit, row in final.items() if "rollouts" in row.samples] == [3, 12]
    assert list(final[Unit("trainer", "step", 5)].samples) == ["eval"]


def test_a_late_sample_takes_the_place_of_a_step_that_closes_in_the_same_look() -> None:
    """A late sample of step 3 is read together with the barrier of step 5, which shows its table in the row that is
    made then. That row is revised, though the store does not have it yet when step 3 turns out to show the table.
    """
    first, late = [log(3, loss=1.0), barrier(3)], [sample(4, step=3), sample(1, step=5), barrier(5)]
    with simulation(samples=SampleChoice(4, 10)) as sim:
        sim.write("a.jsonl", file(*first, beat=10))
        sim.tick()
        sim.write("a.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in late))
        sim.finish()
        final = sim.final()
        files = {"a.jsonl": file(*first, *late, beat=10)}
        assert not differing(final_rows(files, settings=Settings(samples_every=10)), final)
    assert [unit.index for unit, row in final.items() if row.samples] == [3]


def test_only_some_rows_show_samples_and_a_changed_setting_makes_them_anew() -> None:
    """Of a table of each step, rows of steps that `samples_every` divides show samples. With other settings the rows
    are revised at the start, and those that come to the same are not.
    """
    with simulation(samples=SampleChoice(4, 2)) as sim:
        sim.write("a.jsonl", file(*(sample(float(step), step=step) for step in range(4)), beat=10))
        sim.finish()
        assert [bool(sim.final()[Unit("trainer", "step", step)].samples) for step in range(4)] == [True, False] * 2
        sim.samples = SampleChoice(4, 1)
        sim.restart()
        sim.finish()
        assert [bool(sim.final()[Unit("trainer", "step", step)].samples) for step in range(4)] == [True] * 4
        assert [row.unit.index for row in sim.rows() if row.arrival.revision == 1] == [1, 3]


def test_a_late_sample_revises_its_table_alone() -> None:
    """A sample that comes after its step's row makes a revision that ships the changed table and nothing else."""
    with simulation() as sim:
        sim.write("a.jsonl", file(log(1, loss=1), sample(1), sample(5, table="other"), barrier(1), beat=10))
        sim.tick()
        sim.write("a.jsonl", json.dumps(sample(2)).encode() + b"\n")
        sim.finish()
        first, second = (row for row in sim.rows() if row.unit == UNIT)
    assert list(first.shipped_samples) == ["trainer/samples/other", "trainer/samples/rollouts"]
    assert (second.shipped, list(second.shipped_samples)) == ({}, ["trainer/samples/rollouts"])
    assert sorted(second.samples) == ["other", "rollouts"]


def test_a_file_that_cannot_be_read_holds_the_row_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a file with chosen samples cannot be read the step stays open; then its row has them."""
    with simulation() as sim:
        lines = file(log(1, loss=1), sample(1), beat=10)
        sim.write("a.jsonl", lines)
        sim.tick()
        sim.write("a.jsonl", json.dumps(barrier(1)).encode() + b"\n")
        with monkeypatch.context() as patch:
            real = os.pread

            def failing(fd: int, count: int, offset: int) -> bytes:
                if offset == lines.index(b'{"kind": "sample"'):
                    raise OSError(5, "Input/output error")
                return real(fd, count, offset)

            patch.setattr(os, "pread", failing)
            sim.tick()
            assert sim.rows() == []
            assert sim.experiment.sources["a.jsonl"].problem == "Input/output error"
        sim.tick()
        assert shown(sim.final()[UNIT]) == [(1.0, "top bottom random", "0.0")]


def hide(sim: Simulation, name: str) -> None:
    (sim.directory / "rlship" / name).rename(sim.directory / name)


def bring_back(sim: Simulation, name: str) -> None:
    (sim.directory / name).rename(sim.directory / "rlship" / name)


@pytest.mark.parametrize("restarts", [False, True], ids=["one sidecar", "restart"])
def test_samples_of_a_missing_file_come_back_as_a_revision(restarts: bool) -> None:
    """A file that is missing for long holds no row back: its samples are left out, and revise the row once it is there
    again, for another sidecar too.
    """
    with simulation(filesystem=REMOTE) as sim:
        sim.write("a.jsonl", rank(0, log(1, loss=1), sample(1), barrier(1)))
        sim.write("b.jsonl", rank(1, log(1, loss=3), sample(9)))
        sim.tick()
        hide(sim, "b.jsonl")
        sim.wait(40.0)  # its writer is silent for longer than grace_s
        sim.tick()
        assert sim.rows() == []
        sim.wait(61.0)
        sim.tick()
        row = sim.final()[UNIT]
        assert (row.values["trainer/loss"], shown(row)) == (2.0, [(1.0, "top bottom random", "0.0")])
        bring_back(sim, "b.jsonl")
        if restarts:
            sim.restart()
        sim.wait(10.0)
        sim.tick()
        sim.wait(10.0)
        sim.tick()
        assert [score for score, *_ in shown(sim.final()[UNIT])] == [1.0, 9.0]


def test_samples_of_streams() -> None:
    """Windows of time show the samples that were taken in them, under keys of their own."""
    with simulation(samples=SampleChoice(2, 7)) as sim:
        first = [stepless_sample(score, after=after) for score, after in ((9.0, 1), (3.0, 5), (1.0, 3), (2.0, 3))]
        sim.write("a.jsonl", file(*first, stepless_sample(2.0, after=12), actor="generator"))
        sim.finish()
        rows = [row for unit, row in sorted(sim.final().items()) if unit.kind == "clock"]
    # The newest two of each window, whatever its number; of one time the last one.
    assert [shown(row) for row in rows] == [
        [(3.0, "newest", "0.0"), (2.0, "newest", "0.0")],
        [(2.0, "newest", "0.0")],
    ]
    assert rows[0].arrival.changed == ("clock/generator/samples/rollouts",)


def test_a_sample_nested_too_deeply_for_a_row() -> None:
    """JSON can be read deeper than it is written: such a value is replaced, and the rest of its sample shown."""
    deep = '{"kind":"sample","step":1,"table":"t","pri":0.5,"row":{"ok":1,"deep":' + "[" * 500 + "]" * 500 + "}}\n"
    with simulation() as sim:
        sim.write("a.jsonl", file() + deep.encode())
        sim.finish()
        assert sim.final()[UNIT].samples["t"][0].row == {"ok": 1, "deep": TOO_DEEP}


def test_a_line_that_became_another_is_not_shown() -> None:
    """What stands in the place of a chosen sample is never shown as one: its file counts as missing."""
    with simulation() as sim:
        sim.write("a.jsonl", file(log(1, loss=1), sample(1), log(1, note=["x" * 200]), beat=10))
        sim.tick()
        path = sim.directory / "rlship" / "a.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"table": "rollouts"', b'"table": "rollOuts"'))
        sim.finish()
        assert "rollouts" not in sim.final()[UNIT].samples
