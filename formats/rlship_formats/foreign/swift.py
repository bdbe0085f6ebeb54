"""ms-swift's `logging.jsonl`: one line for each log of the trainer, without a time. The step is the first number of a
text. A summary of the run, which repeats the whole history, follows the last line.
"""

from __future__ import annotations

import re
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.reduced import reduced

_STEPS = ("global_step/max_steps", "iteration")  # of the transformers and of the Megatron trainer
_STEP = re.compile(r"([0-9]{1,16})/[0-9]+")
_SUMMARY = "last_model_checkpoint"

# Checkpoints beside the file hold the same history, as attempt 0. The file's values count where both have a metric.
# Otherwise each checkpoint would revise all of its steps because of digits that the file rounds away.
ATTEMPT = 1


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The rank that logs."""
    return () if _step(parse(line)) is None else (Translation({"actor": "trainer", "attempt": ATTEMPT}, read),)


def read(raw: bytes) -> list[Record]:
    """The records of a line; an empty list for a run's summary."""
    found = parse(raw)
    step = _step(found)
    if step is None:
        if _SUMMARY in found:
            return []
        raise BadRecord("no step")
    return reduced({name: value for name, value in found.items() if name not in _STEPS}, step)


def _step(found: dict[str, Any]) -> int | None:
    for name in _STEPS:
        text = found.get(name)
        if isinstance(text, str) and (match := _STEP.fullmatch(text)):
            return step_of(int(match[1]))
    return None


READER = Reader("ms-swift", ("logging.jsonl",), bind)
