"""The rollup in a file beside the store: read at a start, so that a long history shows at once, and written anew now
and then. It is made of the store alone: whatever is wrong with it, it is made again.

The sidecar that takes a store over removes the file with the store of the generation before it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.state_file import replacing
from rlship_sidecar.view.binned import Array
from rlship_sidecar.view.rollup import RANKS_BYTES, ROWS_BYTES, Rollup, restored, state_of

_MAGIC = b"rlship rollup 2\n"
_HEAD_BYTES = 16
MAX_BYTES = ROWS_BYTES + RANKS_BYTES + (64 << 20)


def path_of(state_dir: Path) -> Path | None:
    """Where the rollup of the newest store lies; None without a store."""
    found = newest_store(state_dir)
    return None if found is None else state_dir / f"{found[0].removesuffix('.db')}.rollup"


def read(state_dir: Path, store_id: str) -> Rollup | None:
    """The rollup of this store; None without one that can be used, or if it belongs to another user."""
    path = path_of(state_dir)
    try:
        if path is None or os.lstat(path).st_uid != os.geteuid():
            return None
        with open(open_plain(os.fspath(path)), "rb") as file:
            found = _from(file) if os.fstat(file.fileno()).st_size <= MAX_BYTES else None
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return found if found is not None and found.store_id == store_id else None


def _from(file: BinaryIO) -> Rollup | None:
    """What a file holds; None if it is another kind of file. Raises ValueError and others for what is damaged."""
    if file.read(len(_MAGIC)) != _MAGIC:
        return None
    head = orjson.loads(file.read(int(file.read(_HEAD_BYTES))))

    def take(dtype: Any, shape: tuple[int, int]) -> Array:
        count = shape[0] * shape[1]
        if dtype.kind not in "fiu" or min(shape) < 0 or count * dtype.itemsize > MAX_BYTES:
            raise ValueError("no such matrix")
        # One matrix at a time, so that the file is never in memory twice.
        found: Array = np.fromfile(file, dtype, count)
        return found.reshape(shape)

    return restored(head, take)


def write(state_dir: Path, rollup: Rollup) -> bool:
    """Keep it; returns whether that worked. Without a right to write, or without room, it stays in memory alone."""
    path = path_of(state_dir)
    if path is None:
        return False
    head, arrays = state_of(rollup)
    try:
        data = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # a name that is no Unicode
        return False
    with suppress(OSError), replacing(path, durable=False, scratch_prefix=f"{path.name}.") as file:
        file.write(_MAGIC + f"{len(data):>{_HEAD_BYTES}}".encode() + data)
        for one in arrays:
            file.write(one.data)
        return True
    return False
