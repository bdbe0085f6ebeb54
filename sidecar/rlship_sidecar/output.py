"""What becomes of standard output once nobody reads it."""

from __future__ import annotations

import os
import sys
from typing import TextIO

NOBODY_READS = "nobody reads standard output any more; start again to see the rest"


def discard(stream: TextIO) -> None:
    """Let standard output lead nowhere from now on. Another stream stays as it is.

    What is still in its buffer would fail once more, with exit code 120, when the interpreter ends.
    """
    if stream is sys.stdout:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
