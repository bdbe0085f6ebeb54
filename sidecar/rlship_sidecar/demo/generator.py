"""A generator, one step ahead: answers prompts with the policy, has the answers scored, feeds its trainer ranks."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import detail, faults, task
from rlship_sidecar.demo.links import PeerLink
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Generate for every step of the trainers."""
    rlship.init(experiment, actor="generator", rank=rank, world=plan.generators, ledger_share=1)
    rlship.define(
        {
            "rollouts": "sum",
            "tokens": {"reduce": "sum", "unit": "tokens"},
            "gen_s": {"reduce": ["mean", "max"], "unit": "s"},
            "reward": ["mean", "std"],
            "policy_version": {"reduce": "min", "unit": "global_step", "per_rank": plan.detailed},
        }
    )
    version = loaded = 0
    weights: Sequence[float] = task.initial_weights(plan.seed)
    takers = [name_of("buffer", 0)] if plan.detailed else [name_of("trainer", fed) for fed in plan.fed_by(rank)]
    for step in range(plan.steps):
        rlship.set_step(step)  # for the spans
        if step >= 2:
            # The weights of the step before last: the trainers work on the last step meanwhile.
            message = links[name_of("trainer", 0)].receive()
            version, loaded, weights = taken(message, (version, loaded, weights), plan, rank, step)
        if plan.has(faults.DEAD_GENERATOR, step) and rank == faults.CULPRIT:
            rlship.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        with rlship.span("rollout"):
            groups = generate(weights, plan, random.Random(f"{plan.seed}/rollouts/{rank}/{step}"))
            for place, group in enumerate(groups if plan.detailed else ()):
                group["key"], group["version"] = detail.key_of(step, rank, place), version
                if plan.has(faults.TRUNCATION, step):
                    group["answers"] = [answer[:1] for answer in group["answers"]]
                    group["logp"] = [logp[:1] for logp in group["logp"]]
            time.sleep(plan.device_s)
        gen_s = time.monotonic() - began
        with rlship.span("score"):
            links[name_of("reward", 0)].send({"step": step, "groups": groups})
            for group, scores in zip(groups, links[name_of("reward", 0)].receive()["scores"]):
                group["scores"] = scores
        tokens = [len(answer) for group in groups for answer in group["answers"]]
        rlship.log(
            {
                "rollouts": len(tokens),
                "tokens": sum(tokens),
                "gen_s": gen_s,
                "reward": [score for group in groups for score in group["scores"]],
                "policy_version": version,
            },
            step=step,
        )
        if plan.detailed:
            detail.record_weights(version, weights)
            detail.log_generated(step, groups, version, loaded)
        rlship.barrier(step)
        share = len(groups) // len(takers)
        for place, taker in enumerate(takers):
            links[taker].send({"groups": groups[place * share : (place + 1) * share]})
    rlship.close()


Held = tuple[int, int, Sequence[float]]


def taken(message: Mapping[str, Any], held: Held, plan: JobPlan, rank: int, step: int) -> Held:
    """The version that a generator names, the one that it has, and the weights, after a message with newer ones."""
    if plan.has(faults.STALE_WEIGHTS, step) and rank == faults.CULPRIT:
        return held
    if plan.has(faults.MISLABELLED_WEIGHTS, step):
        return message["version"], held[1], held[2]
    return message["version"], message["version"], message["weights"]


def generate(weights: Sequence[float], plan: JobPlan, rng: random.Random) -> list[dict[str, Any]]:
    """One step's groups of rollouts, without scores; a group answers one prompt several times."""
    groups = []
    for _ in range(plan.prompts):
        prompt = task.draw_prompt(rng)
        rollouts = [task.sample(weights, prompt, rng) for _ in range(plan.group)]
        groups.append(
            {
                "prompt": prompt,
                "answers": [rollout.answer for rollout in rollouts],
                "logp": [rollout.logp for rollout in rollouts],
            }
        )
    return groups


if __name__ == "__main__":
    run("generator", work)
