"""What differs between simulated jobs, and noise as healthy jobs have it: the same with and without a fault."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


class Noise:
    """Noise of a standard deviation of about 1 that remembers its last value and has heavy tails now and then."""

    def __init__(self, chance: random.Random, memory: float) -> None:
        self._chance = chance
        self._memory = memory
        self._last = 0.0

    def __call__(self) -> float:
        fresh = self._chance.gauss(0, 1) * math.sqrt(1 - self._memory**2)
        if self._chance.random() < 0.02:
            fresh *= 3
        self._last = self._memory * self._last + fresh
        return self._last


class Noises:
    """Noise by name. Each name has its own, so that a fault which asks for fewer changes no other."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[str, Noise] = {}

    def __call__(self, name: str) -> float:
        """The next value of a name's noise."""
        if name not in self._known:
            chance = random.Random(f"{self._seed}/noise/{name}")
            self._known[name] = Noise(chance, chance.choice((0.0, 0.3, 0.6, 0.8)))
        return self._known[name]()

    def fresh(self, name: str) -> float:
        """The same without a memory."""
        if name not in self._known:
            self._known[name] = Noise(random.Random(f"{self._seed}/noise/{name}"), 0.0)
        return self._known[name]()

    def times(self, name: str, share: float) -> float:
        """A factor around 1."""
        return math.exp(share * self(name))


@dataclass(frozen=True, slots=True)
class Hardware:
    """The size of a job and how long its parts take, in seconds a step."""

    ranks: int
    replicas: int
    rollout_s: float
    update_s: float
    latency_s: float
    kv_usage: float
    held_gib: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """What the job learns, and how fast. `tolerance` is the mismatch in nats that its algorithm bears."""

    speed: float
    quality: float
    best: float
    entropy: float
    kl: float
    length: float
    grad: float
    mismatch: float
    move: float
    lag: int
    tolerance: float
    lr: float


GROUPS, SAMPLES = 64, 8


def hardware(seed: int) -> Hardware:
    """A job's hardware."""
    chance = random.Random(f"{seed}/hardware")
    step_s = chance.uniform(8, 80)
    return Hardware(
        chance.choice((4, 8)),
        chance.choice((3, 4, 6)),
        step_s,
        step_s * chance.uniform(0.55, 1.0),
        chance.uniform(0.3, 2.0),
        chance.uniform(0.5, 0.85),
        chance.uniform(45, 58),
        chance.uniform(1, 4),
    )


def task(seed: int) -> Task:
    """A job's task."""
    chance = random.Random(f"{seed}/task")
    return Task(
        chance.uniform(80, 200),
        chance.uniform(0.1, 0.3),
        chance.uniform(0.65, 0.9),
        chance.uniform(0.9, 1.4),
        chance.uniform(0.02, 0.15),
        chance.uniform(400, 3000),
        chance.uniform(0.1, 2.0),
        chance.uniform(0.003, 0.012),
        chance.uniform(0.003, 0.009),
        chance.choice((1, 1, 2)),
        chance.uniform(0.03, 0.08),
        chance.choice((1e-6, 2e-6, 5e-6)),
    )


def is_logged(seed: int, metric: str) -> bool:
    """Whether a job logs a metric. Jobs differ in that; what all frameworks log every one does."""
    always = ("reward/", "train/loss", "train/grad", "train/kl", "train/entropy", "perf/step_s", "data/response_len")
    return metric.startswith(always) or random.Random(f"{seed}/logs/{metric}").random() < 0.85
