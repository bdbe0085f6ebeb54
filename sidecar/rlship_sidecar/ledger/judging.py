"""What the entries of one group come to. Pure: docs/semantics.md, "The ledger".

tests/reference/ledger.py has the same rules once more, slow and literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from rlship_sidecar.ledger.entries import DROPPED, GENERATED, TRAINED, Age, Digest, LedgerEntry

COUNTS = ("groups", "late", "twice", "group_short", "version_disagrees", "sign_wrong", "mask_wrong")
SAMPLES = ("generated_samples", "trained_samples", "dropped_samples", "masked_out_samples")
_SAMPLE, _TOKENS = "sample", "tokens"
_ROUNDED_ALIKE = frozenset((_SAMPLE, _TOKENS, "mask"))  # `precision` is about numbers
_FLAT = 1e-12  # a variance below this share of the mean square is rounding
MOST = (1 << 53) - 1  # a greater count of one group counts as this


@dataclass(slots=True)
class Verdict:
    """What became of one group.

    `step` is where it was trained, None if it was not. Then `tau` is the time after which its fate is settled.
    `pending`: it was neither trained nor dropped by then; it is lost if the trainer has an entry at or after `tau`,
    else open. `counts` are those of `COUNTS` and `SAMPLES` that are not 0, `compared` whether each compared field
    differs.
    """

    t: float
    step: int | None = None
    tau: float | None = None
    pending: bool = False
    left: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    compared: dict[str, bool] = field(default_factory=dict)


def judge(entries: Iterable[LedgerEntry], wait_s: float) -> Verdict:
    """The verdict on a group with these entries, at least one. Entries more than `wait_s` after its first are late."""
    found = _once(entries)
    begin = found[0].t
    timely = [entry for entry in found if entry.t <= begin + wait_s]
    by_hop: dict[str, list[LedgerEntry]] = {}
    for entry in timely:
        by_hop.setdefault(entry.hop, []).append(entry)
    trained = _last_tries(current(by_hop.pop(TRAINED, [])))
    dropped = current(by_hop.pop(DROPPED, []))
    hops = {hop: dispatches(of) for hop, of in by_hop.items()}
    offered = _offered(hops, sum(e.body.n for e in trained) + sum(e.body.n for e in dropped))
    group = _Arrived(trained, dropped, hops, offered)
    verdict = Verdict(begin)
    _place(verdict, group, begin + wait_s)
    counts = {
        "groups": 1,
        "late": len(found) - len(timely),
        "twice": int(group.twice),
        "group_short": int(group.short),
        "version_disagrees": int(_versions_disagree(group)),
        "sign_wrong": int(sign_wrong(trained)),
        "mask_wrong": int(_mask_wrong(group)),
        "generated_samples": offered or 0,
        "trained_samples": group.trained_n,
        "dropped_samples": group.dropped_n,
        "masked_out_samples": sum(e.body.mask[2] for e in trained if e.body.mask),
    }
    verdict.counts = {name: min(count, MOST) for name, count in counts.items() if count}
    verdict.compared = _compared(group)
    return verdict


def judge_weights(entries: Iterable[LedgerEntry]) -> Verdict:
    """The verdict on what the sides of weight syncs say of one version: the newest entry of each rank counts."""
    newest: dict[tuple[str, str, int], LedgerEntry] = {}
    for entry in sorted(_once(entries), key=lambda entry: entry.place.age):
        newest[entry.place[:3]] = entry
    said: dict[str, set[str]] = {}
    for entry in newest.values():
        of, colon, _ = entry.body.fingerprint.rpartition(":")
        if colon:
            said.setdefault(of, set()).add(entry.body.fingerprint)
    t = max(entry.t for entry in newest.values())
    disagree = any(len(texts) > 1 for texts in said.values())
    return Verdict(t, tau=t, counts={"version_disagrees": 1} if disagree else {})


def _once(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Entries by time. Of copies of one file, each counts once."""
    lines: dict[tuple[str, int], LedgerEntry] = {}
    for entry in sorted(entries, key=lambda entry: entry.order):
        lines.setdefault((entry.place.id, entry.offset), entry)
    return list(lines.values())


