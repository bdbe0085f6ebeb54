"""A thread that stops before the n-th thing it does to files, so that another may act meanwhile."""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

OPERATIONS = [
    (builtins, "open"),
    (io, "open"),
    *((os, name) for name in ("open", "close", "pwrite", "ftruncate", "fsync", "fchmod", "stat", "fstat")),
    *((os, name) for name in ("replace", "rename", "unlink", "link", "mkdir", "listdir", "scandir")),
]
LONGEST_S = 20.0


class Freezer:
    """Runs `act` in a thread that stands still before its operations number `at` (from 1), until `thaw`."""

    def __init__(self, at: tuple[int, ...], act: Callable[[], None]) -> None:
        self.moments = 0
        self._at = at
        self._act = act
        self._stands = threading.Event()
        self._goes_on = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let the thread's operations pass by here."""
        for module, name in OPERATIONS:
            patch.setattr(module, name, self._passing(getattr(module, name)))

    def start(self) -> bool:
        """Run until it stands still or has ended; returns whether it stands still."""
        self._thread.start()
        return self._await()

    def go_on(self) -> bool:
        """Let it go on until it stands still again or has ended; returns whether it stands still."""
        self._stands.clear()
        self._goes_on.release()
        return self._await()

    def _await(self) -> bool:
        while self._thread.is_alive() and not self._stands.wait(0.0005):
            pass
        return self._stands.is_set()

    def thaw(self) -> None:
        """Let it go on to its end; raises what it raised."""
        self._at = ()
        self._goes_on.release()
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._error = error

    def _passing(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def passing(*arguments: Any, **keywords: Any) -> Any:
            if threading.current_thread() is self._thread:
                self.moments += 1
                if self.moments in self._at:
                    self._stands.set()
                    assert self._goes_on.acquire(timeout=LONGEST_S)
            return operation(*arguments, **keywords)

        return passing
