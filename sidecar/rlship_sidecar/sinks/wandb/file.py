"""Reads a `.wandb` file to find the real content of an offline W&B run, also after an unclean stop.

The file is a 7-byte header and a LevelDB log. The log has blocks of 32 KiB, made of chunks: (crc32, length, type) and
data. A record is one FULL chunk or FIRST, MIDDLE…, LAST. The checksum is a plain CRC-32 of type and data. The rest of a
block that is too short for a chunk's header is padding. A record is a serialized `wandb_internal_pb2.Record`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rlship_sidecar.sinks.wandb.described import STORE_ID, digest_in

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32 * 1024
CHUNK_HEADER = struct.Struct("<IHB")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


class RecordReader:
    """The whole records of a file that may still be growing: each call of `read` continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = len(MAGIC)

    def read(self) -> Iterator[bytes]:
        """Records up to the end of the file, or the first damaged one; empty if the file does not exist yet."""
        try:
            file = open(self.path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            return
        with file:
            if file.read(len(MAGIC)) != MAGIC:
                return
            file.seek(self._position)
            while (record := self._record(file)) is not None:
                yield record

    def _record(self, file: BinaryIO) -> bytes | None:
        """The next record; moves the position past it. Without one it leaves the position and returns None."""
        position, parts = self._position, list[bytes]()
        while True:
            left = BLOCK_BYTES - position % BLOCK_BYTES
            if left < CHUNK_HEADER.size:
                position += left
                file.seek(position)
            header = file.read(CHUNK_HEADER.size)
            if len(header) < CHUNK_HEADER.size:
                return None
            checksum, length, kind = CHUNK_HEADER.unpack(header)
            data = file.read(length)
            expected = (MIDDLE, LAST) if parts else (FULL, FIRST)
            if len(data) < length or kind not in expected or zlib.crc32(data, zlib.crc32(header[6:])) != checksum:
                return None
            position += CHUNK_HEADER.size + length
            parts.append(data)
            if kind in (FULL, LAST):
                self._position = position
                return b"".join(parts)


class HeldRows:
    """The content of a `.wandb` file, kept up to date by `update`.

    `rows`: how many history rows there are with `_step` 0, 1, 2, …; `whole`: there is no other row. `store_id`: the
    store in the run's config, or None. `digest` is that of what the config shows of the run's data. `finished`: the run
    was finished properly. `summary`: the summary's values that were said beside rows.
    """

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self.whole = True
        self.finished = False
        self.store_id: str | None = None
        self.digest = ""
        self.summary: dict[str, Any] = {}
        self._reader = RecordReader(path)

    def update(self) -> HeldRows:
        """Read the records that were appended since the last call."""
        for data in self._reader.read():
            record = _decode(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                if values(record.history.item).get("_step") == self.rows:
                    self.rows += 1
                else:
                    self.whole = False
            elif kind == "run":
                self._take(values(record.run.config.update))
            elif kind == "config":
                self._take(values(record.config.update))
            elif kind == "summary":
                self.summary.update(values(record.summary.update))
            elif kind == "exit":
                self.finished = True
        return self

    def _take(self, config: dict[str, Any]) -> None:
        store_id = config.get(STORE_ID)
        self.store_id = self.store_id if store_id is None else str(store_id)
        self.digest = digest_in(config) or self.digest


def store_of(path: Path) -> str | None:
    """The store named in the run's config; None if the file names no store."""
    for data in RecordReader(path).read():
        record = _decode(data)
        if record.WhichOneof("record_type") == "run":
            store_id = values(record.run.config.update).get("store_id")
            return None if store_id is None else str(store_id)
    return None


def history(path: Path) -> Iterator[dict[str, Any]]:
    """The history rows of a file, decoded."""
    for data in RecordReader(path).read():
        record = _decode(data)
        if record.WhichOneof("record_type") == "history":
            yield values(record.history.item)


def values(items: Any) -> dict[str, Any]:
    """The keys and values of a record's items; nested keys are joined with a dot."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items if item.value_json}


def _decode(data: bytes) -> Any:
    # The module's stub follows the installed protobuf; some of them do not show its messages.
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined, unused-ignore]

    return Record.FromString(data)