def current(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Of a group's entries of one hop, those that no newer segment of their replica has undone: it went back to their
    step or before it, and has the group at this hop again.
    """
    if len({entry.place.age for entry in entries}) < 2:
        return list(entries)
    begins: dict[tuple[str, str], dict[Age, float]] = {}  # by replica and age, the first step of a segment
    for place in {entry.place for entry in entries}:
        of = begins.setdefault((place.actor, place.replica), {})
        begin = -inf if place.begins is None else place.begins
        of[place.age] = min(begin, of.get(place.age, inf))
    return [entry for entry in entries if not _is_undone(entry, begins[entry.place.actor, entry.place.replica])]


def _is_undone(entry: LedgerEntry, begins: dict[Age, float]) -> bool:
    step = inf if entry.step is None else entry.step
    return any(age > entry.place.age and begin <= step for age, begin in begins.items())


def _last_tries(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    last = max((entry.body.retry for entry in entries), default=0)
    return [entry for entry in entries if entry.body.retry == last]


def dispatches(entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """The entries of one hop by dispatch: a replica may have a group again after a restart or as another try, and
    another replica too. The second entry of a part is of a second dispatch. Where parts lie in several replicas, all
    entries together are one more dispatch.
    """
    seen: dict[object, int] = {}
    found: dict[object, list[LedgerEntry]] = {}
    for entry in entries:
        place, part = entry.place, (entry.body.part, entry.body.parts)
        of = place.actor, place.replica, place.age, entry.body.retry
        number = seen[of, part] = seen.get((of, part), 0) + 1
        found.setdefault((of, number), []).append(entry)
    each = list(found.values())
    if len(each) > 1 and any(entry.body.parts > 1 for entry in entries):
        each.append(_parts(_last_tries(current(entries))))
    return each


def _parts(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """The first entry of each part."""
    first: dict[tuple[int, int], LedgerEntry] = {}
    for entry in entries:
        first.setdefault((entry.body.part, entry.body.parts), entry)
    return list(first.values())


def _count(entries: Iterable[LedgerEntry]) -> int:
    return sum(entry.body.n for entry in entries)


def _offered(hops: dict[str, list[list[LedgerEntry]]], arrived: int) -> int | None:
    """How many samples the group had at its first hop: those that arrived, if any dispatch had so many, else those of
    the newest dispatch. None if only the ends of its way are known.
    """
    if not hops:
        return None
    first = GENERATED if GENERATED in hops else min(hops, key=lambda hop: min(e.order for d in hops[hop] for e in d))
    counts = [_count(of) for of in sorted(hops[first], key=lambda of: max(entry.order for entry in of))]
    return arrived if arrived in counts else counts[-1]


class _Arrived:
    """A group's entries that count. `trained` has the first entry of each part, `step` is the least of all of them."""

    def __init__(
        self,
        trained: list[LedgerEntry],
        dropped: list[LedgerEntry],
        hops: dict[str, list[list[LedgerEntry]]],
        offered: int | None,
    ) -> None:
        self.trained = _parts(trained)
        self.step = min((entry.step for entry in trained if entry.step is not None), default=None)
        self.dropped = dropped
        self.hops = hops
        self.offered = offered
        self.trained_n = _count(trained)
        self.dropped_n = _count(dropped)
        parts = {entry.body.parts for entry in trained}
        over = offered is not None and self.trained_n + self.dropped_n > offered
        self.twice = bool(trained) and (len(self.trained) < len(trained) or len(parts) > 1 or over)
        lacks = offered is not None and self.trained_n + self.dropped_n < offered
        self.short = bool(trained) and not self.twice and (lacks or len(self.trained) < max(parts))


def _place(verdict: Verdict, group: _Arrived, end: float) -> None:
    if group.trained:
        verdict.step = group.step
        if verdict.step is None:
            verdict.tau = group.trained[0].t
    elif group.dropped and group.dropped_n >= (group.offered or 0):
        verdict.tau = max(entry.t for entry in group.dropped)
    else:
        verdict.tau, verdict.pending = end, True
        verdict.left = min((group.offered or 0) - group.dropped_n, MOST)


# Fields ---------------------------------------------------------------------------------------------------------------


def _compared(group: _Arrived) -> dict[str, bool]:
    """Whether each field differs between the trainer and any other hop that has it of the same samples."""
    found: dict[str, bool] = {}
    filled = [entry for entry in group.trained if entry.body.n]  # a part may be empty
    if not filled or group.twice:
        return found
    names = sorted(set.intersection(*(set(entry.body.digests) for entry in filled)))
    for of in group.hops.values():
        differing = _differing(group, of, names)
        for name, differs in differing.items():
            found[name] = found.get(name, False) or differs
    return found


def _differing(group: _Arrived, of: list[list[LedgerEntry]], names: list[str]) -> dict[str, bool]:
    """Whether each field differs at one hop. Where the samples themselves do, nothing else can be compared."""
    found: dict[str, bool] = {}
    ids = _ids(group.trained)
    for name in sorted(names, key=lambda name: (name != ids, name)):
        equal = [agrees for dispatch in of if (agrees := _agrees(group, dispatch, name, ids)) is not None]
        if equal:
            found[name] = not any(equal)
        if name == ids and found.get(name):
            return found
    return found


def _ids(entries: Sequence[LedgerEntry]) -> str | None:
    """What the samples are known by: a field, "" for nothing, None if entries differ in that."""
    known = {entry.body.by for entry in entries if entry.body.n}
    return known.pop() if len(known) == 1 else None


def _agrees(group: _Arrived, dispatch: list[LedgerEntry], name: str, ids: str | None) -> bool | None:
    """Whether a dispatch has the trainer's digest of a field, with what was dropped where it had that; None if this
    cannot be known.
    """
    of_trained = list(group.trained)
    if _count(dispatch) != group.trained_n:
        of_trained += group.dropped
        if _count(dispatch) != group.trained_n + group.dropped_n:
            return None
    if ids is None or _ids([*dispatch, *of_trained]) != ids:
        return None
    if name not in _ROUNDED_ALIKE and _is_rounded_apart([*dispatch, *of_trained]):
        return None
    here, there = _sum(dispatch, name), _sum(of_trained, name)
    return None if here is None or there is None else here == there


def _is_rounded_apart(entries: Iterable[LedgerEntry]) -> bool:
    return len({entry.body.precision for entry in entries if entry.body.n}) > 1


def _sum(entries: Iterable[LedgerEntry], name: str) -> Digest | None:
    low = high = 0
    for entry in entries:
        pair = entry.body.digests.get(name)
        if pair is None:
            if entry.body.n:
                return None
            continue
        low, high = low + pair[0], high + pair[1]
    return low, high


# Sums -----------------------------------------------------------------------------------------------------------------


def _versions_disagree(group: _Arrived) -> bool:
    """Whether the trainer names other versions than every dispatch of a hop that names any."""
    mine = _range(group.trained)
    if mine is None:
        return False
    for of in group.hops.values():
        known = [(found, _count(dispatch)) for dispatch in of if (found := _range(dispatch)) is not None]
        if known and not any(_covers(theirs, mine, equal=n == group.trained_n) for theirs, n in known):
            return True
    return False


def _range(entries: Iterable[LedgerEntry]) -> tuple[int, int] | None:
    known = [entry.body.version for entry in entries if entry.body.version]
    return (min(one[0] for one in known), max(one[1] for one in known)) if known else None


def _covers(theirs: tuple[int, int], mine: tuple[int, int], *, equal: bool) -> bool:
    return theirs == mine if equal else theirs[0] <= mine[0] and mine[1] <= theirs[1]


def sign_wrong(trained: Iterable[LedgerEntry]) -> bool:
    """Whether rewards and advantages correlate below -1/2."""
    of = [e.body for e in trained if len(e.body.advantage) == 3 and e.body.reward and e.body.n > 1]
    if not of:
        return False
    rewards = _variation([(body.n, body.reward[0], body.reward[1]) for body in of])
    advantages = _variation([(body.n, body.advantage[0], body.advantage[1]) for body in of])
    product = _total([body.advantage[2] for body in of])
    return bool(rewards and advantages and -inf < product < 0 and product * product > rewards * advantages / 4)


def _variation(sums: Sequence[tuple[int, float, float]]) -> float:
    """The sum of squared differences from the mean of each part; 0 where it is only rounding."""
    squares = _total([square for _, _, square in sums])
    found = _total([square - total * total / n for n, total, square in sums])
    return found if found > _FLAT * squares else 0.0


def _total(numbers: Sequence[float]) -> float:
    """The sum of numbers; infinity or NaN where no double holds it."""
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)


def _mask_wrong(group: _Arrived) -> bool:
    """Whether more or fewer tokens count than the model generated. Samples of which none counts are left out on
    purpose.
    """
    filled = [entry for entry in group.trained if entry.body.n]
    masks = [entry.body.mask for entry in filled if entry.body.mask]
    if not masks:
        return False
    counted, tokens, empty = (sum(column) for column in zip(*masks))
    if counted > tokens:
        return True
    if len(masks) < len(filled):
        return False
    generated = _responses(group)
    if not generated:
        return False
    return all(counted > response or (not empty and counted < response) for response in generated)


def _responses(group: _Arrived) -> list[int]:
    """How many tokens the model generated, as the trainer has it, else as each dispatch of as many samples has it."""
    found = []
    for dispatch in [group.trained, *(one for of in group.hops.values() for one in of)]:
        filled = [entry for entry in dispatch if entry.body.n]
        known = [entry.body.response for entry in filled if entry.body.response is not None]
        if known and len(known) == len(filled) and _count(dispatch) == _count(group.trained):
            found.append(sum(known))
            if dispatch is group.trained:
                break
    return found
