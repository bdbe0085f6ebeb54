"""Writes `.wandb` files, as the client does."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from rlship_sidecar.sinks.wandb.file import MAGIC

BLOCK = 32768


def encode(records: list[bytes]) -> bytes:
    """A log as LevelDB describes it: split over blocks, padded where less than a chunk's header is left."""
    log = bytearray(MAGIC)
    for record in records:
        first, rest = True, record
        while first or rest:
            left = BLOCK - len(log) % BLOCK
            if left < 7:
                log += bytes(left)
                left = BLOCK
            data, rest = rest[: left - 7], rest[left - 7 :]
            kind = bytes([{(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not rest]])
            log += struct.pack("<IH", zlib.crc32(kind + data), len(data)) + kind + data
            first = False
    return bytes(log)


def _record() -> Any:
    # A second of imports, which only the process that runs such a test should take.
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined, unused-ignore]

    return Record()


def history_record(**values: object) -> bytes:
    """A history row."""
    record = _record()
    for key, value in values.items():
        record.history.item.add(nested_key=[key], value_json=json.dumps(value))
    return bytes(record.SerializeToString())


def run_record(store_id: str) -> bytes:
    """The start of a run whose config names a store."""
    record = _record()
    record.run.config.update.add(key="store_id", value_json=json.dumps(store_id))
    return bytes(record.SerializeToString())


def exit_record() -> bytes:
    """The proper end of a run."""
    record = _record()
    record.exit.exit_code = 0
    return bytes(record.SerializeToString())
