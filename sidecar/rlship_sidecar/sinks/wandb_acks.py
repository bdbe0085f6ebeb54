"""How the child learns how far its rows have come, and tells its parent. Knows nothing of the W&B client but its
process and log.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import psutil  # type: ignore[import-untyped, unused-ignore]

from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable

ACK_SLOW_S = 5.0
ACK_FAST_S = 0.1
ACK_FAST_MAX_S = 1.0
FATAL_MARK = b"filestream: fatal error"


class Line:
    """The way to the parent. Any thread may speak; after the last word nobody does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, **message: object) -> None:
        """Send one message."""
        with self._lock:
            self._write(message)

    def end(self, **message: object) -> NoReturn:
        """Send the last word and leave at once: wandb-core follows by itself, without uploading."""
        self._lock.acquire()
        self._write(message)
        os._exit(0)

    def _write(self, message: Mapping[str, object]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            os._exit(0)


class Acknowledgements:
    """A thread that asks how far the rows have come, and says so; often while a flush waits, seldom otherwise."""

    def __init__(
        self, line: Line, position: Callable[[], int], broken: Callable[[], str], next_row: int, stall_s: float
    ):
        self._line = line
        self._position = position
        self._broken = broken
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
        except SinkRefused as refusal:
            self._line.end(refused=str(refusal))
        except BaseException as problem:  # noqa: BLE001 - without this thread nobody would ever hear of a delivery
            self._line.end(unavailable=f"{type(problem).__name__}: {problem}")

    def _watch(self) -> None:
        moved, quick = time.monotonic(), ACK_FAST_S
        while True:
            with self._change:
                if self._logged == self._acked:
                    if self._hurried:
                        self._hurried = False
                        self._line.say(acked=self._acked)
                    self._change.wait()
                    moved, quick = time.monotonic(), ACK_FAST_S
                    continue
                if not self._hurried:
                    self._change.wait(ACK_SLOW_S)
                hurried, logged = self._hurried, self._logged
            problem = self._broken()
            if problem:
                self._line.end(unavailable=problem)
            try:
                position = min(self._position(), logged)
            except SinkUnavailable as outage:
                # The client keeps the rows and delivers them when the server is back: no stall, but worth telling.
                self._line.say(trouble=str(outage))
                moved = time.monotonic()
                time.sleep(ACK_FAST_MAX_S)
                continue
            if position > self._acked:
                with self._change:
                    self._acked = position
                self._line.say(acked=position)
                moved, quick = time.monotonic(), ACK_FAST_S
            elif time.monotonic() - moved > self._stall_s:
                self._line.end(unavailable=f"the server answers, but took no row for {self._stall_s:g} s")
            if hurried and position < logged:
                time.sleep(quick)
                quick = min(quick * 1.5, ACK_FAST_MAX_S)


def core_pid() -> int | None:
    """The process id of this process's wandb-core, None if there is none."""
    return next((child.pid for child in psutil.Process().children() if "wandb" in child.name()), None)


def core_death() -> Callable[[], str]:
    """A check that says so once the wandb-core of now is gone, "" until then."""
    core = core_pid()

    def dead() -> str:
        if core is None or (psutil.pid_exists(core) and psutil.Process(core).status() != psutil.STATUS_ZOMBIE):
            return ""
        return "wandb-core is gone"

    return dead


def fatal_in(log: Path) -> Callable[[], str]:
    """Looks for the only sign that the client gives when the server rejects history for good: a line in its own log."""
    read = 0

    def fatal() -> str:
        nonlocal read
        if not log.exists():
            return ""
        with open(log, "rb") as file:
            file.seek(read)
            text = file.read()
        found = text.find(FATAL_MARK)
        if found < 0:
            read += max(0, len(text) - len(FATAL_MARK))
            return ""
        return "the client gave up sending history: " + text[found:].split(b"\n", 1)[0].decode("utf-8", "replace")[:300]

    return fatal


def any_of(*checks: Callable[[], str]) -> Callable[[], str]:
    """A check that gives the first complaint of several."""
    return lambda: next((why for check in checks if (why := check())), "")
