"""Levels of the catalogue: a level is summed over writers and never over looks; a count adds up over both."""

from __future__ import annotations

import pytest

from rlship.metrics import METRICS, lookup
from rlship_sidecar.rows import Row
from tests.kit.files import CLOSE, T0, barrier, file, log, stream
from tests.pipeline.simulated import simulation

LEVELS = (
    "perf/tokens_per_s",
    "perf/tflops",
    "perf/samples_per_s",
    "gen/kv_capacity",
    "gen/requests_running",
    "gen/requests_waiting",
    "buf/size",
    "buf/queue_depth",
    # Counts since a process began: its last one has all before it.
    "mem/alloc_retries",
    "mem/ooms",
)
FOREIGN_LEVELS = ("vllm/generation_throughput_tok_s", "throughput(tps)", "sglang:num_queue_reqs")
COUNTS = (
    "train/skipped_steps",
    "correctness/nonfinite_count",
    "correctness/token_align_err",
    "reward/total",
    "data/step_tokens",
    "data/dup_ids",
    "perf/idle_s",
    "sync/wire_bytes",
    "async/stale_dropped",
    "svc/replica_failures",
    "svc/replica_restarts",
    "buf/evicted",
    "node/xid",
    "rwd/batch_tokens",
    "rwd/rule_exceptions",
    "rwd/timeouts",
    "env/timeouts",
)
FOREIGN_COUNTS = ("training/rollout_failure/evicted_samples", "rollout/group_failures", "async/num_groups_dropped")


def rows_of(*files: bytes) -> list[Row]:
    with simulation() as running:
        for number, data in enumerate(files):
            running.write(f"f{number}.jsonl", data)
        running.finish()
        return list(running.final().values())


def looked_at(metric: str, *, step: int | None) -> list[Row]:
    """The rows of two writers that look five times each: at 150 and 375 in all, and at 30 and 70 in the end."""
    made = []
    for rank, levels in enumerate(([10, 50, 40, 20, 30], [90, 80, 60, 75, 70])):
        looks = [
            stream(0.5 + number, **{metric: level}) if step is None else log(step, **{metric: level})
            for number, level in enumerate(levels)
        ]
        made.append(file(*looks, barrier(1, after=6), CLOSE, rank=rank, world=2, id=f"w{rank}"))
    return rows_of(*made)


def test_each_sum_of_the_catalogue_is_a_count_or_a_level() -> None:
    """A new metric that is summed has to be put among the counts or the levels of this file."""
    assert [metric.name for metric in METRICS if "sum_last" in metric.reduce] == list(LEVELS)
    assert [metric.name for metric in METRICS if "sum" in metric.reduce] == list(COUNTS)
    assert all(metric.reduce[0] == "sum_last" for metric in METRICS if metric.name in LEVELS)


@pytest.mark.parametrize("metric", [*LEVELS, *FOREIGN_LEVELS])
def test_a_level_is_not_added_up_over_looks(metric: str) -> None:
    """A step's, a lead's step's and a window's level is the sum of what each writer saw last."""
    (row,) = looked_at(metric, step=1)
    assert row.values[f"trainer/{metric}"] == 100
    found = {row.unit.kind: row.values for row in looked_at(metric, step=None)}
    assert found["aligned"][f"trainer/{metric}"] == 100
    assert found["clock"][f"clock/trainer/{metric}"] == 100


@pytest.mark.parametrize("metric", [*COUNTS, *FOREIGN_COUNTS])
def test_a_count_adds_up_over_looks(metric: str) -> None:
    """What a writer counted since its last line adds up over lines and writers."""
    key = "reward/total/sum" if metric == "reward/total" else metric
    (row,) = looked_at(metric, step=1)
    assert row.values[f"trainer/{key}"] == 525
    found = {row.unit.kind: row.values for row in looked_at(metric, step=None)}
    assert found["aligned"][f"trainer/{key}"] == 525
    assert found["clock"][f"clock/trainer/{key}"] == 525


@pytest.mark.parametrize(("metric", "one", "looks"), [("gen/kv_capacity", 1000, 10), ("perf/tokens_per_s", 2000, 10)])
def test_one_writer_that_looks_often(metric: str, one: int, looks: int) -> None:
    """A constant level stays what it is, however often it is looked at."""
    (row,) = rows_of(file(*[log(1, **{metric: one})] * looks, barrier(1), CLOSE))
    assert row.values[f"trainer/{metric}"] == one


def test_the_size_of_buffers_is_that_of_all() -> None:
    """`buf/size` is what all buffers hold; it was the lowest rank's."""
    files = [
        file(*[log(1, **{"buf/size": size})] * 5, barrier(1), CLOSE, rank=rank, actor="buffer", id=f"b{rank}")
        for rank, size in enumerate((40, 2))
    ]
    (row,) = rows_of(*files)
    assert (row.values["buffer/buf/size"], row.values["buffer/buf/size/max"]) == (42, 40)
    found = lookup("buffer", "buf/size")
    assert found is not None
    assert found.reduce == ("sum_last", "max")


def test_a_restart_within_a_window_counts_once() -> None:
    """Where nothing else supersedes, a level of a rank is still that of its newest life."""
    first = file(stream(1, **{"gen/requests_waiting": 40}), stream(2, **{"gen/requests_waiting": 30}), t=T0, id="a")
    second = file(stream(6, **{"gen/requests_waiting": 12}), CLOSE, t=T0 + 5, attempt=1, id="b")
    (row,) = rows_of(first, second)
    assert row.values["clock/trainer/gen/requests_waiting"] == 12
