"""The end of a process whose runs are recorded, as far as it can be known before its files close."""

from __future__ import annotations

import threading

from .. import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_watched = False


def watch(open_files: Callable[[], object], end: Callable[[], object]) -> None:
    """Call `open_files()` while threads can still be started, and `end()` right before the process's files close.

    From Python 3.12 on, no thread starts in a handler of `atexit`. Does nothing the second time.
    """
    global _watched
    if _watched:
        return
    _watched = True
    registry.before_end(end)
    # Only here, before handlers of `atexit`, and in no public place.
    early = getattr(threading, "_register_atexit", None)
    try:
        if early is not None:
            early(open_files)
    except RuntimeError:  # the interpreter is ending already
        return
