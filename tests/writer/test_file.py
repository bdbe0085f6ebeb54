"""One writer's file through everything a disk can do to it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.file import Disk, LineFile, Part
from tests.kit.cases import few
from tests.writer.reading import whole


class Faulty(Disk):
    """A disk that does as told: `plan` holds, per coming call, an errno to fail with, or how many bytes to write."""

    def __init__(self) -> None:
        self.writes: list[int | tuple[int, int] | None] = []
        self.opens: list[int | None] = []
        self.syncs: list[int | None] = []
        self.synced = 0

    def open(self, path: str, flags: int) -> int:
        if self.opens and (failure := self.opens.pop(0)) is not None:
            raise OSError(failure, os.strerror(failure))
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        plan = self.writes.pop(0) if self.writes else None
        if plan is None:
            return super().write(fd, data)
        if isinstance(plan, int):
            return super().write(fd, data[:plan])
        failure, landed = plan
        if landed:
            super().write(fd, data[:landed])
        raise OSError(failure, os.strerror(failure))

    def sync(self, fd: int) -> None:
        if self.syncs and (failure := self.syncs.pop(0)) is not None:
            raise OSError(failure, os.strerror(failure))
        super().sync(fd)
        self.synced += 1


class Bench:
    """A LineFile on a Faulty disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "rlship"
        self.disk = Faulty()
        self.parts = 0
        self.released = 0
        self.put_bytes = 0
        self.file = LineFile(self.next_part, lambda: ["define\n"], self.release, lambda: 5.0, self.disk, 0.0)

    def next_part(self) -> Part:
        self.parts += 1
        return Part(str(self.folder / f"part{self.parts}.jsonl"), [f"open {self.parts}\n"])

    def release(self, size: int) -> None:
        self.released += size

    def put(self, *lines: str, step: int | None = 1) -> None:
        self.put_bytes += sum(map(len, lines))
        self.file.put(list(lines), [step] * len(lines))

    def write(self, tries: int = 20) -> None:
        """Write until it works."""
        for _ in range(tries):
            try:
                self.file.write_out()
            except OSError:
                continue
            if self.file.idle:
                return
        raise AssertionError("the file did not recover")

    def lines(self, part: int = 1) -> list[str]:
        return whole(self.folder / f"part{part}.jsonl")


def test_short_writes_are_continued_at_the_right_byte(tmp_path: Path) -> None:
    """However few bytes the disk takes at a time, the file holds each line once and whole."""
    bench = Bench(tmp_path)
    bench.disk.writes = [1, 2, 3, 4, 5, 1, 1, 1]
    bench.put("first line\n", "second line\n")
    bench.write()
    assert bench.lines() == ["open 1", "first line", "second line"]
    assert bench.released == bench.put_bytes


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG])
def test_a_full_disk_is_survived_at_the_right_byte(tmp_path: Path, failure: int) -> None:
    """A short write followed by a refusal leaves half a line, and the next attempt writes the other half."""
    bench = Bench(tmp_path)
    bench.write()
    bench.disk.writes = [8, (failure, 0), (failure, 0), None]
    bench.put("first line\n", "second line\n")
    bench.write()
    assert bench.lines() == ["open 1", "first line", "second line"]
    assert bench.released == bench.put_bytes


def test_a_failed_write_that_left_bytes_tears_only_its_line(tmp_path: Path) -> None:
    """An error that reports nothing written although something was: whole lines are not repeated, the torn one is a
    gap.
    """
    bench = Bench(tmp_path)
    bench.write()
    bench.disk.writes = [(errno.EIO, len("first line\n") + 3)]
    bench.put("first line\n", "second line\n", "third line\n", step=7)
    bench.write()
    assert bench.lines() == [
        "open 1",
        "first line",
        "sec",
        '{"kind":"gap","n":1,"from":7,"to":7,"t":5.000}',
        "define",
        "third line",
    ]
    assert bench.released == bench.put_bytes


def test_a_failed_write_that_left_whole_lines_tears_nothing(tmp_path: Path) -> None:
    """If what landed ends with a line, writing goes on behind it."""
    bench = Bench(tmp_path)
    bench.write()
    bench.disk.writes = [(errno.EIO, len("first line\n"))]
    bench.put("first line\n", "second line\n")
    bench.write()
    assert bench.lines() == ["open 1", "first line", "second line"]


def test_a_torn_header_is_written_again(tmp_path: Path) -> None:
    """Without its header a file would be of no use, so it is repeated on a line of its own."""
    bench = Bench(tmp_path)
    bench.disk.writes = [(errno.EIO, 3)]
    bench.put("first line\n")
    bench.write()
    assert bench.lines() == ["ope", "open 1", "first line"]


