"""Frames of healthy runs: curves that bend, heavy tails, memory of the last step, bursts, pauses, restarts.

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
        lost = {name for name in values if chance.random() < 0.002}  # a value that a step lacks
        yield StepFrame(lineage, step, t, {name: one for name, one in values.items() if name not in lost}, per_rank)
        step += 1
        if eventful and chance.random() < 0.002 and step > 100:
            lineage, step, t = _again(lineage, chance), step - chance.randrange(0, 50), t + chance.uniform(60, 1800)


def _again(lineage: Lineage, chance: random.Random) -> Lineage:
    """A restart, or a rollback within the same process."""
    submission, attempt, rollbacks = lineage
    return (submission, attempt + 1, 0) if chance.random() < 0.7 else (submission, attempt, rollbacks + 1)
