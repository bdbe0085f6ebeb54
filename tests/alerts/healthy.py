"""Frames of healthy runs: curves that bend, heavy tails, memory of the last step, bursts, pauses, restarts, harder
prompts, generators that join and leave.

Nothing in them is a fault. The numbers are of the size that jobs log; rules were not fitted to them beyond what
docs/alerts.md says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from rlship_sidecar.alerts.frames import RankValues, StepFrame
from rlship_sidecar.rows import Lineage

T0 = 1_763_600_000.0
GIB = 2.0**30
GENERATORS = 6


class Noise:
    """Noise that remembers: each value is `memory` of the one before, and heavy-tailed now and then."""

    def __init__(self, chance: random.Random, size: float, memory: float = 0.5, tail: float = 0.02) -> None:
        self._chance = chance
        self._size = size
        self._memory = memory
        self._tail = tail
        self._last = 0.0

    def __call__(self) -> float:
        fresh = self._chance.gauss(0, self._size) * math.sqrt(1 - self._memory**2)
        if self._chance.random() < self._tail:
            fresh *= 3
        self._last = self._memory * self._last + fresh
        return self._last


def healthy(seed: int, count: int, ranks: int = 8) -> Iterator[StepFrame]:
    """The frames of one run. Every seventh or so checkpoints, evaluates, restarts or goes back."""
    chance = random.Random(seed)
    eventful = seed % 3 == 0
    speed = chance.uniform(100, 600)
    final, start = chance.uniform(0.5, 0.9), chance.uniform(0.05, 0.3)
    entropy_end, kl_end = chance.uniform(0.2, 0.6), chance.uniform(0.01, 0.2)
    grad, length = chance.uniform(0.1, 2.0), chance.uniform(400, 3000)
    step_s, logp = chance.uniform(5, 90), chance.uniform(0.002, 0.02)
    names = (
        *("reward", "entropy", "kl", "grad", "length", "step", "logp", "ess", "clip", "zero", "tokens", "kv"),
        *("preempt", "decode", "latency", "abort", "stale"),
    )
    noise = {name: Noise(chance, chance.uniform(0.5, 1.5), chance.choice((0.0, 0.3, 0.7))) for name in names}
    skew = [chance.gauss(1, 0.02) for _ in range(ranks)]
    around = _Around(seed, eventful=eventful)
    t, lineage = T0, (0, 0, 0)
    at = 0
    step = 0
    while at < count:
        at += 1
        done = 1 - math.exp(-step / speed)
        took = step_s * math.exp(0.1 * noise["step"]()) * (1 + 0.5 * done)
        took += chance.uniform(20, 50) if step % 50 == 49 else 0  # checkpoint and evaluation
        t += took
        size = length * (1 + 0.6 * done) * math.exp(0.05 * noise["length"]())
        tokens = size * 512 * math.exp(0.06 * noise["tokens"]())
        shares = [chance.gauss(1, 0.05) for _ in range(ranks)]
        held = 40 * GIB * (1 + 0.1 * done) + 2 * GIB * chance.random()
        values = {
            "reward/total": start + (final - start) * done + 0.02 * noise["reward"](),
            "train/entropy": entropy_end + (1.2 - entropy_end) * math.exp(-step / speed) + 0.015 * noise["entropy"](),
            "train/kl_ref": max(0.0, kl_end * done * (1 + 0.1 * noise["kl"]()) + 0.0005),
            "train/grad_norm": grad * math.exp(0.25 * noise["grad"]() - 0.5 * done),
            "train/loss": 0.01 * chance.gauss(0, 1),
            "train/loss/nonfinite": 0.0,
            "train/grad_norm/nonfinite": 0.0,
            "correctness/rollout_train_logp_diff": logp * math.exp(0.1 * noise["logp"]()),
            "correctness/k3_kl": logp**2 * math.exp(0.3 * noise["logp"]()),
            "correctness/is_ess": min(1.0, 0.85 + 0.04 * noise["ess"]()),
            "correctness/response_mask_ratio": 0.95 + 0.01 * chance.random(),
            "correctness/token_align_err": 0.0,
            "data/dup_ids": 0.0,
            "data/clip_ratio": max(0.0, 0.08 + 0.1 * done * (length > 1500) + 0.02 * noise["clip"]()),
            "data/aborted_ratio": max(0.0, 0.004 + 0.003 * noise["abort"]()),
            "gen/timeout_ratio": 0.0 if chance.random() < 0.9 else 0.004,
            "reward/zero_std_frac": min(1.0, max(0.0, 0.2 + 0.4 * done + 0.05 * noise["zero"]())),
            "rwd/latency_s/p99": 1.5 * math.exp(0.2 * noise["latency"]()),
            "rwd/timeouts": 1.0 if chance.random() < 0.002 else 0.0,
            "rwd/rule_exceptions": float(chance.random() < 0.05),
            "data/step_tokens": tokens,
            "gen/kv_usage": min(1.0, 0.9 + 0.06 * noise["kv"]()),
            "gen/preemptions": max(0.0, 0.5 + 0.4 * noise["preempt"]()),
            "gen/decode_tokens_per_s": 20_000 * math.exp(0.08 * noise["decode"]()),
            "async/staleness": float(max(0, round(1 + noise["stale"]()))),
            "mem/capacity": 80 * GIB,
            "mem/reserved": held + 8 * GIB,
            "mem/allocated": held,
            "mem/alloc_retries": 0.0,
            "coverage/missing": 0.0,
            "coverage/short": 0.0,
        }
        per_rank: dict[str, RankValues] = {
            "bal/rank_tokens": tuple(
                (f"trainer/0.{rank}", tokens / ranks * share) for rank, share in enumerate(shares)
            ),
            "bal/rank_active_s": tuple(
                (f"trainer/0.{rank}", took * 0.6 * share * bias) for rank, (share, bias) in enumerate(zip(shares, skew))
            ),
        }
        slower = around.add(step, done, took, values, per_rank)
        t += slower
        lost = {name for name in values if chance.random() < 0.002}  # a value that a step lacks
        yield StepFrame(lineage, step, t, {name: one for name, one in values.items() if name not in lost}, per_rank)
        step += 1
        if eventful and chance.random() < 0.002 and step > 100:
            lineage, step, t = _again(lineage, chance), step - chance.randrange(0, 50), t + chance.uniform(60, 1800)


STAGES = {
    "perf/stage_s/rollout": (0.5, 0.12),
    "perf/stage_s/reward": (0.05, 0.15),
    "perf/stage_s/update": (0.25, 0.06),
    "upd/comm_s": (0.05, 0.15),
    "data/loading_s": (0.01, 0.4),
    "data/batch_create_s": (0.1, 0.2),
    "buf/get_s": (0.01, 0.3),
    "sync/push_s": (0.03, 0.15),
    "sync/pull_s": (0.03, 0.2),
    "env/step_s": (0.02, 0.25),
}  # the share of a step, and the noise


class _Around:
    """What else a healthy job logs: its stages, evaluations, hosts and replicas. `eventful`: prompts get harder now and
    then, and generators join and leave.
    """

    def __init__(self, seed: int, *, eventful: bool) -> None:
        chance = self._chance = random.Random(f"around {seed}")
        self._eventful = eventful
        size = chance.uniform(0.5, 1.5)
        self._noise = {
            name: Noise(chance, size * noise, chance.choice((0.0, 0.3, 0.7))) for name, (_, noise) in STAGES.items()
        }
        self._eval = Noise(chance, chance.uniform(0.005, 0.02), 0.0)
        self._every = chance.choice((1, 10, 20, 50))
        self._score = chance.uniform(0.1, 0.3), chance.uniform(0.1, 0.5)
        self._host = chance.uniform(0.2, 0.85)
        self._memory = Noise(chance, 0.01, 0.7)
        self._rate = [chance.gauss(1, 0.04) for _ in range(GENERATORS)]
        self._generators = GENERATORS
        self._harder = 0.0

    def add(
        self, step: int, done: float, took: float, values: dict[str, float], per_rank: dict[str, RankValues]
    ) -> float:
        """Add it to what a step logs. Returns by how much the step takes longer for it."""
        chance = self._chance
        if self._eventful and chance.random() < 0.004:
            self._harder = chance.uniform(-0.1, 0.1)
        if self._eventful and chance.random() < 0.004:
            self._generators = chance.randint(GENERATORS - 2, GENERATORS)
        values["reward/total"] -= 0.5 * max(0.0, self._harder)
        length = 1500 * (1 + 0.5 * done) * (1 + self._harder) * math.exp(chance.gauss(0, 0.03))
        slower = took * (0.5 * (GENERATORS / self._generators - 1) + 0.5 * self._harder)
        values["data/response_len"] = length
        values["data/clip_ratio"] += 0.3 * max(0.0, self._harder)
        values["perf/step_s"] = took + slower
        for name, (share, _) in STAGES.items():
            values[name] = share * took * math.exp(self._noise[name]())
        if step % self._every == 0:
            start, gain = self._score
            values["eval/score"] = start + gain * done + self._eval()
        values["node/host_mem_frac"] = min(0.94, self._host + 0.03 * done + self._memory())
        values["coverage/members"] = 16.0 + self._generators
        rates = [values["gen/decode_tokens_per_s"] / GENERATORS * rate * chance.gauss(1, 0.06) for rate in self._rate]
        per_rank["gen/decode_tokens_per_s"] = tuple(
            (f"generator/{at}.0", rate) for at, rate in enumerate(rates[: self._generators])
        )
        per_rank["sync/pull_s"] = tuple(
            (f"generator/{at}.0", values["sync/pull_s"] * chance.gauss(0.9, 0.05)) for at in range(self._generators)
        )
        values["bal/rank_tokens/mean"] = values["data/step_tokens"] / len(per_rank["bal/rank_tokens"])
        values["bal/rank_tokens/max"] = max(value for _, value in per_rank["bal/rank_tokens"])
        return slower


def _again(lineage: Lineage, chance: random.Random) -> Lineage:
    """A restart, or a rollback within the same process."""
    submission, attempt, rollbacks = lineage
    return (submission, attempt + 1, 0) if chance.random() < 0.7 else (submission, attempt, rollbacks + 1)
