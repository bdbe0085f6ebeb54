"""The writer's messages on the job's stderr: each topic once."""

from __future__ import annotations

import os
import sys

from . import threads
from .guard import raised_by_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_MAX_TOPICS = 1000
_MAX_TEXT = 1000  # in UTF-8 less than the page that fits into any pipe
_HOME = os.getpid()


class Notices:
    """Prints a message on stderr the first time a topic comes up and counts it every time.

    Not `warnings`: a job may turn warnings into exceptions, and logging must never raise into the job.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def once(self, topic: str, message: str) -> bool:
        """Print `rlship: message` unless `topic` was reported before. Returns whether it was printed."""
        seen = self.counts.get(topic, 0)
        if seen == 0 and len(self.counts) >= _MAX_TOPICS:
            return False
        self.counts[topic] = seen + 1
        if seen:
            return False
        say(message)
        return True

    def forget(self, topic: str) -> None:
        """Let the next `once` about `topic` print again, because the cause was repaired."""
        self.counts.pop(topic, None)


def say(message: str) -> None:
    """Print one line on stderr. Does nothing if stderr is closed or detached."""
    stream = sys.stderr
    if stream is None:
        return
    # Names of folders and actors may hold anything: characters that move the cursor are escaped.
    shown = "".join([c if c.isprintable() else ascii(c)[1:-1] for c in message[:_MAX_TEXT]])
    text = f"rlship: {shown[:_MAX_TEXT]}\n"
    try:
        fd = _descriptor(stream)
        if fd >= 0 and not threads.takes_text(fd):
            return  # the job must not wait for the reader of its pipe
        if fd >= 0 and os.getpid() != _HOME:
            os.write(fd, text.encode("utf-8", "backslashreplace"))
        else:
            stream.write(text)
            stream.flush()
    except Exception as error:  # stderr may be any object, and the caller must go on
        if raised_by_signal(error):
            raise


def _descriptor(stream: TextIO) -> int:
    """The descriptor to which a forked child writes, bypassing the stream, or -1.

    At the fork another thread may have held the lock of the stream's buffer, and nothing releases it in the child.
    """
    try:
        return stream.fileno()
    except Exception:  # noqa: BLE001 - stderr may be any object
        return -1
