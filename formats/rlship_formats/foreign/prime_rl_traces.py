"""prime-rl's rollouts, each episode a line with the messages, tokens and rewards of its traces.

Today they are one stream, `monitors/file/traces/stream/<number>.jsonl`: a chunk that is full is compressed into
`<number>.jsonl.zst`, and its file goes. What prime-rl learns of a trace later stands in chunks alike,
`monitors/file/traces/annotations/<producer>/`. The first version had one file, `monitors/file/traces/stream.jsonl`;
before that there was `rollouts/step_<step>/<kind>/all/traces.jsonl`, with a copy of what was trained on in `effective`,
which is not read.

The step is the one at which the episode was dispatched. A trace becomes a sample with the text and the sampled tokens
of its last branch. An annotation that names the step to whose batch its trace belongs becomes a sample of that step;
others have neither step nor time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of, time_of
from rlship_formats.foreign.rollouts import ACTOR, EVAL, TRAIN, barrier, conversation, number, opened, rollout
from rlship_formats.foreign.zstd import lines_of
from rlship_formats.records import MAX_WORLD

_CHUNKS = "monitors/file/traces/stream/"
_CHUNK = re.compile(rf"{_CHUNKS}([0-9]{{1,7}})\.jsonl")
_ANNOTATIONS = "monitors/file/traces/annotations/"
_ANNOTATED = re.compile(rf"{_ANNOTATIONS}([^/]{{1,100}})/([0-9]{{1,7}})\.jsonl")
_SEALED = ".zst"
SHIPPED = "shipped"  # the table of what belongs to the batch of a step
_OLD = re.compile(r"rollouts/step_([0-9]{1,15})/(train|eval)/all/traces\.jsonl")
_END: Record = {"kind": "close", "reason": "chunk"}
_PER_TOKEN = ("logprobs", "advantages", "reference_logprobs", "trainer_logprobs", "entropies")
_TOKENS = ("token_ids", *_PER_TOKEN)


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The orchestrator. A chunk of the stream stands for a rank: a step goes on in the next one, and both count."""
    found = parse(line)
    annotated = _ANNOTATED.fullmatch(path)
    if annotated is not None:
        opened_by: Record = {"actor": ACTOR, "replica": annotated[1], "rank": int(annotated[2]) % MAX_WORLD}
        return (Translation(opened_by, read_annotation),) if "trace_id" in found else ()
    if not isinstance(found.get("traces"), list) or "id" not in found:
        return ()
    old = _OLD.fullmatch(path)
    if old is not None:
        return (Translation(opened(path, int(old[1])), partial(read_step, int(old[1]), old[2])),)
    chunk = _CHUNK.fullmatch(path)
    rank = int(chunk[1]) % MAX_WORLD if chunk is not None else 0
    return (Translation({"actor": ACTOR, "rank": rank}, partial(read_stream, chunk is not None)),)


def bind_sealed(path: str, line: bytes) -> Sequence[Translation]:
    """As `bind`, for a compressed chunk. By its attempt it counts in the place of the file that it was made of: where a
    sidecar saw both, each episode counts once.
    """
    return [replace(one, open={**one.open, "attempt": 1}) for one in bind(path.removesuffix(_SEALED), line)]


def read_stream(is_chunk: bool, raw: bytes) -> list[Record]:
    """The records of an episode. Nothing tells which one is the last of a chunk, and no step may wait for a chunk that
    is full: each counts as closed, and what comes after a close makes a revision.
    """
    return [*read(None, TRAIN, raw), *([_END] if is_chunk else [])]


def read_annotation(raw: bytes) -> list[Record]:
    """The sample of a trace that is in a step's batch; nothing of an annotation without a step."""
    found = parse(raw)
    info = _part(found, "info")
    shipped = _part(info, "ship")
    if "step" not in shipped:
        return [_END]
    row = {
        "advantage": info.get("advantage"),
        "trace": found.get("trace_id"),
        "effective": info.get("effective"),
        "branches": found.get("branches") or None,
    }
    return [rollout(raw, SHIPPED, row, step_of(shipped["step"]), t=time_of(shipped.get("time"))), _END]


def read_step(step: int, kind: str, raw: bytes) -> list[Record]:
    """The records of an episode in a step's own file."""
    return [*read(step, kind, raw), barrier(step)]


