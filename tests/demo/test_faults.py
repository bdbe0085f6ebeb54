"""The demo's faults: each in a real process, and each seen by an alert that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.incidents.found import episodes_of, rows_of
from rlship_formats.catalogue.metrics import lookup_evidence
from rlship_sidecar.demo import faults
from rlship_sidecar.demo.faults import FAULTS
from rlship_sidecar.demo.job import Job, members, wiring
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.run import run_demo
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.rows import LEDGER
from tests.kit.cases import long

# By fault, the rule that fires, and the place that it names.
SEEN = {
    faults.SWAPPED_REWARDS: ("ledger_breach", ""),
    faults.SLOW_RANK: ("imbalance", "trainer/0.1"),
    faults.DEAD_GENERATOR: ("lost_or_slow_place", "generator/0.1"),
    faults.ZERO_REWARDS: ("reward_fault", "reward/0.0"),
    faults.SLOW_REWARDS: ("reward_fault", "reward/0.0"),
    faults.STALE_WEIGHTS: ("stale_policy", ""),
    faults.MISLABELLED_WEIGHTS: ("ledger_breach", ""),
    faults.LR_SPIKE: ("reward_fault", ""),
    faults.TRUNCATION: ("inference", ""),
    faults.FLIPPED_SIGN: ("ledger_breach", ""),
    faults.NONFINITE_GRADIENT: ("divergence", ""),
    faults.WRONG_MASK: ("ledger_breach", ""),
}
QUIET = {faults.NONE, faults.MEMORY_LEAK}  # nothing is wrong, or no rule looks at it


def test_every_fault_is_tried() -> None:
    """Each fault has a rule that sees it, or is known to have none."""
    assert {*SEEN, *QUIET} == set(FAULTS)


def test_a_job_with_a_fault_has_a_buffer_in_the_middle() -> None:
    """Groups go from generators to trainer ranks by the buffer, which a job without faults has not."""
    pairs = [frozenset(pair) for pair in wiring(JobPlan(fault=faults.NONE))]

    assert len(pairs) == len(set(pairs)) == 14
    assert {frozenset({"buffer-0", f"trainer-{rank}"}) for rank in range(4)} < set(pairs)
    assert {name for pair in pairs for name in pair} == {
        f"{actor}-{rank}" for actor, rank in members(JobPlan(fault=faults.NONE))
    }
    assert not any("buffer-0" in pair for pair in wiring(JobPlan()))


def test_an_unknown_fault_is_refused(tmp_path: Path) -> None:
    """The refusal names the faults that there are, and nothing is made."""
    with pytest.raises(UsageProblem, match="no fault 'sun'") as refusal:
        run_demo(tmp_path / "demo", fault="sun")

    assert "zero_rewards" in refusal.value.hint
    assert not (tmp_path / "demo").exists()


def test_a_job_without_a_fault_keeps_a_clean_ledger(tmp_path: Path) -> None:
    """In the same job without a fault every group is trained on once, as it was generated and rewarded. The trainer
    logs no metric of the catalogue under two names.
    """
    plan = JobPlan(steps=12, pace_s=0.0, fault=faults.NONE)
    with Job(tmp_path / "job", tmp_path / "logs", plan) as job:
        assert job.wait() is None

    rows = rows_of(tmp_path / "job", tmp_path / "state")
    ledger = [row.values for row in rows.every if row.unit.kind == LEDGER]
    counts = {key: sum(values[key] for values in ledger) for key in ledger[0]}
    assert {key.rpartition("/")[2]: count for key, count in counts.items() if count} == {
        "groups": 12 * 16,
        "generated_samples": 12 * 16 * 6,
        "trained_samples": 12 * 16 * 6,
    }
    assert episodes_of(rows)[0] == []
    keys = {key.partition("/")[2] for row in rows.every if row.unit.actor == "trainer" for key in row.values}
    known = [entry.name for key in keys if (entry := lookup_evidence("trainer", key, "trainer")) is not None]
    assert {"train/loss", "train/grad_norm", "train/entropy", "train/kl_ref"} <= {*known}
    assert len(known) == len({*known}), sorted(keys)


@pytest.mark.parametrize("fault", long(*(fault for fault in SEEN if fault != faults.SWAPPED_REWARDS)))
def test_a_fault_is_seen(tmp_path: Path, fault: str) -> None:
    """The fault's rule fires once the fault began, at the place that has it where the rule knows places."""
    _see(tmp_path, fault, steps=80)


def test_swapped_rewards_are_seen_at_once(tmp_path: Path) -> None:
    """Rewards that the buffer joins to other samples show in no metric; the ledger has them at their first step."""
    assert _see(tmp_path, faults.SWAPPED_REWARDS, steps=12) == 6


def _see(tmp_path: Path, fault: str, steps: int) -> int:
    """Run a job with a fault; returns the step at which its rule fires."""
    plan = JobPlan(steps=steps, pace_s=0.0, fault=fault)
    with Job(tmp_path / "job", tmp_path / "logs", plan) as job:
        assert job.wait() is None

    rule, place = SEEN[fault]
    episodes, _ = episodes_of(rows_of(tmp_path / "job", tmp_path / "state"))
    found = [one for one in episodes if one.rule == rule and place in ("", one.place)]
    first = plan.onset - 1  # generators are one step ahead of the trainer, at whose step their records may count
    assert found and all(one.fired.step >= first for one in episodes), episodes
    return found[0].fired.step
