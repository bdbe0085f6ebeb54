"""The verdicts of rules on one experiment, evaluated piece by piece as its frames change, over a memory that lasts.

`Evaluation` says the same over frames in memory. Here a lineage has pieces from the one in which it begins; what is
before that it has from the lineage before it. Only the pieces that are looked at are in memory. The state after the
last piece of the newest lineage is not kept: it is found again from the piece before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from rlship_sidecar.alerts.episodes import SUPERSEDED, Episode, Moment, RuleState, RuleSteps, episodes_of, start
from rlship_sidecar.alerts.frames import Lineages, Part, StepFrame, StepParts
from rlship_sidecar.alerts.kept import pack_episodes, pack_state, unpack_episodes, unpack_state
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.rows import Lineage
from rlship_sidecar.store.alerts import RulePiece as Key

PIECE = 16  # steps between kept states
GOING_ON = -1  # in place of a piece: the episode that a rule is in at the end of a lineage
_AT_ONCE = -1  # in place of a step: the whole piece


Piece = tuple[Lineage, int]


class Memory(Protocol):
    """Where states and episodes are kept."""

    def states(self, lineage: Lineage, piece: int, rules: Collection[str]) -> dict[str, bytes]:
        """The states of rules after a piece that are kept."""

    def keep_states(self, states: Mapping[Key, bytes | None]) -> None:
        """Keep states after pieces, or forget them."""

    def keep_episodes(self, key: Key, episodes: bytes | None) -> None:
        """Keep the episodes that end in a piece, or forget them."""


class _Trail(NamedTuple):
    """The newest evaluation of a rule in a lineage: frame by frame in one piece."""

    piece: int
    before: RuleState
    steps: list[tuple[int, RuleState, tuple[Episode, ...]]]

    @property
    def after(self) -> RuleState:
        return self.steps[-1][1] if self.steps else self.before


class _States:
    """The states after pieces. The memory is read for all rules of a piece at once, and written by `save`."""

    __slots__ = ("_changed", "_known", "_memory", "_rules", "_unpacked")

    def __init__(self, memory: Memory, rules: Collection[str]) -> None:
        self._memory = memory
        self._rules = rules
        self._known: dict[Piece, dict[str, bytes]] = {}
        self._unpacked: dict[Key, RuleState] = {}
        self._changed: dict[Key, bytes | None] = {}

    def get(self, key: Key) -> RuleState | None:
        """The state after a piece; None if it is not known."""
        found = self._unpacked.get(key)
        if found is None and (data := self._of(key).get(key.rule)) is not None:
            found = self._unpacked[key] = unpack_state(data)
        return found

    def put(self, key: Key, state: RuleState) -> bool:
        """Note a state. Returns whether another one was known, or none."""
        known, data = self._of(key), pack_state(state)
        self._unpacked[key] = state
        if known.get(key.rule) == data:
            return False
        known[key.rule] = self._changed[key] = data
        return True

    def drop(self, key: Key) -> None:
        """Forget a state."""
        self._of(key).pop(key.rule, None)
        self._unpacked.pop(key, None)
        self._changed[key] = None

    def save(self) -> None:
        """Have the memory keep what changed. What is in this object is read again from there."""
        self._memory.keep_states(self._changed)
        for one in (self._changed, self._known, self._unpacked):
            one.clear()

    def _of(self, key: Key) -> dict[str, bytes]:
        piece = key.lineage, key.piece
        found = self._known.get(piece)
        if found is None:
            found = self._known[piece] = self._memory.states(*piece, self._rules)
        return found


class Verdicts:
    """The episodes of rules over the steps that `parts_of` gives, a piece at a time.

    `touched` are the ids of episodes that may be others than before.
    """

    def __init__(self, rules: tuple[Rule, ...], memory: Memory, parts_of: Callable[[int], Mapping[int, StepParts]]):
        self.rules = {rule.name: rule for rule in rules}
        self.lineages = Lineages()
        self.touched: set[str] = set()
        self.evaluated = 0  # frames, each as often as there were rules that had to look at it
        self._memory = memory
        self._states = _States(memory, self.rules)
        self._parts_of = parts_of
        self._steps = {rule.name: RuleSteps(rule) for rule in rules}
        self._wanted = {rule.name: frozenset(rule.wanted()) for rule in rules}
        self._dirty: dict[Piece, dict[str, int]] = {}  # by rule, the lowest step
        self._next: list[Piece] = []  # a heap of all that is dirty, and of some that is not any more
        self._trails: dict[tuple[Lineage, str], _Trail] = {}
        self._found: dict[Key, tuple[Episode, ...]] = {}
        self._keys: dict[str, set[Key]] = {}  # by id of an episode
        self._frames: dict[tuple[Lineage, int, int], list[StepFrame]] = {}  # by lineage, piece and first step

    def load(
        self, steps: Iterable[tuple[Lineage, int]], episodes: Iterable[tuple[Key, bytes]], dirty: Iterable[Piece]
    ) -> None:
        """Go on where a memory left off."""
        for lineage, at in steps:
            self.lineages.add(lineage, at)
        for key, data in episodes:
            self._hold(key, unpack_episodes(data))
        for lineage, piece in dirty:
            self._mark_all(lineage, piece)
        if self.lineages.keys:
            newest = self.lineages.keys[-1]
            self._mark_all(newest, self.lineages.last(newest) // PIECE)
        self.touched.clear()

    # What changes --------------------------------------------------------------------------------------------------

    def lead_changed(self, at: int, before: Mapping[Lineage, Part | None], after: Mapping[Lineage, Part]) -> None:
        """The lead's rows of a step are others than before. None stands for what is not known of before."""
        firsts = self.lineages.firsts()
        for key in after.keys() - before.keys():
            self.lineages.add(key, at)
        for key in before.keys() - after.keys():
            self.lineages.remove(key, at)
        changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        if not changed:
            return
        self._forget_frames(at // PIECE)
        rules = self._concerned([(before.get(key), after.get(key)) for key in changed], lead=True)
        self._mark_step(at, min(changed), rules)
        for key in before.keys() - after.keys():  # what a lineage ends with may be another piece now
            if own := self.lineages.own(key):
                self._mark_all(key, own[-1] // PIECE)
            self._mark_all(key, at // PIECE)
        if self.lineages.keys and min(changed) < self.lineages.keys[-1]:
            self._touch_superseded()
        if self.lineages.firsts() != firsts:
            self._begin_elsewhere(firsts, self.lineages.firsts())

    def other_changed(self, at: int, before: Part | None, after: Part) -> None:
        """A row of another actor than the lead is another than before."""
        newest = self.lineages.newest_at(at)
        if before == after or newest is None:
            return
        self._forget_frames(at // PIECE)
        self._mark_step(at, newest, self._concerned([(before, after)], lead=False))

    def _concerned(self, pairs: Iterable[tuple[Part | None, Part | None]], *, lead: bool) -> list[str]:
        """The rules that look at what differs."""
        names: set[str] = set()
        for before, after in pairs:
            if lead and (before is None or after is None or (before.t, before.lineage) != (after.t, after.lineage)):
                return list(self.rules)
            for one, other in _both(before, after):
                names.update(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        return [rule for rule, wanted in self._wanted.items() if not wanted.isdisjoint(names)]

    def _begin_elsewhere(self, before: Mapping[Lineage, int], after: Mapping[Lineage, int]) -> None:
        """Lineages begin at other steps than they did: frames from there on may be others in all of them."""
        moved = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        least = min(step for key in moved for step in (before.get(key), after.get(key)) if step is not None)
        self._frames.clear()
        for key in self.lineages.keys:
            own = self.lineages.own(key)
            first = bisect_left(own, least // PIECE * PIECE)
            for piece in dict.fromkeys(one // PIECE for one in own[first:]):
                self._mark_all(key, piece)
        self._touch_superseded()

    def _mark_step(self, at: int, least: Lineage, rules: Collection[str]) -> None:
        """A step is another in lineages from `least` on."""
        piece = at // PIECE
        for key in self.lineages.keys[bisect_left(self.lineages.keys, least) :]:
            if self._has(key, piece):
                self._mark((key, piece), rules, at)

    def _mark_all(self, lineage: Lineage, piece: int) -> None:
        self._mark((lineage, piece), self.rules, _AT_ONCE)

    def _mark(self, piece: Piece, rules: Collection[str], at: int) -> None:
        if not rules:
            return
        dirty = self._dirty.get(piece)
        if dirty is None:
            dirty = self._dirty[piece] = {}
            heappush(self._next, piece)
        for rule in rules:
            if dirty.get(rule, at) >= at:
                dirty[rule] = at

    def _has(self, lineage: Lineage, piece: int) -> bool:
        """Whether a lineage has steps of its own in a piece."""
        own = self.lineages.own(lineage)
        at = bisect_left(own, piece * PIECE)
        return at < len(own) and own[at] < (piece + 1) * PIECE

    def _touch_superseded(self) -> None:
        for key, episodes in self._found.items():
            if key.piece == GOING_ON:
                self.touched.update(one.id for one in episodes)
                self._memory.keep_episodes(key, pack_episodes(episodes))

    def _forget_frames(self, piece: int) -> None:
        for key in [key for key in self._frames if key[1] == piece]:
            del self._frames[key]

    # Evaluation ----------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether all frames are evaluated."""
        return not self._dirty

    def left(self) -> set[Piece]:
        """The pieces that are left to evaluate."""
        return set(self._dirty)

    def settle(self, most: int) -> None:
        """Evaluate what changed, until about `most` frames are evaluated."""
        enough = self.evaluated + most
        while self._dirty and self.evaluated < enough:
            piece = heappop(self._next)  # the earliest lineage first: later ones go on from it
            for rule in list(self._dirty.get(piece, ())):
                self._evaluate(Key(piece[0], rule, piece[1]))
            if piece in self._dirty:
                heappush(self._next, piece)
            self._frames.clear()
        self._states.save()

    def _evaluate(self, key: Key) -> None:
        of = key.lineage, key.rule
        dirty = self._dirty.get((key.lineage, key.piece), {})
        lowest = dirty.pop(key.rule, _AT_ONCE)
        if not dirty:
            self._dirty.pop((key.lineage, key.piece), None)
        if not self._has(key.lineage, key.piece):
            self._leave(key)
            return
        rule = self.rules[key.rule]
        trail = self._trails.get(of)
        if trail is not None and trail.piece == key.piece and lowest != _AT_ONCE:
            steps = [one for one in trail.steps if one[0] < lowest]
            before = trail.before
        else:
            steps, before = [], self._before(key)
        state = steps[-1][1] if steps else before
        frames = self._frames_of(key.lineage, key.piece, steps[-1][0] + 1 if steps else key.piece * PIECE)
        for frame, (after, ended) in zip(frames, self._steps[key.rule].over(frames, state)):
            steps.append((frame.index, after, ended))
        self.evaluated += len(frames)
        state = steps[-1][1] if steps else before
        trail = _Trail(key.piece, before, steps)
        self._find(key, tuple(one for _, _, ended in steps for one in ended))
        if key.piece == self.lineages.last(key.lineage) // PIECE:
            self._find(key._replace(piece=GOING_ON), episodes_of(rule, state))
            if key.lineage == self.lineages.keys[-1]:
                self._trails[of] = trail
                return
        held = self._trails.get(of)
        if held is not None and held.piece == key.piece:
            del self._trails[of]
        self._pass_on(key, state)

    def _leave(self, key: Key) -> None:
        """A piece has no steps any more."""
        self._find(key, ())
        trail = self._trails.get((key.lineage, key.rule))
        if trail is not None and trail.piece == key.piece:
            del self._trails[key.lineage, key.rule]
        self._states.drop(key)
        self._mark_next(key)
        if not self.lineages.own(key.lineage):
            self._find(key._replace(piece=GOING_ON), ())

    def _frames_of(self, lineage: Lineage, piece: int, first: int) -> list[StepFrame]:
        """The frames of a lineage in a piece from a step on, ascending."""
        found = self._frames.get((lineage, piece, first))
        if found is None:
            steps = sorted((index, parts) for index, parts in self._parts_of(piece).items() if index >= first)
            made = (parts.frame(index, lineage, self.lineages) for index, parts in steps)
            found = self._frames[lineage, piece, first] = [frame for frame in made if frame is not None]
        return found

    def _before(self, key: Key) -> RuleState:
        """The state before a piece: after the one before it, of this lineage or of one that it goes on from."""
        source = self._source(key.lineage, key.piece)
        if source is None:
            return start(self.rules[key.rule])
        before = Key(source[0], key.rule, source[1])
        trail = self._trails.get((before.lineage, before.rule))
        if trail is not None and trail.piece == before.piece:
            del self._trails[before.lineage, before.rule]
            self._states.put(before, trail.after)
            return trail.after
        kept = self._states.get(before)
        if kept is None:
            self._evaluate(before)
            return self._before(key)
        return kept

    def _source(self, lineage: Lineage | None, piece: int) -> tuple[Lineage, int] | None:
        """The last piece before a piece that has frames of a lineage, and the lineage whose piece it is."""
        while lineage is not None:
            own = self.lineages.own(lineage)
            at = bisect_left(own, piece * PIECE)
            if at:
                return lineage, own[at - 1] // PIECE
            lineage = self.lineages.before(lineage)
        return None

    def _pass_on(self, key: Key, after: RuleState) -> None:
        if self._states.put(key, after):
            self._mark_next(key)

    def _mark_next(self, key: Key) -> None:
        """What goes on from a piece has to be evaluated."""
        own = self.lineages.own(key.lineage)
        at = bisect_left(own, (key.piece + 1) * PIECE)
        if at < len(own):
            self._mark((key.lineage, own[at] // PIECE), (key.rule,), _AT_ONCE)
        for later in self.lineages.keys[bisect_left(self.lineages.keys, key.lineage) :]:
            if later != key.lineage:
                fork = self.lineages.first(later) // PIECE
                if fork > key.piece and self._source(later, fork) == (key.lineage, key.piece):
                    self._mark((later, fork), (key.rule,), _AT_ONCE)

    # Episodes ------------------------------------------------------------------------------------------------------

    def _find(self, key: Key, episodes: tuple[Episode, ...]) -> None:
        before = self._found.get(key, ())
        if episodes == before:
            return
        lasts = key.piece != GOING_ON or key.lineage != self.lineages.keys[-1]
        if not lasts and list(map(_lasting, before)) == list(map(_lasting, episodes)):
            self._found[key] = episodes
            return
        self._hold(key, episodes)
        self._memory.keep_episodes(key, pack_episodes(episodes) if episodes else None)

    def _hold(self, key: Key, episodes: tuple[Episode, ...]) -> None:
        for one in self._found.pop(key, ()):
            self.touched.add(one.id)
            keys = self._keys[one.id]
            keys.discard(key)
            if not keys:
                del self._keys[one.id]
        for one in episodes:
            self.touched.add(one.id)
            self._keys.setdefault(one.id, set()).add(key)
        if episodes:
            self._found[key] = episodes

    def ids(self) -> list[str]:
        """The ids of all episodes."""
        return list(self._keys)

    def episode(self, id: str) -> Episode | None:
        """An episode as it is now: as the newest lineage that has it says. That of a former lineage that was not over
        when another one began is superseded.
        """
        keys = [key for key in self._keys.get(id, ()) if self.lineages.own(key.lineage)]
        if not keys:
            return None
        key = max(keys)
        found = next(one for one in self._found[key] if one.id == id)
        if key.piece == GOING_ON and key.lineage != self.lineages.keys[-1]:
            last = self.lineages.last(key.lineage)
            t = self._parts_of(last // PIECE)[last].lead[key.lineage].t
            return replace(found, state=SUPERSEDED, ended=Moment(last, t))
        return found

    def going_on(self) -> list[Episode]:
        """The episodes that are not over."""
        if not self.lineages.keys:
            return []
        newest = self.lineages.keys[-1]
        return [
            one
            for key, episodes in self._found.items()
            if key.piece == GOING_ON and key.lineage == newest
            for one in episodes
        ]


def _both(before: Part | None, after: Part | None) -> Iterator[tuple[Mapping[str, object], Mapping[str, object]]]:
    yield {} if before is None else before.values, {} if after is None else after.values
    yield {} if before is None else before.ranks, {} if after is None else after.ranks


def _lasting(one: Episode) -> Episode:
    """An episode without what changes from frame to frame while it goes on, which is found again after a restart."""
    return one if one.ended is not None else replace(one, last=one.fired, state="")
