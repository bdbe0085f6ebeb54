"""The tail against a tiny model, the limit on open files, and things in the folder that are no files."""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.plainfiles import NotAFile
from rlship_sidecar.tail.tail import Descriptors, Piece, Position, Tail
from tests.kit.cases import statistical
from tests.pipeline.simulated import scratch

READS = (1, 3, 7, 20, 64 * 1024, 1 << 20, MAX_LINE_BYTES + 1, 3 << 20)
ENDS = (b"", b"\n", b"\n", b"x\n", b"\n\n", b"\r\n\x00")


@dataclass
class Model:
    """A file as it should look through a tail: complete lines by offset, those over 1 MiB apart."""

    data: bytearray = field(default_factory=bytearray)
    lines: dict[int, bytes] = field(default_factory=dict)
    too_long: dict[int, bytes] = field(default_factory=dict)

    def complete(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """The lines and the beginnings of too long ones that the whole file has."""
        lines: dict[int, bytes] = {}
        too_long: dict[int, bytes] = {}
        begin = 0
        while (end := self.data.find(b"\n", begin)) >= 0:
            line = bytes(self.data[begin:end])
            if len(line) > MAX_LINE_BYTES:
                too_long[begin] = line[:120]
            else:
                lines[begin] = line
            begin = end + 1
        return lines, too_long

    def take(self, piece: Piece, position: int) -> int:
        """Check one piece against the file so far; returns the next position."""
        assert piece.size == len(self.data)
        assert len(piece.lines) == len(piece.offsets)
        assert position <= piece.end <= len(self.data)
        assert piece.end == 0 or self.data[piece.end - 1 : piece.end] == b"\n"
        for offset, line in zip(piece.offsets, piece.lines):
            assert position <= offset < piece.end
            self.lines[offset] = line
        self.too_long.update(piece.too_long)
        if not piece.more:
            assert b"\n" not in self.data[piece.end :], "said that nothing is left, but a complete line is"
        return piece.end


def pieces_of_text(draw: st.DrawFn) -> bytes:
    """What one write adds: anything from nothing to several long lines, with or without its LF."""
    long = draw(st.sampled_from((0, 0, 0, 0, 0, MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 5 << 19)))
    return draw(st.binary(max_size=12)) + b"y" * long + draw(st.sampled_from(ENDS))


@statistical(400)
@given(data=st.data(), keep=st.booleans())
def test_pieces_add_up_to_the_complete_lines(data: st.DataObject, keep: bool) -> None:
    """However a file grows and is read, also once more, its complete lines come, whole and at their offsets."""
    with scratch() as folder:
        path = folder / "f"
        path.touch()
        files = Descriptors(2, keep=keep)
        tail, model, positions = Tail(str(path), files), Model(), [0]
        for _ in range(data.draw(st.integers(1, 8))):
            action = data.draw(st.sampled_from(("write", "write", "read", "read", "again")))
            if action == "write":
                added = data.draw(st.composite(pieces_of_text)())
                model.data += added
                with open(path, "ab") as file:
                    file.write(added)
            elif action == "read":
                position = positions[-1]
                positions.append(model.take(tail.read(Position(position), data.draw(st.sampled_from(READS))), position))
            else:
                # What was not made durable is read once more.
                positions = positions[: data.draw(st.integers(1, len(positions)))]
        for _ in range(100):
            position = positions[-1]
            piece = tail.read(Position(position), data.draw(st.sampled_from(READS[4:])))
            positions.append(model.take(piece, position))
            if not piece.more:
                break
        files.close()
        assert not piece.more
        assert (model.lines, model.too_long) == model.complete()


def test_lines_over_a_mebibyte_are_passed_over_exactly(tmp_path: Path) -> None:
    """A line of 1 MiB counts, one byte more does not, and neighbours of long lines keep their offsets."""
    short, fits, over, huge = b"short", b"a" * MAX_LINE_BYTES, b"b" * (MAX_LINE_BYTES + 1), b"c" * (40 << 20)
    path = tmp_path / "f"
    path.write_bytes(b"\n".join((short, over, fits, huge, over, short)) + b"\ntorn")
    tail, model = Tail(str(path), Descriptors(1, keep=True)), Model(bytearray(path.read_bytes()))
    position, more = 0, True
    while more:
        piece = tail.read(Position(position), 64 * 1024)
        position, more = model.take(piece, position), piece.more
    assert (model.lines, model.too_long) == model.complete()
    assert sorted(map(len, model.lines.values())) == [5, 5, MAX_LINE_BYTES]
    assert position == path.stat().st_size - 4


def test_a_long_line_is_not_read_twice_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for the end of a line that is too long goes on where it stopped, a bounded stretch at a time."""
    path = tmp_path / "f"
    path.write_bytes(b"z" * (50 << 20))
    read: list[int] = []
    real = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        data = real(fd, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    tail = Tail(str(path), Descriptors(1, keep=True))
    while tail.read(Position(0), 4096).more:
        pass
    assert tail.searching
    assert sum(read) <= (50 << 20) + 4096
    assert max(read) <= 16 << 20
    with open(path, "ab") as file:
        file.write(b"\nnext\n")
    read.clear()
    piece = tail.read(Position(0), 4096)
    assert (piece.lines, piece.too_long, piece.end) == ([], [(0, b"z" * 120)], (50 << 20) + 1)
    assert sum(read) < 1000
    assert not tail.searching
    assert tail.read(Position(piece.end), 4096).lines == [b"next"]


def test_a_search_does_not_answer_for_another_position(tmp_path: Path) -> None:
    """Having searched a long line, a tail that is asked for an earlier position reads from there."""
    path = tmp_path / "f"
    path.write_bytes(b"one\n" + b"z" * (2 << 20))
    tail = Tail(str(path), Descriptors(1, keep=True))
    assert tail.read(Position(0), 100).end == 4
    assert tail.read(Position(4), 100).end == 4
    assert tail.searching
    again = tail.read(Position(0), 100)
    assert (again.lines, again.offsets, again.end) == ([b"one"], [0], 4)


def open_files_under(folder: Path) -> list[str]:
    """Files of a folder that this process holds open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(os.path.basename(target))
    return sorted(found)


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    """Ten files are read in random order through two descriptors, and each gives all of its lines."""
    files = Descriptors(2, keep=True)
    tails = []
    for number in range(10):
        path = tmp_path / f"f{number}"
        path.write_bytes(b"".join(b"%d %d\n" % (number, line) for line in range(20)))
        tails.append(Tail(str(path), files))
    positions, lines = [0] * 10, [[] for _ in range(10)]
    chance = random.Random(7)
    while any(position < tail.size() for tail, position in zip(tails, positions)):
        number = chance.randrange(10)
        piece = tails[number].read(Position(positions[number]), 9)
        positions[number], lines[number] = piece.end, lines[number] + piece.lines
        assert len(open_files_under(tmp_path)) <= 2
    assert lines == [[b"%d %d" % (number, line) for line in range(20)] for number in range(10)]
    files.close()
    assert open_files_under(tmp_path) == []


def test_the_least_recently_read_file_is_closed_first(tmp_path: Path) -> None:
    """A file that is read again and again stays open while others come and go."""
    files = Descriptors(2, keep=True)
    for name in ("busy", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"x\n")
    for name in ("b", "c", "d"):
        files.get(str(tmp_path / "busy"))
        files.get(str(tmp_path / name))
        assert open_files_under(tmp_path) == sorted(("busy", name))
    files.close()


def test_on_a_network_filesystem_every_look_opens_anew(tmp_path: Path) -> None:
    """Without keeping descriptors nothing stays open, and a file put in place of another is seen."""
    path = tmp_path / "f"
    path.write_bytes(b"one\n")
    tail = Tail(str(path), Descriptors(2, keep=False))
    assert tail.read(Position(0), 100).lines == [b"one"]
    assert open_files_under(tmp_path) == []
    (tmp_path / "g").write_bytes(b"one\ntwo\n")
    os.replace(tmp_path / "g", path)
    assert tail.size() == 8
    assert tail.read(Position(4), 100).lines == [b"two"]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        tail.read(Position(4), 100)
    assert open_files_under(tmp_path) == []


def test_a_deleted_file_is_read_on_while_it_is_open(tmp_path: Path) -> None:
    """Where descriptors are kept, lines written before a file was deleted are not lost; once let go, it is gone."""
    path = tmp_path / "f"
    path.write_bytes(b"one\n")
    files = Descriptors(2, keep=True)
    tail = Tail(str(path), files)
    with open(path, "ab") as writer:
        assert tail.read(Position(0), 100).lines == [b"one"]
        path.unlink()
        writer.write(b"two\n")
    assert tail.read(Position(4), 100).lines == [b"two"]
    files.forget(str(path))
    with pytest.raises(FileNotFoundError):
        tail.size()


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A FIFO, a folder, a device and a symbolic link raise, block no caller and leave nothing open."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    refusals: dict[str, BaseException] = {}

    def look() -> None:
        for path in (tmp_path / "fifo", tmp_path / "folder", Path("/dev/null"), tmp_path / "link"):
            try:
                Tail(str(path), Descriptors(2, keep=True)).read(Position(0), 100)
            except OSError as error:
                refusals[path.name] = error

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()
    assert {name: isinstance(error, NotAFile) for name, error in refusals.items()} == {
        "fifo": True,
        "folder": True,
        "null": True,
        "link": False,
    }
    assert open_files_under(tmp_path) == []


def test_a_file_that_shrank_gives_nothing(tmp_path: Path) -> None:
    """Asked for a position beyond the end a tail gives no line and does not move."""
    path = tmp_path / "f"
    path.write_bytes(b"one\n")
    piece = Tail(str(path), Descriptors(1, keep=True)).read(Position(10), 100)
    assert (piece.lines, piece.end, piece.size, piece.more) == ([], 10, 4, False)


def test_a_hole_of_a_terabyte_is_passed_over_at_once(tmp_path: Path) -> None:
    """A line that is mostly hole costs as much as what was written of it; the line behind it is read."""
    path = tmp_path / "f"
    with open(path, "wb") as out:
        out.write(b'{"a":1}\n')
        out.truncate(1 << 40)
        out.seek(0, os.SEEK_END)
        out.write(b'x\n{"b":2}\n')
    tail, mark, lines, looks = Tail(str(path), Descriptors(1, keep=True)), Position(), [], 0
    while looks < 20 and len(lines) < 2:
        piece = tail.read(mark, 1 << 16)
        lines += piece.lines
        mark, looks = piece.position(piece.end), looks + 1
    assert lines == [b'{"a":1}', b'{"b":2}']


def test_what_takes_the_place_of_a_known_file_is_not_read(tmp_path: Path) -> None:
    """On a network filesystem a known file is opened without a question what it is; a FIFO or folder is found out."""
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    tail = Tail(str(path), Descriptors(1, keep=False, root=str(tmp_path)))
    piece = tail.look(Position(0), 100, check=False, hold_nul=True).piece
    assert piece is not None
    mark = piece.position(piece.end)
    assert tail.look(mark, 100, check=False, hold_nul=True) == (9, None)
    for make in (os.mkfifo, os.mkdir):
        os.rename(path, tmp_path / "former")
        make(path)
        with pytest.raises(NotAFile):
            tail.look(mark, 100, check=False, hold_nul=True)
        path.rmdir() if path.is_dir() else path.unlink()
        os.rename(tmp_path / "former", path)
    with path.open("ab") as file:
        file.write(b'{"a": 2}\n')
    glance = tail.look(mark, 100, check=False, hold_nul=True)
    assert glance.size == 18
    assert glance.piece is not None and glance.piece.lines == [b'{"a": 2}']
