"""The verifier: checks answers for the reward worker, as a server does that knows nothing of steps."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import task
from rlship_sidecar.demo.links import PeerLink
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Answer the reward worker until it asks for no more. Nothing here has a step, so its lines are a stream."""
    rlship.init(experiment, actor="verifier", rank=rank, world=1)
    rlship.define({"answers": ["sum", "rate"], "correct": "mean"})
    rlship.define("batch_size", stream=True)  # a point of its own, at most one a second
    rng = random.Random(f"{plan.seed}/latency")
    client = links[name_of("reward", 0)]
    while groups := client.receive()["groups"]:
        with rlship.span("verify"):
            time.sleep(plan.pace_s * rng.uniform(0.02, 0.06))  # stands in for running the answers' code
            scores = [scores_of(group) for group in groups]
        flat = [score for of_prompt in scores for score in of_prompt]
        rlship.log({"answers": len(flat), "correct": [float(score == 1.0) for score in flat]})
        rlship.log({"batch_size": len(groups)})
        client.send({"scores": scores})
    rlship.close()


def scores_of(group: Mapping[str, Any]) -> list[float]:
    """The scores of the answers to one prompt."""
    return [task.score(group["prompt"], answer) for answer in group["answers"]]


if __name__ == "__main__":
    run("verifier", work)
