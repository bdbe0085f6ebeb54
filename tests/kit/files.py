"""Writers' files and experiments, record by record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

T0 = 1763600000.0
CLOSE = {"kind": "close", "reason": "exit"}


def experiment(folder: Path, files: Mapping[str, bytes] | None = None) -> Path:
    """`folder` as an experiment with these writers' files."""
    (folder / "rlship").mkdir(parents=True, exist_ok=True)
    for name, data in (files or {}).items():
        (folder / "rlship" / name).write_bytes(data)
    return folder


def lines(*records: dict[str, Any]) -> bytes:
    """The records as a file has them."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def opened(**identity: Any) -> dict[str, Any]:
    """An `open` record: actor trainer, id "a", time T0, unless `identity` differs."""
    return {"kind": "open", "rlship": 1, "id": "a", "actor": "trainer", "t": T0} | identity


def file(*records: dict[str, Any], **identity: Any) -> bytes:
    """A file's bytes: an `open` record, then the records."""
    return lines(opened(**identity), *records)


def log(step: int, **m: Any) -> dict[str, Any]:
    return {"step": step, "m": m}


def barrier(step: int, after: float | None = None) -> dict[str, Any]:
    """`after`: seconds after T0; the time of the line before, if it is None."""
    return {"kind": "barrier", "step": step} | ({} if after is None else {"t": T0 + after})


def define(**reduce: Any) -> dict[str, Any]:
    return {"kind": "define", "m": {metric: {"reduce": names} for metric, names in reduce.items()}}


def beat(after: float) -> dict[str, Any]:
    return {"kind": "beat", "t": T0 + after}


def rollback(step: int) -> dict[str, Any]:
    return {"kind": "rollback", "step": step}


def stream(after: float, **m: Any) -> dict[str, Any]:
    """A metrics record without a step."""
    return {"t": T0 + after, "m": m}


def span(name: str, dur: float, after: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"kind": "span", "t": T0 + after, "dur": dur, "name": name} | more


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "event", "name": name} | more


def tag(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "event", "name": "step_tag", "attrs": {"tag": text}} | more


def sample(score: float | str | None, pri: float = 0.5, table: str = "rollouts", **more: Any) -> dict[str, Any]:
    """A sample of step 1, unless `more` says otherwise; its row repeats the score."""
    body = {"kind": "sample", "step": 1, "table": table, "pri": pri, "row": {"is": score}} | more
    return body if score is None else body | {"score": score}


def stepless_sample(score: float, after: float) -> dict[str, Any]:
    """A sample without a step."""
    body = sample(score, t=T0 + after)
    del body["step"]
    return body


def clock(offset: float, err: float = 0.0, after: float = 0.0) -> dict[str, Any]:
    return {"kind": "clock", "t": T0 + after, "offset": offset, "err": err}
