"""ROLL's driver log. Its tracker `stdout` writes lines `metrics_tag: {…}` behind the logger's prefix; all other lines
of the log are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timezone
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import parse, step_of
from rlship_formats.foreign.reduced import as_it_is, reduced

_PREFIX = re.compile(
    rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] \[[^\]]{1,200}\] \[[A-Z]{1,10}\] \[[^\] ]{1,100} (\d{1,6}) / \d{1,6}\]"
    rb"\[PID (\d{1,10})\] "
)
_TAG = b"metrics_tag: "

# The reductions that a name may end with. Two values of one step with another ending, such as a quantile, cannot be
# combined: the last one counts, as it does for names without an ending.
_REDUCTIONS = ("mean", "max", "min", "sum")


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The driver, recognised by any line of its log."""
    prefix = _PREFIX.match(line)
    if not prefix:
        return ()
    record: Record = {"actor": "trainer", "rank": int(prefix[2]), "pid": int(prefix[3])}
    stamp = _time(prefix[1])
    return (Translation(record if stamp is None else {**record, "t": stamp}, read),)


def read(raw: bytes) -> list[Record]:
    """The records of a line of metrics; an empty list for any other line."""
    prefix = _PREFIX.match(raw)
    if not prefix or not raw.startswith(_TAG, prefix.end()):
        return []
    found = parse(raw[prefix.end() + len(_TAG) :])
    metrics, step = found.get("metrics"), found.get("step")
    if not isinstance(metrics, dict):
        raise BadRecord("no metrics")
    values, tags = _untagged(metrics)

    def how(metric: str) -> str:
        ending = tags.get(metric) or re.split("[_/]", metric)[-1]
        return ending if ending in _REDUCTIONS else as_it_is(metric)

    return reduced(values, None if step is None else step_of(step), _time(prefix[1]), how)


def _untagged(metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Metrics without the reducer tags that older versions write, and these tags: `loss@sum` is `loss`. Where two tags
    would yield one name twice, both keep theirs: `latency/p99`.
    """
    split = {name: name.rpartition("@") for name in metrics}
    bare = Counter(base or tag for base, _, tag in split.values())  # without an @ the whole name is the tag
    values: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for name, value in metrics.items():
        base, _, tag = split[name]
        if base:
            name = base if bare[base] == 1 else f"{base}/{tag}"
            tags[name] = tag
        values[name] = value
    return values, tags


def _time(text: bytes) -> float | None:
    """A time of the log in Unix seconds. It has no zone and is taken as UTC, so that at least differences are right."""
    try:
        return datetime.strptime(text.decode(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


READER = Reader("roll", ("log_rank_DRIVER_*.log", "logs*/log_rank_DRIVER_*.log"), bind)
