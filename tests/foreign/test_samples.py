"""Files that the real packages wrote (samples/README.md), watched by a real `rlship watch --once`: rows worked out by
hand, and all rows against the slow reference.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rlship.logger import Logger
from rlship_formats.foreign.registry import installed
from tests.foreign.translated import native_files
from tests.foreign.watched import SAMPLES, figures, once, sample
from tests.pipeline.simulated import simulation
from tests.pipeline.test_against_reference import EACH as ROW_SAMPLES
from tests.reference.reduction import NO_OVERRIDES, differing, final_rows
from tests.writer.reading import identity

EACH = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())


def contents(name: str) -> dict[str, bytes]:
    """The files of a sample, by path."""
    found = sorted(path for path in (SAMPLES / name).rglob("*") if path.is_file())
    return {str(path.relative_to(SAMPLES / name)): path.read_bytes() for path in found}


def mean_of(*values: float) -> float:
    """As rlship adds: one rank after the other."""
    total = values[0]
    for value in values[1:]:
        total += value
    return total / len(values)


@pytest.mark.parametrize("name", EACH)
def test_samples_give_the_rows_of_their_translation(name: str, tmp_path: Path) -> None:
    """Every row of a sample is, bit by bit, what the reference makes of the reader's records, and nothing is left over:
    `--once` ends with 0.
    """
    experiment = sample(name, tmp_path)
    rows = once(experiment, tmp_path / "home")
    assert rows
    assert not differing(final_rows(native_files(SAMPLES / name, installed()[0])), rows)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", EACH)
def test_samples_that_grow_give_the_same_rows(name: str, seed: int) -> None:
    """In whatever pieces the files appear, and with restarts of the sidecar in between, rows are the same. Documents
    appear whole, as their writers make them.
    """
    files, chance = contents(name), random.Random(seed)
    with simulation() as sim:
        seen = dict.fromkeys(files, 0)
        while any(seen[path] < len(files[path]) for path in files):
            for path, text in files.items():
                most = (
                    len(text) if path.endswith((".json", ".parquet", ".zst")) else chance.choice((0, 700, 5000, 20000))
                )
                file = sim.directory / path
                file.parent.mkdir(exist_ok=True, parents=True)
                with open(file, "ab") as to:
                    to.write(text[seen[path] : seen[path] + most])
                seen[path] += most
            sim.wait(chance.choice((0.0, 0.4, 12.0, 70.0)))
            sim.tick()
            if chance.random() < 0.4:
                sim.restart()
        sim.finish()
        native = native_files(SAMPLES / name, installed()[0])
        assert not differing(final_rows(native, NO_OVERRIDES, ROW_SAMPLES), sim.final())
        assert not sim.dead()


def test_the_stack_of_torchtitan(tmp_path: Path) -> None:
    """Two ranks, steps 1 and 2, then 2 and 3 by processes that append to the same files. Each metric is reduced as its
    lines ask for; a span that is in both files counts once, from experiment_logs; one that is in system_logs alone
    counts as that of the newer process. What experiment_logs hold of both lives of the step at which the first ended
    counts together, as no step falls: twice the sum.
    """
    rows = once(sample("torchtitan-stack", tmp_path), tmp_path / "home")
    first = figures(rows, "trainer", 1)
    assert first == {
        "training/loss_mean": 3.0,
        "trainer_memory/reserved_gib_max": 0.5,  # 0.25 * (rank + step)
        "trainer_memory/free_gib_min": 63.0,
        "trainer_memory/ooms_sum": 1.0,
        "rl/completion_len_mean": (512 + 576) / (32 + 48),
        "rl/broken_mean": 6.0 / 3.0,  # of rank 0
        "rl/broken_mean/nonfinite": 1.0,  # rank 1's
        "train.loss": 3.0,
        "train.tflops": 40.0,
        "trainer_time/forward_backward_s": mean_of(0.0005434260019683279, 0.0004289760036044754),
        "trainer_time/step_s": first["trainer_time/step_s"],
    }
    assert rows[next(unit for unit in rows if unit.index == 2)].tags == ("gc",)
    second = figures(rows, "trainer", 2)
    assert second["trainer_memory/ooms_sum"] == 2.0
    assert second["train.loss"] == 3.0
    collected = (0.09207699622493237 / 1000, 0.0867589988047257 / 1000)  # of the second life
    assert second["trainer_time/gc_collect_s"] == mean_of(*collected)
    assert second["trainer_time/gc_collect_s/max"] == max(collected)
    assert figures(rows, "trainer", 3)["training/loss_mean"] == 1.0


def test_a_restart_of_the_stack_of_torchtitan_counts_steps_once(tmp_path: Path) -> None:
    """Two ranks come to step 5, go back to step 3 in the same files, and come to step 6: sums and weighted means of
    steps 3 to 5 are the second life's, with `--once` as with nothing but the files.
    """
    folder = tmp_path / "run" / "experiment_logs"
    folder.mkdir(parents=True)
    for rank in range(2):
        written = []
        for life, steps in enumerate((range(1, 6), range(3, 7))):
            for step in steps:
                at = {"step": step, "rank": rank, "source": "trainer", "timestamp": 1.7e9 + 100 * life + step}
                written.append({"reduce": "SumMetric", "value": 1 + life, "key": "tokens", **at})
                written += [{"reduce": "MeanMetric", "sum": 1.0 + life, "weight": 2, "key": "loss", **at}] * 2
        lines = "".join(json.dumps(line) + "\n" for line in written)
        (folder / f"trainer_rank_{rank}_experiment.jsonl").write_text(lines)
    rows = once(tmp_path / "run", tmp_path / "home")
    found = [figures(rows, "trainer", step) for step in range(1, 7)]
    assert [one["tokens"] for one in found] == [2.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    assert [one["loss"] for one in found] == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]


def test_prime_rl(tmp_path: Path) -> None:
    """The lines of one file are the steps of two actors; the five lines of a trainer's step are one row, and a late
    evaluation of step 2 is in the row of step 2. What was not finite is not there.
    """
    rows = once(sample("prime-rl", tmp_path), tmp_path / "home")
    assert {(unit.actor, unit.index) for unit in rows} == {
        (actor, step) for actor in ("trainer", "orchestrator") for step in (1, 2, 3)
    }
    assert figures(rows, "trainer", 1) == {
        "perf/throughput": 31044.0,
        "perf/throughput_per_gpu": 15522.0,
        "perf/mfu": 12.5,
        "perf/peak_memory": 61.5,
        "optim/lr": 1e-6,
        "optim/grad_norm": 0.25,
        "loss/mean": 0.0625,
        "loss/std": 0.5,
        "entropy/all/mean": 0.25,
        "mismatch_kl/all/mean": 0.001,
        "mismatch_kl/all/max": 0.5,
        "time/step": 19.5,
        "time/wait_for_batch": 4.0,
        "time/load_data": 0.25,
        "time/broadcast_weights": 0.0,
        "time/save_ckpt": 0.0,
        "time/forward_backward": 12.0,
        "system/ckpt_disk_free_gib": 100.0,
        "system/ckpt_disk_free_ratio": 0.5,
    }
    second = figures(rows, "orchestrator", 2)
    assert second["time/step"] == 22.0
    assert second["train/agg/all/policy/reward/mean"] == 0.25
    assert second["eval/gsm8k/all/policy/avg@4"] == 0.375
    assert "loss/mean" not in figures(rows, "trainer", 2)


def test_prime_rl_started_again_in_its_folder(tmp_path: Path) -> None:
    """Started again at step 2, it appends to its file: of what was logged twice the later counts, and what was not done
    again is as it was.
    """
    experiment = sample("prime-rl", tmp_path)
    with open(experiment / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 2, "time": 1795261800.5, "optim/lr": 1e-06, "optim/grad_norm": 7.0}\n')
        file.write('{"step": 3, "time": 1795261801.5, "optim/lr": 1e-06, "optim/grad_norm": 8.0}\n')
    rows = once(experiment, tmp_path / "home")
    norms = [figures(rows, "trainer", step)["optim/grad_norm"] for step in (1, 2, 3)]
    assert norms == [0.25, 7.0, 8.0]
    assert figures(rows, "trainer", 3)["loss/mean"] == 0.1875


def test_verl_before_and_after_a_restart(tmp_path: Path) -> None:
    """Rows have no time. After the restart, which truncates the file, steps that are done again are the new life's, and
    those that are not are as they were.
    """
    experiment = sample("verl", tmp_path)
    rows = once(experiment, tmp_path / "home")
    assert {row.t for row in rows.values()} == {0.0}
    assert figures(rows, "trainer", 0) == {"val-core/gsm8k/acc/mean@1": 0.25}
    assert figures(rows, "trainer", 2) == {
        "training/global_step": 2.0,
        "actor/entropy": 0.25,
        "critic/rewards/mean": 9.0,
        "critic/rewards/max": 1.0,
        "response_length/mean": 98.0,
        "timing_s/gen": 41.25,
        "perf/mfu/actor": 0.25,
    }
    (experiment / "tiny.jsonl").write_bytes((SAMPLES / "verl-restarted" / "tiny.jsonl").read_bytes())
    again = once(experiment, tmp_path / "home")
    assert figures(again, "trainer", 1) == figures(rows, "trainer", 1)
    assert figures(again, "trainer", 2) == figures(rows, "trainer", 2) | {"val-core/gsm8k/acc/mean@1": 0.5}
    assert figures(again, "trainer", 3) == {
        "training/global_step": 3.0,
        "actor/entropy": 0.16666667,
        "actor/grad_norm": 1.5,
        "critic/rewards/mean": 0.375,
        "critic/rewards/max": 1.0,
        "response_length/mean": 99.0,
        "timing_s/gen": 41.25,
        "perf/mfu/actor": 0.25,
    }
    assert sorted(unit.index for unit in again) == [0, 1, 2, 3, 4]


def test_verl_beside_what_its_driver_writes_itself(tmp_path: Path) -> None:
    """What file and plug-in both have counts once, as the plug-in has it; what only the file has is in the row, too."""
    experiment = sample("verl", tmp_path)
    logger = Logger(str(experiment), identity(world=1), labels={"source": "verl"})
    logger.log({"training/global_step": 2, "actor/entropy": 7.5}, step=2)
    logger.barrier(2)
    logger.close()
    rows = once(experiment, tmp_path / "home")
    assert {row.coverage.ranks for row in rows.values()} == {("0.0",)}
    second = figures(rows, "trainer", 2)
    assert (second["actor/entropy"], second["timing_s/gen"]) == (7.5, 41.25)


def test_ms_swift_beside_its_checkpoints(tmp_path: Path) -> None:
    """What `logging.jsonl` and the checkpoints both hold counts once, as the former has it; of steps 3 and 4, which
    both runs did, the second run's counts. The summary in the middle of the file is no step.
    """
    rows = once(sample("ms-swift", tmp_path), tmp_path / "home")
    assert sorted(unit.index for unit in rows) == [1, 2, 3, 4, 5, 6]
    fourth = figures(rows, "trainer", 4)
    assert (fourth["loss"], fourth["learning_rate"], fourth["eval_loss"]) == (2.57043219, 2.5e-05, 2.57058382)
    assert fourth["train_runtime"] == 8.9497  # the first run ended at step 4
    sixth = figures(rows, "trainer", 6)
    assert (sixth["loss"], sixth["eval_loss"], sixth["train_runtime"]) == (2.58685827, 2.56986308, 8.3878)


def test_roll(tmp_path: Path) -> None:
    """A driver's log: nested figures are paths, lists are observations, NaN is counted, empty lists are nothing."""
    rows = once(sample("roll", tmp_path), tmp_path / "home")
    assert figures(rows, "trainer", 1) == {
        "critic/rewards/mean": 0.25,
        "critic/rewards/max": 1.0,
        "actor/pg_loss": 1.5,
        "time/step_total_p99/nonfinite": 1.0,
        "system/lengths": 2.0,
        "val_correct/gsm8k": 0.5,
        "val_correct/all/mean": 0.25,
    }


