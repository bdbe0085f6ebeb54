"""Atomic replacement of a file: a reader sees the old or the new file, never half of one, and no other file changes."""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rlship_sidecar.filesystem import sync_folder

_TOKEN_LETTERS = 12


def replace(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file at `path` by one that holds `data`. Raises what `replacing` raises."""
    with replacing(path, durable=durable) as file:
        file.write(data)


@contextmanager
def replacing(
    path: Path, *, durable: bool = True, mode: int | None = None, scratch_prefix: str | None = None
) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` if the block ends without an exception, and else is removed.

    `durable`: the replacement survives a crash of the machine. `mode`: the permissions, whatever the umask; None: 0666
    less the umask. The new file lies in the same folder under an unguessable name, so that no link waits there. The
    name consists of `scratch_prefix` (by default a dot, the name and a dot), letters, and `.tmp`. A caller chooses the
    prefix if its successor removes what a crash left.

    Raises OSError that names `path`, not the scratch file. The caller adds the purpose and the way out. What the block
    raises passes unchanged.
    """
    token = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_TOKEN_LETTERS))
    scratch = path.with_name(f"{f'.{path.name}.' if scratch_prefix is None else scratch_prefix}{token}.tmp")
    with _naming(path):
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
            with _naming(path):
                file.flush()
                if mode is not None:
                    os.fchmod(descriptor, mode)
                if durable:
                    os.fsync(descriptor)
        with _naming(path):
            os.replace(scratch, path)
            if durable:
                sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(scratch)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, os.fspath(path)) from problem
