"""Swaps of two samples' values, each of which the digest has to see: `make swaps` tries 10,000,000."""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from struct import pack
from zlib import crc32

from rlship.ledgers.canonical import floats_crc, integers_crc
from rlship.ledgers.digest import field_digest

Swap = tuple[str, int, int, int, int]
FIELDS = ("reward", "mask", "version", "logprobs")


def missed(swaps: int, seed: int) -> list[Swap]:
    """The swaps that do not change the digest, of random samples with random values of four kinds: rewards of a few
    levels, as most are, rewards of any value, masks that differ in a bit, and counters.
    """
    chance = random.Random(seed)
    levels = [floats_crc(value) for value in (0.0, 1.0, 0.5, -1.0, 0.1, 0.25)]
    masks = [crc32(bytes([1] * at + [0] + [1] * (63 - at))) for at in range(64)]
    counters = [integers_crc([number]) for number in range(256)]
    tokens = array("i", [0] * 16)
    found: list[Swap] = []
    for number in range(swaps):
        tokens[number % 16] = chance.getrandbits(17)
        one = crc32(tokens)
        tokens[0] ^= 1 << (number % 17)
        other = crc32(tokens)
        kind = number % 4
        if kind == 2:
            first, second = (crc32(pack("<f", chance.random())) for _ in range(2))
        else:
            first, second = chance.sample((levels, masks, levels, counters)[kind], 2)
        name = FIELDS[kind]
        if first != second and field_digest(name, (one, other), (first, second)) == field_digest(
            name, (one, other), (second, first)
        ):
            found.append((name, one, other, first, second))
    return found


def main() -> None:
    """Try swaps, and exit with 1 if any is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began, found = time.perf_counter(), 0
    for piece in range(0, given.swaps, 100_000):
        lost = missed(min(100_000, given.swaps - piece), given.seed + piece)
        found += len(lost)
        for swap in lost:
            print(f"missed: {swap}")
    print(f"{given.swaps:,} swaps, {found} missed, {time.perf_counter() - began:.0f} s")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