def test_trl(tmp_path: Path) -> None:
    """The history is in three files and counts once; train, evaluation and summary of step 6 are one row."""
    rows = once(sample("trl", tmp_path), tmp_path / "home")
    assert sorted(unit.index for unit in rows) == [1, 2, 3, 4, 5, 6]
    assert [figures(rows, "trainer", step)["reward"] for step in range(1, 7)] == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    sixth = figures(rows, "trainer", 6)
    assert (sixth["loss"], sixth["eval_loss"]) == (-0.17494212090969086, -0.11267770826816559)
    assert sixth["train_loss"] == -0.05831404527028402


def test_torchtitan(tmp_path: Path) -> None:
    """Two ranks: scalars and spans are means over them, spans greatest too, instants are counted, step 2 is tagged."""
    rows = once(sample("torchtitan", tmp_path), tmp_path / "home")
    assert [figures(rows, "trainer", step)["local_valid_tokens"] for step in range(1, 5)] == [
        100.5,
        200.5,
        300.5,
        400.5,
    ]
    first, took = figures(rows, "trainer", 1), (0.26766699738800526 / 1e3, 0.42711299465736374 / 1e3)
    assert (first["fwd_bwd_s"], first["fwd_bwd_s/max"]) == (mean_of(*took), took[1])
    assert first["event/step_begins"] == 2.0
    assert [row.tags for unit, row in sorted(rows.items()) if unit.kind == "step"] == [(), ("gc",), (), ()]
