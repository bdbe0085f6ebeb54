"""The rows of the ledger: docs/semantics.md, "The ledger", read literally and at once over all files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference.experiment import read_experiment
from tests.reference.records import Entered, Writer
from tests.reference.settings import NO_OVERRIDES, Settings

Counts = dict[str, int]
MOST = 2**53 - 1  # of one group
ZERO = (
    *("groups", "late", "twice", "group_short", "version_disagrees", "sign_wrong", "mask_wrong", "open", "lost"),
    *("generated_samples", "trained_samples", "dropped_samples", "masked_out_samples", "open_samples", "lost_samples"),
)


@dataclass(frozen=True)
class Line:
    """An entry with its writer. `age` compares within `replica`, which is (actor, replica)."""

    writer: Writer
    entered: Entered

    @property
    def t(self) -> float:
        return self.entered.t

    @property
    def step(self) -> int | None:
        return self.entered.step

    @property
    def replica(self) -> tuple[str, str]:
        root = root_of(self.writer)
        return root.actor, root.replica

    @property
    def age(self) -> tuple[int, int, int]:
        root = root_of(self.writer)
        return root.submission, root.attempt, self.entered.segment

    @property
    def begins(self) -> int | None:
        segment = self.writer.segments[self.entered.segment]
        return segment.first_stepped if segment.rolled_back_to is None else segment.rolled_back_to

    @property
    def place(self) -> tuple[float, str, int]:
        return self.t, self.writer.file, self.entered.at

    def get(self, member: str, default: Any) -> Any:
        return self.entered.members.get(member, default)

    @property
    def n(self) -> int:
        count: int = self.entered.members["n"]
        return count

    @property
    def part(self) -> tuple[int, int]:
        i, k = self.get("part", [0, 1])
        return i, k


def root_of(writer: Writer) -> Writer:
    assert writer.root is not None
    return writer.root


def ledger_rows(files: Mapping[str, bytes], wait_s: float = 3600.0) -> dict[int, dict[str, float]]:
    """The values of each step's row, without the prefix of their keys."""
    experiment = read_experiment(files, NO_OVERRIDES, Settings())
    lines = [Line(writer, entered) for writer in experiment.writers for entered in writer.ledger]
    lines.sort(key=lambda line: line.place)
    seen: set[tuple[str, int]] = set()
    once = []
    for line in lines:
        if (line.writer.id, line.entered.at) not in seen:
            seen.add((line.writer.id, line.entered.at))
            once.append(line)
    steps = sorted((line.t, line.step) for line in once if line.get("hop", "") == "trained" and line.step is not None)
    rows: dict[int, dict[str, float]] = {}
    groups: dict[tuple[bool, str], list[Line]] = {}
    for line in once:
        groups.setdefault((line.get("hop", "") == "weights", line.get("key", "")), []).append(line)
    for (of_weights, _), group in groups.items():
        add(rows, steps, *(weights(group) if of_weights else verdict(group, wait_s)))
    return rows


def add(
    rows: dict[int, dict[str, float]],
    steps: Sequence[tuple[float, int]],
    where: tuple[int | None, float],
    found: Counts,
) -> None:
    """Add a verdict to the row of its step, or of its time."""
    step, time = where
    left = found.pop("left", None)
    passed = True
    if step is None:
        if not steps:
            return
        behind = [one for t, one in steps if t >= time]
        passed = bool(behind)
        step = behind[0] if passed else max(steps)[1]
    if left is not None:
        name = "lost" if passed else "open"
        found |= {name: 1, f"{name}_samples": left}
    row = rows.setdefault(step, dict.fromkeys(ZERO, 0))
    for name, count in found.items():
        row[name] = row.get(name, 0) + min(count, MOST)


