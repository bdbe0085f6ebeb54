"""How long things take, and what engines and trainer ranks say of themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.incidents.chance import GROUPS, SAMPLES, Hardware, Noises, Task
from benchmarks.incidents.faults import Fault
from benchmarks.incidents.policy import NATS_OF_A_WRONG_TOKEN, Batch, Learner

GIB = 2.0**30
CAPACITY = 80 * GIB
COMM, OPTIM = 0.1, 0.03  # shares of an update
COMES_BACK = 3  # steps after which a replica that died is there again

Metrics = dict[str, Any]


@dataclass(slots=True)
class Engine:
    """One replica. `loaded` is the version whose weights it has, `since` the step at which it started."""

    at: int
    loaded: int = 0
    label: int = 0
    since: int = 0
    alive: bool = True
    back: int = 0  # the step at which it comes back
    returned: int = -1  # the step at which it last did


@dataclass(slots=True)
class Engines:
    """All replicas, and how old samples are when the trainer gets them."""

    machine: Hardware
    task: Task
    fault: Fault
    noises: Noises
    every: list[Engine] = field(default_factory=list)
    queued: float = 0.0  # versions that samples wait in the queue
    refused: int = 0  # replicas whose samples are too old
    speeds: dict[int, float] = field(default_factory=dict)  # of this step

    def __post_init__(self) -> None:
        self.every = [Engine(at) for at in range(self.machine.replicas)]

    @property
    def living(self) -> list[Engine]:
        """Those that work."""
        return [one for one in self.every if one.alive]

    def sync(self, step: int) -> None:
        """Engines take the newest weights in, as far as they do."""
        fault = self.fault
        if fault.active("too_off_policy"):
            self.queued = min(fault.size - self.task.lag, self.queued + 0.5)
        for one in self.every:
            self.speeds[one.at] = self._speed(one)
            if not one.alive and 0 < one.back <= step:
                one.alive, one.since, one.returned, one.back = True, step, step, 0
            if fault.hits("stale_replica", one.at):
                continue
            if fault.hits("recovered_engine_old_weights", one.at):
                one.loaded = one.label = max(0, fault.onset - round(fault.size))
                continue
            one.label = max(0, step - self.task.lag)
            if not fault.active("weights_not_reloaded"):
                one.loaded = one.label

    def _speed(self, one: Engine) -> float:
        """How fast a replica is, as a multiple of a healthy one."""
        speed = self.noises.times(f"speed/{one.at}", 0.04)
        if self.fault.hits("tokenizer_starved", one.at):
            speed /= self.fault.size
        demand = self.fault.size_of("kv_thrash", 0)
        if demand:
            speed *= 1 - min(0.8, 0.05 + 0.6 * (demand - 1))
        return speed

    def mismatch(self, one: Engine, step: int) -> tuple[float, float]:
        """The mean difference of log-probabilities of a replica's samples, and the part that its label explains."""
        fault, task = self.fault, self.task
        base = task.mismatch * self.noises.times(f"mismatch/{one.at}", 0.06)
        honest = task.move * moved(step - one.label + self.queued)
        extra = 0.0
        if fault.active("weights_not_reloaded"):
            extra += min(1.0, fault.size * fault.since**0.8)
        if fault.active("sync_corrupts_weights"):
            extra += fault.size * self.noises.times("corrupt", 0.1)
        if fault.active("prefix_cache_survives_update"):
            extra += min(0.6, fault.size * (step - max(one.since, fault.onset)))
        if fault.active("retokenisation_drift"):
            extra += NATS_OF_A_WRONG_TOKEN * fault.size / 1000
        if fault.active("lr_reset_at_resume"):
            honest *= fault.size**0.7
        return base + extra + honest, honest

    def served(self, step: int) -> tuple[list[tuple[int, float]], float, float, float]:
        """(version, share) of what a batch is made of; its mismatch (root mean square), the honest part, its lag."""
        found: list[tuple[int, float]] = []
        total = mismatch = honest = lag = 0.0
        self.refused = 0
        for one in self.living:
            share = self.speeds[one.at]
            if self.fault.hits("stale_replica", one.at) and step - one.label > self.fault.size:
                self.refused += 1
                continue
            nats, explained = self.mismatch(one, step)
            found.append((one.loaded, share))
            total += share
            mismatch += share * nats**2  # the update's variance goes with the square
            honest += share * explained
            lag += share * (step - one.label + self.queued)
        return found, math.sqrt(mismatch / total), honest / total, lag / total

    def rollout_s(self, tokens: float) -> float:
        """How long the replicas generate for a step: all together, then the slowest one's last answers. `tokens` is a
        multiple of what is usual at first.
        """
        machine = self.machine
        speeds = [self.speeds[one.at] for one in self.living if not self._is_refused(one)]
        busy, tail = machine.replicas / sum(speeds), 1 / min(speeds)
        return machine.rollout_s * tokens * (0.7 * busy + 0.3 * tail) * self.noises.times("tail", 0.05)

    def _is_refused(self, one: Engine) -> bool:
        return self.refused > 0 and self.fault.hits("stale_replica", one.at)

    def metrics(self, one: Engine, batch: Batch, step_s: float) -> Metrics:
        """What a replica logs at a step."""
        noises, machine, fault = self.noises, self.machine, self.fault
        name = str(one.at)
        starved = fault.size if fault.hits("tokenizer_starved", one.at) else 1.0
        demand = fault.size_of("kv_thrash", 0)
        usage = min(1.0, demand or max(0.1, machine.kv_usage + 0.05 * noises(f"kv/{name}")))
        crowded = 1 + 3 * max(0.0, demand - 1)
        share = self.speeds[one.at] / sum(self.speeds[other.at] for other in self.living)
        ttft = 0.2 * noises.times(f"ttft/{name}", 0.1) * starved * crowded
        preempted = max(0.0, demand - 1) * 200 + max(0.0, 0.6 + 0.7 * noises(f"preempt/{name}")) * (usage > 0.9)
        return {
            "policy_version": one.label,
            "gen/decode_tokens_per_s": batch.length * GROUPS * SAMPLES * share,
            "gen/prefill_tokens_per_s": 300.0 * GROUPS * SAMPLES * share,
            "gen/kv_usage": usage,
            "gen/preemptions": preempted,
            "gen/requests_running": 48 / crowded * noises.times(f"running/{name}", 0.05),
            "gen/requests_waiting": max(0.0, 4 * crowded**2 * starved + noises(f"waiting/{name}")),
            "gen/ttft_s": [ttft * scale for scale in (0.7, 0.9, 1.0, 1.3, 2.2)],
            "gen/tpot_s": [0.02 * crowded * scale for scale in (0.9, 1.0, 1.1, 1.4)],
            "gen/queue_s": [0.05 * crowded**2 * starved * scale for scale in (0.5, 1.0, 1.5, 3.0)],
            "gen/tokenize_s": [0.004 * starved * noises.times(f"tok/{name}", 0.1) * scale for scale in (0.8, 1, 1.6)],
            "gen/timeout_ratio": 0.0 if crowded < 2 else 0.01 * crowded,
            "data/aborted_ratio": max(0.0, 0.004 + 0.002 * noises(f"abort/{name}")),
            "sync/pull_s": machine.sync_s * noises.times(f"pull/{name}", 0.1),
            "perf/stage_s/rollout": step_s * 0.8,
        }


