"""miles: streams of its dashboard, and the conversations of its rollouts, in the folder of `--dump-details`.

`dashboard/metrics.jsonl` has lines of several axes, which `step_key` names: steps of the trainer, and rollouts. Lines
of other axes are read without a step. `dashboard/phases/<hour>.jsonl` has what each process did, with times and no
step.
`trajectory/<rollout>.jsonl` has a line for each rollout that recorded a conversation, without a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import duration_of, is_time, parse, step_of, time_of
from rlship_formats.foreign.reduced import reduced
from rlship_formats.foreign.rollouts import EVAL, TRAIN, conversation, opened, rollout_of_step

_METRICS, _PHASES, _TRAJECTORY = "dashboard/metrics.jsonl", "dashboard/phases/", "trajectory/"
_TRAINER, _ROLLOUT = "trainer", "rollout"
_ACTORS = {"train/step": _TRAINER, "rollout/step": _ROLLOUT, "eval/step": _ROLLOUT}
_ROLLOUT_ID = re.compile(r"trajectory/(eval_)?([0-9]{1,15})\.jsonl")


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The actors of a stream, or the rollouts of one rollout id."""
    found = parse(line)
    if path == _METRICS:
        if "step_key" not in found or not is_time(found.get("ts")):
            return ()
        t = found["ts"]
        return tuple(
            Translation({"actor": actor, "t": t}, partial(read_metrics, actor), part=actor)
            for actor in (_TRAINER, _ROLLOUT)
        )
    if path.startswith(_PHASES):
        hour = _hour(path)
        if hour is None or not is_time(found.get("t0")) or "role" not in found:
            return ()
        return (Translation({"actor": "phases", "t": hour}, read_phase),)
    known = _ROLLOUT_ID.fullmatch(path)
    if known is None or "sample_index" not in found or "messages" not in found:
        return ()
    step = int(known[2])
    return (Translation(opened(path, step), partial(read_rollout, EVAL if known[1] else TRAIN, step)),)


def _hour(path: str) -> float | None:
    """When the hour of a file begins, in which its phases ended. So a file takes over from the one before it, and what
    that one holds is earlier.
    """
    try:
        begin = datetime.strptime(path.removeprefix(_PHASES), "%Y%m%d_%H.jsonl").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return time_of(begin.timestamp())


def read_metrics(actor: str, raw: bytes) -> list[Record]:
    """The metrics of a line if the actor wrote it, else an empty list."""
    found = parse(raw)
    metrics, t, key = found.get("metrics"), found.get("ts"), found.get("step_key")
    if not isinstance(metrics, dict) or not is_time(t):
        raise BadRecord("no metrics or no time")
    step = found.get("step") if isinstance(key, str) and key in _ACTORS else None
    if actor != (_TRAINER if step is None else _ACTORS[str(key)]):
        return []
    if step is None:
        return reduced(metrics, None, t)[-1:]  # an axis that is not known: values over time, with the usual reductions
    return reduced({name: value for name, value in metrics.items() if name != key}, step_of(step), t)


def read_phase(raw: bytes) -> list[Record]:
    """The span of a phase that has ended; an empty list for one that began."""
    found = parse(raw)
    begin, end, name = time_of(found.get("t0")), time_of(found.get("t1")), found.get("name")
    if not isinstance(name, str) or not name or begin is None:
        raise BadRecord("bad phase")
    if end is None:
        return []
    lane = f"{found.get('role')} {found.get('rank')} {found.get('node')}"
    return [{"kind": "span", "t": begin, "dur": duration_of(end - begin), "name": name, "lane": lane}]


def read_rollout(table: str, step: int, raw: bytes) -> list[Record]:
    """The sample in a line."""
    found = parse(raw)
    messages = found.pop("messages", None)
    if not isinstance(messages, list):
        raise BadRecord("no rollout")
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    begin = roles.index("assistant") if "assistant" in roles else len(messages)
    row = {**found, "group": found.pop("group_index", None), "response": conversation(messages[begin:])}
    return rollout_of_step(raw, table, {name: value for name, value in row.items() if name != "group_index"}, step)


READER = Reader("miles", (_METRICS, f"{_PHASES}*.jsonl", f"{_TRAJECTORY}*.jsonl"), bind)
