"""`trainer_state.json` of Hugging Face's Trainer, and TRL's: one in each checkpoint, and one beside them at the end. It
holds the whole history so far, and is rewritten each time.

Every such file is a writer of the one rank. Where several files hold a value, that of the file that got furthest
counts. To order writers of equal attempt and time, the writer's id holds `global_step`. The history has no times, so
rows have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation, Unreadable
from rlship_formats.foreign.parsing import is_number, parse, parse_any, step_of

HEADING = "trainer_state"
# What the trainer logs once, at its end (as `rlship.integrations.trainer` has it, which imports the whole writer). Its
# W&B callback notes these in the run's summary, and logs what is left: the epoch.
RESULTS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")


def lines(text: bytes) -> list[bytes]:
    """The history's entries, one per line, after a heading with the step that it reaches."""
    try:
        state = parse_any(text)
    except BadRecord as bad:
        raise Unreadable(str(bad)) from None
    if not isinstance(state, dict):
        raise BadRecord("no trainer state")
    history = state.get("log_history")
    if not isinstance(history, list) or type(state.get("global_step")) is not int:
        raise BadRecord("no trainer state")
    heading = {HEADING: {"global_step": state["global_step"], "max_steps": state.get("max_steps")}}
    try:
        return [orjson.dumps(part) for part in (heading, *history)]
    except orjson.JSONEncodeError:
        raise BadRecord("not JSON") from None


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The writer of a document with this first line."""
    heading = parse(line).get(HEADING)
    if not isinstance(heading, dict):
        return ()
    opened: Record = {"actor": "trainer", "id": f"{HEADING} {step_of(heading.get('global_step')):016d} {path}"}
    return (Translation(opened, read),)


def read(raw: bytes) -> list[Record]:
    """The records of an entry. Its values are those of a step, or of the steps since the entry before it, already
    reduced. Of several entries with one name the last counts. Texts and nested values are left out.
    """
    found = parse(raw)
    if HEADING in found:
        return []
    step = step_of(found.pop("step", None))
    values = {name: value for name, value in found.items() if name and is_number(value)}
    if not values:
        return [{"step": step, "m": {}}]
    return [{"kind": "define", "m": {name: {"reduce": "last"} for name in values}}, {"step": step, "m": values}]


def at_wandb(metric: str) -> str:
    """The metric that is logged at W&B with this one of the history, at the same step."""
    if metric in RESULTS:
        return "train/epoch"
    for group in ("eval", "test"):
        if metric.startswith(f"{group}_"):
            return f"{group}/{metric.removeprefix(f'{group}_')}"
    return f"train/{metric}"


READER = Reader("trainer_state", ("trainer_state.json", "checkpoint-*/trainer_state.json"), bind, lines)
