"""Entries of the ledger as the join has to know them. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rlship_formats.reading import Ledger

GENERATED, DROPPED, TRAINED, WEIGHTS = "generated", "dropped", "trained", "weights"
MAX_FIELDS = 32  # of one record, so that no record makes rows of any width
MAX_TEXT = 200  # characters of a hop, a field's name or a fingerprint

Digest = tuple[int, int]
Age = tuple[int, int, int]
"""Submission, attempt and segment: of the writers of one replica, newer ones compare greater."""


class Body(msgspec.Struct, array_like=True, gc=False):
    """The part of a record that the store keeps as one value."""

    n: int
    by: str
    digests: dict[str, Digest]
    precision: str
    version: tuple[int, ...]
    reward: tuple[float, ...]
    advantage: tuple[float, ...]
    mask: tuple[int, ...]
    response: int | None
    part: int
    parts: int
    retry: int
    fingerprint: str


class EntryPlace(NamedTuple):
    """Whose entry it is: its actor, replica and rank, the id of its file, and how old its segment is. `begins` is the
    step at which the segment begins, None if no step is known.
    """

    actor: str
    replica: str
    rank: int
    id: str
    age: Age
    begins: int | None


class LedgerEntry(NamedTuple):
    """One record: the byte `offset` of `file`, where its line begins, says which."""

    file: str
    offset: int
    hop: str
    t: float
    step: int | None
    place: EntryPlace
    body: Body

    @property
    def order(self) -> tuple[float, str, int]:
        """Entries of a group by time; the file and its line decide between equal times."""
        return self.t, self.file, self.offset


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Body).decode


def packed(record: Ledger) -> bytes:
    """What the store keeps of a record."""
    digests = {name: pair for name, pair in record.digests.items() if len(name) <= MAX_TEXT}
    return _encode(
        Body(
            record.n,
            record.by,
            dict(sorted(digests.items())[:MAX_FIELDS]),
            record.precision,
            record.version,
            record.reward,
            record.advantage,
            record.mask,
            record.response,
            record.part,
            record.parts,
            record.retry,
            record.fingerprint[:MAX_TEXT],
        )
    )


def unpacked(data: bytes) -> Body:
    """The inverse of `packed`."""
    return _decode(data)
