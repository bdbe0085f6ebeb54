"""verl's rollouts: `trainer.rollout_data_dir` and `trainer.validation_data_dir` get a file `<step>.jsonl` for each
step, with a line for each rollout. Lines have no time, and no group: rollouts of one prompt have the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.rollouts import EVAL, TRAIN, opened, rollout_of_step

_NAMES = {"input": "prompt", "output": "response", "score": "reward"}
_VALIDATION = "val"


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The file of a step."""
    found = parse(line)
    if not (_NAMES.keys() | {"step"}) <= found.keys():
        return ()
    table = EVAL if path.startswith(_VALIDATION) else TRAIN
    return (Translation(opened(path, step_of(found["step"])), lambda raw: read(table, raw)),)


def read(table: str, raw: bytes) -> list[Record]:
    """The sample in a line."""
    found = parse(raw)
    if not _NAMES.keys() <= found.keys():
        raise BadRecord("no rollout")
    step = step_of(found.pop("step", None))
    # What the reward function adds may have one of our names. Then it keeps its own, behind a folder.
    row = {f"extra/{name}" if name in _NAMES.values() else name: value for name, value in found.items()}
    row |= {name: row.pop(theirs) for theirs, name in _NAMES.items()}
    return rollout_of_step(raw, table, row, step)


READER = Reader("verl-rollouts", ("rollout*/[0-9]*.jsonl", "val*/[0-9]*.jsonl"), bind)
