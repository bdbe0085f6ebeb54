"""The reward worker: has the generators' answers verified, and logs their scores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import detail, faults
from rlship_sidecar.demo.links import PeerGoneError, PeerLink, waiting
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Answer requests until every generator has had an answer for every step."""
    rlship.init(experiment, actor="reward", rank=rank, world=1, ledger_share=1)
    rlship.define("score", ["mean", "min", "max"])
    rlship.define("latency_s", unit="s")
    verifier = links[name_of("verifier", 0)]
    open_links = [links[name_of("generator", generator)] for generator in range(plan.generators)]
    served: Counter[int] = Counter()
    generators = plan.generators
    while open_links:
        for link in waiting(open_links):
            try:
                request = link.receive()
            except PeerGoneError:
                if plan.fault != faults.DEAD_GENERATOR:
                    raise
                open_links.remove(link)
                generators -= 1
                rlship.barrier(max(served))  # the others have had their answers
                continue
            step = request["step"]
            began = time.monotonic()
            verifier.send({"step": step, "groups": request["groups"]})
            answer = verifier.receive()
            scores = answer["scores"]
            with rlship.step(step):
                for group, of_prompt in zip(request["groups"], scores):
                    record(group, of_prompt)
                rlship.record_metric("latency_s", time.monotonic() - began, rlship.Reduce.MAX)
            if plan.detailed:
                took_s = time.monotonic() - began
                detail.log_rewarded(step, request["groups"], scores, took_s, answer["timeouts"])
            link.send({"scores": scores})
            served[step] += 1
            if served[step] >= generators:  # the generators need not be at the same step
                rlship.barrier(step)
            if step == plan.steps - 1:
                open_links.remove(link)
    verifier.send({"groups": []})
    rlship.close()


def record(group: Mapping[str, Any], scores: Sequence[float]) -> None:
    """Log the scores of one prompt's answers; the step and the dictionary need not be passed down to here."""
    for value in scores:
        rlship.record_metric("score", value)
    rlship.record_metric("answers", len(scores), rlship.Reduce.SUM)
    prompt, answer = (" ".join(map(str, symbols)) for symbols in (group["prompt"], group["answers"][0]))
    rlship.sample("rollouts", {"prompt": prompt, "answer": answer, "score": scores[0]}, score=scores[0])


if __name__ == "__main__":
    run("reward", work)
