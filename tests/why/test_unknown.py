"""What no cause of the graph explains: the answer is "unknown", at the place where it began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.why.beyond import detectors_beyond
from rlship_sidecar.why.graph import graph_of
from rlship_sidecar.why.window import Survey
from tests.kit.cases import long
from tests.why.job import Fault, Now
from tests.why.test_command import gpu_throttled, incident, replica_stale, run


def slow_tools(now: Now) -> None:
    """What generator 1 alone does takes six times as long; steps wait for it."""
    now.own = {("generator", 1): 6.0}
    now.slow_step = 1.6
    now.factor["perf/step_s"] = 1.6


def slow_sandbox(now: Now) -> None:
    """What the reward worker does takes six times as long, its latency does not say so, and steps wait."""
    now.own = {("reward", 0): 6.0}
    now.slow_step = 1.6
    now.factor["perf/step_s"] = 1.6


def slow_checksum(now: Now) -> None:
    """What trainer rank 3 alone does takes six times as long, and all ranks wait for it."""
    now.own = {("trainer", 3): 6.0}
    now.slow_step = 1.6
    now.factor["perf/step_s"] = 1.6


def bad_answers(now: Now) -> None:
    """What generator 2 alone does changes, and the reward falls."""
    now.own = {("generator", 2): 0.2}
    now.value["reward/total"] = 0.05


FAULTS: dict[str, tuple[Fault, str]] = {
    "slow_tools": (slow_tools, "generator/1.0"),
    "slow_sandbox": (slow_sandbox, "reward"),
    "slow_checksum": (slow_checksum, "trainer/0.3"),
    "bad_answers": (bad_answers, "generator/2.0"),
}


@pytest.mark.parametrize("name", [*[*FAULTS][:1], *long(*[*FAULTS][1:])])
def test_it_is_unknown_at_the_place_where_it_began(tmp_path: Path, name: str) -> None:
    """A metric of the job's own changed there, of which the graph knows nothing, and what it led to names no cause."""
    fault, place = FAULTS[name]
    said = incident(tmp_path, fault, generators=4, own=True)
    first = said["causes"][0]
    assert (first["cause"], first["place"]) == ("unknown", place)


def with_it(fault: Fault, **own: Any) -> Fault:
    def both(now: Now) -> None:
        fault(now)
        now.own = {(actor, at): factor for actor, (at, factor) in own.items()}

    return both


KNOWN: dict[str, tuple[Fault, str]] = {
    "beside it": (with_it(gpu_throttled, trainer=(2, 3.0)), "gpu_throttled"),
    "further on": (with_it(replica_stale, trainer=(1, 3.0)), "replica_stale"),
    "blocked": (with_it(gpu_throttled, reward=(0, 3.0)), "gpu_throttled"),
}


@pytest.mark.parametrize("name", long(*KNOWN))
def test_a_known_cause_is_named_although_more_changes(tmp_path: Path, name: str) -> None:
    """Something of the job's own changes at its place, where data go to, or as a process is held up by it."""
    fault, cause = KNOWN[name]
    said = incident(tmp_path, fault, generators=4, own=True)
    assert said["causes"][0]["cause"] == cause
    assert run(tmp_path).exit_code == 0


def test_metrics_without_a_sign() -> None:
    """What a sign reads, further reductions of one metric, curves, claims and rlship's own names are left out; of the
    lead ranks alone are looked at.
    """
    known = Survey("trainer").detectors(graph_of())
    keys = {
        ("generator", "generator/job_s"): 4,
        ("generator", "generator/job_s/max"): 0,
        ("generator", "generator/policy_lag"): 0,
        ("generator", "generator/gen/kv_usage"): 4,
        ("generator", "generator/svc/recovery_s"): 0,
        ("generator", "generator/train/entropy"): 0,
        ("generator", "clock/generator/job_s"): 0,
        ("trainer", "trainer/job_s"): 4,
        ("trainer", "trainer/other_s"): 0,
        ("", "zz_rlship/ledger/groups"): 0,
    }
    found = detectors_beyond(keys, known, "trainer")
    assert [(one.metric, one.sign.test) for one in found] == [
        ("generator/job_s", "change"),
        ("generator/job_s", "apart"),
        ("trainer/job_s", "apart"),
    ]
    many = {("generator", f"generator/m{at}"): 500 for at in range(1000)}
    tests = [one.sign.test for one in detectors_beyond(many, known, "trainer")]
    assert (tests.count("change"), tests.count("apart")) == (200, 4)
