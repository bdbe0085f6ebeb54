"""What the writer has to tell the person who reads the job's stderr: each thing once."""

from __future__ import annotations

import sys

_MOST = 1000


class Notices:
    """Says a thing on stderr the first time it happens and counts it every time.

    Not `warnings`: a job may turn warnings into exceptions, and logging must never raise into the job.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def once(self, topic: str, message: str) -> bool:
        """Print `rlship: message` unless something was said about `topic` before. Returns whether it was said now."""
        seen = self.counts.get(topic, 0)
        if seen == 0 and len(self.counts) >= _MOST:
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
    """Print one line on stderr; where there is none (closed, detached), there is nobody to tell."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(f"rlship: {message}\n")
        stream.flush()
    except (OSError, ValueError):
        return
