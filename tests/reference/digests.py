"""Digests of the ledger's fields: section 5.9 of formats/SPEC.md, read literally. Slow: a bit at a time."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

WORD = 2**64


def crc(data: bytes) -> int:
    """CRC-32, reflected polynomial 0xEDB88320."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def mix64(x: int) -> int:
    """The finaliser."""
    x = (x + 0x9E3779B97F4A7C15) % WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


def of_integers(values: Sequence[int]) -> bytes:
    """The canonical bytes of integers."""
    size = 4 if all(-(2**31) <= x < 2**31 for x in values) else 8
    return b"".join(x.to_bytes(size, "little", signed=True) for x in values)


def of_mask(values: Sequence[float]) -> bytes:
    """The canonical bytes of a mask."""
    return bytes(1 if x != 0 else 0 for x in values)


def of_numbers(values: Sequence[float], precision: str = "") -> bytes:
    """The canonical bytes of numbers."""
    return b"".join(_number(float(x), precision) for x in values)


def _number(x: float, precision: str) -> bytes:
    if math.isnan(x):
        return bytes.fromhex("c07f" if precision else "0000c07f")
    try:
        single = struct.pack("<f", x)
    except OverflowError:
        single = struct.pack("<f", math.copysign(math.inf, x))
    if precision:
        whole = int.from_bytes(single, "little")
        upper, rest = divmod(whole, 2**16)
        upper += rest > 2**15 or (rest == 2**15 and upper % 2 == 1)
        return b"\0\0" if upper == 0x8000 else upper.to_bytes(2, "little")
    return b"\0\0\0\0" if single == b"\0\0\0\x80" else single


def digest(name: str, samples: Sequence[int], values: Sequence[bytes]) -> list[int]:
    """The digest of a field, given the ids of samples and the canonical bytes of their values."""
    words = [mix64(a * 2**32 + crc(value + name.encode())) for a, value in zip(samples, values)]
    return [sum(h % 2**32 for h in words), sum(h // 2**32 for h in words)]
