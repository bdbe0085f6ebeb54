"""Messages of the writer on the job's stderr: each topic once."""

from __future__ import annotations

import os
import sys

from . import threads
from .guard import raised_by_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_MAX_TOPICS = 1000
_MAX_TEXT = 1000  # in UTF-8 less than the page that a pipe has to have room for
_HOME = os.getpid()


class Notices:
    """Says a thing on stderr the first time it happens and counts it every time.

    Not `warnings`: a job may turn warnings into exceptions, and logging must never raise into the job.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def once(self, topic: str, message: str) -> bool:
        """Print `rlship: message` unless something was said about `topic` before. Returns whether it was said now."""
        seen = self.counts.get(topic, 0)
        if seen == 0 and len(self.counts) >= _MAX_TOPICS:
            return False
        self.counts[topic] = seen + 1
        if seen:
            return False
        say(message)
        return True

    def forget(self, topic: str) -> None:
        """Let the next `once` about `topic` be said again, after it was put right in between."""
        self.counts.pop(topic, None)


def say(message: str) -> None:
    """Print one line on stderr. Does nothing if stderr is closed or detached."""
    stream = sys.stderr
    if stream is None:
        return
    text = f"rlship: {message[:_MAX_TEXT]}\n"
    try:
        fd = _descriptor(stream)
        if fd >= 0 and not threads.takes_text(fd):
            return  # the job must not wait for the reader of its pipe
        if fd >= 0 and os.getpid() != _HOME:
            os.write(fd, text.encode("utf-8", "backslashreplace"))
        else:
            stream.write(text)
            stream.flush()
    except Exception as error:  # it may be any object, and whoever calls must go on
        if raised_by_signal(error):
            raise


def _descriptor(stream: TextIO) -> int:
    """Where a forked child writes past the stream, or -1.

    At the fork another thread may have held the lock of the stream's buffer, and in the child nothing releases it.
    """
    try:
        return stream.fileno()
    except Exception:  # noqa: BLE001 - it may be any object
        return -1
