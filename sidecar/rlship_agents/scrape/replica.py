"""One endpoint, read again and again in a thread of its own, so that no other endpoint waits for it."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlship_agents.scrape import health
from rlship_agents.scrape.connection import Deadline
from rlship_agents.scrape.endpoints import Endpoint
from rlship_agents.scrape.exposition import Memory, NotMetrics
from rlship_agents.scrape.fetch import Access, Limits, ScrapeProblem, fetch
from rlship_agents.scrape.figures import OF_ENDPOINT, Figures, Observed, observe
from rlship_agents.scrape.health import Health
from rlship_agents.scrape.increases import remember
from rlship_agents.scrape.look import look
from rlship_agents.scrape.names import Choice
from rlship_agents.scrape.reading import Engine, Reading

# How many answers are parsed at once. More threads would hinder each other; with a few, a slow answer stops no other.
READERS = 4


class Output(Protocol):
    """The destination of values: files, or a terminal."""

    left_out: int

    def log(self, engines: Mapping[Engine, Figures]) -> None:
        """Take the values of one look."""

    def event(self, name: str, **attrs: Any) -> None:
        """Take an event."""

    def close(self, timeout: float = 5.0) -> None:
        """Take nothing more."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to read endpoints. `keep`: labels that make own metrics; `rounds`: the number of looks, None: no limit."""

    interval_s: float = 5.0
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    choice: Choice = field(default_factory=Choice)
    keep: tuple[str, ...] = ()
    rounds: int | None = None


class Replica:
    """An endpoint, its last reading, and its health. All endpoints share `turns`; parsing an answer takes a turn. The
    wait for a turn is not the endpoint's fault, and is not counted.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        manner: Manner,
        output: Output,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        turns: threading.Semaphore | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.output = output
        self.health = Health()
        self.stop = threading.Event()
        self._manner = manner
        self._say = say
        self._clock = clock
        self._turns = turns or threading.Semaphore(READERS)
        self._phase = phase(endpoint.name)
        self._last: Reading | None = None
        self._memory = Memory()
        self._reported_left_out = False

    def run(self) -> None:
        """Look until stopped, or as many times as `manner.rounds`; then close the output."""
        rounds = 0
        while not self.stop.is_set():
            self.look()
            rounds += 1
            if rounds == self._manner.rounds or self.stop.wait(
                pause(time.time(), self._manner.interval_s, self._phase)
            ):
                break
        self.output.close()

    def look(self) -> bool:
        """Look once and log the result. Returns whether there was an answer."""
        began = self._clock()
        manner = self._manner
        deadline = Deadline(manner.limits.total_s, self._clock)
        try:
            found = fetch(self.endpoint, manner.limits, manner.access, deadline)
            fetched = self._clock()
            with self._turns:
                if self.stop.is_set():
                    return False
                waited = self._clock() - fetched
                deadline.end += waited
                reading = look(
                    found.text,
                    manner.choice,
                    openmetrics=found.openmetrics,
                    check=lambda: deadline.left(1.0),
                    memory=self._memory,
                )
                observed = observe(self._last, reading, manner.keep)
        except (ScrapeProblem, NotMetrics) as problem:
            return self._failed(began, str(problem))
        except TimeoutError:
            return self._failed(began, "too much to read in time")
        except Exception as problem:  # noqa: BLE001 - after any error the endpoint is looked at again
            return self._failed(began, f"{type(problem).__name__}: {problem!s:.200}")
        self._answered(began, observed, waited)
        remember(self._last, reading, observed.restarts)
        self._last = reading
        return True

    def _failed(self, began: float, reason: str) -> bool:
        before, self.health = self.health, self.health.failed(began, reason)
        self.output.log({OF_ENDPOINT: health.failure()})
        if before.down is None:
            self.output.event("replica_down", reason=reason)
        if before.reason != reason:
            self._say(f"{self.endpoint.url}: {reason}")
        return False

    def _answered(self, began: float, observed: Observed, waited: float) -> None:
        recovery = self.health.recovery_s(began)
        figures = health.success(self._clock() - began - waited, recovery, observed.restarts)
        engines = {**observed.engines, OF_ENDPOINT: {**observed.engines.get(OF_ENDPOINT, {}), **figures}}
        self.output.log(engines)
        if self.health.down is not None:
            self._say(f"{self.endpoint.url}: answers after {self.health.failures} failures")
        if recovery is not None:
            self.output.event("replica_up", recovery_s=round(recovery, 3), failures=self.health.failures)
        if observed.restarts:
            self.output.event("replica_restarted", processes=observed.restarts)
        if self.output.left_out and not self._reported_left_out:
            self._reported_left_out = True
            self._say(f"{self.endpoint.url}: more metrics or engines than are logged; choose with --include")
        self.health = self.health.answered()


def phase(name: str) -> float:
    """The place in an interval for the endpoint `name`, 0.25 to 0.75: hundreds of looks at once are slow for all."""
    return 0.25 + zlib.crc32(name.encode()) / 2**33


def pause(now: float, interval_s: float, place: float) -> float:
    """Seconds until the next look, by the wall clock's `now`, half an interval to one and a half.

    Each endpoint has a place of its own (see `phase`) in intervals that are counted from 1970, like windows of time. So
    each window of several intervals holds the same number of looks. The duration of looks causes no drift.
    """
    passed = now / interval_s - place
    wait = (math.floor(passed) + 1 - passed) * interval_s
    return wait if wait > interval_s / 2 else wait + interval_s