def read(step: int | None, kind: str, raw: bytes) -> list[Record]:
    """The samples in an episode; of one without traces what went wrong. `step` and `kind` are those of the path."""
    found = parse(raw)
    traces, run = found.get("traces"), _part(found, "run")
    if not isinstance(traces, list):
        raise BadRecord("no traces")
    work = _part(run, "work")
    if step is None:
        if "step" not in work:
            if run.get("type") != "train":
                return []  # of a standalone evaluation, which has no steps
            raise BadRecord("no step")
        step = step_of(work["step"])
        kind = EVAL if work.get("type") == EVAL else TRAIN
    shared = {"group": _part(found, "group").get("id"), "env": _env(found), "episode": found.get("id")}
    if not traces:
        row = {**shared, "prompt": _part(_part(found, "task"), "data").get("prompt"), "ok": found.get("ok")}
        return [rollout(raw, kind, {**row, "errors": found.get("errors") or None}, step)]
    return [
        rollout(raw, kind, {**shared, **_row(trace)}, step, t=_time(trace), place=place)
        for place, trace in enumerate(traces)
        if isinstance(trace, dict)
    ]


def _row(trace: Record) -> Record:
    path = list(_last_branch(trace.get("nodes")))
    sampled = next((place for place, node in enumerate(path) if node.get("sampled")), len(path))
    messages = [_part(node, "message") for node in path]
    info = _part(trace, "info")
    return {
        "prompt": conversation(messages[:sampled]),
        "response": conversation(messages[sampled:]),
        "reward": _reward(trace),
        "advantage": info.get("advantage"),
        "trace": trace.get("id"),
        "task": _part(trace, "task").get("key"),
        "agent": _part(trace, "agent").get("name"),
        "rewards": {name: _part(_part(trace, "rewards"), name).get("score") for name in _part(trace, "rewards")}
        or None,
        "metrics": trace.get("metrics") or None,
        "stop_condition": trace.get("stop_condition"),
        "ok": trace.get("ok"),
        "errors": trace.get("errors") or None,
        **_tokens(path),
    }


def _tokens(path: list[Record]) -> Record:
    """The sampled tokens of a branch, and their values: only those values that each of its tokens has."""
    found: dict[str, list[Any]] = {name: [] for name in _TOKENS}
    for node in path:
        ids, mask = node.get("token_ids"), node.get("mask")
        if not isinstance(ids, list) or not isinstance(mask, list) or True not in mask:
            continue
        found["token_ids"] += [id for id, is_sampled in zip(ids, mask) if is_sampled is True]
        for name in _PER_TOKEN:
            values = node.get(name)
            found[name] += values if isinstance(values, list) else []
    count = len(found["token_ids"])
    return {name: values for name, values in found.items() if count and len(values) == count}


def _last_branch(nodes: Any) -> Iterator[Record]:
    """The nodes from a root to the last one."""
    if not isinstance(nodes, list):
        return
    path, at = [], len(nodes) - 1
    while 0 <= at < len(nodes) and isinstance(nodes[at], dict):
        path.append(nodes[at])
        parent = nodes[at].get("parent")
        if type(parent) is not int or not 0 <= parent < at:  # a parent stands before its children
            break
        at = parent
    yield from reversed(path)


def _reward(trace: Record) -> float | None:
    """The sum of the weighted scores; None if the trace has none."""
    rewards = [one for one in _part(trace, "rewards").values() if isinstance(one, dict)]
    scores = [(number(one.get("score")), number(one.get("weight", 1.0))) for one in rewards]
    known = [score * weight for score, weight in scores if score is not None and weight is not None]
    return number(sum(known)) if known else None


def _time(trace: Record) -> float | None:
    """When the trace arrived, or when its last message was made."""
    nodes = trace.get("nodes")
    last = nodes[-1].get("timestamp") if isinstance(nodes, list) and nodes and isinstance(nodes[-1], dict) else None
    return time_of(_part(_part(trace, "info"), "arrival").get("time")) or time_of(last)


def _env(found: Record) -> Any:
    env = _part(found, "env")
    return env.get("name") or env.get("id")


def _part(found: Record, name: str) -> Record:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


_PLACES = (f"{_CHUNKS}[0-9]*.jsonl", f"{_ANNOTATIONS}*/[0-9]*.jsonl")
READER = Reader(
    "prime-rl-traces",
    (*_PLACES, "monitors/file/traces/stream.jsonl", "rollouts/step_*/*/all/traces.jsonl"),
    bind,
)
SEALED = Reader("prime-rl-sealed", tuple(f"{place}{_SEALED}" for place in _PLACES), bind_sealed, lines_of)
