"""What the job logs beside its own metrics if it is to have a fault: the catalogue's names, which alerts know. Of
its loss, entropy, KL and gradient norm the catalogue knows the names that the job has for them anyway.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import faults, task
from rlship_sidecar.demo.plan import JobPlan

Groups = Sequence[Mapping[str, Any]]
PAGE = resource.getpagesize()


def key_of(step: int, generator: int, place: int) -> str:
    """The key of a group: one for each time that a prompt is generated for."""
    return f"{step}:{generator}:{place}"


def log_generated(step: int, groups: Groups, version: int, loaded: int) -> None:
    """A generator's step: the version that it says it has, the one that it has, and its groups."""
    lengths = [len(answer) for group in groups for answer in group["answers"]]
    rlship.log(
        {
            "data/response_len": lengths,
            "gen/decode_tokens_per_s": sum(lengths),
            "sync/weights_fp": loaded,
            "data/clip_ratio": [
                float(len(answer) < len(group["prompt"])) for group in groups for answer in group["answers"]
            ],
        },
        step=step,
    )
    for group in groups:
        rlship.ledger("generated", group["key"], tokens=group["answers"], version=version)


def record_weights(version: int, weights: Sequence[float]) -> None:
    """Which weights a process has under a version."""
    rlship.weights(version, rlship.fingerprint({"norm.weight": weights}, dtype="float32"))


def log_rewarded(step: int, groups: Groups, scores: Sequence[Sequence[float]], took_s: float, timeouts: int) -> None:
    """The reward worker's step, of one generator's groups."""
    flat = list(chain.from_iterable(scores))
    same = [float(max(of_prompt) == min(of_prompt)) for of_prompt in scores]
    rlship.log(
        {"reward/total": flat, "reward/zero_std_frac": same, "rwd/latency_s": took_s, "rwd/timeouts": timeouts},
        step=step,
    )
    for group, of_prompt in zip(groups, scores):
        rlship.ledger("rewarded", group["key"], tokens=group["answers"], reward=of_prompt)


def log_trained(
    plan: JobPlan,
    step: int,
    groups: Groups,
    learned: task.Gradient,
    off: Sequence[float],
    times: tuple[float, float],
    rate: float,
) -> None:
    """A trainer rank's step. `off` are the differences of log-probabilities, `times` how long it worked and waited."""
    ratios = [math.exp(min(20.0, max(-20.0, one))) for one in off]
    versions = [group["version"] for group in groups]
    wrong = plan.has(faults.WRONG_MASK, step)
    shown = sum(len(answer) - wrong for group in groups for answer in group["answers"])
    whole = sum(len(answer) for group in groups for answer in group["answers"])
    rlship.log(
        {
            "correctness/rollout_train_logp_diff": sum(map(abs, off)) / len(off),
            "correctness/is_ess": sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios)),
        },
        step=step,
        weight=learned.tokens,
    )
    rlship.log(
        {
            "train/lr": rate,
            "train/skipped_steps": int(plan.has(faults.NONFINITE_GRADIENT, step)),
            "correctness/response_mask_ratio": shown / whole,
            "async/staleness": [step - version for version in versions],
            "bal/rank_tokens": learned.tokens,
            "bal/rank_active_s": times[0],
            "bal/rank_idle_s": times[1],
            "proc/host_mem": resident(),
        },
        step=step,
    )


def record_trained(plan: JobPlan, step: int, groups: Groups, gains: Sequence[Sequence[float]]) -> None:
    """The ledger's records of the groups that a rank trained on."""
    wrong = plan.has(faults.WRONG_MASK, step)
    for group, of_prompt in zip(groups, gains):
        answers = group["answers"]
        rlship.ledger(
            *("trained", group["key"]),
            step=step,
            tokens=answers,
            reward=group["scores"],
            advantage=of_prompt,
            mask=[[int(at > 0 or not wrong) for at in range(len(answer))] for answer in answers],
            response=[len(answer) for answer in answers],
            version=group["version"],
        )


def differences(weights: Sequence[float], rollouts: Sequence[task.Rollout]) -> list[float]:
    """By token, its log-probability under these weights minus the one under those that sampled it."""
    return [
        task.log(task.distribution(weights, rollout.prompt, position)[symbol]) - then
        for rollout in rollouts
        for position, (symbol, then) in enumerate(zip(rollout.answer, rollout.logp))
    ]


def resident() -> int:
    """Bytes of this process in memory, or at most so far where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