def moved(versions: float) -> float:
    """How far a policy has moved in so many versions, as a multiple of one; it wanders, and so ever less."""
    return float(max(0.0, versions) ** 0.8)


@dataclass(slots=True)
class Ranks:
    """The trainer's ranks. `gaps` is memory in pieces too small to use, in GiB; `retries` counts since the start."""

    machine: Hardware
    fault: Fault
    noises: Noises
    gaps: float = 5.0
    retries: int = 0

    def shares(self) -> list[float]:
        """Each rank's share of the step's tokens, 1 on average."""
        spread = self.fault.size_of("unequal_lengths", 0.04)
        drawn = [max(0.1, 1 + spread * self.noises.fresh(f"share/{rank}")) for rank in range(self.machine.ranks)]
        whole = sum(drawn) / len(drawn)
        return [share / whole for share in drawn]

    def active(self, shares: list[float], tokens: float) -> list[float]:
        """How long each rank works on its share."""
        machine, fault = self.machine, self.fault
        found = []
        for rank, share in enumerate(shares):
            active = machine.update_s * tokens * share * self.noises.times(f"active/{rank}", 0.015)
            if fault.hits("thermal_straggler", rank):
                active *= 1 + (fault.size - 1) * (1 - math.exp(-(fault.since + 1) / 3))
            found.append(active * (1.3 if self.retried else 1.0))
        return found

    @property
    def retried(self) -> bool:
        """Whether the allocator frees its cache at this step."""
        return self.fault.active("fragmentation") and self.machine.held_gib + self.gaps >= 79

    def fragment(self) -> None:
        """A step's allocations leave gaps behind."""
        if self.retried:
            self.retries += 2
            self.gaps -= 0.5 * self.fault.size
        self.gaps += self.fault.size_of("fragmentation", 0.0)

    def comm_s(self) -> float:
        """The part of an update in which ranks wait for the network."""
        healthy = COMM * self.machine.update_s * self.noises.times("comm", 0.08)
        return healthy * self.fault.size_of("network_fail_slow", 1.0)

    def memory(self, rank: int, tokens: float) -> Metrics:
        """What a rank's allocator says."""
        held = self.machine.held_gib * (0.97 + 0.03 * tokens) + 0.3 * self.noises(f"memory/{rank}")
        reserved = min(79.5, held + self.gaps)
        return {
            "mem/allocated": min(held, reserved) * GIB,
            "mem/reserved": reserved * GIB,
            "mem/capacity": CAPACITY,
            "mem/alloc_retries": self.retries,
            "mem/ooms": 0,
        }

    def gpu(self, rank: int) -> tuple[float, float]:
        """A rank's GPU: temperature and clock."""
        hot = 0.0
        if self.fault.hits("thermal_straggler", rank):
            hot = 1 - math.exp(-(self.fault.since + 1) / 3)
        warm = 58 + 6 * (rank % 3) + 1.5 * self.noises(f"warm/{rank}")
        slow = 1 + (self.fault.size - 1) * hot if hot else 1.0
        return warm + hot * (91 - warm), 1750 / slow * self.noises.times(f"clock/{rank}", 0.004)


