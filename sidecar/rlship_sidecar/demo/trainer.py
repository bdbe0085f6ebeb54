"""One data-parallel trainer rank. Rank 0 also adds up the gradients, steps the optimiser and hands out the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import detail, faults, task
from rlship_sidecar.demo.links import PeerGoneError, PeerLink
from rlship_sidecar.demo.plan import STRAGGLER, JobPlan
from rlship_sidecar.demo.process import LoopPace, name_of, run

SPIKE = 50  # times the learning rate
LEAK = 8 << 20  # bytes a step


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Learn from one share of the rollouts per step."""
    rlship.init(experiment, actor="trainer", rank=rank, world=plan.trainers, ledger_share=1)
    rlship.define(
        {
            "grad_norm": "max",
            "reward": ["mean", "min", "max"],
            "advantage": ["mean", "std"],
            "entropy": {"unit": "nats"},
            "kl": {"unit": "nats"},
            "tokens": {"reduce": "sum", "unit": "tokens"},
            "busy_s": {"reduce": ["max", "mean"], "unit": "s", "per_rank": True},
            "policy_version": {"reduce": "max", "unit": "global_step"},
        }
    )
    initial = weights = task.initial_weights(plan.seed)
    feed = links[name_of("buffer", 0) if plan.detailed else name_of("generator", plan.feeder(rank))]
    kept: list[bytes] = []
    idle_s = 0.0
    server = None if rank else ParameterServer(plan, links)
    for step in range(plan.steps):
        rlship.set_step(step)  # for the spans
        with rlship.span("wait_rollouts"):
            groups = feed.receive()["groups"]
        began = time.monotonic()
        with rlship.span("train"):
            rollouts, scores, gains = unpack(groups, plan, step)
            learned = task.gradient(weights, initial, rollouts, gains, int(plan.has(faults.WRONG_MASK, step)))
            time.sleep(plan.device_s + (plan.straggle_s if rank == STRAGGLER else 0.0))
            if rank == faults.CULPRIT and plan.has(faults.SLOW_RANK, step):
                time.sleep(2 * (plan.device_s + 0.1))
            if rank == faults.CULPRIT and plan.has(faults.MEMORY_LEAK, step):
                kept.append(bytes([1]) * LEAK)
        finite = not plan.has(faults.NONFINITE_GRADIENT, step)
        rlship.log(
            {
                "loss": learned.loss if finite else math.nan,
                "entropy": learned.entropy,
                "kl": learned.kl,
                "clip_frac": learned.clip_frac,
            },
            step=step,
            weight=learned.tokens,
        )
        rlship.log(
            {
                "reward": scores,
                "advantage": gains,
                "grad_norm": learned.norm if finite else math.nan,
                "tokens": learned.tokens,
                "policy_version": step,
                "busy_s": time.monotonic() - began,
            },
            step=step,
        )
        if plan.detailed:
            times = time.monotonic() - began, idle_s
            off = detail.differences(weights, rollouts)
            detail.log_trained(plan, step, groups, learned, off, times, rate_of(plan, step))
            by_prompt = [gains[at : at + plan.group] for at in range(0, len(gains), plan.group)]
            detail.record_trained(plan, step, groups, by_prompt)
        # Here and not after the exchange below: a rank has logged everything of the step, and the
        # barriers' times then show for which rank the others wait.
        rlship.barrier(step)
        ended = time.monotonic()
        if server:
            weights = server.step(step, weights, learned)
        else:
            links[name_of("trainer", 0)].send({"total": learned.total, "tokens": learned.tokens})
            weights = links[name_of("trainer", 0)].receive()["weights"]
        idle_s = time.monotonic() - ended
    rlship.close()


def rate_of(plan: JobPlan, step: int) -> float:
    """The learning rate at a step."""
    return task.RATE * (SPIKE if plan.has(faults.LR_SPIKE, step) else 1)


def unpack(
    groups: Sequence[dict[str, Any]], plan: JobPlan, step: int
) -> tuple[list[task.Rollout], list[float], list[float]]:
    """The rollouts of a message, with their scores and their advantages over the others of the same prompt."""
    rollouts = [
        task.Rollout(tuple(group["prompt"]), tuple(answer), tuple(logp))
        for group in groups
        for answer, logp in zip(group["answers"], group["logp"])
    ]
    scores = [group["scores"] for group in groups]
    sign = -1.0 if plan.has(faults.FLIPPED_SIGN, step) else 1.0
    gains = [[sign * gain for gain in task.advantages(of_prompt)] for of_prompt in scores]
    return rollouts, list(chain.from_iterable(scores)), list(chain.from_iterable(gains))


class ParameterServer:
    """Rank 0's second role."""

    def __init__(self, plan: JobPlan, links: Mapping[str, PeerLink]) -> None:
        self._ranks = [links[name_of("trainer", rank)] for rank in range(1, plan.trainers)]
        self._generators = [links[name_of("generator", rank)] for rank in range(plan.generators)]
        self._plan = plan
        self._optimiser = task.Adam(task.WEIGHTS)
        self._last_used = plan.steps - 2  # generators are one step ahead: they end before the newest weights
        self._pace = LoopPace(plan.pace_s)

    def step(self, step: int, weights: Sequence[float], own: task.Gradient) -> list[float]:
        """Add up the ranks' gradients, in the order of ranks, and publish the weights of version `step + 1`."""
        total, tokens = list(own.total), own.tokens
        for link in self._ranks:
            message = link.receive()
            total = [a + b for a, b in zip(total, message["total"])]
            tokens += message["tokens"]
        self._optimiser.rate = rate_of(self._plan, step)
        moved = list(weights)
        if not self._plan.has(faults.NONFINITE_GRADIENT, step):
            moved = self._optimiser.step(weights, [value / tokens for value in total])
        time.sleep(self._pace.left())
        version = step + 1
        if self._plan.detailed:
            detail.record_weights(version, moved)
        for link in self._ranks:
            link.send({"weights": moved})
        if version <= self._last_used:
            for link in list(self._generators):
                self._push(link, {"version": version, "weights": moved})
            rlship.event("weights_pushed", step=version, to=len(self._generators))
        return moved

    def _push(self, link: PeerLink, message: dict[str, Any]) -> None:
        try:
            link.send(message)
        except PeerGoneError:
            if self._plan.fault != faults.DEAD_GENERATOR:
                raise
            self._generators.remove(link)


if __name__ == "__main__":
    run("trainer", work)
