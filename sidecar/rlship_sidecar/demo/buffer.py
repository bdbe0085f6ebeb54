"""The buffer of a job with a fault: takes groups from the generators, and shares them out among the trainer ranks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlship
from rlship_sidecar.demo import faults
from rlship_sidecar.demo.links import PeerGoneError, PeerLink
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import name_of, run


def work(experiment: Path, plan: JobPlan, rank: int, links: Mapping[str, PeerLink]) -> None:
    """Pass the groups of every step on."""
    rlship.init(experiment, actor="buffer", rank=rank, world=1, ledger_share=1)
    generators = [links[name_of("generator", generator)] for generator in range(plan.generators)]
    trainers = [links[name_of("trainer", trainer)] for trainer in range(plan.trainers)]
    for step in range(plan.steps):
        began = time.monotonic()
        groups = [group for link in list(generators) for group in receive(link, generators, plan)]
        if plan.has(faults.SWAPPED_REWARDS, step):
            for group in groups:
                group["scores"] = group["scores"][1:] + group["scores"][:1]
        samples = sum(len(group["answers"]) for group in groups)
        rlship.log(
            {
                "buf/size": samples,
                "buf/write_per_s": samples,
                "buf/read_per_s": samples,
                "buf/get_s": time.monotonic() - began,
            },
            step=step,
        )
        rlship.barrier(step)
        for place, link in enumerate(trainers):
            link.send({"groups": groups[place :: len(trainers)]})
    rlship.close()


def receive(link: PeerLink, living: list[PeerLink], plan: JobPlan) -> list[dict[str, Any]]:
    """The groups of one generator; none of one that the fault ended, which is forgotten then."""
    try:
        groups: list[dict[str, Any]] = link.receive()["groups"]
    except PeerGoneError:
        if plan.fault != faults.DEAD_GENERATOR:
            raise
        living.remove(link)
        return []
    return groups


if __name__ == "__main__":
    run("buffer", work)
