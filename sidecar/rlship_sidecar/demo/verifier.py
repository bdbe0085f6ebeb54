"""The verifier: checks answers for the reward worker, as a server does that knows nothing of steps."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import faults, task
from rlship_sidecar.demo.links import PeerLink
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run

TIMEOUTS_S = 3.0  # how long checks that time out hold a request up, in paces


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Answer the reward worker until it asks for no more. Nothing here has a step, so its lines are a stream."""
    rlship.init(experiment, actor="verifier", rank=rank, world=1)
    rlship.define({"answers": ["sum", "rate"], "correct": "mean"})
    rlship.define("batch_size", stream=True)  # a point of its own, at most one a second
    rng = random.Random(f"{plan.seed}/latency")
    client = links[name_of("reward", 0)]
    while groups := (request := client.receive())["groups"]:
        timeouts = 0
        with rlship.span("verify"):
            time.sleep(plan.pace_s * rng.uniform(0.02, 0.06))  # stands in for running the answers' code
            scores = [scores_of(group) for group in groups]
            if plan.has(faults.ZERO_REWARDS, request["step"]):
                scores = [[0.0] * len(of_prompt) for of_prompt in scores]
            if plan.has(faults.SLOW_REWARDS, request["step"]):
                time.sleep(TIMEOUTS_S * plan.pace_s)
                scores[::2] = [[0.0] * len(of_prompt) for of_prompt in scores[::2]]
                timeouts = sum(map(len, scores[::2]))
        flat = [score for of_prompt in scores for score in of_prompt]
        rlship.log({"answers": len(flat), "correct": [float(score == 1.0) for score in flat]})
        rlship.log({"batch_size": len(groups)})
        client.send({"scores": scores, "timeouts": timeouts})
    rlship.close()


def scores_of(group: Mapping[str, Any]) -> list[float]:
    """The scores of the answers to one prompt."""
    return [task.score(group["prompt"], answer) for answer in group["answers"]]


if __name__ == "__main__":
    run("verifier", work)
