"""AReaL's dumps of trajectories, joined into a file for each version: `rollout/<version>.jsonl`, `eval-rollout/…`.

AReaL itself writes a file for each task, `rollout/<version>/<task>.jsonl`, below the newest version of the weights that
made one of its tokens. Each file that is watched costs memory, and tasks are many thousands, so these are not read.

The version is the step. The samples of a task are a group. Files have no times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.rollouts import EVAL, TRAIN, opened, rollout_of_step

_PATH = re.compile(r"(eval-)?rollout/[0-9]{1,15}\.jsonl")
_NAMES = {"task_id": "group", "prompt": "prompt", "completion": "response", "reward": "reward"}
_VERSION = "tail_version"


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The file of a version."""
    known, found = _PATH.fullmatch(path), parse(line)
    if known is None or not (_NAMES.keys() | {_VERSION}) <= found.keys():
        return ()
    table = EVAL if known[1] else TRAIN
    return (Translation(opened(path, step_of(found[_VERSION])), partial(read, table)),)


def read(table: str, raw: bytes) -> list[Record]:
    """The sample in a line."""
    found = parse(raw)
    if not _NAMES.keys() <= found.keys():
        raise BadRecord("no rollout")
    step = step_of(found.pop(_VERSION, None))
    row = {name: found.pop(theirs) for theirs, name in _NAMES.items()}
    return rollout_of_step(raw, table, {**found, **row}, step)


READER = Reader("areal-rollouts", ("rollout/[0-9]*.jsonl", "eval-rollout/[0-9]*.jsonl"), bind)
