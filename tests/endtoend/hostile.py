"""An experiment in which good lines stand among everything that a broken writer may leave behind."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

T0 = 1763600000


def line(**record: Any) -> bytes:
    """A record as a line without its LF."""
    return json.dumps(record).encode()


def metrics(step: Any, **values: Any) -> bytes:
    """A metrics record."""
    return line(t=T0 + (step if isinstance(step, int) and 0 <= step < 1000 else 0), step=step, m=values)


def opened(actor: str, **fields: Any) -> bytes:
    """An open record."""
    return line(
        kind="open", **{"rlship": 1, "id": f"id-{actor}", "actor": actor, "rank": 0, "world": 1, "t": T0, **fields}
    )


def closed(steps: int) -> list[bytes]:
    """The proper end after `steps` steps."""
    return [line(kind="barrier", step=steps - 1, t=T0 + steps), line(kind="close", t=T0 + steps, reason="exit")]


@dataclass
class Written:
    """A file's bytes, and the byte where each unusable line stands, with the reason."""

    data: bytearray = field(default_factory=bytearray)
    dead: list[tuple[int, str]] = field(default_factory=list)

    def good(self, *lines: bytes) -> None:
        for text in lines:
            self.data += text + b"\n"

    def bad(self, text: bytes, reason: str) -> None:
        self.dead.append((len(self.data), reason))
        self.good(text)


LONG = b'{"step":1,"m":{"loss":1},"pad":"' + b"x" * (2 << 20) + b'"}'
NESTED = b"[" * 100_000
DEEP_VALUE = b'{"step":1,"m":{"loss":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"

BAD_LINES: tuple[tuple[bytes, str], ...] = (
    (b'{"step":1,"m":{"caf\xe9":1}}', "not JSON"),
    (b"\xff\xfe\x00\x01\x80", "not JSON"),
    (b"\x00" * 4096, "not JSON"),
    (b'{"step":1,\x00"m":{"loss":1}}', "not JSON"),
    (b'{"step":1,"m":{"loss":NaN}}', "not JSON"),
    (b'{"step":1,"m":{"loss":-Infinity}}', "not JSON"),
    (b'{"step":1,"m":{"loss":0.5', "not JSON"),
    (LONG, "line too long"),
    (NESTED, "not JSON"),
    (DEEP_VALUE, "not JSON"),
    (b"[1,2,3]", "not an object"),
    (b"17", "not an object"),
    (metrics("3", loss=1.0), "bad step"),
    (metrics(-1, loss=1.0), "bad step"),
    (metrics(2**70, loss=1.0), "bad step"),
    (metrics(2**53, loss=1.0), "bad step"),
    (metrics(3.0, loss=1.0), "bad step"),
    (metrics(True, loss=1.0), "bad step"),
    (metrics(None, loss=1.0), "bad step"),
    (line(kind="barrier", step="3"), "bad step"),
    (line(kind="barrier"), "bad step"),
    (line(kind="rollback", step=-1), "bad step"),
    (line(kind="event", step=1e99, name="x"), "bad step"),
    (line(step=1), "bad metrics"),
    (line(step=1, m=[1, 2]), "bad metrics"),
    (line(kind="define", m=3), "bad define"),
    (line(kind="gap", n=0), "bad gap"),
    (line(kind="gap", n=3, **{"from": 9, "to": 2}), "bad gap"),
    (opened("reward"), "second open record"),
)
BAD_VALUES = ("text", [[1]], {"v": [1], "w": [1, 2]}, {"v": [1], "w": [-1]}, {"n": -1}, {"mean": 3}, ["nan"])
UNKNOWN = (line(kind="telepathy", step="any", m=3), line(kind=7), line(kind=None, step=1, m={"loss": 1}))


def reward_file() -> Written:
    """Steps 0..59 of good lines with a bad one after each."""
    file = Written()
    file.bad(metrics(0, loss=5.0), "no open record")
    file.bad(opened("reward", rank=-1), "bad open record")
    file.good(opened("reward"))
    steps = 2 * len(BAD_LINES)
    for step in range(steps):
        file.good(metrics(step, score=step / 7, odd="NaN" if step % 3 else "Infinity"))
        file.bad(*BAD_LINES[step % len(BAD_LINES)])
        file.good(metrics(step, score=1.5, many=[step, "-Infinity", None, 0.1], bad=BAD_VALUES[step % len(BAD_VALUES)]))
        file.good(UNKNOWN[step % len(UNKNOWN)])
    file.good(*closed(steps))
    file.data += b'{"step":0,"m":{"score":1e9}}'  # whole but for its LF: it is not there
    return file


def keys_file() -> Written:
    """10,000 names, half of them on one line, half on lines of their own."""
    file = Written()
    file.good(opened("keys"), metrics(0, **{f"wide/{i}": i / 3 for i in range(5000)}))
    for i in range(5000):
        file.good(metrics(i // 500, **{f"long/{i}": float(i)}))
    file.good(*closed(10))
    return file


def rubbish_file() -> Written:
    """Random bytes in lines."""
    file = Written()
    dice = random.Random(7)
    for _ in range(300):
        file.bad(b"\xff" + dice.randbytes(dice.randrange(300)).replace(b"\n", b"\r"), "not JSON")
    return file


def foreign_file() -> Written:
    """A format of the future."""
    file = Written()
    file.bad(opened("future", rlship=2), "unsupported format version")
    file.bad(metrics(0, loss=1.0), "no open record")
    file.bad(opened("future"), "no open record")
    return file


def orphan_file() -> Written:
    """Good lines without a writer: their open record is missing."""
    file = Written()
    for step in range(3):
        file.bad(metrics(step, loss=1.0), "no open record")
    file.bad(line(kind="barrier", step=2), "no open record")
    return file


FILES = {
    "reward-0-r0.jsonl": reward_file,
    "keys-0-r0.jsonl": keys_file,
    "rubbish.jsonl": rubbish_file,
    "future.jsonl": foreign_file,
    "orphan.jsonl": orphan_file,
}


def put_odd_entries(folder: Path) -> list[str]:
    """Make what is named like a writer's file, but is something else; returns the names that the status should
    mention.
    """
    (folder / "empty.jsonl").touch()
    (folder / ".hidden.jsonl").write_bytes(b"{oops\n")
    (folder / "notes.txt").write_text("not ours\n")
    outside = folder.parent.parent / "outside.jsonl"  # not in the experiment, where it would be odd itself
    outside.write_bytes(opened("outside") + b"\n" + metrics(0, loss=1.0) + b"\n")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to(outside)
    (folder / "dangling.jsonl").symlink_to(folder / "nowhere")
    (folder / "folder.jsonl").mkdir()
    return ["pipe.jsonl", "link.jsonl", "dangling.jsonl", "folder.jsonl"]
