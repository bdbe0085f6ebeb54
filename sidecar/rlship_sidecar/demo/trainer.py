"""One data-parallel trainer rank. Rank 0 also adds up the gradients, steps the optimiser and hands out the weights."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import task
from rlship_sidecar.demo.links import PeerLink
from rlship_sidecar.demo.plan import STRAGGLER, JobPlan
from rlship_sidecar.demo.process import LoopPace, name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Learn from one share of the rollouts per step."""
    rlship.init(experiment, actor="trainer", rank=rank, world=plan.trainers)
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
    feed = links[name_of("generator", plan.feeder(rank))]
    server = None if rank else ParameterServer(plan, links)
    for step in range(plan.steps):
        rlship.set_step(step)  # for the spans
        with rlship.span("wait_rollouts"):
            groups = feed.receive()["groups"]
        began = time.monotonic()
        with rlship.span("train"):
            rollouts, scores, gains = unpack(groups)
            learned = task.gradient(weights, initial, rollouts, gains)
            time.sleep(plan.device_s + (plan.straggle_s if rank == STRAGGLER else 0.0))
        rlship.log(
            {"loss": learned.loss, "entropy": learned.entropy, "kl": learned.kl, "clip_frac": learned.clip_frac},
            step=step,
            weight=learned.tokens,
        )
        rlship.log(
            {
                "reward": scores,
                "advantage": gains,
                "grad_norm": learned.norm,
                "tokens": learned.tokens,
                "policy_version": step,
                "busy_s": time.monotonic() - began,
            },
            step=step,
        )
        # Here and not after the exchange below: a rank has logged everything of the step, and the
        # barriers' times then show for which rank the others wait.
        rlship.barrier(step)
        if server:
            weights = server.step(step, weights, learned)
        else:
            links[name_of("trainer", 0)].send({"total": learned.total, "tokens": learned.tokens})
            weights = links[name_of("trainer", 0)].receive()["weights"]
    rlship.close()


def unpack(groups: Sequence[dict[str, Any]]) -> tuple[list[task.Rollout], list[float], list[float]]:
    """The rollouts of a message, with their scores and their advantages over the others of the same prompt."""
    rollouts = [
        task.Rollout(tuple(group["prompt"]), tuple(answer), tuple(logp))
        for group in groups
        for answer, logp in zip(group["answers"], group["logp"])
    ]
    scores = [group["scores"] for group in groups]
    gains = [task.advantages(of_prompt) for of_prompt in scores]
    return rollouts, list(chain.from_iterable(scores)), list(chain.from_iterable(gains))


class ParameterServer:
    """Rank 0's second role."""

    def __init__(self, plan: JobPlan, links: Mapping[str, PeerLink]) -> None:
        self._ranks = [links[name_of("trainer", rank)] for rank in range(1, plan.trainers)]
        self._generators = [links[name_of("generator", rank)] for rank in range(plan.generators)]
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
        moved = self._optimiser.step(weights, [value / tokens for value in total])
        time.sleep(self._pace.left())
        version = step + 1
        for link in self._ranks:
            link.send({"weights": moved})
        if version <= self._last_used:
            for link in self._generators:
                link.send({"version": version, "weights": moved})
            rlship.event("weights_pushed", step=version, to=len(self._generators))
        return moved


if __name__ == "__main__":
    run("trainer", work)
