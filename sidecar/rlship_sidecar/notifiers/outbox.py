"""Which episodes become messages for which notifier: those that are new, and not too many."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from rlship_sidecar.alerts.episodes import CRITICAL, WITHDRAWN, Episode
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.notifiers.contract import FIRING, OVER, SUMMARY, Message
from rlship_sidecar.notifiers.message import message_of, summary_of
from rlship_sidecar.store.outbox import OutboxTable

MOST_AN_HOUR = 10  # messages about one rule to one notifier
HOUR_S = 3600.0

_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Message).decode


@dataclass(frozen=True, slots=True)
class NotifierChoice:
    """What a notifier wants: episodes of `rules` (all without any), only critical ones or also warnings."""

    notifier: str
    critical: bool = False
    rules: tuple[str, ...] = ()

    def wants(self, episode: Episode) -> bool:
        """Whether it wants to hear of an episode."""
        return (not self.critical or episode.severity == CRITICAL) and (not self.rules or episode.rule in self.rules)


class Outbox:
    """Takes verdicts as they become rows, in the transaction of those rows."""

    def __init__(
        self,
        table: OutboxTable,
        experiment: str,
        wanted: Sequence[NotifierChoice],
        max_age_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._experiment = experiment
        self._wanted = wanted
        self._max_age_s = max_age_s
        self._wall = wall
        self.added = False  # whether messages came that no thread was woken for

    def take(self, episode: Episode, rule: Rule) -> None:
        """An episode is in a row, as it is now."""
        now = self._wall()
        for one in self._wanted:
            if not one.wants(episode):
                continue
            states = self._table.states(one.notifier, episode.id)
            if OVER in states or (FIRING in states and episode.ended is None):
                continue
            # A first look at an old experiment needs no message about it. What was a warning for long may have become
            # critical just now.
            news = episode.last if one.critical else episode.fired
            if FIRING not in states and now - news.t > self._max_age_s:
                continue
            began = replace(episode, state=FIRING, ended=None)
            if FIRING not in states and not self._begin(one.notifier, message_of(self._experiment, began, rule), now):
                continue
            if episode.ended is not None:
                self._add(one.notifier, message_of(self._experiment, episode, rule), now)

    def withdraw(self, id: str) -> None:
        """An episode is in no row any more."""
        now = self._wall()
        for one in self._wanted:
            body = self._table.body(one.notifier, id, FIRING)
            if body is not None and OVER not in self._table.states(one.notifier, id):
                before = _decode(body)
                title = f"{before.experiment}: {before.rule} {WITHDRAWN}, steps from {before.first_step} on"
                text = "Late lines changed the steps that it was about."
                gone = msgspec.structs.replace(before, what=OVER, state=WITHDRAWN, title=title, text=text, ended_t=now)
                self._add(one.notifier, gone, now)

    def _begin(self, notifier: str, message: Message, now: float) -> bool:
        """Say that an episode began, unless that was said too often of its rule."""
        said = self._table.made_since(notifier, message.rule, FIRING, now - HOUR_S)
        if said >= MOST_AN_HOUR:
            if not self._table.made_since(notifier, message.rule, SUMMARY, now - HOUR_S):
                self._add(notifier, summary_of(message, MOST_AN_HOUR), now)
            return False
        return self._add(notifier, message, now)

    def _add(self, notifier: str, message: Message, now: float) -> bool:
        self.added = True
        return self._table.add(notifier, message.rule, message.id, message.what, now, _encode(message))


def read(body: bytes) -> Message:
    """A message out of the table."""
    return _decode(body)