def test_a_failed_sync_starts_a_new_line_with_a_gap(tmp_path: Path) -> None:
    """After a failed fdatasync the lines since the last good one are in doubt: told, not written twice."""
    bench = Bench(tmp_path)
    bench.write()
    bench.file.sync()
    bench.put("safe\n")
    bench.write()
    bench.file.sync()
    bench.put("doubtful\n", step=3)
    bench.put("doubtful too\n", step=4)
    bench.write()
    bench.disk.syncs = [errno.EIO]
    with pytest.raises(OSError, match="Input/output"):
        bench.file.sync()
    bench.put("after\n")
    bench.write()
    bench.file.sync()
    assert bench.lines() == [
        "open 1",
        "safe",
        "doubtful",
        "doubtful too",
        "",
        '{"kind":"gap","n":2,"from":3,"to":4,"t":5.000}',
        "define",
        "after",
    ]
    assert bench.disk.synced == 3


def test_a_failed_first_sync_begins_a_new_file(tmp_path: Path) -> None:
    """If the header itself may be lost, a file of its own is begun, with a gap for what is in doubt."""
    bench = Bench(tmp_path)
    bench.put("doubtful\n", step=3)
    bench.write()
    bench.disk.syncs = [errno.EIO]
    with pytest.raises(OSError, match="Input/output"):
        bench.file.sync()
    bench.put("after\n")
    bench.write()
    assert bench.lines(2) == ["open 2", '{"kind":"gap","n":1,"from":3,"to":3,"t":5.000}', "after"]


def test_a_filesystem_without_sync_is_no_failure(tmp_path: Path) -> None:
    """EINVAL means that there is nothing to sync, not that anything was lost."""
    bench = Bench(tmp_path)
    bench.put("a\n")
    bench.write()
    bench.disk.syncs = [errno.EINVAL]
    bench.file.sync()
    bench.put("b\n")
    bench.write()
    assert bench.lines() == ["open 1", "a", "b"]


@pytest.mark.parametrize("failure", [errno.ESTALE, errno.ENOTCONN, errno.ENODEV])
def test_a_stale_handle_is_opened_again_by_its_path(tmp_path: Path, failure: int) -> None:
    """A mount that comes back with the file as it was goes on at the right byte in the same file."""
    bench = Bench(tmp_path)
    bench.write()
    bench.disk.writes = [5, (failure, 0)]
    bench.disk.opens = [errno.ENOENT]
    bench.put("first line\n", "second line\n")
    (tmp_path / "away").mkdir()
    hidden = tmp_path / "away" / "rlship"
    with pytest.raises(OSError, match=os.strerror(failure)):
        bench.file.write_out()
    bench.folder.rename(hidden)
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            bench.file.write_out()
    hidden.rename(bench.folder)
    bench.write()
    assert bench.lines() == ["open 1", "first line", "second line"]
    assert bench.parts == 1


def test_a_mount_that_comes_back_shorter_is_told(tmp_path: Path) -> None:
    """If the file lost its tail while it was away, an LF ends what is there and a gap names the lines in doubt."""
    bench = Bench(tmp_path)
    bench.write()
    bench.file.sync()
    bench.put("one line\n", "two line\n", step=6)
    bench.disk.writes = [None, (errno.ESTALE, 0)]
    bench.write()
    bench.put("three line\n", step=7)
    with pytest.raises(OSError, match="Stale"):
        bench.file.write_out()
    path = bench.folder / "part1.jsonl"
    os.truncate(path, path.stat().st_size - 6)
    bench.write()
    assert bench.lines() == [
        "open 1",
        "one line",
        "two",
        '{"kind":"gap","n":2,"from":6,"to":6,"t":5.000}',
        "define",
        "three line",
    ]


def test_a_file_that_is_cut_under_its_writer_is_told(tmp_path: Path) -> None:
    """A file that another hand cuts in the midst of a line keeps the next line whole; a gap names those in doubt."""
    bench = Bench(tmp_path)
    bench.write()
    bench.file.forget_unsynced()
    bench.put("one line\n", "two line\n", step=6)
    bench.write()
    path = bench.folder / "part1.jsonl"
    os.truncate(path, path.stat().st_size - 6)
    bench.put("three line\n", step=7)
    bench.write()
    assert bench.lines() == [
        "open 1",
        "one line",
        "two",
        '{"kind":"gap","n":2,"from":6,"to":6,"t":5.000}',
        "define",
        "three line",
    ]


def test_a_file_that_is_gone_for_good_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    """A file removed under a running job is noticed, and a new part with its own header holds what follows."""
    bench = Bench(tmp_path)
    bench.put("first line\n")
    bench.write()
    (bench.folder / "part1.jsonl").unlink()
    bench.put("second line\n")
    bench.write()
    assert [path.name for path in bench.folder.iterdir()] == ["part2.jsonl"]
    assert bench.lines(2)[-1] == "second line"
    assert bench.lines(2)[0] == "open 2"


def test_a_file_that_nobody_finds_under_its_name_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    """An NFS client gives a removed file another name while it is open: lines since the last look are reported as
    lost.
    """
    bench = Bench(tmp_path)
    bench.put("first line\n", step=1)
    bench.write()
    bench.file.forget_unsynced()
    bench.write()
    bench.put("second line\n", "third line\n", step=2)
    bench.write()
    bench.file.forget_unsynced()
    (bench.folder / "part1.jsonl").rename(bench.folder / ".nfs0001")
    bench.put("fourth line\n", step=3)
    bench.write()
    assert bench.lines(2) == ["open 2", '{"kind":"gap","n":2,"from":2,"to":2,"t":5.000}', "fourth line"]
    assert whole(bench.folder / ".nfs0001") == ["open 1", "first line", "second line", "third line"]


