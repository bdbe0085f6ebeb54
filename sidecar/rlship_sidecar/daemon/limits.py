"""The number of experiments that may be open at a time, given the limits of this process.

The budget follows RLIMIT_NOFILE, whose soft limit is raised first. An experiment is opened only if its descriptors fit
beside those that the open ones may need. Hitting the limit would fail calls of experiments at work.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection
from contextlib import suppress

MAX_DESCRIPTORS = 65_536
SPARE = 24  # for short uses: writing a status, listing a folder, starting a client
_STORE = 5  # two connections with a log each, and the memory that they share
_BY_SINK = {"console": 0, "jsonl": 1, "tensorboard": 1, "wandb": 4}
_ANY_SINK = 4
FILES = 2  # the number of writers' files that an experiment may always keep open


def raise_limit() -> int:
    """Raise the soft limit of open files as far as the system allows, and return the limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft < wanted:
        with suppress(OSError, ValueError):  # a service manager may forbid it; then the present limit has to do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return min(soft, MAX_DESCRIPTORS)


def open_now() -> int:
    """The number of descriptors that this process has open."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return MAX_DESCRIPTORS


class Budget:
    """The number of experiments with these sinks that may be open at a time; at least one, whatever the limit is."""

    def __init__(self, sinks: Collection[str], *, limit: int | None = None, used: Callable[[], int] = open_now) -> None:
        self._limit = raise_limit() if limit is None else limit
        self._used = used
        self._each = _STORE + FILES + sum(_BY_SINK.get(name, _ANY_SINK) for name in sinks)
        self._before = used()

    @property
    def places(self) -> int:
        """The number of experiments that may be open."""
        return max(1, (self._limit - self._before - SPARE) // self._each)

    def has_room(self, count: int) -> bool:
        """True if one more experiment may be opened beside `count` open ones."""
        return count == 0 or (count < self.places and self._used() + self._each + SPARE <= self._limit)

    def files_each(self, count: int) -> int:
        """The number of writers' files that each of `count` open experiments may keep open."""
        free = self._limit - self._before - SPARE - count * self._each
        return FILES + max(0, free // max(1, count))
