"""Lines that no framework wrote, through every reader: `python -m tests.foreign.fuzz [COUNT] [SEED]`.

Each input is a sample's line or document that was changed: bytes, types of values, numbers, nesting, length. Whatever
it is, a reader answers with records that the decoder takes, or with BadRecord.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import Native, bind, document, reads
from rlship_formats.foreign.registry import installed
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.known import known
from rlship_sidecar.decode.schemas import Schemas
from tests.foreign.titan import instant, line, scalar, span

SAMPLES = Path(__file__).with_name("samples")
MOST_BYTES = 64  # a line may become so many times its own length, and 64 KiB
ALL = 1 << 62
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3.0, 2.5, -0.0, 1e308, 5e-324, 2**53, 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(float("nan"), float("inf"), float("-inf"), "", "NaN", "Infinity", "7/14", "x" * 5000, "\u0000", "\ud800", "é"),
    *([], {}, [[]], [1, 2], [None], ["NaN", 1e3], {"step": 1}, {"v": [1], "w": [-1]}, {"n": -1}, {"": ""}),
)
SPLICES = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\x00", b"\xff\xfe", b"NaN", b"1e999", b"-", b"\n", b"\\ud800", b","),
    *(b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"Infinity", b'"step":', b"\xef\xbb\xbf"),
)


class Sample(NamedTuple):
    """A file as a framework wrote it, by its path in an experiment."""

    path: str
    text: bytes


def samples(reader: Reader) -> list[Sample]:
    """Those of a reader: files among the samples that it recognises, and a few composed here."""
    history = [{"loss": 0.5, "epoch": 0.1, "step": 10}, {"eval_loss": float("nan"), "step": 10}]
    state = {"global_step": 20, "log_history": history, "max_steps": 20}
    tagged = scalar("loss", 2.5, 1.0, 1, step_tags=["gc"]) + span("fwd_bwd", 2.0, 100.0, 1, task_name="Task-1")
    composed = [
        Sample("structured_logs/a.jsonl", tagged + instant("x", 3.0) + line("event", "optim_error", 4.0, step=2)),
        Sample("checkpoint-20/trainer_state.json", json.dumps(state, indent=2).encode()),
    ]
    kept = [path for path in sorted(SAMPLES.glob("*/**/*")) if path.is_file()]
    found = [Sample("/".join(path.relative_to(SAMPLES).parts[1:]), path.read_bytes()) for path in kept]
    return [one for one in (*composed, *found) if reads(reader, one.path) and _bound(reader, one) is not None]


def _bound(reader: Reader, sample: Sample) -> object:
    try:
        return bind([reader], sample.path, document(reader, sample.text) if reader.lines else sample.text)
    except BadRecord:
        return None


def changed(text: bytes, rng: random.Random) -> bytes:
    """Something like `text`."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        text = rng.choice(CHANGES)(text, rng)
    return text[: 1 << 20]


def _value(text: bytes, rng: random.Random) -> bytes:
    """A value, or a name, is another one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    inner = found
    while isinstance(inner, (dict, list)) and inner:
        key = rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[key], (dict, list)) or not inner[key] or rng.random() < 0.2:
            if isinstance(inner, dict) and rng.random() < 0.2:
                inner[rng.choice(("step", "value", "m", "", "x" * 300, "\ud800", key + "_mean"))] = inner.pop(key)
            else:
                inner[key] = rng.choice(ODD)
            break
        inner = inner[key]
    return json.dumps(found).encode("utf-8", "surrogatepass")


def _splice(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(SPLICES) + text[at + rng.choice((0, 0, 1, 8)) :]


def _cut(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def _flip(text: bytes, rng: random.Random) -> bytes:
    made = bytearray(text)
    for _ in range(rng.choice((1, 3, 20)) if made else 0):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def _noise(text: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 50, 3000)))


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_value, _value, _value, _splice, _cut, _flip, _noise)


def feed(reader: Reader, path: str, raw: bytes, natives: list[Native]) -> int:
    """One line through a reader, whichever framework's the file's head says it is; returns how many records came out.
    Raises what the contract does not allow.
    """
    bind([reader], path, raw.replace(b"\n", b" ") + b"\n")
    made = 0
    for native in natives:
        try:
            lines = native.lines(raw)
        except BadRecord as bad:
            assert 0 < len(str(bad)) < 100, bad
            continue
        assert sum(map(len, lines)) <= MOST_BYTES * len(raw) + (1 << 16), (reader.name, raw[:1000])
        decoder = Decoder(Schemas(known))
        decoder.decode([native.opening, *lines], range(len(lines) + 1), max_steps=ALL, last_step=ALL, together=ALL)
        made += len(lines)
    return made


def run(reader: Reader, count: int, seed: int) -> int:
    """`count` inputs; returns how many records came of them."""
    rng, made = random.Random(f"{seed} {reader.name}"), 0
    for sample, natives, lines in prepared(reader):
        for _ in range(count // len(samples(reader)) + 1):
            if reader.lines is not None and rng.random() < 0.5:
                try:
                    raws = document(reader, changed(sample.text, rng)).split(b"\n")[:40]
                except BadRecord:
                    continue
            else:
                raws = [changed(rng.choice(lines), rng)]
            for raw in raws:
                made += feed(reader, sample.path, raw, natives)
    return made


def prepared(reader: Reader) -> list[tuple[Sample, list[Native], list[bytes]]]:
    """The reader's samples, the writers in each, and its lines."""
    found = []
    for sample in samples(reader):
        text = document(reader, sample.text) if reader.lines else sample.text
        bound = bind([reader], sample.path, text)
        assert bound is not None
        natives = [Native(reader, one, sample.path) for one in bound.translations]
        found.append((sample, natives, text.split(b"\n")[:-1]))
    return found


def main() -> None:
    """Every reader, and what it took."""
    count, seed = (int(given) for given in (*sys.argv[1:3], *("20000", "1")[len(sys.argv) - 1 :]))
    for reader in installed()[0]:
        began = time.monotonic()
        made = run(reader, count, seed)
        print(f"{reader.name}: {count} inputs, {made} records, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
