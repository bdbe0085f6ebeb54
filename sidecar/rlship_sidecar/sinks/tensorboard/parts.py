"""The event files of a store: parts, each named after its first row, that together hold rows 0, 1, 2, …; and files
without rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.sinks.tensorboard.events import CHECKED_TAIL_BYTES, Frame, frames, is_whole

NAME = re.compile(r"events\.out\.tfevents\.(?P<first>\d{8,})\.rlship\.(?P<store>[^.]+)\.(?P<generation>\d{1,9})")
AGAIN = re.compile(
    r"events\.out\.tfevents\.(?P<first>\d{8,})\.rlship-run\.(?P<store>[^.]+)\.(?P<generation>\d{1,9})\.\d{6}\.again"
)


class PartFile(NamedTuple):
    """One file: the number of its first row, the generation of the sidecar that began it, the store, and its path."""

    first: int
    generation: int
    store_id: str
    path: Path


class Chain(NamedTuple):
    """The joint content of the parts: rows 0 to `rows` - 1 in the `kept` ones.

    `last` is the last row's record, which ends at byte `end` of the last kept part, whose size is `size`. `problem`
    describes what is wrong with the other parts, or with the rest of the last kept one. It is "" for a torn tail and
    for parts without rows.
    """

    rows: int
    kept: list[PartFile]
    unfit: list[PartFile]
    last: Frame | None
    end: int
    size: int
    problem: str


def part_name(first: int, store_id: str, generation: int) -> str:
    """The name of a part. The generation in it ensures that no sidecar ever removes what a later one wrote."""
    return f"events.out.tfevents.{first:08d}.rlship.{store_id}.{generation}"


def aside_name(after: int, store_id: str, generation: int, number: int, *, again: bool = False) -> str:
    """The name of a file without rows. A reader takes files by name: this one after the parts that begin before row
    `after`, and before the part that begins with it. `again`: it writes points of rows again.
    """
    name = f"events.out.tfevents.{after:08d}.rlship-run.{store_id}.{generation}.{number:06d}"
    return f"{name}.again" if again else name


def find_again(folder: Path, store_id: str) -> list[PartFile]:
    """A store's files that write points again; `first` is the first row after these points."""
    return [one for one in _files(folder, AGAIN) if one.store_id == store_id]


def find_parts(folder: Path) -> list[PartFile]:
    """Every store's parts in the order of their rows; of two with the same first row the newer comes first."""
    return sorted(_files(folder, NAME), key=lambda part: (part.first, -part.generation))


def _files(folder: Path, name: re.Pattern[str]) -> list[PartFile]:
    found = [(path, name.fullmatch(path.name)) for path in folder.iterdir()]
    return [
        PartFile(int(match["first"]), int(match["generation"]), match["store"], path) for path, match in found if match
    ]


def chain(found: list[PartFile]) -> Chain:
    """Count the rows of one store's parts, as long as each continues where the one before it ends."""
    rows = end = size = 0
    kept: list[PartFile] = []
    last: Frame | None = None
    problem = ""
    for part, following in zip(found, [*found[1:], None]):
        if problem or part.first != rows:
            before = f"the parts before it, up to {kept[-1].path}, hold {rows}" if kept else "no part is before it"
            problem = problem or f"{part.path} begins with row {part.first}, but {before}"
            continue
        max_rows = None if following is None or following.first <= rows else following.first - rows
        held, frame, length = _measure(part.path, max_rows)
        whole_to = frame.end if frame is not None else 0
        if held:
            rows, last, end, size = rows + held, frame, whole_to, length
            kept.append(part)
        if whole_to < length and following is not None:
            problem = f"{part.path} is damaged at byte {whole_to}, though later parts follow it"
    while problem and last is not None and not is_whole(kept[-1].path, last):
        # Where a part breaks off, or is damaged, the event before that may be damaged too.
        rows -= 1
        if rows == kept[-1].first:
            kept.pop()
        last = None
        if kept:
            _, last, size = _measure(kept[-1].path, rows - kept[-1].first)
            end = last.end if last is not None else 0
    return Chain(rows, kept, [part for part in found if part not in kept], last, end, size, problem)


def _measure(path: Path, max_rows: int | None) -> tuple[int, Frame | None, int]:
    """How many rows a part holds, at most `max_rows`, its last whole record up to there, and its size.

    All its whole records except the first, the file version, are rows. The tail of the last part (`max_rows` None) is
    checked byte by byte.
    """
    records, last = 0, None
    for frame in frames(path, checked_tail=CHECKED_TAIL_BYTES if max_rows is None else 0):
        if max_rows is not None and records > max_rows:
            break
        records, last = records + 1, frame
    return max(0, records - 1), last, path.stat().st_size
