"""Evaluates rules over frames that come one by one, late and again, in bounded pieces. Pure.

The verdicts are a function of the frames: however they came, they are those of one evaluation from the first to the
last. A frame that changes is evaluated again from the snapshot before it, until the state equals a stored one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from rlship_sidecar.alerts.episodes import (
    SUPERSEDED,
    WITHDRAWN,
    Episode,
    Moment,
    RuleState,
    RuleSteps,
    episodes_of,
    start,
)
from rlship_sidecar.alerts.frames import FrameChange, FrameNames, Frames, StepFrame
from rlship_sidecar.alerts.rules import Rule, blind, wanted
from rlship_sidecar.alerts.signals import START, ask
from rlship_sidecar.rows import Lineage, Row

PIECE = 16  # steps between snapshots


class _RuleRun:
    """What one rule says of the frames of a lineage.

    `before` holds its state before each piece that has frames, `ended` the episodes that end in a piece. `dirty` are
    the pieces to evaluate, ascending.
    """

    __slots__ = ("after", "before", "dirty", "ended", "names", "rule", "steps")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.steps = RuleSteps(rule)
        self.names = sorted(rule.wanted())
        self.before: dict[int, RuleState] = {}
        self.ended: dict[int, tuple[Episode, ...]] = {}
        self.dirty: list[int] = []
        self.after = start(rule)  # the last frame

    def fork(self, pieces: list[int]) -> _RuleRun:
        """The same for a lineage that has only these pieces, of which the last one may be cut."""
        made = _RuleRun(self.rule)
        made.before = {piece: self.before[piece] for piece in pieces if piece in self.before}
        made.ended = {piece: self.ended.get(piece, ()) for piece in pieces}
        # A piece without a snapshot gets one from the piece in front of it.
        unknown = (before for before, piece in pairwise(pieces) if piece not in made.before)
        made.dirty = sorted({*pieces[-1:], *unknown, *(piece for piece in self.dirty if piece in made.ended)})
        return made

    def differs(self, one: StepFrame, other: StepFrame) -> bool:
        """Whether two frames of a step are different ones to the rule."""
        return (
            one.t != other.t
            or one.lineage != other.lineage
            or any(one.values.get(name) != other.values.get(name) for name in self.names)
            or any(one.ranks.get(name) != other.ranks.get(name) for name in self.names)
        )

    def mark(self, piece: int) -> None:
        at = bisect_left(self.dirty, piece)
        if at == len(self.dirty) or self.dirty[at] != piece:
            self.dirty.insert(at, piece)

    def settle(self, frames: dict[int, dict[int, StepFrame]], pieces: list[int], most: int | None) -> int:
        """Evaluate `most` pieces, or all that have to be. Returns how many frames were evaluated."""
        done = count = 0
        while self.dirty and (most is None or count < most):
            piece = self.dirty.pop(0)
            state = self._before(piece, pieces)
            after = self.steps.over([frames[piece][index] for index in sorted(frames[piece])], state)
            self.ended[piece] = tuple(one for _, ended in after for one in ended)
            self._pass_on(piece, pieces, after[-1][0] if after else state)
            done += len(frames[piece])
            count += 1
        return done

    def _before(self, piece: int, pieces: list[int]) -> RuleState:
        """The state before a piece. That before the first one is that before all frames."""
        if piece == pieces[0]:
            self.before[piece] = start(self.rule)
        elif piece not in self.before:
            # It is new. So far the state before it was that before the next piece that was evaluated.
            later = pieces[bisect_left(pieces, piece) + 1 :]
            self.before[piece] = next((self.before[one] for one in later if one in self.before), self.after)
        return self.before[piece]

    def _pass_on(self, piece: int, pieces: list[int], state: RuleState) -> None:
        place = bisect_left(pieces, piece) + 1
        if place == len(pieces):
            self.after = state
        elif self.before.get(pieces[place]) != state:
            self.before[pieces[place]] = state
            self.mark(pieces[place])


class Evaluation:
    """The frames of one lineage and what rules say of them. Steps are in pieces of PIECE.

    Each rule is evaluated by itself, so that a frame that changes costs only the rules that look at what changed.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._frames: dict[int, dict[int, StepFrame]] = {}  # by piece and step
        self._pieces: list[int] = []  # those with frames, ascending
        self._runs = [_RuleRun(rule) for rule in rules]

    def fork(self, first: int) -> Evaluation:
        """A lineage that has the frames below step `first`."""
        made = Evaluation(self._rules)
        for piece in self._pieces:
            frames = {index: frame for index, frame in self._frames[piece].items() if index < first}
            if frames:
                made._frames[piece] = frames
                made._pieces.append(piece)
        made._runs = [run.fork(made._pieces) for run in self._runs]
        return made

    def put(self, frame: StepFrame) -> None:
        """A frame is new or changed."""
        piece = frame.index // PIECE
        frames = self._frames.get(piece)
        if frames is None:
            frames = self._frames[piece] = {}
            insort(self._pieces, piece)
        before = frames.get(frame.index)
        frames[frame.index] = frame
        for run in self._runs:
            if before is None or run.differs(before, frame):
                run.mark(piece)

    def drop(self, index: int) -> None:
        """A frame is gone."""
        piece = index // PIECE
        if self._frames.get(piece, {}).pop(index, None) is not None:
            for run in self._runs:
                run.mark(piece)

    @property
    def settled(self) -> bool:
        """Whether all frames are evaluated."""
        return not any(run.dirty for run in self._runs)

    def settle(self, most: int | None = None) -> int:
        """Evaluate `most` pieces of each rule, or all that have to be. Returns how many frames were evaluated, each
        as often as there are rules that had to look at it.
        """
        return sum(run.settle(self._frames, self._pieces, most) for run in self._runs)

    def episodes(self) -> list[Episode]:
        """The episodes so far, in the order in which they fired, then of the rules."""
        found = []
        for run in self._runs:
            found += [episode for piece in self._pieces for episode in run.ended.get(piece, ())]
            found += episodes_of(run.rule, run.after)
        return sorted(found, key=lambda one: one.fired.step)

    def frames(self) -> Iterator[StepFrame]:
        """All frames, in the order of their steps."""
        for piece in self._pieces:
            for index in sorted(self._frames[piece]):
                yield self._frames[piece][index]

    def last(self) -> Moment | None:
        """The last frame's step and time; None without frames."""
        for piece in reversed(self._pieces):
            if self._frames[piece]:
                frame = self._frames[piece][max(self._frames[piece])]
                return Moment(frame.index, frame.t)
        return None


