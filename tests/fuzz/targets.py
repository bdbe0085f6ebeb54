"""What is fuzzed: each target takes any bytes as the text of a file, and fails on what must never be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import bind, document
from rlship_formats.foreign.registry import installed
from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.known import known
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.decode.schemas import Schemas
from tests.foreign.fuzz import feed, prepared, samples
from tests.guards.tree import ROOT

VECTORS = ROOT / "formats" / "vectors"
MOST_BYTES = 1 << 13  # of a seed
_ALL = 1 << 62
_KINDS = ("lines", "streams", "samples", "tags", "clocks", "dead", "governing")


@dataclass(frozen=True)
class Target:
    """`seeds`: texts to begin with. `play` raises where a text does what none may."""

    name: str
    seeds: tuple[bytes, ...]
    play: Callable[[bytes], None]


def targets() -> Iterator[Target]:
    """All of them."""
    yield Target("decoder", tuple(_texts(VECTORS.rglob("*.jsonl"))), play_decoder)
    for reader in installed()[0]:
        yield Target(reader.name, *_of_reader(reader))


def _of_reader(reader: Reader) -> tuple[tuple[bytes, ...], Callable[[bytes], None]]:
    """Lines of its samples, by their kinds of content, and what takes any text for its file."""
    files = prepared(reader)
    sample, natives, _ = files[0]
    whole = [line for _, _, lines in files for line in lines if len(line) <= MOST_BYTES]
    seeds = {_shape(line): line + b"\n" for line in whole}
    if reader.lines is not None:
        seeds |= {one.text: one.text for one in samples(reader) if len(one.text) <= MOST_BYTES}

    def play(text: bytes) -> None:
        lines = text.split(b"\n")[:-1]
        if reader.lines is not None:
            with contextlib.suppress(BadRecord):
                lines += document(reader, text).split(b"\n")[:-1]
        bind([reader], sample.path, text)
        for line in lines:
            feed(reader, sample.path, line, natives)

    return tuple(seeds.values()), play


def _shape(line: bytes) -> bytes:
    """The line without its digits: those that differ by more say something else."""
    return line.translate(None, b"0123456789")


def play_decoder(text: bytes) -> None:
    """Every line is a record, a dead letter or counted, whichever lines come with it in a piece: the same at once and
    line by line.
    """
    lines = [line for line in text.split(b"\n")[:-1] if len(line) <= MAX_LINE_BYTES]
    if not lines:
        return
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    decoder, schemas = Decoder(Schemas(known)), Schemas(known)
    whole = decoder.decode(lines, offsets, max_steps=_ALL, last_step=_ALL)
    assert whole.consumed == len(lines)
    alone = Decoder(schemas)
    pieces = [alone.decode([line], [at], max_steps=_ALL, last_step=_ALL) for line, at in zip(lines, offsets)]
    assert _said([whole]) == _said(pieces)
    assert repr((decoder.t, decoder.segment, decoder.barrier_t, decoder.opened)) == repr(
        (alone.t, alone.segment, alone.barrier_t, alone.opened)
    )


def _said(batches: list[Batch]) -> str:
    """All that batches say of lines, whatever of them stood in one batch. As text, so that NaN equals itself."""
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in batch.counts.items():
            counts[name] = counts.get(name, 0) + count
    barriers: dict[int, tuple[list[int], list[float], list[int]]] = {}
    for lines in (lines for batch in batches for lines in batch.barriers if lines.steps):
        steps, ts, at = barriers.setdefault(lines.segment, ([], [], []))
        steps += lines.steps
        ts += lines.ts
        at += lines.offsets
    return repr(
        (
            [[_plain(line) for batch in batches for line in getattr(batch, kind)] for kind in _KINDS],
            [mark for batch in batches for mark in batch.notes if mark.kind != "barrier"],
            sorted(barriers.items()),
            sorted(counts.items()),
            max(batch.newest_t for batch in batches),
            max(batch.highest for batch in batches),
            next((batch.opened for batch in batches if batch.opened), None),
        )
    )


def _plain(line: object) -> object:
    """A line with what its schema says in place of the schema, which is another object for another decoder."""
    schema = getattr(line, "schema", None)
    return line if schema is None else (schema.names, schema.asks, *(part for part in line if part is not schema))  # type: ignore[attr-defined]


def _texts(paths: Iterator[Path]) -> Iterator[bytes]:
    for path in sorted(paths):
        text = path.read_bytes()
        if len(text) <= 2 * MOST_BYTES:
            yield text
