"""Decides when to look at the files: at once if the kernel reports a change, else on a timer.

Change events are only a hint: they miss the writes of other hosts, and overflow. So they serve local filesystems, and a
timer looks at all files anyway.

One inotify descriptor serves all folders, and the waiting thread reads it itself. watchdog's observers start a thread
for each folder, so this module uses only watchdog's bindings to the kernel.
"""

from __future__ import annotations

import os
import select
import struct
import time
from typing import Any, cast

from watchdog.observers.inotify_c import InotifyConstants, inotify_add_watch, inotify_init, inotify_rm_watch

from rlship_sidecar.tail.listing import SUFFIX

SUFFIXES = (SUFFIX, ".json", ".log")  # files with other names, such as weights, may be many
# Ranks finish a step together, and one look serves them all: the more files, the longer they take.
SETTLE_S, SETTLE_EACH_S, MAX_SETTLE_S = 0.002, 20e-6, 0.05

_ASKED = (  # files that were written, created, or moved into the folder; the kernel rejects a path that is no folder
    InotifyConstants.IN_MODIFY | InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO | InotifyConstants.IN_ONLYDIR
)
_OVERFLOWED = InotifyConstants.IN_Q_OVERFLOW
_CLOSED = InotifyConstants.IN_IGNORED  # the kernel removed the watch because the folder is gone
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES = 1 << 16


class Wake:
    """Collects the names of changed files by watched folder. One thread watches and waits; any thread may `nudge`."""

    def __init__(self) -> None:
        self._events = -1
        self._nudged, self._nudge = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watches: dict[str, int] = {}
        self._folders: dict[int, str] = {}
        self.overflowed = False  # events were lost since a caller last reset this

    def watch(self, folder: str) -> bool:
        """Watch a folder. Returns False if the kernel offers no more watches; the caller then polls."""
        if folder in self._watches:
            return True
        if self._events < 0 and not self._begin():
            return False
        number = inotify_add_watch(self._events, os.fsencode(folder), _ASKED)
        if number < 0:
            return False
        self._watches[folder], self._folders[number] = number, folder
        return True

    def _begin(self) -> bool:
        self._events = inotify_init()
        if self._events < 0:
            return False
        os.set_inheritable(self._events, False)
        os.set_blocking(self._events, False)
        return True

    def unwatch(self, folder: str) -> None:
        """Stop watching a folder."""
        number = self._watches.pop(folder, None)
        # Two paths of one folder share one watch number.
        if number is not None and self._folders.get(number) == folder:
            del self._folders[number]
            inotify_rm_watch(self._events, cast(Any, number))

    def nudge(self) -> None:
        """End the current `wait`, or the next one."""
        try:
            os.write(self._nudge, b"x")
        except OSError:  # the pipe is full of nudges, or closed
            return

    def wait(self, timeout_s: float, *, files: int = 0) -> dict[str, set[str]]:
        """Sleep until a file changes, for at most `timeout_s`. Returns the changed names by folder, {} on time-out.

        `files`: how many are watched.
        """
        deadline = time.monotonic() + timeout_s
        waiting = select.poll()
        waiting.register(self._nudged, select.POLLIN)
        if self._events >= 0:
            waiting.register(self._events, select.POLLIN)
        changed: dict[str, set[str]] = {}
        while True:
            ready = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000.0)
            if any(fd == self._nudged for fd, _ in ready):
                os.read(self._nudged, _READ_BYTES)
                self._take(changed)
                return changed
            self._take(changed)
            if changed or self.overflowed:
                # Let the other ranks' events of the same moment arrive.
                time.sleep(min(MAX_SETTLE_S, max(SETTLE_S, files * SETTLE_EACH_S)))
                self._take(changed)
                return changed
            # Events of files with other names do not end the wait.
            if time.monotonic() >= deadline:
                return changed

    def _take(self, changed: dict[str, set[str]]) -> None:
        """Add all names that the kernel reports now."""
        while self._events >= 0:
            try:
                data = os.read(self._events, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                self.overflowed = self.overflowed or bool(mask & _OVERFLOWED)
                folder = self._folders.get(number)
                if folder is None:
                    continue
                if mask & _CLOSED:
                    del self._folders[number]
                    self._watches.pop(folder, None)
                elif name.endswith(SUFFIXES):
                    changed.setdefault(folder, set()).add(name)

    def close(self) -> None:
        """Release the descriptors."""
        for fd in (self._events, self._nudged, self._nudge):
            if fd >= 0:
                os.close(fd)
        self._events = self._nudged = self._nudge = -1
        self._watches.clear()
        self._folders.clear()