class History:
    """What rules say of the rows of a store, in any order: later rows of a unit count in place of earlier ones."""

    def __init__(self, rules: tuple[Rule, ...], lead: str) -> None:
        self.rules = rules
        self._frames = Frames(FrameNames(wanted(rules), lead), lead)
        self._lineages: dict[Lineage, Evaluation] = {}

    @property
    def has_lead(self) -> bool:
        """Whether there was a row of the lead: without one there are no frames."""
        return self._frames.has_lead

    def take(self, rows: Iterable[Row], past: Mapping[int, Collection[Row]] | None = None) -> None:
        """Take further rows. `past`: what steps of the lead were in earlier lineages, by step. Without it, it is what
        rows with the same step said before.
        """
        for row in rows:
            for change in self._frames.take(row, None if past is None else past.get(row.unit.index, ())):
                self._apply(change)

    def _apply(self, change: FrameChange) -> None:
        if change.anew:
            self._lineages.clear()
        elif change.begins:
            newest = next(reversed(self._lineages.values()), None)
            self._lineages[change.lineage] = Evaluation(self.rules) if newest is None else newest.fork(change.index)
        elif change.frame is None:
            self._lineages[change.lineage].drop(change.index)
        else:
            self._lineages[change.lineage].put(change.frame)

    def settle(self, most: int | None = None) -> bool:
        """Evaluate what changed: `most` pieces of each lineage, or all. Returns whether nothing is left to do."""
        for one in self._lineages.values():
            one.settle(most)
        return all(one.settled for one in self._lineages.values())

    def knowledge(self) -> tuple[int, dict[tuple[str, str], tuple[int, int]]]:
        """How many frames the newest lineage has, and by rule and signal in how many it was known, and true."""
        newest = next(reversed(self._lineages.values()), None)
        frames = [] if newest is None else list(newest.frames())
        found = {}
        for rule in self.rules:
            for signal in rule.signals:
                # That it is known is not what `missing` makes of it.
                bare, state, known, true = replace(signal, missing=None), START, 0, 0
                for frame in frames:
                    answer, state = ask(bare, frame, state)
                    known += answer.truth is not None
                    true += answer.truth is True
                found[rule.name, signal.name] = known, true
        return len(frames), found

    def blind(self) -> list[str]:
        """The rules that look at metrics, none of which any frame has."""
        seen: set[str] = set()
        for one in self._lineages.values():
            for frame in one.frames():
                seen.update(frame.values, frame.ranks)
        return blind(self.rules, seen)

    def last(self) -> Moment | None:
        """The last frame of the newest lineage."""
        newest = next(reversed(self._lineages.values()), None)
        return None if newest is None else newest.last()

    def episodes(self) -> list[Episode]:
        """The episodes of all lineages, in the order in which they fired. Those of former lineages that were not over
        when another one began are superseded.
        """
        found: dict[str, Episode] = {}
        every = list(self._lineages.values())
        for place, one in enumerate(every):
            newest = place == len(every) - 1
            for episode in one.episodes():
                if not newest and episode.ended is None:
                    episode = replace(episode, state=SUPERSEDED, ended=one.last())
                found[episode.id] = episode
        return sorted(found.values(), key=lambda one: (one.lineage, one.fired.step))


def withdrawn(before: Iterable[Episode], now: Iterable[Episode]) -> list[Episode]:
    """The episodes of an earlier evaluation that the frames, as they are now, do not have any more."""
    left = {episode.id for episode in now}
    return [replace(one, state=WITHDRAWN) for one in before if one.id not in left]
