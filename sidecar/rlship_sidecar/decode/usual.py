"""The usual lines, one after the other: metrics lines of the same plain numbers, and barrier records. They are most of
what is read, so they have a way of their own. Whatever it takes comes to the same as by `decoder`'s general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from rlship_formats.records import MAX_STEP, T_MAX, T_MIN
from rlship_sidecar.decode.lines import BarrierLines, Batch, Dense, Schema

COMMON = b'{"t":'  # how the common metrics line begins; others are not worth the attempt to read them as one
_BARRIER = b'{"kind":"barrier",'


class _Barrier(msgspec.Struct, tag_field="kind", tag="barrier", forbid_unknown_fields=True, gc=False):
    step: int
    t: float


_parse_barrier = msgspec.json.Decoder(_Barrier).decode


@dataclass(slots=True)
class Pace:
    """Which lines may be taken in at once: those of steps up to `last_step`, until the step has changed `left` times.
    The first `together` lines are taken in anyway. `step` is the last line's (-1: none that could be used), `full`:
    there was a line that has to wait.
    """

    last_step: int
    left: int
    together: int = 1
    step: int = -1
    full: bool = False

    def refuses(self, step: int, *, first: bool) -> bool:
        """Whether a line of this step has to wait. The `first` never does, so that a reader always gets on."""
        if step == self.step:
            return False
        if not first and (step > self.last_step or self.left <= 0):
            self.full = True
            return True
        self.left -= 1
        self.step = step
        return False


def read_barrier(line: bytes) -> tuple[int, float] | None:
    """Step and `t` of a barrier record as writers write it; None for others."""
    if not line.startswith(_BARRIER):  # a line without any kind would be parsed as well
        return None
    try:
        found = _parse_barrier(line)
    except (msgspec.DecodeError, ValueError):
        return None  # not wrong for that: the general way decides
    step, t = found.step, found.t
    return (step, t) if 0 <= step <= MAX_STEP and T_MIN <= t <= T_MAX else None


def take_usual(
    schema: Schema,
    lines: Sequence[bytes],
    offsets: Sequence[int],
    at: int,
    batch: Batch,
    barriers: BarrierLines,
    pace: Pace,
    t: float,
) -> tuple[int, float]:
    """Take in lines from `at` on, metrics lines of a schema and barrier records of one segment, for as long as there
    are no others and none has to wait. The first begins like a metrics line. Returns where it stopped and the last
    line's time, `t` if none was taken in.
    """
    add = batch.lines.append
    add_step, add_t, add_offset = barriers.steps.append, barriers.ts.append, barriers.offsets.append
    parse, values_of, pack, segment = schema.parse, msgspec.structs.astuple, schema.pack, barriers.segment
    new = tuple.__new__  # a named tuple's own constructor costs as much as the rest of a short line
    before, lowest, highest, newest_t = pace.step, MAX_STEP, -1, 0.0
    for line, offset in zip(islice(lines, at, None), islice(offsets, at, None)):
        common = line.startswith(COMMON)
        if not (common or line.startswith(_BARRIER)):
            break
        found: Any
        try:
            found = parse(line) if common else _parse_barrier(line)
        except (msgspec.DecodeError, ValueError):
            break
        step, stamp = found.step, found.t
        if not (0 <= step <= MAX_STEP and T_MIN <= stamp <= T_MAX):
            break
        if common:
            if step != before:
                if pace.refuses(step, first=at < pace.together):
                    break
                before = step
                if highest < 0:
                    batch.begin(step, segment)
                if step > highest:
                    highest = step
                if step < lowest:
                    lowest = step
            add(new(Dense, (step, stamp, offset, segment, schema, pack(*values_of(found.m)))))
        else:
            add_step(step)
            add_t(stamp)
            add_offset(offset)
        t = stamp
        if t > newest_t:
            newest_t = t
        at += 1
    if highest >= 0:
        batch.saw(lowest, segment)
        batch.saw(highest, segment)
    batch.newest_t = max(batch.newest_t, newest_t)
    return at, t
