"""TRL's Parquet files: while they are written, damaged, too large, without pyarrow, and beside native sources."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped, unused-ignore]
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from rlship_formats.foreign import parquet as rows
from rlship_formats.foreign.contract import BadRecord
from rlship_formats.foreign.registry import installed
from rlship_formats.foreign.trl_completions import READER, lines
from rlship_sidecar.cli.group import rlship
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Sample
from tests.foreign.translated import native_files
from tests.foreign.watched import SAMPLES
from tests.kit.files import barrier, experiment, file, log
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_against_reference import EACH
from tests.reference.reduction import NO_OVERRIDES, differing, final_rows

REAL = SAMPLES / "trl-completions" / "completions"


def table(step: int = 1, count: int = 2, **columns: list[Any]) -> bytes:
    """A file as TRL names its columns."""
    found = {
        "step": [step] * count,
        "prompt": [f"p{n}" for n in range(count)],
        "completion": [f"c{n}" for n in range(count)],
        **columns,
        "advantage": columns.get("advantage", [float(n) for n in range(count)]),
    }
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(found), written)
    return written.getvalue()


def put(sim: Simulation, step: int, text: bytes) -> Path:
    path = sim.directory / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    return path


def shown(sim: Simulation) -> dict[int, list[dict[str, Any]]]:
    """What rows show of the completions of each step."""
    return {unit.index: [one.row for one in _samples(row.samples)] for unit, row in sorted(sim.final().items())}


def _samples(found: Any) -> list[Sample]:
    return list((found or {}).get("completions", ()))


def test_what_trl_wrote() -> None:
    """Each completion of a step is a sample of the trainer's: with one reward function its value is the reward."""
    with simulation() as sim:
        for path in sorted(REAL.iterdir()):
            put(sim, int(path.stem[-5:]), path.read_bytes())
        sim.finish()
        found = shown(sim)
        assert sorted(found) == [1, 2, 3, 4]
        for step, samples in found.items():
            wanted = parquet.read_table(REAL / f"completions_{step:05d}.parquet").to_pylist()
            assert samples == [
                {
                    "prompt": one["prompt"],
                    "response": one["completion"],
                    "reward": one["many_a"],
                    "advantage": one["advantage"],
                    "many_a": one["many_a"],
                }
                for one in wanted
            ]
        assert {row.unit.actor for row in sim.rows()} == {"trainer"}
        assert not sim.dead()


def test_rows_come_at_once_and_once() -> None:
    """A step's row comes with its file, without waiting for another; a restart makes none of them again."""
    with simulation() as sim:
        for step in (1, 2, 3):
            put(sim, step, table(step))
            sim.wait(1.0)
            sim.tick()
            assert len(sim.rows()) == step
            sim.restart()
        sim.finish()
        assert [(row.unit.index, row.arrival.revision) for row in sim.rows()] == [(1, 0), (2, 0), (3, 0)]


