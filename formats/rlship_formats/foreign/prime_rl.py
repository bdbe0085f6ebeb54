"""prime-rl's `metrics.jsonl`: trainer and orchestrator both append to it, each with several lines per step.

Today it lies in `monitors/file`, and `producer` names the component. A line without a step has a time: it is a stream.

Before, it lay in the run's folder. Lines did not name their component, and both components log some names, such as
`time/step`. But a line always comes from one component. So a name that only one of them logs identifies it. A line
without such a name counts as the trainer's, with `unattributed/` before each name. So do lines of other producers, with
the producer before each name.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import is_time, parse, step_of
from rlship_formats.foreign.reduced import reduced

_ORCHESTRATOR = ("train/", "eval/", "off_policy/", "batch/", "sampler/", "gate/", "pool/")
_ORCHESTRATORS = frozenset(("time/pack", "time/wait_for_policy", "progress/rollouts", "progress/tasks"))
_TRAINER = ("perf/", "optim/", "loss/", "entropy/", "mismatch_kl/", "val/", "system/")
_TRAINERS = frozenset(
    (
        "time/forward_backward",
        "time/broadcast_weights",
        "time/wait_for_batch",
        "time/load_data",
        "progress/epoch",
        "progress/num_samples",
        "progress/num_tokens",
    )
)
_STATISTICS = ("/mean", "/median", "/std", "/min", "/max")  # of the trainer's tensors, which may have any name
_ENVELOPE = ("step", "time", "producer")
_ABSENT = -1
_COMPONENTS = ("trainer", "orchestrator")


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The components that may write the file."""
    found = parse(line)
    if found.get("step", _ABSENT) is not None:
        step_of(found.get("step"))
    if not is_time(found.get("time")):
        return ()
    return tuple(
        Translation({"actor": actor, "t": found["time"]}, partial(read, actor), part=actor) for actor in _COMPONENTS
    )


def read(actor: str, raw: bytes) -> list[Record]:
    """The records of a line if the actor wrote it, else an empty list."""
    found = parse(raw)
    metrics = {name: value for name, value in found.items() if name not in _ENVELOPE}
    producer = found.get("producer")
    if not isinstance(producer, str) or not producer:
        producer = writer_of(metrics) or "unattributed"
    if producer not in _COMPONENTS:
        producer, metrics = "trainer", {f"{producer}/{name}": value for name, value in metrics.items()}
    if producer != actor:
        return []
    stamp = found.get("time")
    if not is_time(stamp):
        raise BadRecord("bad time")
    if found.get("step", _ABSENT) is None:
        return reduced(metrics, None, stamp)[-1:]  # looks at a server, say: values over time, with the usual reductions
    return reduced(metrics, step_of(found.get("step")), stamp)


def writer_of(names: Collection[str]) -> str | None:
    """The component that wrote a line with these metrics; None if the names do not identify it."""
    if any(name in _ORCHESTRATORS or name.startswith(_ORCHESTRATOR) for name in names):
        return "orchestrator"
    if any(name in _TRAINERS or name.startswith(_TRAINER) for name in names):
        return "trainer"
    return "trainer" if names and all(name.endswith(_STATISTICS) for name in names) else None


READER = Reader("prime-rl", ("metrics.jsonl", "monitors/file/metrics.jsonl"), bind)
