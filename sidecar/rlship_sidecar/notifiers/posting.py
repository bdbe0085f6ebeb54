"""Sends the messages of one notifier about one experiment, in a thread that lives only while there are any.

Rows never wait for it. A receiver that does not answer costs this thread time, and nothing else.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable

import msgspec

from rlship_sidecar.notifiers.contract import AlertNotifier, NotSent, Refused
from rlship_sidecar.notifiers.outbox import read
from rlship_sidecar.store.outbox import OutboxTable, WaitingMessage

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
GIVE_UP_S = 6 * 3600.0  # so old a message is not worth sending
SLOW_S = 30.0
LEAST_REPEAT_S = 1.0
MAX_ERROR = 300


class Posting:
    """One notifier of one experiment. `may_send` is asked before every message: False once the lease is lost.

    `max_age_s`: of an experiment without rows for so long nothing is repeated of which the receiver has not heard for
    so long either: it takes that for over.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], AlertNotifier],
        table: OutboxTable,
        *,
        max_age_s: float = math.inf,
        may_send: Callable[[], bool] = lambda: True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._make = make
        self._table = table
        self._max_age_s = max_age_s
        self._may_send = may_send
        self._wall = wall
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._asked = False  # whether there may be messages that the thread has not seen
        self._idle = True  # whether everything that it has seen is sent
        self._error = ""
        self._sending_since = math.inf
        self._not_before = 0.0
        self._wait_s = FIRST_WAIT_S
        self._asked_s = 0.0  # for so long the receiver asked to be left alone
        self._notifier: AlertNotifier | None = None

    @property
    def error(self) -> str:
        """Why a message is not sent, "" if none waits for that."""
        silent_s = time.monotonic() - self._sending_since
        return f"no answer for {silent_s:.0f} s" if silent_s > SLOW_S else self._error

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits to be sent."""
        with self._change:
            return self._idle and not self._asked

    def wake(self) -> None:
        """There may be messages. Cheap; never waits for a receiver."""
        with self._change:
            if self._stopping:
                return
            self._asked = True
            self._change.notify_all()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=f"notify {self.name}", daemon=True)
                thread.start()
                self._thread = thread  # if it could be started: it waits for the lock until then

    def drain(self, timeout_s: float) -> bool:
        """Wait until every message is sent; returns whether they are."""
        with self._change:
            return self._change.wait_for(lambda: self._idle and not self._asked, timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """End the thread; what was not sent is sent by the next sidecar. False if it still waits for a receiver."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
            return self._change.wait_for(lambda: self._thread is None, timeout_s)

    # The thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._change:
                self._asked, self._idle = False, False
            try:
                next_s = self._send_all()
                repeat_s = None if next_s is not None else self._repeat()
            except sqlite3.Error as error:
                self._error, next_s, repeat_s = f"the store cannot be used: {error}", LONGEST_WAIT_S, None
            with self._change:
                self._idle = next_s is None
                self._change.notify_all()
                wait_s = repeat_s if next_s is None else next_s
                if not self._asked and wait_s is not None:
                    self._change.wait_for(lambda: self._stopping or self._asked, wait_s)
                if self._stopping or (wait_s is None and not self._asked):
                    self._thread = None
                    self._change.notify_all()
                    return

    def _send_all(self) -> float | None:
        """Send what waits. Returns the seconds until a message is to be tried again, None for no message."""
        while (waiting := self._table.waiting(self.name)) is not None and not self._stopping:
            left = self._not_before - time.monotonic()
            if left > 0:
                return left
            if not self._may_send():
                return LONGEST_WAIT_S
            if not self._send(waiting):
                self._not_before = time.monotonic() + max(self._wait_s, self._asked_s)
                self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
        return None

    def _send(self, waiting: WaitingMessage) -> bool:
        """Send a message; returns whether it is done with."""
        now = self._wall()
        if now - waiting.made > GIVE_UP_S:
            self._error = f"a message of {GIVE_UP_S / 3600:g} h ago was given up: {self._error}"
            self._table.mark_sent(waiting.number, now)
            return True
        self._table.mark_try(waiting.number)
        if not self._try(waiting.body, waiting.tries + 1):
            return False
        self._wait_s = FIRST_WAIT_S
        self._table.mark_sent(waiting.number, self._wall())
        return True

    def _try(self, body: bytes, attempt: int) -> bool:
        """Give the receiver a message. Returns whether it is done with: the receiver has it, or never will."""
        self._sending_since, self._asked_s = time.monotonic(), 0.0
        try:
            self._receiver().send(msgspec.structs.replace(read(body), attempt=attempt))
        except Refused as refusal:
            self._error = f"refused: {refusal}"[:MAX_ERROR]
        except NotSent as problem:
            self._error = str(problem)[:MAX_ERROR]
            self._asked_s = min(GIVE_UP_S, problem.retry_s)
            return False
        except BaseException as error:  # noqa: BLE001 - a plug-in may raise anything, and its thread has to go on
            self._error = f"{type(error).__name__}: {error}"[:MAX_ERROR]
            return False
        else:
            self._error = ""
        finally:
            self._sending_since = math.inf
        return True

    def _receiver(self) -> AlertNotifier:
        if self._notifier is None:
            self._notifier = self._make()
        return self._notifier

    def _repeat(self) -> float | None:
        """Send what goes on to a receiver that wants to hear of it again and again. Returns the seconds to the next
        time, None for none.
        """
        try:
            every_s = self._receiver().repeat_s
        except Exception as error:  # noqa: BLE001 - as above
            self._error = f"{type(error).__name__}: {error}"[:MAX_ERROR]
            return LONGEST_WAIT_S
        if every_s is None or self._stopping:
            return None
        every_s = max(LEAST_REPEAT_S, every_s)
        since = self._wall() - self._max_age_s
        found = self._table.open(self.name, 0.0 if self._table.newest_row_t() >= since else since)
        for number, sent, body in found:
            left = sent + every_s - self._wall()
            if 0 < left <= every_s:  # more, where the clock was set back
                return left
            if self._stopping or self._asked or not self._may_send() or not self._try(body, 1):
                return min(every_s, LONGEST_WAIT_S)  # what is new does not wait for all of these
            self._table.mark_sent(number, self._wall())
        return every_s if found else None