def weights(group: Sequence[Line]) -> tuple[tuple[int | None, float], Counts]:
    """A version of the weights."""
    newest: dict[Any, Line] = {}
    for line in sorted(group, key=lambda line: line.age):
        newest[line.replica, root_of(line.writer).rank] = line
    said: dict[str, set[str]] = {}
    for line in newest.values():
        of, colon, value = line.get("fingerprint", "").rpartition(":")
        if colon:
            said.setdefault(of, set()).add(value)
    disagrees = any(len(values) > 1 for values in said.values())
    return (None, max(line.t for line in newest.values())), {"version_disagrees": 1} if disagrees else {}


def alive(lines: Sequence[Line]) -> list[Line]:
    """Entries that are not undone."""
    return [
        line
        for line in lines
        if not any(
            other.replica == line.replica
            and other.age > line.age
            and (line.step is None or other.begins is None or other.begins <= line.step)
            for other in lines
        )
    ]


def last_try(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.get("try", 0) == max(other.get("try", 0) for other in lines)]


def first_parts(lines: Sequence[Line]) -> list[Line]:
    found: dict[tuple[int, int], Line] = {}
    for line in sorted(lines, key=lambda line: line.place):
        found.setdefault(line.part, line)
    return list(found.values())


def verdict(group: Sequence[Line], wait_s: float) -> tuple[tuple[int | None, float], Counts]:
    """A group: where it has its row, (step or None, time), and its counts; `left` of one that neither came nor was
    dropped.
    """
    begin = min(line.t for line in group)
    timely = [line for line in group if line.t <= begin + wait_s]
    trained = last_try(alive([line for line in timely if line.get("hop", "") == "trained"]))
    dropped = alive([line for line in timely if line.get("hop", "") == "dropped"])
    others: dict[str, list[Line]] = {}
    for line in timely:
        if line.get("hop", "") not in ("trained", "dropped"):
            others.setdefault(line.get("hop", ""), []).append(line)
    there = {hop: dispatches(lines) for hop, lines in others.items()}
    came, gone = sum(line.n for line in trained), sum(line.n for line in dropped)
    offered = None
    if others:
        first = "generated" if "generated" in others else min(others, key=lambda hop: others[hop][0].place)
        ordered = sorted(there[first], key=lambda lines: max(line.place for line in lines))
        sizes = [sum(line.n for line in lines) for lines in ordered]
        offered = came + gone if came + gone in sizes else sizes[-1]
    kept = first_parts(trained)
    parts = {line.part[1] for line in trained}
    over = offered is not None and came + gone > offered
    twice = bool(trained) and (len(kept) < len(trained) or len(parts) > 1 or over)
    short = bool(trained) and not twice and ((offered or 0) > came + gone or len(kept) < max(parts))
    counts: Counts = {
        "groups": 1,
        "late": len(group) - len(timely),
        "twice": int(twice),
        "group_short": int(short),
        "version_disagrees": int(bool(trained) and versions_disagree(kept, there)),
        "sign_wrong": int(sign_wrong(trained)),
        "mask_wrong": int(mask_wrong(kept, there)),
        "generated_samples": offered or 0,
        "trained_samples": came,
        "dropped_samples": gone,
        "masked_out_samples": sum(line.get("mask", [0, 0, 0])[2] for line in trained),
    }
    if trained and not twice:
        counts |= differing(kept, dropped, there)
    if trained:
        steps = [line.step for line in trained if line.step is not None]
        return (min(steps) if steps else None, trained[0].t), counts
    if dropped and gone >= (offered or 0):
        return (None, max(line.t for line in dropped)), counts
    return (None, begin + wait_s), counts | {"left": (offered or 0) - gone}


def dispatches(lines: Sequence[Line]) -> list[list[Line]]:
    apart: dict[Any, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.place):
        of = line.replica, line.age, line.get("try", 0)
        number = 0
        while any(other.part == line.part for other in apart.get((*of, number), [])):
            number += 1
        apart.setdefault((*of, number), []).append(line)
    found = list(apart.values())
    if len(found) > 1 and any(line.part[1] > 1 for line in lines):
        found.append(first_parts(last_try(alive(lines))))
    return found


