"""How a file is replaced: a reader sees the old one or the new one, never half of it, and no other file is touched."""

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
    """Replace the file at `path` by one that holds `data`; raises as `replacing` does."""
    with replacing(path, durable=durable) as file:
        file.write(data)


@contextmanager
def replacing(
    path: Path, *, durable: bool = True, mode: int | None = None, scratch_prefix: str | None = None
) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` where the block ends without an exception; else nothing is left of it.

    `durable`: it survives a crash of the machine from then on. `mode`: its permissions, whatever the umask; None: 0666
    less the umask. The new file lies in the same folder under a name that cannot be guessed, so that no link waits
    there: `scratch_prefix` (by default a dot, the name and a dot), letters, and `.tmp`. A caller whose successor
    removes what a crash left chooses the prefix. Raises OSError that names `path`, not the scratch file, where that
    cannot be replaced; the caller knows what for, and the way out. What the block raises passes as it is.
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