def reward_metrics(learner: Learner, fault: Fault, machine: Hardware, batch: Batch, worker: int) -> Metrics:
    """What a reward worker logs at a step. A check that times out takes 15 s."""
    noises = learner.noises
    usual = machine.latency_s * noises.times(f"latency/{worker}", 0.08)
    scales = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5)
    slow = round(fault.size_of("reward_timeout", 0) * len(scales))
    answers = GROUPS * SAMPLES // 2
    spread = 0.5 * math.sqrt(max(0.0, batch.reward * (1 - batch.reward)) / answers)
    return {
        "reward/total": _bounded(batch.reward + spread * noises(f"reward/{worker}")),
        "rwd/part/correct": _bounded(batch.correct + spread * noises(f"correct/{worker}")),
        "rwd/part/style": _bounded(batch.style + 0.01 * noises(f"style/{worker}")),
        "rwd/latency_s": [usual * scale for scale in scales[: len(scales) - slow]] + [15.0] * slow,
        "rwd/timeouts": round(fault.size_of("reward_timeout", 0) * answers),
        "rwd/rule_exceptions": int(noises(f"exceptions/{worker}") > 2),
    }


def _bounded(value: float) -> float:
    return max(0.0, min(1.0, value))


def without(metrics: Mapping[str, Any], names: frozenset[str]) -> Metrics:
    """Metrics without those that the job does not log."""
    return {name: value for name, value in metrics.items() if name not in names}
