"""TRL's `completions/completions_<step>.parquet`, which `log_completions` writes: a table of each log.

Columns are step, prompt, completion, one for each reward function, those that the job adds, and advantage. Nothing
tells reward functions from what the job adds, and their weights are not there: the reward is known if there is one
column of numbers. The files belong to the trainer's rank 0, without a time, so that what a native source has of a
step's completions counts before them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parquet import rows_of
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.rollouts import rollout_of_step

TABLE = "completions"  # the name that W&B's table has, and the samples of TRL's other sources
# An evaluation's file has the same name. `report_to="rlship"` knows which it is, and gives it a table of its own.
OF_EVALUATION = "eval_completions"
_PATH = re.compile(r".*completions_([0-9]{1,15})\.parquet")
_HEADING = "trl_completions"
_KNOWN = ("step", "prompt", "completion", "advantage")


def lines(text: bytes) -> Sequence[bytes]:
    """The rows of a file after a heading, which names the column of the reward. Raises BadRecord."""
    columns, rows = rows_of(text)
    if not set(_KNOWN) <= set(columns):
        raise BadRecord("no completions")
    numbers = [name for name in columns if name not in _KNOWN and _are_numbers([row.get(name) for row in rows])]
    heading = {_HEADING: {"reward": numbers[0] if len(numbers) == 1 else None}}
    try:
        return [orjson.dumps(one, default=str) for one in (heading, *rows)]
    except orjson.JSONEncodeError:
        raise BadRecord("not JSON") from None


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The main process."""
    known, heading = _PATH.fullmatch(path), parse(line).get(_HEADING)
    if known is None or not isinstance(heading, dict):
        return ()
    # By its id it is newer than any `trainer_state`, which comes with a checkpoint: no step waits for the next one.
    opened: Record = {"actor": "trainer", "id": f"{_HEADING} {int(known[1]):016d} {path}"}
    return (Translation(opened, partial(read, heading.get("reward"))),)


def _are_numbers(values: list[Any]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(type(value) in (int, float) for value in there)


def read(reward: object, raw: bytes) -> list[Record]:
    """The sample in a row; an empty list for the heading."""
    found = parse(raw)
    if _HEADING in found:
        return []
    step = step_of(found.pop("step", None))
    row: dict[str, Any] = {"prompt": found.pop("prompt", None), "response": found.pop("completion", None)}
    if isinstance(reward, str) and reward in found:
        row["reward"] = found[reward]
    return rollout_of_step(raw, TABLE, {**found, **row}, step)


READER = Reader("trl-completions", ("completions/completions_*.parquet",), bind, lines)
