"""When to look at the files: at once if the kernel says that one changed, else on a timer.

Change events are only a hint: they miss other hosts' writes, overflow, and cost more per event than a look at a file.
So they are used
on local filesystems with few files, and every `poll_s` all files are looked at anyway.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from watchdog.events import FileCreatedEvent, FileModifiedEvent, FileSystemEventHandler
from watchdog.observers import Observer

from rlship_sidecar.tail.listing import SUFFIX

MAX_WATCHED_FILES = 256
SUFFIXES = (SUFFIX, ".json", ".log")  # of other names there may be much else in an experiment, such as weights
SETTLE_S = 0.002  # ranks finish a step together: one look for all of them


class Wake(FileSystemEventHandler):
    """Names of files that changed in watched folders, by folder."""

    def __init__(self) -> None:
        self._changed: dict[str, set[str]] = {}
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._observer: Any = None
        self._watches: dict[str, Any] = {}

    def watch(self, folder: str) -> bool:
        """Ask for events of the files in a folder. False: the kernel gives none (no watches left), so poll."""
        if folder in self._watches:
            return True
        try:
            if self._observer is None:
                self._observer = Observer()
                self._observer.daemon = True
                self._observer.start()
            self._watches[folder] = self._observer.schedule(
                self, folder, recursive=False, event_filter=[FileModifiedEvent, FileCreatedEvent]
            )
        except OSError:
            return False
        return True

    def unwatch(self, folder: str) -> None:
        """No more events of a folder."""
        watch = self._watches.pop(folder, None)
        if watch is not None:
            self._observer.unschedule(watch)

    def on_any_event(self, event: Any) -> None:
        """Called by watchdog's thread."""
        folder, name = os.path.split(os.fsdecode(event.src_path))
        if name.endswith(SUFFIXES):
            with self._lock:
                self._changed.setdefault(folder, set()).add(name)
            self._event.set()

    def nudge(self) -> None:
        """End a `wait` now."""
        self._event.set()

    def wait(self, timeout_s: float) -> dict[str, set[str]]:
        """Sleep until a file changed, at most `timeout_s`; returns the changed names by folder, {} on time-out."""
        if self._event.wait(timeout_s):
            # Let the other ranks' events of the same moment arrive.
            threading.Event().wait(SETTLE_S)
        with self._lock:
            changed, self._changed = self._changed, {}
            self._event.clear()
        return changed

    def close(self) -> None:
        """Stop the observer's threads."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(5.0)
