"""Whom the oldest open step of an actor waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.report.terminal import duration, steps_in_words
from rlship_sidecar.rows import process_place, rank_words

WORTH_SAYING_S = 2.0  # no slow step
LATELY_S = 15.0  # a writer with a line, or a beat, in this time goes on
MAX_NAMED = 3  # ranks in a list


@dataclass(frozen=True, slots=True)
class _Waited:
    """A writer that a step waits for. `reach` is the newest step that it logged or passed, -1: none."""

    writer: Writer
    rank: str
    word: str
    reach: int
    silent_s: float
    gone: bool

    @property
    def lost(self) -> bool:
        """Whether its process has ended, or shows no sign of life."""
        return self.gone or self.silent_s >= LATELY_S

    @property
    def place(self) -> str:
        return f"{self.word}{process_place(self.writer.open.host, self.writer.open.pid)}"


def waits(actor: Actor, now: float, gone: Collection[str]) -> tuple[str, str]:
    """The ranks that the oldest open step waits for, and a message about them once the wait takes long: first those
    whose process has ended (`gone`: their files), then those that are silent, then those that are furthest behind.
    """
    if not actor.open:
        return "", ""
    step = min(actor.open)
    since = actor.open[step].line_at
    if now - since < WORTH_SAYING_S:
        return "", ""
    patience = actor.patience
    waiting = actor.roster.waiting(step, now, closed_any=actor.highest_closed >= 0, join_s=patience.join_s)
    waited = _waited(actor, [writer for writer in waiting.writers if writer not in actor.given_up], now, gone)
    begin = f"step {step} has waited {now - since:.0f} s for"
    if not waited:
        whom = "ranks that have not opened yet"
        end = f"goes on without them {patience.join_s:g} s after the first rank opened"
        return (whom, f"{begin} {whom}; {end}") if waiting.unopened else ("", "")
    living = [one for one in waited if not one.lost]
    heard = any(one.gone for one in waited) or any(one.writer.line_at > since for one in living)
    words = _standing(waited, living) if heard else [_named(waited)]
    if not (heard and living):
        words.append(_without_all(waited, patience.grace_s, patience.max_wait_s))
    elif not waiting.unopened:
        words += _without_lost(waited, patience.grace_s)
    return _listed([one.rank for one in waited], " "), f"{begin} {'; '.join(words)}"


def _waited(actor: Actor, writers: Sequence[Writer], now: float, gone: Collection[str]) -> list[_Waited]:
    names = [f"{writer.open.replica}.{writer.open.rank}" for writer in writers]
    words = rank_words(names, {writer.open.replica for writer in actor.roster.writers.values()})
    found = []
    for writer, name, word in zip(writers, names, words):
        newest = writer.segments[-1]
        reach = max(newest.barrier, newest.last)
        found.append(_Waited(writer, name, word, reach, now - writer.line_at, writer.file in gone))
    return sorted(found, key=lambda one: (not one.gone, not one.lost, one.reach))


def _standing(waited: Sequence[_Waited], living: Sequence[_Waited]) -> list[str]:
    """How the ranks stand, in parts: those that are gone, silent, furthest behind, and the others."""
    gone = [one for one in waited if one.gone]
    silent = [one for one in waited if one.lost and not one.gone]
    least, most = min(one.reach for one in waited), max(one.reach for one in waited)
    behind = [one for one in living if one.reach == least < most]
    others = [one for one in living if one not in behind]
    parts = []
    if gone:
        parts.append(f"{_named(gone)} {_is(gone)} gone{_at(gone)}")
    if silent:
        silent_s = min(one.silent_s for one in silent)
        has = "has" if len(silent) == 1 else "have"
        parts.append(f"{_named(silent)} {has} been silent for {duration(silent_s)}{_at(silent)}")
    if behind:
        parts.append(f"{_named(behind)} {_is(behind)} furthest behind{_at(behind)}")
    if not parts:
        whole = _listed([one.place for one in others])
        who = "it is" if len(others) == 1 else "both are" if len(others) == 2 else "all are"
        at = _at(others).removeprefix(", ") or "alive"
        return [whole, f"{who} {at}"]
    if others:
        who = others[0].word if len(others) == 1 else f"{len(others)} others"
        at = f"alive{_at(others)}" if gone or silent else _at(others).removeprefix(", ") or "alive"
        parts.append(f"{who} {_is(others)} {at}")
    if len(waited) > 1:
        parts[0] = f"{len(waited)} ranks: {parts[0]}"
    else:  # of one rank
        parts[0] = parts[0].replace(f"{waited[0].place} ", f"{waited[0].place}, which ", 1)
    return parts


def _without_lost(waited: Sequence[_Waited], grace_s: float) -> list[str]:
    """For which ranks the living alone decide when the step goes on. Those that promised no beats are waited for."""
    lost = [one for one in waited if one.lost]
    if not lost or any(not one.writer.open.beat or (one.silent_s < grace_s and not one.gone) for one in lost):
        return []
    others = len(waited) - len(lost)
    once = "the other one finishes" if others == 1 else "the others finish"
    return [f"goes on without {_listed([one.word for one in lost])} once {once} the step"]


def _without_all(waited: Sequence[_Waited], grace_s: float, max_wait_s: float) -> str:
    one = len(waited) == 1
    end = f"goes on without {'it' if one else 'them'} after "
    if all(each.writer.open.beat for each in waited):
        return f"{end}{grace_s:g} s of silence"
    return f"{end}{max_wait_s:g} s, as {'it writes' if one else 'some write'} no beats"


def _is(ranks: Sequence[_Waited]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _named(ranks: Sequence[_Waited]) -> str:
    return _listed([one.place for one in ranks])


def _listed(words: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return between.join(words[:MAX_NAMED]) + more


def _at(ranks: Sequence[_Waited]) -> str:
    """At which steps ranks are; "" if some have logged none."""
    reached = [one.reach for one in ranks]
    return "" if min(reached) < 0 else f", at {steps_in_words(reached)}"
