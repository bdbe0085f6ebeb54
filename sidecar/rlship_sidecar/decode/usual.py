"""The usual lines, one after the other: metrics lines of the same plain numbers, and barrier records.

They are most of what is read, so they have a way of their own: msgspec compares the names where they stand and makes no
dict. What must hold is said in `decoder`: whatever is taken here comes to the same bits as by `FileReader`, and what is
declined leaves no trace. In particular:

- The parsers forbid unknown members (`kind` is one), so that a line that says more is declined, not cut. Both need `t`
  and `step` within the bounds of the format, as a record without them inherits its `t` or is a dead letter.
- Of a name that stands twice msgspec takes the last one, as orjson does; an earlier one that is out of bounds declines.
- `pack(*values_of(found.m))` stands before the first `append`: if it raises, no column has grown.
- The columns grow one by one and are never read in between, so that their lengths agree whenever the loop ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rlship_sidecar.decode.lines import BarrierLines, Batch, Schema, Step, Time

COMMON = b'{"t":'  # how the common metrics line begins; others are not worth the attempt to read them as one
BARRIER = b'{"kind":"barrier",'


class _Barrier(msgspec.Struct, tag_field="kind", tag="barrier", forbid_unknown_fields=True, gc=False):
    step: Step
    t: Time


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
    if not line.startswith(BARRIER):  # a line without any kind would be parsed as well
        return None
    try:
        found = _parse_barrier(line)
    except (msgspec.DecodeError, ValueError):
        return None  # not wrong for that: the general way decides
    return found.step, found.t


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
    parse, values_of, pack, segment = schema.parse, msgspec.structs.astuple, schema.pack, barriers.segment
    run = batch.run(segment, schema)
    add_step, add_t, add_offset, add_data = run.steps.append, run.ts.append, run.offsets.append, run.data.append
    end_step, end_t, end_offset = barriers.steps.append, barriers.ts.append, barriers.offsets.append
    begun, ended, first = len(run.steps), len(barriers.steps), at
    before, last_step, left = pace.step, pace.last_step, pace.left
    found: Any
    for place in range(at, len(lines)):
        line = lines[place]
        try:
            if line.startswith(COMMON):
                found = parse(line)
                step = found.step
                if step != before:
                    if step > last_step or left <= 0:
                        taken = len(run.steps) - begun + len(barriers.steps) - ended
                        if first + taken >= pace.together:
                            pace.full = True
                            break
                    left -= 1
                    before = step
                add_data(pack(*values_of(found.m)))
                add_step(step)
                t = found.t
                add_t(t)
                add_offset(offsets[place])
            elif line.startswith(BARRIER):
                found = _parse_barrier(line)
                end_step(found.step)
                t = found.t
                end_t(t)
                end_offset(offsets[place])
            else:
                break
        except (msgspec.DecodeError, ValueError):
            break
    pace.step, pace.left = before, left
    steps, ends = run.steps[begun:], barriers.ts[ended:]
    if steps:
        batch.begin(steps[0], segment)
        batch.saw(min(steps), segment)
        batch.saw(max(steps), segment)
    elif not begun:
        del batch.runs[segment, schema]
    batch.newest_t = max([batch.newest_t, *run.ts[begun:], *ends])
    return at + len(steps) + len(ends), t
