"""One process of a small healthy job: `python -m tests.ledger.job FOLDER ACTOR RANK STEPS`.

Every process knows all samples by the seeds of their groups, so that the job needs no other way between them. Two
replicas generate. Two data-parallel ranks of two tensor ranks train, in padded batches; the job goes back once. Prompts
come again in each epoch, some groups are dispatched again, and some are dropped.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

import rlship

GROUPS, SAMPLES, PROMPTS = 3, 4, 40
BACK_TO, BACK_AT = 5, 9
Group = dict[str, Any]


def group(step: int, number: int, again: bool = False) -> Group:
    """A group as it was generated for a step, or as it was generated again."""
    place = step * GROUPS + number
    chance = random.Random(f"{place} {again}")
    tokens = [[chance.randrange(150_000) for _ in range(chance.randint(1, 12))] for _ in range(SAMPLES)]
    mask = [[1 if at == 0 else chance.randint(0, 1) for at in range(len(row))] for row in tokens]
    return {
        "key": f"{place // PROMPTS}:{place % PROMPTS}",
        "tokens": tokens,
        "reward": [chance.choice((0.0, 0.5, 1.0)) for _ in tokens],
        "mask": mask,
        "again": place % 7 == 3,
        "dropped": place % 11 == 5,
        "version": max(0, step - 1),
    }


def padded(rows: list[list[int]], dtype: Any) -> np.ndarray[Any, Any]:
    """Rows as one array, padded at the end."""
    found = np.zeros((len(rows), max(map(len, rows)) + 2), dtype)
    for at, row in enumerate(rows):
        found[at, : len(row)] = row
    return found


def generate(replica: int, steps: int) -> None:
    """A replica generates every other group; where one is generated again, the other one does so."""
    for step in range(steps):
        for number in range(GROUPS):
            for again in (False, True) if group(step, number)["again"] else (False,):
                if (number + again) % 2 == replica:
                    made = group(step, number, again)
                    more = {"retry": 1} if again else {}
                    rlship.ledger("generated", made["key"], tokens=made["tokens"], version=made["version"], **more)
        rlship.log({"x": 1.0})


def score(steps: int) -> None:
    """The reward worker scores what the trainer gets, and the buffer drops some groups."""
    for step in range(steps):
        for number in range(GROUPS):
            made = group(step, number, group(step, number)["again"])
            rlship.ledger("rewarded", made["key"], tokens=padded(made["tokens"], np.int32), **_scored(made))
            if made["dropped"]:
                rlship.ledger("dropped", made["key"], n=SAMPLES, why="stale")


def _scored(made: Group) -> dict[str, Any]:
    return {"reward": np.array(made["reward"], np.float32), "lengths": [*map(len, made["tokens"])]}


def train(rank: int, steps: int) -> None:
    """A rank trains; of each data-parallel rank its first tensor rank records."""
    data_rank, tensor_rank = divmod(rank, 2)
    order = [*range(BACK_AT + 1), *range(BACK_TO, steps)] if steps > BACK_AT else [*range(steps)]
    before = -1
    for step in order:
        if step <= before:
            rlship.rollback(step)
        before = step
        for number in range(GROUPS):
            made = group(step, number, group(step, number)["again"])
            if tensor_rank == 0 and not made["dropped"]:
                _record(made, data_rank, step)
        rlship.log({"loss": 1.0}, step=step)
        rlship.barrier(step)


def _record(made: Group, data_rank: int, step: int) -> None:
    own = slice(data_rank * SAMPLES // 2, (data_rank + 1) * SAMPLES // 2)
    rewards = np.array(made["reward"])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    rlship.ledger(
        "trained",
        np.array([made["key"]] * (SAMPLES // 2), object),
        step=step,
        tokens=padded(made["tokens"][own], np.int64),
        lengths=[*map(len, made["tokens"][own])],
        reward=rewards[own],
        advantage=advantages[own],
        mask=padded(made["mask"][own], np.uint8),
        response=[sum(row) for row in made["mask"][own]],
        version=made["version"],
        part=(data_rank, 2),
        passes=4,
    )


def main(folder: str, actor: str, rank: int, steps: int) -> None:
    """Run one process."""
    replica = rank if actor == "generator" else None
    own_rank, world = (rank, 4) if actor == "trainer" else (0, 1)
    rlship.init(folder, actor=actor, replica=replica, rank=own_rank, world=world, ledger_share=1)
    fingerprint = rlship.fingerprint({"model.norm.weight": np.arange(9, dtype=np.float32)})
    if actor != "reward":
        rlship.weights(0, fingerprint)
    if actor == "generator":
        generate(rank, steps)
    elif actor == "reward":
        score(steps)
    else:
        train(rank, steps)
    rlship.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