def differing(kept: Sequence[Line], dropped: Sequence[Line], there: Mapping[str, list[list[Line]]]) -> Counts:
    found: Counts = {}
    filled = [line for line in kept if line.n]
    if not filled:
        return found
    common = set.intersection(*({*line.get("d", {})} for line in filled))
    known_by = {line.get("by", "") for line in filled}
    ids = next(iter(known_by)) if len(known_by) == 1 else None
    for of in there.values():
        for field in [*(common & {ids}), *sorted(common - {ids})]:
            fits = [fit for one in of if (fit := agrees(kept, dropped, one, field, ids)) is not None]
            if fits:
                name = f"{field}_differs"
                found[name] = max(found.get(name, 0), int(not any(fits)))
                if field == ids and not any(fits):
                    break
    return found


def agrees(
    kept: Sequence[Line], dropped: Sequence[Line], one: Sequence[Line], field: str, ids: str | None
) -> bool | None:
    came, gone, here = (sum(line.n for line in lines) for lines in (kept, dropped, one))
    if here not in (came, came + gone):
        return None
    mine = [*kept] if here == came else [*kept, *dropped]
    everyone = [line for line in (*mine, *one) if line.n]
    if not everyone or ids is None or any(line.get("by", "") != ids for line in everyone):
        return None
    rounded = {line.get("precision", "") for line in everyone}
    if field not in ("tokens", "mask", "sample") and len(rounded) > 1:
        return None
    if any(field not in line.get("d", {}) for line in everyone):
        return None

    def total(lines: Sequence[Line]) -> list[int]:
        pairs = [line.get("d", {}).get(field, [0, 0]) for line in lines]
        return [sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)]

    return total(mine) == total(one)


def versions_disagree(kept: Sequence[Line], there: Mapping[str, list[list[Line]]]) -> bool:
    def span(lines: Sequence[Line]) -> tuple[int, int] | None:
        known = [line.get("version", None) for line in lines if line.get("version", None)]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    mine = span(kept)
    if mine is None:
        return False
    for of in there.values():
        named = [one for one in of if span(one) is not None]
        fits = []
        for one in named:
            theirs = span(one)
            assert theirs is not None
            same_count = sum(line.n for line in one) == sum(line.n for line in kept)
            fits.append(theirs == mine or (not same_count and theirs[0] <= mine[0] and mine[1] <= theirs[1]))
        if named and not any(fits):
            return True
    return False


def total_of(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # beyond doubles
        return math.nan


def sign_wrong(trained: Sequence[Line]) -> bool:
    known = [
        (line.n, *line.get("reward", ()), *line.get("advantage", ()))
        for line in trained
        if line.n > 1 and len(line.get("reward", ())) == 2 and len(line.get("advantage", ())) == 3
    ]
    variations = []
    for total, square in ((1, 2), (3, 4)):
        squares = total_of([one[square] for one in known])
        variation = total_of([one[square] - one[total] * one[total] / one[0] for one in known])
        variations.append(variation if variation > 1e-12 * squares else 0.0)
    product = total_of([one[5] for one in known])
    return all(variations) and -math.inf < product < 0 and product * product > variations[0] * variations[1] / 4


def mask_wrong(kept: Sequence[Line], there: Mapping[str, list[list[Line]]]) -> bool:
    kept = [line for line in kept if line.n]
    masks = [line.get("mask", None) for line in kept if line.get("mask", None)]
    if not masks:
        return False
    counted, tokens, empty = (sum(mask[i] for mask in masks) for i in range(3))
    if counted > tokens:
        return True
    if len(masks) < len(kept):
        return False

    def responses(candidates: Sequence[Sequence[Line]]) -> list[int]:
        of_as_many = [lines for lines in candidates if sum(line.n for line in lines) == sum(line.n for line in kept)]
        known = [[line.get("response", None) for line in lines if line.n] for lines in of_as_many]
        return [sum(one) for one in known if one and None not in one]

    generated = responses([kept]) or responses([one for of in there.values() for one in of])
    return bool(generated) and all(counted > one or (empty == 0 and counted < one) for one in generated)
