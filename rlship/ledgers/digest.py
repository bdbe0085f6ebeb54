"""The digest of a field: formats/SPEC.md, section 5.9. Pure, standard library only."""

from __future__ import annotations

from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_64 = (1 << 64) - 1
_32 = (1 << 32) - 1
_KEPT_BITS = 53  # a share is a double, which holds so many bits


def mix64(x: int) -> int:
    """The finaliser of splitmix64: every bit of a 64-bit integer changes about half of the bits of the result."""
    x = (x + 0x9E3779B97F4A7C15) & _64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    return x ^ (x >> 31)


def field_digest(name: str, samples: Iterable[int], values: Iterable[int]) -> tuple[int, int]:
    """The digest of a field over samples, given the CRC-32 of each sample's id and that of its canonical value.

    The halves of the mixed words are summed, so order does not matter and digests of parts add up. A sum alone would
    not see two samples that swap their values: the finaliser binds a value to its sample.
    """
    low = high = 0
    end = name.encode()
    for sample, value in zip(samples, values):
        # `mix64`, in place: the call would take longer than what it does.
        x = ((sample << 32 | crc32(end, value)) + 0x9E3779B97F4A7C15) & _64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
        x ^= x >> 31
        low += x & _32
        high += x >> 32
    return low, high


def keeps(key: str, share: float) -> bool:
    """Whether a share of all keys has this key. Every process decides alike."""
    return mix64(crc32(key.encode(errors="surrogatepass"))) >> (64 - _KEPT_BITS) < share * (1 << _KEPT_BITS)
