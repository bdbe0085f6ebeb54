"""Which ranks are short of a metric at a step, and which rows a changed step can make so.

A row depends on earlier steps only here and in `tables_shown`. So each step's ranks are kept in the store, in the
transaction that keeps its row. Where a step's ranks change, or the step becomes a row after later ones, the later rows
in whose window it is are made again.

Nearly all steps of a job are alike. What they have in common is worked out once, for the whole set of metrics: see
`_Pattern`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.reduce.logged import (
    Logged,
    PlainKey,
    decode_logged,
    encode_logged,
    plain_key,
    ranks_of,
    who_logged,
)
from rlship_sidecar.reduce.rank_sets import RankSet, RankSets, decode_ranks
from rlship_sidecar.store.logged_steps import LoggedStep, LoggedSteps

_MAX_PATTERNS, _MAX_TEXT = 1024, 1 << 24  # kept patterns, and characters of their JSON

Short = dict[str, tuple[str, ...]]  # names of ranks by `<actor>/<metric>`


@dataclass(slots=True)
class _KnownMetric:
    """A metric of the actor: its number in the store, the first step that has it, and all ranks that ever logged it."""

    number: int
    first: int
    ranks: RankSet


@dataclass(slots=True, eq=False)
class _Pattern:
    """What some steps have in common: `logged`, and its JSON.

    `suspects` are the metrics that other ranks logged at another step, with these ranks; without any, no rank can be
    short. They are as of `version`. `since`: from this step on, `_KnownMetric` holds what this pattern says.
    """

    logged: Logged
    text: str
    suspects: dict[RankSet, list[str]] = field(default_factory=dict)
    version: int = -1
    since: int | None = None


class LookedBack(NamedTuple):
    """What the row of a step is short of, and later steps whose rows have to be made again."""

    short: Short
    affected: list[int]


class Lookback:
    """The steps of one actor. `window` is the configuration's `short_window`."""

    def __init__(self, steps: LoggedSteps, window: int) -> None:
        self._steps = steps
        self._window = window
        self._highest = steps.highest()
        kept = steps.metrics()
        self._sets = RankSets().meeting(rank for _, _, _, ranks in kept for rank in decode_ranks(ranks))
        self._metrics = {
            metric: _KnownMetric(number, first, self._sets.decode(ranks)) for metric, number, first, ranks in kept
        }
        self._names = {metric.number: name for name, metric in self._metrics.items()}
        self._version = 0  # counts changes of any metric's ranks
        self._by_key: dict[PlainKey, _Pattern] = {}
        self._by_text: dict[str, _Pattern] = {}
        self._kept_text = 0

    def look(self, step: int, window: UnitLines, roster: Roster, *, whole: bool) -> LookedBack:
        """Keep which ranks logged what at a step.

        `whole`: the window has all lines of the step. Else what is known of the step stays, too.
        """
        pattern, before, affected = self._pattern_of(step, window, roster), None, []
        if step > self._highest:
            self._highest = step
            self._learn(step, pattern)
        else:
            before = self._steps.get(step)
            known = self._decoded(before.ranks).logged if before is not None else {}
            if not whole and known:
                pattern = self._pattern(step, _union(known, pattern.logged))
            self._learn(step, pattern)
            if before is None or before.ranks != pattern.text:
                differing = {m for m in known.keys() | pattern.logged.keys() if known.get(m) != pattern.logged.get(m)}
                affected = self._affected(step, differing)
        short = self._short(step, pattern, roster)
        now = LoggedStep(step, pattern.text, orjson.dumps(short).decode() if short else None)
        if now != before:
            self._steps.put(now)
        return LookedBack(short, affected)

    def flush(self) -> None:
        """Hand over what the store lacks, before a commit."""
        self._steps.flush()

    # What steps have in common -------------------------------------------------------------------------------------

    def _pattern_of(self, step: int, window: UnitLines, roster: Roster) -> _Pattern:
        key = plain_key(window, roster)
        pattern = None if key is None else self._by_key.get(key)
        if pattern is None:
            self._meet(window)
            pattern = self._pattern(step, who_logged(window, self._sets))
            if key is not None:
                if len(self._by_key) >= _MAX_PATTERNS:
                    self._by_key.clear()
                self._by_key[key] = pattern
        return pattern

    def _meet(self, window: UnitLines) -> None:
        """Take in the ranks of a window. Where that makes other sets of ranks, all that is kept is made again."""
        before = self._sets
        self._sets = before.meeting(ranks_of(window))
        if self._sets is not before:
            for metric in self._metrics.values():
                metric.ranks = self._sets.decode(before.encode(metric.ranks))
            self._forget()

    def _forget(self) -> None:
        """Empty the caches. That costs only speed."""
        self._by_key.clear()
        self._by_text.clear()
        self._kept_text = 0

    def _pattern(self, step: int, logged: Logged) -> _Pattern:
        for name in logged:
            if name not in self._metrics:
                metric = self._metrics[name] = _KnownMetric(len(self._metrics), step, 0)
                self._names[metric.number] = name
        text = encode_logged(logged, {name: self._metrics[name].number for name in logged}, self._sets)
        return self._remembered(text, logged)

    def _decoded(self, text: str) -> _Pattern:
        return self._by_text.get(text) or self._remembered(text, decode_logged(text, self._names, self._sets.decode))

    def _remembered(self, text: str, logged: Logged) -> _Pattern:
        pattern = self._by_text.get(text)
        if pattern is None:
            self._kept_text += len(text)
            if len(self._by_text) >= _MAX_PATTERNS or self._kept_text > _MAX_TEXT:
                self._forget()
                self._kept_text = len(text)
            pattern = self._by_text[text] = _Pattern(logged, text)
        return pattern

    def _learn(self, step: int, pattern: _Pattern) -> None:
        """Note the metrics of a step that becomes a row, and what its pattern lacks of them."""
        if pattern.since is None or step < pattern.since:
            for name, ranks in pattern.logged.items():
                metric = self._metrics[name]
                new = ranks & ~metric.ranks
                if new or step < metric.first:
                    self._version += bool(new)
                    metric.ranks, metric.first = metric.ranks | ranks, min(metric.first, step)
                    self._steps.put_metric(name, metric.number, metric.first, self._sets.encode(metric.ranks))
            pattern.since = step
        if pattern.version != self._version:
            pattern.version = self._version
            pattern.suspects = {}
            for name, ranks in pattern.logged.items():
                if others := self._metrics[name].ranks & ~ranks:
                    pattern.suspects.setdefault(others, []).append(name)

    # Looking back, and ahead ---------------------------------------------------------------------------------------

    def _short(self, step: int, pattern: _Pattern, roster: Roster) -> Short:
        wanted: dict[str, RankSet] = {}
        passed: RankSet | None = None
        for ranks, names in pattern.suspects.items():
            if passed is None:
                passed = self._sets.of(roster.passed(step))
            if those := ranks & passed:
                wanted.update(dict.fromkeys(names, those))
        if not wanted:
            return {}
        found = self._lately(step, wanted)
        return {f"{self._steps.actor}/{name}": self._sets.names(ranks) for name, ranks in sorted(found.items())}

    def _lately(self, step: int, wanted: Mapping[str, RankSet]) -> dict[str, RankSet]:
        """Of the wanted ranks of each metric, those that logged it at one of the last steps that have it."""
        left = {name: self._window for name in wanted if self._metrics[name].first < step}
        unseen = dict(wanted)
        for earlier in self._steps.before(step) if left else ():
            logged = self._decoded(earlier.ranks).logged
            for name in [*left]:
                ranks = logged.get(name)
                if ranks is not None:
                    unseen[name] &= ~ranks
                    left[name] -= 1
                    if not (left[name] and unseen[name]) or self._metrics[name].first >= earlier.step:
                        del left[name]
            if not left:
                break
        return {name: seen for name, ranks in wanted.items() if (seen := ranks & ~unseen[name])}

    def _affected(self, step: int, differing: Iterable[str]) -> list[int]:
        """The later steps that have one of these metrics and look back as far as this step."""
        left = {name: self._window for name in differing if self._metrics[name].ranks.bit_count() > 1}
        found: list[int] = []
        if not left or step >= self._highest:
            return found
        for later in self._steps.after(step):
            logged = self._decoded(later.ranks).logged
            looking = False
            for name in [name for name in left if name in logged]:
                looking = looking or logged[name] != self._metrics[name].ranks  # else no rank can be short
                left[name] -= 1
                if not left[name]:
                    del left[name]
            if looking:
                found.append(later.step)
            if not left:
                break
        return found


def _union(one: Logged, other: Logged) -> Logged:
    return {name: one.get(name, 0) | other.get(name, 0) for name in {**one, **other}}
