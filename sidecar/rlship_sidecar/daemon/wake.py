"""When to look at the files: at once if the kernel reports a change, else on a timer.

Change events are only a hint: they miss other hosts' writes, overflow, and cost more per event than a look at a file.
So they serve local filesystems with few files, and a timer looks at all files anyway.

One inotify descriptor serves all folders, and the waiting thread reads it itself. watchdog's observers have a thread
for each folder, which would grow with the number of experiments, so this uses watchdog's bindings to the kernel alone.
"""

from __future__ import annotations

import os
import select
import struct
import time
from typing import Any, cast

from watchdog.observers.inotify_c import InotifyConstants, inotify_add_watch, inotify_init, inotify_rm_watch

from rlship_sidecar.tail.listing import SUFFIX

MAX_WATCHED_FILES = 256
SUFFIXES = (SUFFIX, ".json", ".log")  # of other names there may be much else in an experiment, such as weights
SETTLE_S = 0.002  # ranks finish a step together: one look for all of them

_ASKED = (  # files that were written to, made, or moved into the folder; a path that is no folder is refused
    InotifyConstants.IN_MODIFY | InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO | InotifyConstants.IN_ONLYDIR
)
_CLOSED = InotifyConstants.IN_IGNORED  # the kernel removed the watch, as the folder is gone
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES = 1 << 16


class Wake:
    """Names of files that changed in watched folders, by folder. One thread watches and waits; any may `nudge`."""

    def __init__(self) -> None:
        self._events = -1
        self._nudged, self._nudge = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watches: dict[str, int] = {}
        self._folders: dict[int, str] = {}

    def watch(self, folder: str) -> bool:
        """Ask for events of the files in a folder. False: the kernel gives none (no watches left), so poll."""
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
        """No more events of a folder."""
        number = self._watches.pop(folder, None)
        # A folder that has another path, too, shares its number with it.
        if number is not None and self._folders.get(number) == folder:
            del self._folders[number]
            inotify_rm_watch(self._events, cast(Any, number))

    def nudge(self) -> None:
        """End a `wait` now, or the next one."""
        try:
            os.write(self._nudge, b"x")
        except OSError:  # full of nudges, or closed
            return

    def wait(self, timeout_s: float) -> dict[str, set[str]]:
        """Sleep until a file changed, at most `timeout_s`; returns the changed names by folder, {} on time-out."""
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
            if changed:
                # Let the other ranks' events of the same moment arrive.
                time.sleep(SETTLE_S)
                self._take(changed)
                return changed
            # Events of other files end no wait.
            if time.monotonic() >= deadline:
                return changed

    def _take(self, changed: dict[str, set[str]]) -> None:
        """Add all names that the kernel has to report."""
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
