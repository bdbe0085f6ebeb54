"""A small job written by the project's own writers: four trainer ranks, two generators, a reward worker, two nodes.

One process plays all of them under one simulated clock, so that an incident is files only, and the same each time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rlship.flusher import Timing
from rlship.identity import Identity
from rlship.logger import Logger
from tests.kit.files import T0

STEP_S, RANKS, GENERATORS = 10.0, 4, 2
FAULT_AT = 60


@dataclass
class Now:
    """What happens at one step. A fault changes it, `since` steps after it began."""

    step: int
    since: int
    noise: random.Random
    factor: dict[str, float] = field(default_factory=dict)
    value: dict[str, float] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)
    slow_rank: float = 1.0
    hot_node: float = 0.0

    def near(self, name: str, usual: float, spread: float = 0.05) -> float:
        """A value near its usual one."""
        noisy = usual * math.exp(self.noise.gauss(0, spread)) * self.factor.get(name, 1.0)
        return self.value.get(name, noisy)


Fault = Callable[[Now], None]


def healthy(now: Now) -> None:
    """No fault."""


def trainer(now: Now) -> dict[str, float]:
    """What each trainer rank logs."""
    done = 1 - math.exp(-now.step / 100)
    return {
        "train/loss": now.near("train/loss", 0.2),
        "train/grad_norm": now.near("train/grad_norm", 0.5, 0.1),
        "train/kl_ref": now.near("train/kl_ref", 0.02 + 0.03 * done),
        "train/ppo_kl": now.near("train/ppo_kl", 0.004),
        "train/entropy": now.near("train/entropy", 1.0 - 0.3 * done, 0.02),
        "train/lr": now.value.get("train/lr", 1e-6),
        "correctness/rollout_train_logp_diff": now.near("correctness/rollout_train_logp_diff", 0.004, 0.1),
        "correctness/is_ess": min(1.0, now.near("correctness/is_ess", 0.85, 0.03)),
        "correctness/response_mask_ratio": now.near("correctness/response_mask_ratio", 0.7, 0.01),
        "reward/zero_std_frac": now.near("reward/zero_std_frac", 0.15, 0.1),
        "data/response_len": now.near("data/response_len", 800.0, 0.03),
        "data/clip_ratio": now.near("data/clip_ratio", 0.05, 0.1),
        "perf/step_s": now.near("perf/step_s", STEP_S) * max(1.0, now.slow_rank),
        "perf/stage_s/update": now.near("perf/stage_s/update", 4.0) * max(1.0, now.slow_rank),
        "upd/comm_s": now.near("upd/comm_s", 0.5),
        "async/staleness": now.near("async/staleness", 1.0),
    }


@dataclass
class Job:
    """The job's files in `folder`."""

    folder: Path
    fault: Fault = healthy
    restarted: int | None = None  # the generator that begins anew when the fault does
    steps: int = 90
    seed: int = 1
    _clock: float = T0

    def run(self) -> Path:
        """Write everything; returns the folder."""
        with ExitStack() as stack:
            trainers = [self._logger(stack, "trainer", "0", rank, RANKS) for rank in range(RANKS)]
            generators = [self._logger(stack, "generator", str(at), 0, 1) for at in range(GENERATORS)]
            reward = self._logger(stack, "reward", "0", 0, 1)
            nodes = [self._logger(stack, "node", f"n{at}", 0, None, host=f"n{at}") for at in range(2)]
            noise = random.Random(self.seed)
            for step in range(self.steps):
                now = Now(step, step - FAULT_AT, noise)
                if now.since == 0 and self.restarted is not None:
                    generators[self.restarted].close()
                    generators[self.restarted] = self._logger(stack, "generator", str(self.restarted), 0, 1, attempt=1)
                if now.since >= 0:
                    self.fault(now)
                self._step(now, trainers, generators, reward, nodes)
        return self.folder

    def _logger(
        self,
        stack: ExitStack,
        actor: str,
        replica: str,
        rank: int,
        world: int | None,
        *,
        host: str = "",
        attempt: int = 0,
    ) -> Logger:
        host = host or f"n{rank // 2}"
        identity = Identity(actor, replica, rank, world, attempt, "given", host)
        made = Logger(str(self.folder), identity, clock=lambda: self._clock, timing=Timing(beat=1e9, look=1e9))
        made.steps.count(False)
        made.start()
        made.flush()  # so that its file begins now, by the job's clock
        stack.callback(made.close)
        return made

    def _step(
        self, now: Now, trainers: list[Logger], generators: list[Logger], reward: Logger, nodes: list[Logger]
    ) -> None:
        self._clock += STEP_S / 2
        for at, generator in enumerate(generators):
            generator.log(
                {
                    "policy_version": now.step - 1 - now.behind.get(at, 0),
                    "perf/stage_s/rollout": now.near("perf/stage_s/rollout", 5.0),
                    "gen/kv_usage": min(1.0, now.near("gen/kv_usage", 0.6)),
                    "env/timeouts": now.value.get("env/timeouts", 0.0),
                }
            )
        reward.log(
            {
                "rwd/latency_s": now.near("rwd/latency_s", 1.0, 0.1),
                "rwd/timeouts": now.value.get("rwd/timeouts", 0.0),
            },
            step=now.step,
        )
        reward.barrier(now.step)
        for at, node in enumerate(nodes):
            hot = now.hot_node if at == 1 else 0.0
            node.log(
                {"node/gpu_temp": 60 + now.noise.gauss(0, 1) + hot, "node/gpu_throttle/hw_thermal": float(hot > 20)}
            )
        self._clock += STEP_S / 2
        for rank, one in enumerate(trainers):
            values = trainer(now)
            active = 4.0 * math.exp(now.noise.gauss(0, 0.02)) * (now.slow_rank if rank == 2 else 1.0)
            tokens = 50_000 * math.exp(now.noise.gauss(0, 0.03))
            own = {"bal/rank_active_s": active, "bal/rank_tokens": tokens}
            if rank == 0:
                done = 1 - math.exp(-now.step / 100)
                own["reward/total"] = now.value.get("reward/total", 0.2 + 0.4 * done + now.noise.gauss(0, 0.01))
            one.log({**values, **own}, step=now.step)
            one.barrier(now.step)
