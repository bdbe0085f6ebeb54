"""The reward worker: scores the generators' answers."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import rlship
from rlship_sidecar.demo import task
from rlship_sidecar.demo.links import PeerLink, waiting
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Answer requests until every generator has had an answer for every step."""
    rlship.init(experiment, actor="reward", rank=rank, world=1)
    rlship.define("score", ["mean", "min", "max"])
    rlship.define("latency_s", unit="s")
    rng = random.Random(f"{plan.seed}/latency")
    open_links = [links[name_of("generator", generator)] for generator in range(plan.generators)]
    served: Counter[int] = Counter()
    while open_links:
        for link in waiting(open_links):
            request = link.receive()
            step = request["step"]
            began = time.monotonic()
            time.sleep(plan.pace_s * rng.uniform(0.02, 0.06))  # stands in for running a verifier
            with rlship.step(step):
                scores = [judge(group["prompt"], group["answers"]) for group in request["groups"]]
                rlship.record_metric("latency_s", time.monotonic() - began, rlship.Reduce.MAX)
            link.send({"scores": scores})
            served[step] += 1
            if served[step] == plan.generators:  # the generators need not be at the same step
                rlship.barrier(step)
            if step == plan.steps - 1:
                open_links.remove(link)
    rlship.close()


def judge(prompt: list[int], answers: list[list[int]]) -> list[float]:
    """The scores of one prompt's answers; logs from here, without being handed a step or a dictionary."""
    scores = [task.score(prompt, answer) for answer in answers]
    for value in scores:
        rlship.record_metric("score", value)
    rlship.record_metric("answers", len(scores), rlship.Reduce.SUM)
    return scores


if __name__ == "__main__":
    run("reward", work)
