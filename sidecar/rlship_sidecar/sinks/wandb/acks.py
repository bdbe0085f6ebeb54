"""How the child learns how far its rows have come, and tells its parent. Knows nothing of the W&B client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb.line import Line
from rlship_sidecar.sinks.wandb.remote import Rejected

ACK_SLOW_S = 5.0
ACK_FAST_S = 0.1
ACK_FAST_MAX_S = 1.0
UNANSWERED_S = 300.0


class Acknowledgements:
    """A thread that asks how far the rows have come, and says so; often while a flush waits, seldom otherwise."""

    def __init__(self, line: Line, position: Callable[[], int], next_row: int, stall_s: float):
        self._line = line
        self._position = position
        self._stall_s = stall_s
        self._acked = self._logged = next_row
        self._hurried = False
        self._change = threading.Condition()
        threading.Thread(target=self._run, name="acknowledgements", daemon=True).start()

    def logged(self, next_row: int) -> None:
        """Rows below `next_row` were given to the client."""
        with self._change:
            if self._logged == self._acked:
                self._change.notify_all()
            self._logged = next_row

    def hurry(self) -> None:
        """A flush waits."""
        with self._change:
            self._hurried = True
            self._change.notify_all()

    def _run(self) -> None:
        try:
            self._watch()
        except Rejected as rejection:
            self._line.end(rejected=str(rejection))
        except SinkRefused as refusal:
            self._line.end(refused=str(refusal))
        except SinkReopen as wish:
            self._line.end(reopen=str(wish))
        except BaseException as problem:  # noqa: BLE001 - without this thread nobody would ever hear of a delivery
            self._line.end(unavailable=f"{type(problem).__name__}: {problem}")

    def _watch(self) -> None:
        moved = answered = time.monotonic()
        quick = ACK_FAST_S
        while True:
            with self._change:
                if self._logged == self._acked:
                    if self._hurried:
                        self._hurried = False
                        self._line.say(acked=self._acked)
                    self._change.wait()
                    moved = answered = time.monotonic()
                    quick = ACK_FAST_S
                    continue
                if not self._hurried:
                    self._change.wait(ACK_SLOW_S)
                hurried, logged = self._hurried, self._logged
            try:
                position = min(self._position(), logged)
            except SinkReopen:
                raise
            except SinkUnavailable as outage:
                # The client keeps the rows and delivers them when the server is back: no stall, but worth telling.
                self._line.say(trouble=str(outage))
                moved = time.monotonic()
                if moved - answered > UNANSWERED_S:
                    # Or it is the client that hangs; a new one costs little, and sends what is lacking.
                    self._line.end(unavailable=f"{outage}; no answer for {UNANSWERED_S:g} s")
                time.sleep(ACK_FAST_MAX_S)
                continue
            answered = time.monotonic()
            if position > self._acked:
                with self._change:
                    self._acked = position
                self._line.say(acked=position)
                moved, quick = answered, ACK_FAST_S
            else:
                self._line.say(trouble="")
                if answered - moved > self._stall_s:
                    self._line.end(
                        unavailable=f"sink wandb: the server answers, but took no row for {self._stall_s:g} s"
                    )
            if hurried and position < logged:
                time.sleep(quick)
                quick = min(quick * 1.5, ACK_FAST_MAX_S)
