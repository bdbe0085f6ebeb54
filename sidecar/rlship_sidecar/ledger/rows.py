"""The row of the groups that have their place at one step. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rlship_sidecar.ledger.judging import COUNTS, SAMPLES, Verdict
from rlship_sidecar.rows import LEDGER, Coverage, Row, Unit

PREFIX = "zz_rlship/ledger"
MAX_KEYS = 64  # of fields: a hostile writer can name any
_ALWAYS = (*COUNTS, "open", "lost", *SAMPLES, "open_samples", "lost_samples")


class StoredVerdict(msgspec.Struct, array_like=True, gc=False):
    """What the store keeps of a verdict, for the row of its step."""

    pending: bool
    left: int
    counts: dict[str, int]
    compared: dict[str, bool]


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(StoredVerdict).decode


def packed(verdict: Verdict) -> bytes:
    """What the store keeps of a verdict."""
    return _encode(StoredVerdict(verdict.pending, verdict.left, verdict.counts, verdict.compared))


def ledger_row(step: int, t: float, axis: str, groups: Iterable[tuple[bytes, bool]]) -> Row:
    """The row of a step: of each group, what the store keeps, and whether the trainer went on after its time."""
    values = dict.fromkeys(_ALWAYS, 0)
    fields: dict[str, int] = {}
    for data, passed in groups:
        found = _decode(data)
        for name, count in found.counts.items():
            values[name] += count
        if found.pending:
            kind = "lost" if passed else "open"
            values[kind] += 1
            values[f"{kind}_samples"] += found.left
        for name, differs in found.compared.items():
            fields[name] = fields.get(name, 0) + differs
    differing = {f"{name}_differs": fields[name] for name in sorted(fields)[:MAX_KEYS]}
    return Row(
        Unit("", LEDGER, step),
        t,
        {axis: step},
        {f"{PREFIX}/{name}": float(count) for name, count in (values | differing).items()},
        Coverage((), 0),
    )
