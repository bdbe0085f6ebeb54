"""Rollouts of any framework as the same samples: one table of an actor `rollouts` for training, others for evaluations.

The columns `group`, `prompt`, `response`, `reward` and `advantage` come first, as far as the file has them; what else
it has of a rollout keeps its name. Values of tokens are lists, such as `logprobs`. The score of a sample is its reward,
else its advantage.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from rlship_formats.foreign.contract import Record

ACTOR = "rollouts"
TRAIN, EVAL = "train", "eval"
FIRST = ("group", "prompt", "response", "reward", "advantage")


def opened(path: str, step: int) -> Record:
    """The `open` record of a file that has the rollouts of one step. Such files have no times; by their ids the one of
    the highest step is the newest.
    """
    return {"actor": ACTOR, "id": f"{step:016d} {path}"}


def rollout(
    raw: bytes, table: str, row: Mapping[str, Any], step: int, *, t: float | None = None, place: int = 0
) -> Record:
    """The sample record of a rollout in the line `raw`. `place` counts the rollouts of one line. Columns that are None
    are left out.
    """
    columns = {name: row[name] for name in FIRST if row.get(name) is not None}
    columns |= {name: value for name, value in row.items() if name and value is not None and name not in FIRST}
    score = number(row.get("reward"))
    if score is None:
        score = number(row.get("advantage"))
    record: Record = {"kind": "sample", "step": step, "table": table, "pri": _pri(raw, place), "row": columns}
    if score is not None:
        record["score"] = score
    if t is not None:
        record["t"] = t
    return record


def rollout_of_step(raw: bytes, table: str, row: Mapping[str, Any], step: int) -> list[Record]:
    """The records of a line in a file that has the rollouts of one step."""
    return [rollout(raw, table, row, step), barrier(step)]


def barrier(step: int) -> Record:
    """What ends a step in a file of its own: without it the row would wait for a line of a later step. Rollouts that
    come after it make a revision.
    """
    return {"kind": "barrier", "step": step}


def number(value: object) -> float | None:
    """A value as a finite number, else None."""
    if not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def conversation(messages: list[Any]) -> Any:
    """Messages as one column: the text of a single one, else a list of role and content; None for none."""
    if len(messages) == 1 and isinstance(messages[0], dict) and isinstance(messages[0].get("content"), str):
        return messages[0]["content"]
    return messages or None


def _pri(raw: bytes, place: int) -> float:
    """A number in [0, 1) that is as good as random, and the same whenever the line is read."""
    digest = hashlib.blake2b(raw, digest_size=8, salt=place.to_bytes(8, "little")).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
