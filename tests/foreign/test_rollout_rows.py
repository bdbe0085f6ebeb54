"""Rows of rollouts and streams: from files that the packages wrote, while they grow, and through a sidecar that is
killed.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from rlship_formats.foreign.registry import installed
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.sidecar import rlship, watching
from tests.foreign.translated import native_files
from tests.foreign.watched import SAMPLES, figures, once, sample
from tests.kit.cases import long
from tests.pipeline.simulated import simulation
from tests.pipeline.test_against_reference import EACH
from tests.reference.reduction import NO_OVERRIDES, differing, exactly, final_rows

EPISODE = (SAMPLES / "prime-rl-monitors/monitors/file/traces/stream/00000.jsonl").read_bytes().split(b"\n")[0]


def rewards(row: Row, table: str = "train") -> list[float | None]:
    return [one.score for one in (row.samples or {}).get(table, ())]  # type: ignore[misc]


def finished(name: str) -> dict[Unit, Row]:
    """The rows of a sample experiment, with the rollouts of every step."""
    with simulation() as sim:
        shutil.copytree(SAMPLES / name, sim.directory, dirs_exist_ok=True)
        sim.finish()
        assert not sim.dead()
        assert not sim.experiment.intake.oddities
        return sim.final()


def episode(step: int, number: int) -> bytes:
    """An episode of prime-rl's that verifiers wrote, of another step."""
    return EPISODE.replace(b'"step":1', b'"step":%d' % step).replace(b'"e11train"', b'"e%d"' % number) + b"\n"


