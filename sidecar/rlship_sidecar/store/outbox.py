"""Messages about episodes, for each notifier: what is to be sent, how often that was tried, and what was sent.

A message comes into the table in the transaction of the row that says the same. A notifier's thread then marks each try
before it sends, and marks what was sent. So a kill loses no message, and repeats at most the one that was under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.store.store import Store

MAX_WAITING = 1000  # messages of a notifier that wait: further ones are left out


class WaitingMessage(NamedTuple):
    """A message that was not sent. `made` is when it came into the table, in Unix seconds of the sidecar."""

    number: int
    episode: str
    state: str
    made: float
    tries: int
    body: bytes


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """The table `outbox`. Only `add` belongs to the thread that commits; any thread may call the others."""

    store: Store

    def has_any(self) -> bool:
        """Whether there is any message, sent or not. By the thread that commits."""
        return bool(self.store.ask("select 1 from outbox limit 1"))

    # By the thread that commits, in its transaction ----------------------------------------------------------------

    def states(self, notifier: str, episode: str) -> set[str]:
        """The states in which a notifier has a message about an episode, sent or not."""
        found = self.store.ask("select state from outbox where notifier = ? and episode = ?", (notifier, episode))
        return {state for (state,) in found}

    def made_since(self, notifier: str, rule: str, state: str, t: float) -> int:
        """How many messages about a rule came into the table since then."""
        found = self.store.ask(
            "select count(*) from outbox where notifier = ? and rule = ? and state = ? and made >= ?",
            (notifier, rule, state, t),
        )
        return int(found[0][0])

    def body(self, notifier: str, episode: str, state: str) -> bytes | None:
        """A message."""
        found = self.store.ask(
            "select body from outbox where notifier = ? and episode = ? and state = ?", (notifier, episode, state)
        )
        return found[0][0] if found else None

    def add(self, notifier: str, rule: str, episode: str, state: str, made: float, body: bytes) -> bool:
        """Add a message. False if too many wait."""
        found = self.store.ask("select count(*) from outbox where notifier = ? and sent is null", (notifier,))
        if found[0][0] >= MAX_WAITING:
            return False
        self.store.change(
            "insert into outbox select ?, ?, ?, coalesce(max(number), 0) + 1, ?, ?, 0, null, ? from outbox",
            (notifier, episode, state, rule, made, body),
        )
        return True

    # By a notifier's thread ----------------------------------------------------------------------------------------

    def waiting(self, notifier: str) -> WaitingMessage | None:
        """The first message that was not sent."""
        found = self.store.at_once(
            "select number, episode, state, made, tries, body from outbox "
            "where notifier = ? and sent is null order by number limit 1",
            (notifier,),
        )
        return WaitingMessage(*found[0]) if found else None

    def mark_try(self, number: int) -> None:
        """A message is about to be sent."""
        self.store.at_once("update outbox set tries = tries + 1 where number = ?", (number,))

    def mark_sent(self, number: int, t: float) -> None:
        """A message was sent, again or for the first time, or never will be."""
        self.store.at_once("update outbox set sent = ? where number = ?", (t, number))

    def newest_row_t(self) -> float:
        """The time of the newest row in Unix seconds, 0 without any."""
        rows = self.store.read_rows(self.store.row_count() - 1, 1)
        return rows[0].t if rows else 0.0

    def open(self, notifier: str, since: float) -> list[tuple[int, float, bytes]]:
        """Messages that episodes began, each with its number and when it was sent, of which the end was not sent. Only
        those that were sent since then, the one of the longest ago first.
        """
        found = self.store.at_once(
            "select number, sent, body from outbox where notifier = ? and state = 'firing' and sent >= ? and "
            "not exists (select 1 from outbox later where later.notifier = outbox.notifier "
            "and later.episode = outbox.episode and later.state = 'over' and later.sent is not null) "
            "order by sent, number",
            (notifier, since),
        )
        return [(number, sent, body) for number, sent, body in found]
