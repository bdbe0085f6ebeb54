"""Attacks by name: each fills a writers' folder. None of them may keep a good rank's rows from coming."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

T0 = 1763600000
MANY = 200_000

Attack = Callable[[Path], None]


def opened(number: int = 0, **fields: Any) -> dict[str, Any]:
    """An open record."""
    return {"kind": "open", "rlship": 1, "id": f"i{number}", "actor": "bad", "rank": 0, "world": 1, "t": T0, **fields}


def step(number: int, **metrics: Any) -> dict[str, Any]:
    """A metrics record."""
    return {"step": number, "t": T0, "m": metrics or {"loss": 1}}


def put(folder: Path, records: Iterable[dict[str, Any]], name: str = "bad-0-r0.jsonl") -> None:
    """Write one file."""
    with open(folder / name, "w") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def writers(count: int, who: Callable[[int], dict[str, Any]]) -> Attack:
    """So many files, each of a writer that logs one step."""

    def make(folder: Path) -> None:
        for number in range(count):
            put(
                folder,
                [opened(number, **who(number)), step(1), {"kind": "barrier", "step": 1, "t": T0}],
                f"b{number}.jsonl",
            )

    return make


def one(records: Callable[[], Iterable[dict[str, Any]]]) -> Attack:
    """One file: an open record, and these."""
    return lambda folder: put(folder, [opened(), *records(), {"kind": "barrier", "step": 10**6, "t": T0}])


def tiny(folder: Path) -> None:
    """Files without a writer: empty, rubbish, half a line."""
    for number in range(MANY):
        (folder / f"n{number}.jsonl").write_bytes((b"", b"x\n", b'{"kind":')[number % 3])


def links(folder: Path) -> None:
    """Links out of it."""
    for number in range(MANY // 10):
        os.symlink("/etc/passwd", folder / f"l{number}.jsonl")


def long_line(folder: Path) -> None:
    """A line of 1 GB, with its end and a good line behind it."""
    with open(folder / "bad-0-r0.jsonl", "wb") as out:
        out.write(json.dumps(opened()).encode() + b'\n{"step":1,"m":{"x":"')
        for _ in range(1024):
            out.write(b"x" * (1 << 20))
        out.write(b'"}}\n' + json.dumps(step(2)).encode() + b"\n")


def endless(size: int) -> Attack:
    """A file of this size with nothing in it, not even a line's end."""

    def make(folder: Path) -> None:
        with open(folder / "bad-0-r0.jsonl", "wb") as out:
            out.write(json.dumps(opened()).encode() + b"\n")
            out.truncate(size)

    return make


ATTACKS: dict[str, Attack] = {
    "200,000 tiny files without a writer": tiny,
    "20,000 links out of it": links,
    "a line of 1 GB": long_line,
    "1 GiB without a line's end": endless(1 << 30),
    "1 TiB without a line's end": endless(1 << 40),
    "100,000 actors": writers(100_000, lambda number: {"actor": f"a{number}"}),
    "100,000 ranks": writers(100_000, lambda number: {"rank": number, "world": 100_000}),
    "20,000 replicas": writers(20_000, lambda number: {"replica": f"r{number}"}),
    "10,000 attempts of a rank": writers(10_000, lambda number: {"attempt": number}),
    "10,000 writers of a rank": writers(10_000, lambda number: {"t": T0 - 100}),
    "10,000 writers, each the next one's child": writers(10_000, lambda n: {"parent": f"i{(n + 1) % 10_000}"}),
    "10^6 metrics in one step": one(lambda: (step(1, **{f"{i}/{j}": 1 for j in range(1000)}) for i in range(1000))),
    "10^6 metrics in 10,000 steps": one(
        lambda: (step(i, **{f"{i}/{j}": 1 for j in range(100)}) for i in range(10_000))
    ),
    "500,000 defines": one(
        lambda: (
            {"kind": "define", "m": {f"{i}/{j}": {"reduce": ["p50", "hist"], "unit": "u" * 500} for j in range(500)}}
            for i in range(1000)
        )
    ),
    "100,000 steps in any order": one(lambda: (step(i * 7919 % 10**6) for i in range(100_000))),
    "50,000 rollbacks": one(
        lambda: (record for i in range(50_000) for record in (step(5), {"kind": "rollback", "step": 5, "t": T0 + i}))
    ),
    "50,000 gaps over all steps": one(
        lambda: (record for i in range(50_000) for record in ({"kind": "gap", "n": 1, "from": 0, "to": 10**6}, step(i)))
    ),
    "300,000 kinds of events in one step": one(
        lambda: (
            {"kind": "event", "step": 1, "t": T0, "name": f"e{i}", "attrs": {"x": "y" * 99}} for i in range(300_000)
        )
    ),
    "600 tables of samples of 900 kB": one(
        lambda: (
            {"kind": "sample", "pri": 0.5, "step": 10, "t": T0, "table": f"t{i}", "row": {"p": "z" * 900_000}}
            for i in range(600)
        )
    ),
    "3 million observations in one step": one(
        lambda: (
            record
            for i in range(100)
            for record in (
                {"kind": "define", "m": {"x": {"reduce": ["p50", "hist"]}}},
                step(1, x=[j / 7 for j in range(30_000)]),
            )
        )
    ),
    "100,000 lines without a step, each years later": one(
        lambda: ({"t": T0 + i * 1e4, "m": {"x": 1}} for i in range(100_000))
    ),
    "500,000 bad lines": one(lambda: ({"kind": "barrier", "step": "x" * (i % 500)} for i in range(500_000))),
}