def test_a_folder_that_got_a_new_name_keeps_its_file(tmp_path: Path) -> None:
    """A user renames the experiment while the job runs: the file goes on where it is found now."""
    bench = Bench(tmp_path / "job")
    bench.put("first line\n")
    bench.write()
    (tmp_path / "job").rename(tmp_path / "renamed")
    bench.put("second line\n")
    bench.write()
    assert whole(tmp_path / "renamed" / "rlship" / "part1.jsonl") == ["open 1", "first line", "second line"]
    assert not (tmp_path / "job").exists()


def test_a_line_begun_in_a_lost_file_starts_afresh_in_the_new_one(tmp_path: Path) -> None:
    """Half a line in a file that is gone is written whole into the next."""
    bench = Bench(tmp_path)
    bench.write()
    bench.disk.writes = [4, (errno.ESTALE, 0)]
    bench.put("first line\n", "second line\n")
    with pytest.raises(OSError, match="Stale"):
        bench.file.write_out()
    (bench.folder / "part1.jsonl").unlink()
    bench.write()
    assert bench.lines(2) == ["open 2", "first line", "second line"]


def test_an_existing_file_is_never_written_to(tmp_path: Path) -> None:
    """If the name is taken, another one is chosen."""
    bench = Bench(tmp_path)
    bench.folder.mkdir()
    (bench.folder / "part1.jsonl").write_text("another program's\n")
    bench.put("mine\n")
    bench.write()
    assert bench.lines(1) == ["another program's"]
    assert bench.lines(2) == ["open 2", "mine"]


def test_a_descriptor_that_someone_else_reused_is_not_written_to(tmp_path: Path) -> None:
    """A program that closes all descriptors and opens a file of its own finds no log lines in it."""
    bench = Bench(tmp_path)
    bench.put("first line\n")
    bench.write()
    fd = bench.file._fd
    opened = os.open(tmp_path / "foreign", os.O_WRONLY | os.O_CREAT)
    os.dup2(opened, fd)
    os.close(opened)
    os.write(fd, b"mine")
    bench.put("second line\n")
    bench.write()
    os.close(fd)
    assert (tmp_path / "foreign").read_bytes() == b"mine"
    assert bench.lines() == ["open 1", "first line", "second line"]


def test_a_closed_descriptor_is_replaced(tmp_path: Path) -> None:
    """A program that closes all descriptors costs no line."""
    bench = Bench(tmp_path)
    bench.put("first line\n")
    bench.write()
    os.close(bench.file._fd)
    bench.put("second line\n")
    bench.write()
    assert bench.lines() == ["open 1", "first line", "second line"]


def test_a_folder_that_cannot_be_made_yet_is_tried_again(tmp_path: Path) -> None:
    """A mount that is not there at the start is waited for, and nothing that was logged meanwhile is lost."""
    bench = Bench(tmp_path)
    bench.folder.write_text("in the way")
    bench.put("first line\n")
    with pytest.raises(OSError, match=r"exists|directory"):
        bench.file.write_out()
    bench.folder.unlink()
    bench.write()
    assert bench.lines() == ["open 1", "first line"]


FAULTS = st.one_of(
    st.none(),
    st.integers(1, 30),
    st.tuples(st.sampled_from([errno.ENOSPC, errno.EIO, errno.ESTALE]), st.integers(0, 40)),
)


@settings(max_examples=few(150), deadline=None)
@given(
    rounds=st.lists(
        st.tuples(st.integers(1, 4), st.lists(FAULTS, max_size=6), st.booleans(), st.booleans()), max_size=6
    )
)
def test_no_line_is_written_twice_and_none_is_lost_untold(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[int, list[Any], bool, bool]]
) -> None:
    """Under any sequence of short writes, errors and failed syncs: every line is there at most once, and every missing
    one is in a gap.
    """
    bench = Bench(tmp_path_factory.mktemp("faults"))
    bench.write()
    bench.file.sync()
    count = 0
    for lines, faults, sync, fails in rounds:
        bench.disk.writes = list(faults)
        for _ in range(lines):
            bench.put(json.dumps({"line": count, "pad": "x" * 10}) + "\n", step=count)
            count += 1
        bench.write(tries=50)
        if sync:
            bench.disk.syncs = [errno.EIO if fails else None]
            try:
                bench.file.sync()
            except OSError:
                bench.write()
    bench.write()
    seen, told = [], 0
    for line in bench.lines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "line" in record:
            seen.append(record["line"])
        else:
            assert 0 <= record["from"] <= record["to"] < count
            told += record["n"]
    assert seen == sorted(set(seen))
    assert count - len(seen) <= told
    assert bench.released == bench.put_bytes
    bench.file.close()
