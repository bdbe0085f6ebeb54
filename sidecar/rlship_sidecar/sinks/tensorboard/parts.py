"""The event files of a store: parts, each named after its first row, that together hold rows 0, 1, 2, …"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.sinks.tensorboard import events as tfevents

NAME = re.compile(r"events\.out\.tfevents\.(?P<first>\d{8,})\.rlship\.(?P<store>[^.]+)\.(?P<generation>\d{1,9})")


class Part(NamedTuple):
    """One file: the number of its first row, the generation of the sidecar that began it, the store, and its path."""

    first: int
    generation: int
    store_id: str
    path: Path


class Chain(NamedTuple):
    """What the parts hold together: rows 0 to `rows` - 1 in the `kept` ones.

    `last` is the last row's record, which ends at byte `end` of the last kept one, whose size is `size`. What is wrong
    with those that are not kept, or with the rest of the last kept one, is `problem`: "" for a torn tail and for parts
    without rows.
    """

    rows: int
    kept: list[Part]
    unfit: list[Part]
    last: tfevents.Frame | None
    end: int
    size: int
    problem: str


def name(first: int, store_id: str, generation: int) -> str:
    """The name of a part. Its generation makes sure that no sidecar ever removes what a later one wrote."""
    return f"events.out.tfevents.{first:08d}.rlship.{store_id}.{generation}"


def parts(folder: Path) -> list[Part]:
    """Every store's parts in the order of their rows; of two that begin with the same one the newer is first."""
    found = [(path, NAME.fullmatch(path.name)) for path in folder.iterdir()]
    ours = [Part(int(match["first"]), int(match["generation"]), match["store"], path) for path, match in found if match]
    return sorted(ours, key=lambda part: (part.first, -part.generation))


def chain(found: list[Part]) -> Chain:
    """Count the rows of one store's parts as far as each goes on where the one before it ends."""
    rows = end = size = 0
    kept: list[Part] = []
    last: tfevents.Frame | None = None
    problem = ""
    for part, following in zip(found, [*found[1:], None]):
        if problem or part.first != rows:
            problem = problem or f"{part.path} begins with row {part.first}, but the parts before it hold {rows}"
            continue
        most = None if following is None or following.first <= rows else following.first - rows
        held, frame, length = _measure(part.path, most)
        whole_to = frame.end if frame is not None else 0
        if held:
            rows, last, end, size = rows + held, frame, whole_to, length
            kept.append(part)
        if whole_to < length and following is not None:
            problem = f"{part.path} is damaged at byte {whole_to}, though later parts follow it"
    return Chain(rows, kept, [part for part in found if part not in kept], last, end, size, problem)


def _measure(path: Path, most: int | None) -> tuple[int, tfevents.Frame | None, int]:
    """How many rows a part holds, at most `most`, its last whole record up to there, and its size: all its whole
    records but the first, the file version, are rows. Of the last part (`most` None) the tail is checked byte by byte.
    """
    records, last = 0, None
    for frame in tfevents.frames(path, checked_tail=tfevents.CHECKED_TAIL_BYTES if most is None else 0):
        if most is not None and records > most:
            break
        records, last = records + 1, frame
    return max(0, records - 1), last, path.stat().st_size
