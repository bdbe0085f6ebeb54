"""What a notifier is. Packages bring further ones under the entry-point group `rlship.notifiers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec

FIRING, OVER, SUMMARY = "firing", "over", "summary"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one episode. `what` is "firing", "over" or "summary".

    `id` is the episode's, and stays. `attempt` counts the times that this message was sent: it is above 1 only after a
    try without an answer, or a kill. `state` is that of the episode: firing, resolved, superseded or withdrawn. Texts
    have no control characters and are bounded; what a receiver takes for markup they may hold. Times are Unix seconds.
    A summary says that a rule fires so often that further messages about it are left out.
    """

    what: str
    id: str
    experiment: str
    rule: str
    severity: str
    state: str
    title: str
    text: str
    place: str = ""
    about: str = ""
    look: str = ""
    evidence: dict[str, float] = msgspec.field(default_factory=dict)
    first_step: int = 0
    fired_step: int = 0
    fired_t: float = 0.0
    ended_step: int | None = None
    ended_t: float | None = None
    attempt: int = 1


class NotSent(Exception):
    """The message was not taken. It is sent again, after `retry_s` seconds at the earliest if that is above 0."""

    def __init__(self, message: str, retry_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_s = float(retry_s)


class Refused(Exception):
    """The message will never be taken: it is not sent again."""


class WrongNotifierOption(Exception):
    """An option that cannot be used: `option`, what is wrong with it, and what is allowed."""

    def __init__(self, option: str, problem: str, allowed: str) -> None:
        super().__init__(f"{option} {problem}")
        self.option, self.problem, self.allowed = option, problem, allowed


class AlertNotifier(ABC):
    """One receiver. `send` is called from a thread of its own, one message at a time."""

    repeat_s: float | None = None
    """How often the receiver wants to hear of an episode that goes on, a second or more; None: once."""

    def __init__(self, options: Mapping[str, Any]) -> None:  # noqa: B027 - a default
        """`options` are the settings in `[notify.NAME]`, without `kind`, `severity` and `rules`.

        Raises WrongNotifierOption.
        """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Return once the receiver has the message, within seconds. Raises NotSent or Refused; any other exception
        counts as NotSent.
        """