def verl(step: int, *scores: float) -> bytes:
    lines = [
        {"input": "p", "output": f"o{n}", "gts": "", "score": score, "step": step} for n, score in enumerate(scores)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def put(directory: Path, name: str, text: bytes) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(text)
    return path


def test_verl() -> None:
    """Rollouts of training and validation are two tables of one step, and no row of the trainer waits for them."""
    rows = finished("verl-rollouts")
    assert {unit: rewards(row) for unit, row in rows.items()} == {
        Unit("rollouts", "step", 1): [1.0, 0.0, 1.0, -0.5],
        Unit("rollouts", "step", 2): [1.0, 0.0, 1.0, -1.0],
    }
    assert rewards(rows[Unit("rollouts", "step", 2)], "eval") == [0.25]


def test_prime_rl(tmp_path: Path) -> None:
    """Each producer's lines are its actor's, lines without a step are windows of time, episodes are rollouts of the
    step at which they were dispatched, across two chunks.
    """
    rows = once(sample("prime-rl-monitors", tmp_path), tmp_path / "home")
    assert figures(rows, "trainer", 2) == {"perf/throughput": 31044.0, "time/step": 21.5, "loss/mean": 0.125}
    assert figures(rows, "orchestrator", 2) == {"train/agg/all/policy/reward/mean": 0.5, "time/step": 22.0}
    windows = [row.values for unit, row in sorted(rows.items()) if unit.kind == "clock"]
    kv = "clock/orchestrator/inference/kv"
    assert windows == [
        {"clock/orchestrator/inference/running": 5.0, kv: 0.375},
        {"clock/orchestrator/inference/running": 10.0, kv: 0.375},
    ]
    found = finished("prime-rl-monitors")
    assert rewards(found[Unit("rollouts", "step", 1)]) == [1.25, 0.25, 1.25]
    second = found[Unit("rollouts", "step", 2)]
    assert (rewards(second), rewards(second, "eval")) == ([0.25, None], [0.75])
    turns = found[Unit("rollouts", "step", 1)].samples["train"][2].row  # type: ignore[index]
    assert (turns["token_ids"], turns["logprobs"]) == ([7, 8, 9, 12], [-0.5, -0.25, -0.125, -1.0])


def test_tinker_cookbook(tmp_path: Path) -> None:
    """Metrics, with those of an evaluation of their step, spans, and a table of rollouts for each split."""
    rows = once(sample("tinker-cookbook", tmp_path), tmp_path / "home")
    assert figures(rows, "trainer", 1) == {
        "progress/batch": 1.0,
        "progress/done_frac": 2 / 3,
        "optim/lr": 1e-4,
        "env/all/reward/total": 0.25,
        "time/total": 3.5,
        "env/all/ac_tokens_per_turn": 12.0,
        "test/env/all/reward/total": 0.5,
        "sample_s": 1.5,
        "sample_s/max": 1.5,
    }
    found = finished("tinker-cookbook")[Unit("rollouts", "step", 1)]
    assert (rewards(found), rewards(found, "eval_gsm8k")) == ([1.0, 0.25, 1.0], [1.0])


def test_miles(tmp_path: Path) -> None:
    """Two axes are two actors, phases are windows of time, conversations are rollouts."""
    rows = once(sample("miles", tmp_path), tmp_path / "home")
    assert figures(rows, "trainer", 3) == {"train/loss": 0.25, "train/grad_norm": 1.25}
    assert figures(rows, "rollout", 2) == {"rollout/raw_reward": 0.5, "rollout/response_len/mean": 100.5}
    phases = [row.values for unit, row in sorted(rows.items()) if unit.actor == "phases"]
    assert phases[:2] == [
        {"clock/phases/rollout_s": 9.5, "clock/phases/rollout_s/max": 9.5},
        {"clock/phases/actor_train_s": 5.0, "clock/phases/actor_train_s/max": 5.5},
    ]
    found = finished("miles")[Unit("rollouts", "step", 1)]
    assert (rewards(found), rewards(found, "eval")) == ([1.0, 0.0, 1.0, None], [0.5])


def test_areal(tmp_path: Path) -> None:
    """Spans that name their step are of it. A step that a restart does again counts once. Sessions have their time."""
    rows = once(sample("areal", tmp_path), tmp_path / "home")
    steps = {unit.index: row.values for unit, row in rows.items() if unit.actor == "trainer"}
    assert sorted(steps) == [0, 1, 2, 3]
    assert steps[1] == {
        "trainer/train.rollout_s": 0.061463,
        "trainer/train.rollout_s/max": 0.061463,
        "trainer/train.ppo_step_s": 0.005171,
        "trainer/train.ppo_step_s/max": 0.005171,
        "trainer/event/checkpoint": 1.0,
    }
    assert steps[2]["trainer/train.rollout_s"] == 0.065104  # of the second life
    assert steps[2]["trainer/event/checkpoint"] == 1.0
    sessions = [row.values for unit, row in rows.items() if unit.actor == "rollout"]
    assert sum(values.get("clock/rollout/event/session", 0.0) for values in sessions) == 5.0


def test_a_step_goes_on_in_the_next_chunk() -> None:
    """Of prime-rl's stream: no step waits for a chunk that is full or lacks it, and a step that is in two of them
    has the rollouts of both. A chunk that is compressed and removed leaves its rows.
    """
    with simulation() as sim:
        for step in range(1, 9):
            for number in range(3):
                chunk = (3 * step + number) // 10
                put(sim.directory, f"monitors/file/traces/stream/{chunk:05d}.jsonl", episode(step, number))
            sim.wait(20.0)
            sim.tick()
            assert sorted(row.unit.index for row in sim.rows()) == list(range(1, step + 1))
        (sim.directory / "monitors/file/traces/stream/00000.jsonl").unlink()
        sim.wait(20.0)
        sim.tick()
        sim.restart()
        sim.finish()
        assert {unit.index: len(rewards(row)) for unit, row in sim.final().items()} == dict.fromkeys(range(1, 9), 3)
        assert not any(row.coverage.missing for row in sim.rows())
        assert not sim.dead()


def test_rollouts_that_come_late_revise_their_row() -> None:
    """A framework that writes a step's file in pieces: the row comes with the first, and has all in the end."""
    with simulation() as sim:
        put(sim.directory, "rollout_data/3.jsonl", verl(3, 0.5)[:-10])
        sim.tick()
        assert not sim.rows()
        put(sim.directory, "rollout_data/3.jsonl", verl(3, 0.5)[-10:])
        sim.tick()
        assert [rewards(row) for row in sim.rows()] == [[0.5]]
        put(sim.directory, "rollout_data/3.jsonl", verl(3, 0.25))
        sim.wait(20.0)
        sim.tick()
        assert [(rewards(row), row.arrival.revision) for row in sim.rows()] == [([0.5], 0), ([0.5, 0.25], 1)]


def test_a_step_that_is_done_again_has_the_rollouts_of_the_second_life() -> None:
    """verl writes the step's file anew."""
    with simulation() as sim:
        for step in (1, 2):
            put(sim.directory, f"rollouts/{step}.jsonl", verl(step, 0.5, 0.25))
        sim.tick()
        (sim.directory / "rollouts/2.jsonl").write_bytes(verl(2, 1.0))
        for _ in range(3):
            sim.wait(20.0)
            sim.tick()
        sim.finish()
        assert {unit.index: rewards(row) for unit, row in sim.final().items()} == {1: [0.5, 0.25], 2: [1.0]}


def test_lines_that_cannot_be_used_are_dead_letters() -> None:
    """Each once, with the reason; the others count."""
    with simulation() as sim:
        put(
            sim.directory, "rollout_data/3.jsonl", verl(3, 0.5) + b'{"torn": \n[]\n{"step":3}\n' + b" \n" + verl(3, 1.0)
        )
        sim.finish()
        sim.restart()
        sim.finish()
        begin = len(verl(3, 0.5))
        name = "rollout_data/3.jsonl"
        assert sim.dead() == [
            (name, begin, "not JSON", None),
            (name, begin + 10, "not an object", None),
            (name, begin + 13, "no rollout", None),
        ]
        assert [rewards(row) for row in sim.final().values()] == [[0.5, 1.0]]


def test_only_folders_of_rollouts_are_looked_into() -> None:
    """A file that is named by a number elsewhere is not read, nor is one of something else in such a folder."""
    with simulation() as sim:
        put(sim.directory, "data/3.jsonl", verl(3, 0.5))
        put(sim.directory, "rollouts/4.jsonl", b'{"text":"x"}\n')
        sim.finish()
        assert not sim.rows()
        assert list(sim.experiment.intake.oddities) == ["rollouts/4.jsonl"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rollouts_of_many_files_that_grow_equal_the_reference(seed: int) -> None:
    """In whatever pieces and order the files come, and wherever the sidecar starts anew, rows are those of all."""
    chance = random.Random(seed)
    files: dict[str, bytes] = {}
    for step in range(1, 12):
        files[f"rollout_data/{step}.jsonl"] = verl(step, *(chance.choice((0.0, 0.5, 1.0)) for _ in range(6)))
        name = f"monitors/file/traces/stream/{step // 4:05d}.jsonl"
        files[name] = files.get(name, b"") + b"".join(episode(step, number) for number in range(2))
    with simulation() as sim:
        seen = dict.fromkeys(files, 0)
        while any(seen[name] < len(files[name]) for name in files):
            for name in chance.sample(sorted(files), len(files)):
                most = chance.choice((0, 0, 70, 700, 9000))
                put(sim.directory, name, files[name][seen[name] : seen[name] + most])
                seen[name] += most
            sim.wait(chance.choice((0.0, 0.4, 12.0)))
            sim.tick()
            if chance.random() < 0.3:
                sim.restart()
        sim.finish()
        native = native_files(sim.directory, installed()[0])
        assert not differing(final_rows(native, NO_OVERRIDES, EACH), sim.final())
        assert not sim.dead()
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete


@pytest.mark.parametrize("lives", [[[1, 2], [3, 4]], *long([[1], [2], [3], [4]])], ids=["one kill", "three kills"])
def test_a_killed_sidecar_reads_rollouts_on(tmp_path: Path, lives: list[list[int]]) -> None:
    """`rlship watch` follows rollouts of three frameworks, is killed with -9 while they come, and goes on: each step's
    row is there, once, and as `--once` makes it of the same files.
    """
    watched, home = tmp_path / "run", tmp_path / "home"
    watched.mkdir()
    home.mkdir()
    completions = sorted((SAMPLES / "trl-completions/completions").iterdir())

    def write(step: int) -> None:
        put(watched, f"rollout_data/{step}.jsonl", verl(step, 0.5, 1.0))
        put(watched, f"monitors/file/traces/stream/{step // 3:05d}.jsonl", episode(step, step))
        shutil.copy(completions[step - 1], watched / "completions")

    (watched / "completions").mkdir()
    for steps in lives:
        with watching(tmp_path, home=home) as sidecar:
            for step in steps:
                write(step)
                sidecar.until(lambda: {unit.index for unit in newest(shipped(watched))} >= {step})  # noqa: B023
            if steps != lives[-1]:
                sidecar.kill()
            else:
                sidecar.until(lambda: len(newest(shipped(watched))) == 8)
                assert sidecar.stop() == 0
    numbers = [row.row_number for row in shipped(watched)]
    assert numbers == list(range(len(numbers)))
    live = newest(shipped(watched))
    state, bare = tmp_path / "state", tmp_path / "bare"
    shutil.copytree(watched, bare, ignore=shutil.ignore_patterns("rlship"))
    done = rlship(home, "watch", bare, "--once", "--sink", "jsonl", "--state-dir", state)
    assert done.returncode == 0, done.stderr
    rows = [Row.from_json(line) for line in (state / "bare" / "rows.jsonl").read_bytes().splitlines()]
    assert exactly(newest(rows)) == exactly(live)
    asked = rlship(home, "query", "SELECT count(*) AS n FROM samples", watched, "--json")
    assert '"n":28' in asked.stdout.replace(" ", ""), asked.stdout + asked.stderr


def test_an_hour_of_phases_takes_over_from_the_one_before() -> None:
    """miles begins a file each hour: no window of time waits for an hour that is over, none lacks it, and a phase that
    goes on over the full hour counts where it ends.
    """
    noon = 1795262400.0  # 2026-11-21 12:00 UTC
    with simulation(wall=noon - 1050.0) as sim:
        for number in range(20):
            end = noon - 50.0 + 5 * number
            phase = {"name": "rollout", "t0": end - 4.0, "t1": end, "node": "n", "gpus": [], "rank": -1, "role": "x"}
            hour = "11" if end < noon else "12"
            put(sim.directory, f"dashboard/phases/20261121_{hour}.jsonl", json.dumps(phase).encode() + b"\n")
            sim.wait(5.0)
            sim.tick()
        assert len(sim.rows()) >= 8
        sim.finish()
        assert [row.values["clock/phases/rollout_s"] for row in sim.rows()] == [4.0] * 10
        assert {(row.coverage.expected, row.coverage.missing, row.arrival.revision) for row in sim.rows()} == {
            (1, (), 0)
        }
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete


def test_steps_of_tinker_cookbook_come_with_the_next_one() -> None:
    """Its metrics and spans are two files of one process: a row has both, whichever comes last, once the next step has
    begun.
    """
    with simulation() as sim:
        for step in range(4):
            put(sim.directory, "metrics.jsonl", b'{"step": %d, "optim/lr": 0.5}\n' % step)
            sim.tick()
            spans = b'{"step": %d, "spans": [{"name": "sample", "duration": 1.5, "wall_start": %f}]}\n'
            put(sim.directory, "timing_spans.jsonl", spans % (step, 1795261700.0 + step))
            sim.wait(2.0)
            sim.tick()
        assert [row.unit.index for row in sim.rows() if not row.arrival.revision] == [0, 1, 2]
        sim.finish()
        assert all({"trainer/optim/lr", "trainer/sample_s"} <= row.values.keys() for row in sim.final().values())
        assert not any(row.coverage.missing for row in sim.rows())


def test_prime_rl_chunks_that_are_compressed_meanwhile() -> None:
    """prime-rl compresses a chunk that is full and removes it. Rows are those of a look at the compressed ones alone,
    each episode once, and so are they before.
    """
    plain = SAMPLES / "prime-rl-monitors/monitors/file/traces/stream"
    sealed = SAMPLES / "prime-rl-sealed/monitors/file/traces"
    with simulation() as sim:
        there = sim.directory / "monitors/file/traces"
        shutil.copytree(plain, there / "stream")
        sim.wait(20.0)
        sim.tick()
        assert [len(row.samples["train"]) for row in sim.final().values()] == [3, 2]  # type: ignore[index]
        shutil.copytree(sealed / "annotations", there / "annotations")
        for path in sorted((sealed / "stream").iterdir()):
            shutil.copy(path, there / "stream")
            sim.tick()
            (there / "stream" / path.stem).unlink()
            sim.wait(20.0)
            sim.tick()
        sim.finish()
        assert not sim.dead()
        found = sim.final()
    whole = finished("prime-rl-sealed")
    assert exactly(found) == exactly(whole)
