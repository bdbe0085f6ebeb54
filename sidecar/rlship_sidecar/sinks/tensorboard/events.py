"""TFRecord framing of TensorBoard event files: length, its checksum, data, its checksum."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER_BYTES = 12
FOOTER_BYTES = 4
CHECKED_TAIL_BYTES = 4 << 20
MAX_RECORD_BYTES = 64 << 20


class Frame(NamedTuple):
    """One whole record: where its data begins, its size, and where the record ends, all in bytes."""

    start: int
    size: int
    end: int


def encode(data: bytes) -> bytes:
    """One record in its frame."""
    header = struct.pack("<Q", len(data))
    return b"".join((header, _checksum(header), data, _checksum(data)))


def frames(path: Path, *, checked_tail: int = CHECKED_TAIL_BYTES) -> Iterator[Frame]:
    """The whole records from the beginning of the file to its end or to the first torn one.

    The checksum of every length is checked. The checksum of the data is checked only within the last `checked_tail`
    bytes. Data further back was synced long ago, and checking it in Python would make a start as slow as the history is
    long.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = 0
        while start + HEADER_BYTES <= size:
            file.seek(start)
            header = file.read(HEADER_BYTES)
            if not whole_header(header):
                return
            (length,) = struct.unpack("<Q", header[:8])
            end = start + HEADER_BYTES + length + FOOTER_BYTES
            if end > size or length > MAX_RECORD_BYTES:
                return
            if end > size - checked_tail:
                data = file.read(length)
                if file.read(FOOTER_BYTES) != _checksum(data):
                    return
            yield Frame(start + HEADER_BYTES, length, end)
            start = end


def whole_header(header: bytes) -> bool:
    """Whether these are a length and its checksum."""
    return len(header) == HEADER_BYTES and header[8:] == _checksum(header[:8])


def is_whole(path: Path, frame: Frame) -> bool:
    """Whether the data of a record has its checksum."""
    with open(path, "rb") as file:
        file.seek(frame.start)
        data = file.read(frame.size)
        return file.read(FOOTER_BYTES) == _checksum(data)


def read(path: Path, frame: Frame) -> bytes:
    """The data of one record."""
    with open(path, "rb") as file:
        file.seek(frame.start)
        return file.read(frame.size)


def _checksum(data: bytes) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    return struct.pack("<I", masked_crc32c(data))
