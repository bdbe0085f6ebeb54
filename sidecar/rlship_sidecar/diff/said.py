"""What two runs say of themselves otherwise: configuration, results, facts, labels, name and tags. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rlship_formats.reading import RUN_TEXTS
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.run_data.trees import leaves, same

PARTS = ("config", "summary", "facts", "labels")


class Absent:
    """The value of a key that a run does not have."""


ABSENT = Absent()


class SaidTwice(NamedTuple):
    """A key of a part, and its values in the runs, `ABSENT` where a run lacks it."""

    part: str
    key: str
    a: Any
    b: Any

    @property
    def differs(self) -> bool:
        """Whether the runs do not say the same."""
        if self.a is ABSENT or self.b is ABSENT:
            return self.a is not self.b
        return not same(self.a, self.b)


def compare_run_data(a: RunData, b: RunData) -> list[SaidTwice]:
    """Every key that either run has, in A's order, those of B alone last in each part."""
    found = []
    for part in (*PARTS, "run"):
        left, right = dict(_keys(a, part)), dict(_keys(b, part))
        found += [
            SaidTwice(part, key, left.get(key, ABSENT), right.get(key, ABSENT))
            for key in dict.fromkeys((*left, *right))
        ]
    return found


def _keys(data: RunData, part: str) -> Iterator[tuple[str, Any]]:
    if part == "run":
        yield from ((name, value) for name in (*RUN_TEXTS, "tags", "outcome") if (value := getattr(data, name)))
    else:
        yield from ((".".join(key), value) for key, value in leaves(getattr(data, part)))
