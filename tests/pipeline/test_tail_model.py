"""The tail against a model of a file that anything may happen to: torn writes, cuts, replacements, restarts.

The reader does what the intake does: it keeps a position, begins anew where the tail says that the file is another, and
sometimes comes back with nothing but the position it saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rlship_sidecar.tail.tail import START, Descriptors, Position, Replaced, Tail
from tests.kit.cases import statistical
from tests.pipeline.simulated import scratch

CASES = statistical(2500, suppress_health_check=list(HealthCheck))
ACTIONS = ("write", "write", "torn", "look", "look", "cut", "replace", "overwrite", "delete", "restart", "again")


@dataclass
class Reader:
    """Reads one path as the intake does. `lines` are those of the file as it is now, by offset."""

    path: str
    keep: bool
    mark: Position = START
    lines: dict[int, bytes] = field(default_factory=dict)
    fresh_starts: int = 0
    inode: int = 0

    def __post_init__(self) -> None:
        self.files = Descriptors(1, keep=self.keep)
        self.tail = Tail(self.path, self.files)

    def look(self, max_bytes: int, *, end: bool = False, hinted: bool = False) -> None:
        """One look: ask for the size, check or read; begin anew if the file is another. `end`: one of the last, which
        checks as well where there is nothing to read. `hinted`: read at once, which tells the size.
        """
        try:
            self.notice_another_inode()
            piece = self.tail.read(self.mark, max_bytes) if hinted else None
            size = self.tail.size() if piece is None else piece.size
            if size < self.mark.offset or (end and size == self.mark.offset):
                self.tail.check(self.mark)
                return
            if piece is None:
                piece = self.tail.read(self.mark, max_bytes, size=size)
        except Replaced:
            self.begin_anew()
            return
        except FileNotFoundError:
            self.files.forget(self.path)
            return
        for offset, line in zip(piece.offsets, piece.lines):
            assert offset not in self.lines, "a line came twice"
            self.lines[offset] = line
        self.mark = piece.position(piece.end)

    def notice_another_inode(self) -> None:
        """A listing of the folder tells; a descriptor that is kept open would not."""
        inode = os.stat(self.path).st_ino
        if inode != self.inode:
            self.inode = inode
            self.files.forget(self.path)
            self.tail.check(self.mark)

    def begin_anew(self) -> None:
        """What came so far was of a file that is not there any more."""
        self.fresh_starts += 1
        self.mark, self.lines = START, {}
        self.files.forget(self.path)
        self.tail = Tail(self.path, self.files)

    def restart(self) -> None:
        """Nothing is left but what the store keeps; what it keeps is checked before it is relied on."""
        self.files.close()
        saved = msgspec.json.decode(msgspec.json.encode(self.mark), type=Position)
        assert saved == self.mark
        self.mark = saved
        self.files = Descriptors(1, keep=self.keep)
        self.tail = Tail(self.path, self.files)
        try:
            self.tail.check(self.mark)
        except Replaced:
            self.begin_anew()
        except FileNotFoundError:
            return


class Model:
    """The file as it is: its bytes, or None while it is deleted. Every line begins and ends with a number of its own,
    as real ones have their time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: bytes | None = b""
        self.only_grew = True
        self.overwritten = False
        self._numbers = count(1000)
        path.touch()

    def some_lines(self, draw: st.DrawFn) -> bytes:
        sizes = draw(st.lists(st.sampled_from((0, 1, 9, 70, 200)), min_size=1, max_size=4))
        numbers = [next(self._numbers) for _ in sizes]
        return b"".join(b"%d %s %d\n" % (number, b"." * size, number) for number, size in zip(numbers, sizes))

    def append(self, data: bytes) -> None:
        """A writer's append; one that has the file open goes on after a cut."""
        if self.data is None:
            return
        with open(self.path, "ab") as file:
            file.write(data)
        self.data += data

    def cut(self, size: int) -> None:
        if self.data is None or size >= len(self.data):
            return
        os.truncate(self.path, size)
        self.data = self.data[:size]
        self.only_grew = False

    def replace(self, data: bytes) -> None:
        """Another file is renamed to the name."""
        other = self.path.with_name("other")
        other.write_bytes(data)
        os.replace(other, self.path)
        self._is_another(data)

    def overwrite(self, data: bytes) -> None:
        """The same inode gets other bytes, as when a file is deleted and its inode used again."""
        self.path.write_bytes(data)
        self._is_another(data)
        self.overwritten = True

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self.data = None
        self.only_grew = False

    def _is_another(self, data: bytes) -> None:
        self.data = data
        self.only_grew = False

    def lines(self) -> dict[int, bytes]:
        """The complete lines by offset."""
        found, begin, data = {}, 0, self.data or b""
        while (end := data.find(b"\n", begin)) >= 0:
            found[begin] = data[begin:end]
            begin = end + 1
        return found


@contextmanager
def watched(keep: bool) -> Iterator[tuple[Model, Reader]]:
    with scratch() as folder:
        reader = Reader(str(folder / "f.jsonl"), keep)
        yield Model(folder / "f.jsonl"), reader
        reader.files.close()


@CASES
@given(data=st.data(), keep=st.booleans())
def test_whatever_happens_to_a_file(data: st.DataObject, keep: bool) -> None:
    """Lines come whole, at their offsets and once; a file that only grows is never taken for another; one that is
    another, or was cut and is written on, has all of its complete lines come, and none of the former's counts for it.
    """
    with watched(keep) as (model, reader):
        for _ in range(data.draw(st.integers(2, 12))):
            act(data, data.draw(st.sampled_from(ACTIONS)), model, reader)
            if model.only_grew:
                assert reader.fresh_starts == 0
        written_on = data.draw(st.booleans())
        for _ in range(3):
            reader.look(1 << 16)
            if written_on:
                model.append(model.some_lines(data.draw))
        for _ in range(3):
            reader.look(1 << 16, end=True)
        if model.data is not None:
            if reader.mark.offset > len(model.data):
                # Shorter than before and left so: perhaps only late to show its end, but certainly not another file.
                assert not written_on
                assert reader.mark.head.startswith(model.data[: len(reader.mark.head)])
            elif written_on or reader.mark.offset < len(model.data) or not model.overwritten:
                assert reader.lines == model.lines()
        if model.only_grew:
            assert reader.fresh_starts == 0


def act(data: st.DataObject, action: str, model: Model, reader: Reader) -> None:
    if action == "write":
        model.append(model.some_lines(data.draw))
    elif action == "torn":
        lines = model.some_lines(data.draw)
        model.append(lines[: data.draw(st.integers(0, len(lines) - 1))])
    elif action == "look":
        reader.look(data.draw(st.sampled_from((1, 50, 300, 1 << 16))), hinted=data.draw(st.booleans()))
    elif action == "cut" and model.data is not None:
        model.cut(data.draw(st.integers(0, len(model.data))))
    elif action == "replace":
        model.replace(model.some_lines(data.draw))
    elif action == "overwrite":
        model.overwrite(model.some_lines(data.draw))
    elif action == "delete":
        model.delete()
    elif action == "restart":
        reader.restart()
    elif action == "again" and model.data is None:
        model.overwrite(model.some_lines(data.draw))
