"""The file that an export writes: it appears whole, or not at all."""

from __future__ import annotations

import gzip
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rlship_sidecar import state_file
from rlship_sidecar.errors import RlshipError

if TYPE_CHECKING:
    from rlship_sidecar.export.chrome import Writes

STDOUT = "-"


@contextmanager
def outages(output: str, what: str) -> Iterator[None]:
    """Report that `what` was not written if writing fails."""
    try:
        yield
    except OSError as problem:
        if output == STDOUT and isinstance(problem, BrokenPipeError):
            raise
        raise RlshipError(
            f"{problem.filename or output}: {problem.strerror or problem}",
            f"{what} was not written; is there room, and may you write there?",
        ) from problem


@contextmanager
def writing(output: str) -> Iterator[Writes]:
    """Yield the stream to write to. A file appears under its name once it is whole."""
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_special(output):
        with open(output, "wb") as file, _compressing(file, output) as stream:
            yield stream
        return
    target = Path(os.path.realpath(output))  # through a link, the target is replaced as a whole
    # Not durable: after a crash the user can export again.
    with state_file.replacing(target, durable=False) as whole, _compressing(whole, output) as stream:
        yield stream


@contextmanager
def _compressing(file: BinaryIO, output: str) -> Iterator[Writes]:
    if not output.endswith(".gz"):
        yield file
        return
    # without name and time, one trace always gives the same bytes
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
        yield stream


def _is_special(output: str) -> bool:
    """True if the output must not be replaced by another file.

    It is no regular file, or a link that may lead to an open one, such as /dev/stdout.
    """
    try:
        if not stat.S_ISREG(os.stat(output).st_mode):
            return True
        folder = os.path.realpath(os.path.dirname(output))
        return os.path.islink(output) and f"{folder}/".startswith(("/dev/", "/proc/"))
    except FileNotFoundError:
        return False
