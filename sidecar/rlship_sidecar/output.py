"""Standard output when its reader is gone."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from rlship_sidecar.errors import RlshipError

# UTF-8 of characters that a terminal obeys: DEL and C1; characters that reverse text (U+061C, U+200E, U+200F, U+202A to
# U+202E, U+2066 to U+2069); line ends (U+2028, U+2029).
_OBEYED = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
OUTPUT_CLOSED = "the reader of standard output is gone; start again to see the rest"


class OutputLost(RlshipError):
    """Standard output cannot be written. Exit code 1.

    It is no OSError, so that code which retries disk errors does not retry this one.
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
    """Escape everything in JSON that moves a cursor or reverses text. JSON encoders escape only characters below a
    blank.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return _OBEYED.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def discard(stream: TextIO) -> None:
    """Redirect standard output to /dev/null; any other stream stays as it is.

    Otherwise the flush of its buffer at the interpreter's end would fail, with exit code 120.
    """
    if stream is sys.stdout:
        _lead_nowhere(stream)


def settle() -> None:
    """End a command: write what is still buffered, then redirect standard output to /dev/null.

    Whichever thread met a closed pipe, the interpreter's own flush then cannot fail and replace the exit code by 120.
    Standard error is redirected only if it cannot be written, because a traceback may still follow.
    """
    # ValueError: already closed. RuntimeError: a thread is writing at this moment, perhaps to a pipe without a reader.
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