def test_no_step_waits_for_a_checkpoint() -> None:
    """Beside `trainer_state.json`: a step's row comes with its completions, and its figures with the checkpoint, also
    those of the last one.
    """
    with simulation() as sim:
        for step in range(1, 8):
            put(sim, step, table(step))
            sim.wait(1.0)
            sim.tick()
            assert max(row.unit.index for row in sim.rows()) == step
            if step % 3 == 0:
                history = [{"loss": 0.5 * at, "step": at} for at in range(1, step + 1)]
                folder = sim.directory / f"checkpoint-{step}"
                folder.mkdir()
                (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
                sim.wait(1.0)
                sim.tick()
        for _ in range(2):
            sim.wait(6.0)
            sim.tick()
        found = {unit.index: row.values for unit, row in sorted(sim.final().items())}
        assert found == {step: {"trainer/loss": 0.5 * step} if step < 7 else {} for step in range(1, 8)}
        assert all(len(samples) == 2 for samples in shown(sim).values())
        assert [row.arrival.revision for row in sim.rows()].count(1) == 6
        assert not any(row.coverage.missing for row in sim.rows())


@pytest.mark.parametrize("known", [False, True], ids=["its first file", "a later one"])
def test_a_file_that_is_being_written_is_waited_for(known: bool) -> None:
    """Cut anywhere it is no file yet: nothing is read of it, and nothing is a dead letter. Whole, it counts once."""
    with simulation() as sim:
        if known:
            put(sim, 1, table(1))
            sim.tick()
        text = table(2)
        for cut in (0, 3, 4, 11, len(text) // 2, len(text) - 5, len(text) - 1):
            put(sim, 2, text[:cut])
            sim.wait(1.0)
            sim.tick()
            assert 2 not in shown(sim)
        assert not sim.dead()
        put(sim, 2, text)
        sim.wait(1.0)
        sim.tick()
        assert [one["response"] for one in shown(sim)[2]] == ["c0", "c1"]
        sim.finish()
        assert not sim.dead()
        assert not sim.experiment.intake.oddities


def test_a_file_that_is_never_whole_is_named() -> None:
    """A job that is killed while it writes leaves one: the status names it, data are incomplete until it is whole or
    gone, and other files are read.
    """
    with simulation() as sim:
        path = put(sim, 1, table(1)[:-20])
        put(sim, 2, table(2))
        sim.tick()
        sim.wait(11.0)
        sim.tick()
        found = survey(sim.experiment, [], now=sim.now, wall=0.0)
        named = f"completions/{path.name}: not read, as it is being written or was left half written"
        assert any(note.startswith(named) for note in found.notes), found.notes
        assert not found.complete
        assert list(shown(sim)) == [2]
        path.unlink()
        sim.wait(11.0)
        sim.tick()
        found = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert (found.complete, [note for note in found.notes if path.name in note]) == (True, [])


def test_an_evaluation_that_overwrites_a_step_takes_its_place() -> None:
    """TRL names both files alike: what is there last counts, live as afterwards."""
    with simulation() as sim:
        put(sim, 1, table(1))
        sim.tick()
        put(sim, 1, table(1, count=1, right=[1.0]))
        for _ in range(3):
            sim.wait(10.0)
            sim.tick()
        sim.finish()
        assert [one["response"] for one in shown(sim)[1]] == ["c0"]


@pytest.mark.parametrize("length", [1, 2, 9], ids=["shorter", "as long", "longer"])
def test_an_evaluation_of_the_same_prompts_takes_its_place_too(length: int) -> None:
    """The lines of both begin alike, because a prompt fills what is remembered of a beginning. Whatever its length, the
    later one is read, and the experiment is finished in the end. Nothing is amiss, and nothing is said of it.
    """
    prompts = ["What is the sum of the numbers below? Answer with the number alone."] * 2
    with simulation() as sim:
        put(sim, 1, table(1, prompt=prompts))
        sim.tick()
        put(sim, 1, table(1, prompt=prompts, completion=["e" * length] * 2, advantage=[5.0, 7.0]))
        for _ in range(3):
            sim.wait(10.0)
            sim.tick()
        sim.finish()
        sim.restart()
        assert [one["response"] for one in shown(sim)[1]] == ["e" * length] * 2
        found = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert (found.complete, [one.file for one in found.writers if one.unreadable or one.note]) == (True, [])


def test_completions_of_a_native_source_count_alone() -> None:
    """With `report_to="rlship"`, or under `rlship run`, a step's completions are there once: as the native source has
    them. A step that it lacks has those of the file.
    """
    native = [
        {"kind": "sample", "step": 1, "table": "completions", "pri": 0.5, "row": {"completion": f"n{n}"}}
        for n in range(2)
    ]
    with simulation() as sim:
        put(sim, 1, table(1))
        put(sim, 2, table(2))
        sim.write("a.jsonl", file(log(1, loss=1.0), *native, barrier(1), log(2, loss=2.0), barrier(2)))
        sim.tick()
        sim.finish()
        found = shown(sim)
        assert found[1] == [{"completion": "n0"}, {"completion": "n1"}]
        assert [one["response"] for one in found[2]] == ["c0", "c1"]
        assert [row.coverage.expected for row in sim.rows()] == [1, 1]
        (note,) = survey(sim.experiment, [], now=sim.now, wall=0.0).notes
        assert note.startswith("reads 2 files of trl-completions beside the job's own lines, which is fine")


def test_an_evaluation_that_the_job_gave_counts_once(tmp_path: Path) -> None:
    """`report_to="rlship"` gives an evaluation a table of its own: TRL's file of that step is its copy, and of no
    training, in rows and in tables of samples.
    """
    own = [
        {
            "kind": "sample",
            "step": 5,
            "table": "eval_completions",
            "pri": 0.5,
            "row": {"prompt": f"p{n}", "completion": f"c{n}"},
        }
        for n in range(2)
    ]
    lines = file(log(5, eval_loss=1.0), *own, barrier(5))
    with simulation() as sim:
        put(sim, 5, table(5))
        put(sim, 6, table(6))
        sim.write("a.jsonl", lines)
        sim.tick()
        sim.finish()
        tables = {unit.index: sorted(row.samples) for unit, row in sim.final().items()}
        assert tables == {5: ["eval_completions"], 6: ["completions"]}
        files = {"a.jsonl": lines, **native_files(sim.directory, installed()[0])}
        assert not differing(final_rows(files, NO_OVERRIDES, EACH), sim.final())
    folder = tmp_path / "completions"
    folder.mkdir()
    (folder / "completions_00005.parquet").write_bytes(table(5))
    experiment(tmp_path, {"a.jsonl": lines})
    found = asked(tmp_path, "SELECT name, count(*) n FROM samples GROUP BY 1")
    assert found == [{"name": "eval_completions", "n": 2}]


def asked(directory: Path, sql: str) -> list[dict[str, Any]]:
    """The answer of `rlship query`."""
    done = CliRunner().invoke(rlship, ["query", "--json", str(directory), sql])
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_tables_of_samples_have_each_completion_once(tmp_path: Path) -> None:
    """Whatever asks for all samples gets those of the job's own file and of Parquet files what that one lacks: whole
    steps, and single completions for which its budget had no room.
    """

    def own(step: int, *numbers: int) -> list[dict[str, Any]]:
        rows = [{"prompt": f"p{n}", "completion": f"c{n}", "mine": True} for n in numbers]
        return [{"kind": "sample", "step": step, "table": "completions", "pri": 0.5, "row": row} for row in rows]

    folder = tmp_path / "completions"
    folder.mkdir()
    for step in (1, 2, 3):
        (folder / f"completions_{step:05d}.parquet").write_bytes(table(step, count=3))
    reworded = [{**one, "row": {"prompt": "other words"}} for one in own(1, 0, 1, 2)]
    lines = file(*reworded, barrier(1), *own(2, 1), barrier(2))
    experiment(tmp_path, {"z.jsonl": lines})
    wanted = [(1, 3, 3), (2, 3, 1), (3, 3, 0)]
    own_ones = "count_if(file = 'z.jsonl')"
    found = asked(tmp_path, f"SELECT step, count(*) n, {own_ones} own FROM samples GROUP BY step ORDER BY step")
    assert [tuple(one.values()) for one in found] == wanted
    for suffix in ("jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        done = CliRunner().invoke(rlship, ["export", "--samples", "completions", "-o", str(out), str(tmp_path)])
        assert (done.exit_code, "9 samples" in done.stderr) == (0, True), done.stderr


def test_columns_of_the_job() -> None:
    """With several columns of numbers there is no reward; conversations and what else there is stay as they are."""
    chat = [[{"role": "user", "content": "hi"}]] * 2
    with simulation() as sim:
        put(sim, 1, table(prompt=chat, right=[1.0, float("nan")], short=[0.0, 0.5], note=["x", None]))
        sim.finish()
        first, second = shown(sim)[1]
        assert first["prompt"] == chat[0]
        assert "reward" not in first
        assert (first["right"], first["note"], first["advantage"]) == (1.0, "x", 0.0)
        assert (second["short"], second["advantage"]) == (0.5, 1.0)
        assert "right" not in second and "note" not in second
        (row,) = sim.rows()
        assert [one.score for one in _samples(row.samples)] == [0.0, 1.0]


def test_without_pyarrow_the_reader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status says what to install; all other files are read."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with simulation() as sim:
        monkeypatch.setattr(sim.experiment.intake._opener, "readers", _readers())
        put(sim, 1, table(1))
        (sim.directory / "run.jsonl").write_bytes(b'{"step":1,"data":{"critic/score/mean":0.5}}\n')
        sim.finish()
        assert [row.values for row in sim.rows()] == [{"trainer/critic/score/mean": 0.5}]
        problem = sim.experiment.intake.oddities["reader trl-completions"]
        assert "Parquet files need the package pyarrow: pip install 'rlship[query]'" in problem


def _readers() -> Any:
    from rlship_formats.foreign.registry import installed
    from rlship_sidecar.tail.foreign.readers import Readers

    return Readers(*installed())


@pytest.mark.parametrize("text", [b"", b"PAR1", b"PAR1" + b"\xff" * 40 + b"PAR1", b"PAR1" + b"\x00" * 4 + b"PAR1"])
def test_what_is_no_parquet_is_refused(text: bytes) -> None:
    """With the marks of one, or without."""
    with pytest.raises(BadRecord):
        lines(text)


def test_other_tables_are_refused() -> None:
    """A Parquet file in this place that TRL did not write."""
    written = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": [1]}), written)
    with pytest.raises(BadRecord, match="no completions"):
        lines(written.getvalue())


def test_a_file_that_grows_when_it_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long text that all rows refer to takes a few hundred kilobytes, and would be gigabytes as rows."""
    count = 5000
    long = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), ["x" * 300_000])
    written = io.BytesIO()
    found = {"step": [1] * count, "prompt": long, "completion": ["c"] * count, "advantage": [0.0] * count}
    parquet.write_table(pyarrow.table(found), written)
    assert len(written.getvalue()) < 1 << 20
    with pytest.raises(BadRecord, match="too many bytes"):
        lines(written.getvalue())
    monkeypatch.setattr(rows, "MAX_ROWS", 10)
    with pytest.raises(BadRecord, match="too many rows"):
        lines(table(count=11))


def test_the_reader_gives_the_lines_that_stand_for_a_file() -> None:
    """Literal: a heading, then a row each."""
    assert READER.lines is not None
    assert READER.lines(table(7, 1, right=[0.5])) == [
        b'{"trl_completions":{"reward":"right"}}',
        b'{"step":7,"prompt":"p0","completion":"c0","right":0.5,"advantage":0.0}',
    ]
