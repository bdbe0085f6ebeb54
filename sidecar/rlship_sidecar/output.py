"""What becomes of standard output once nobody reads it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from rlship_sidecar.errors import RlshipError

# In UTF-8: DEL and C1, then what turns text around (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069) or ends
# a line (U+2028, U+2029).
_OBEYED = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
OUTPUT_CLOSED = "nobody reads standard output any more; start again to see the rest"


class OutputLost(RlshipError):
    """Standard output cannot be written. Exit code 1.

    No OSError: whoever retries those of the disk must not take this for one of them.
    """


def put(data: bytes) -> None:
    """Write a line to standard output now; raises OutputLost."""
    import click

    try:
        click.echo(data)
    except BrokenPipeError:
        raise OutputLost(OUTPUT_CLOSED) from None
    except OSError as problem:
        raise OutputLost(f"standard output cannot be written: {problem.strerror}") from problem


def as_printed(data: bytes) -> bytes:
    """The same JSON with nothing in it that moves a cursor or turns text around. Encoders escape only what is below a
    blank.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return _OBEYED.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def discard(stream: TextIO) -> None:
    """Let standard output lead nowhere from now on. Another stream stays as it is.

    What is still in its buffer would fail once more, with exit code 120, when the interpreter ends.
    """
    if stream is sys.stdout:
        _lead_nowhere(stream)


def settle() -> None:
    """The last thing a command does: write what is still buffered, and let standard output lead nowhere.

    Whichever thread met a closed pipe, whatever it left in the buffer and whatever a thread still writes: the
    interpreter's own flush at its end cannot fail, which would replace the exit code by 120. Standard error goes the
    same way only where it cannot be written: a traceback is still to come.
    """
    # ValueError: closed already. RuntimeError: a thread is just writing, perhaps to a pipe that nobody empties.
    with suppress(OSError, ValueError, RuntimeError):
        if sys.stdout is not None:
            sys.stdout.flush()
    with suppress(OSError, ValueError):
        if sys.stdout is not None:
            _lead_nowhere(sys.stdout)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError, RuntimeError):
        with suppress(OSError, ValueError):
            _lead_nowhere(sys.stderr)


def _lead_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
