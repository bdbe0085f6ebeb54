"""The child's way to its parent: lines of JSON on a pipe."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import NoReturn


class Line:
    """Any thread may speak; after the last word nobody does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, **message: object) -> None:
        """Send one message."""
        with self._lock:
            self._write(message)

    def end(self, **message: object) -> NoReturn:
        """Send the last word and leave at once: wandb-core follows by itself, without uploading."""
        self._lock.acquire()
        self._write(message)
        os._exit(0)

    def _write(self, message: Mapping[str, object]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            os._exit(0)
