"""What differs in a child of `multiprocessing`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .stream import Stream

_PRIORITY = -1000


def live_with_multiprocessing(close: Callable[[], object], stream: Stream) -> None:
    """A `multiprocessing` child ends by os._exit, which skips `atexit`, but its own finalisers do run.

    One of a Pool is ended by a signal once its work is done: what it logs must not wait.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    stream.wake_at = 0
    from multiprocessing.util import Finalize

    Finalize(None, close, exitpriority=_PRIORITY)
