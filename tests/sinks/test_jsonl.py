"""The file of rows: its format, torn tails, and files that are not ours."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.jsonl import JsonlSink
from tests.sinks.readback import jsonl_numbers
from tests.sinks.rows import make_row, make_rows, make_run


def fill(run: Run, rows: list[Row]) -> Path:
    sink = JsonlSink()
    sink.open(run)
    sink.write(rows)
    sink.flush()
    sink.close()
    return Path(sink.where)


def test_the_format_is_pinned(tmp_path: Path) -> None:
    """One line a row, as `Row.to_json` writes it, and beside the file a name that says whose it is."""
    row = make_row(0, values={"trainer/loss": 0.5}, missing=("0.2",))
    path = fill(make_run(tmp_path), [row])

    assert path == tmp_path / "rlship" / "state" / "rows.jsonl"
    assert path.read_bytes() == (
        b'{"row":0,"actor":"trainer","kind":"step","index":0,"t":1763600000.0,"x":{"global_step":0},'
        b'"m":{"trainer/loss":0.5},"coverage":{"ranks":["0.0-1"],"expected":3,"missing":["0.2"],"absent":[],'
        b'"attempts":[0],"gap":0,"underivable":[]},"arrival":{"revision":0,"changed":[],"closed":"complete"}}\n'
    )
    assert [found.name for found in sorted(path.parent.iterdir())] == ["rows.jsonl", "rows.jsonl.store1.0.owner"]


def test_the_rows_come_back_as_they_went(tmp_path: Path) -> None:
    """`Row.from_json` of each line gives the row, arrival included."""
    rows = [make_row(0), make_row(1, step=0, revision=1, changed=("trainer/loss",))]
    path = fill(make_run(tmp_path), rows)
    back = [Row.from_json(line) for line in path.read_bytes().splitlines()]

    assert back == rows
    assert [row.arrival for row in back] == [row.arrival for row in rows]


def test_a_tail_torn_at_any_byte_is_cut(tmp_path: Path) -> None:
    """Wherever a crash tore the last line, exactly that line is lacking afterwards and nothing of it is left."""
    path = fill(make_run(tmp_path), make_rows(0, 3))
    whole = path.read_bytes()
    begin = whole[:-1].rindex(b"\n") + 1
    for cut in range(begin, len(whole)):
        path.write_bytes(whole[:cut])
        sink = JsonlSink()
        assert sink.open(make_run(tmp_path)) == 2
        assert path.read_bytes() == whole[:begin]
        sink.write(make_rows(2, 3))
        sink.close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{}\n", b"nonsense\n", b'{"row":7}\n', b"[1]\n", b"\n", b"\x00" * 99 + b"\n"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_from_a_line_that_is_not_its_row_the_file_is_written_again(
    tmp_path: Path, line: bytes, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of this store that was edited or damaged is cut there and written on; that is said once, with the byte."""
    path = fill(make_run(tmp_path), make_rows(0, 3))
    lines = path.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[:place])
    path.write_bytes(kept + line + b"".join(lines[place + 1 :]))

    sink = JsonlSink()
    assert sink.open(make_run(tmp_path)) == place
    sink.write(make_rows(place, 3))
    sink.close()
    assert path.read_bytes() == b"".join(lines)
    (said,) = caplog.messages
    assert f"rows.jsonl, byte {len(kept)}: here should be row {place}, but it is " in said


def test_a_file_without_its_mark_is_refused(tmp_path: Path) -> None:
    """Rows of unknown origin are not continued."""
    path = fill(make_run(tmp_path), make_rows(0, 2))
    os.unlink(path.with_name("rows.jsonl.store1.0.owner"))

    with pytest.raises(SinkRefused, match="unknown store"):
        JsonlSink().open(make_run(tmp_path))


def test_an_empty_file_may_be_taken_over(tmp_path: Path) -> None:
    """A store may begin in the file of another one that holds no row."""
    path = fill(make_run(tmp_path, store_id="old"), [])
    fill(make_run(tmp_path, store_id="new"), make_rows(0, 1))

    assert jsonl_numbers(path) == [0]
    assert [found.name for found in sorted(path.parent.iterdir())] == ["rows.jsonl", "rows.jsonl.new.0.owner"]


def test_the_path_can_be_set(tmp_path: Path) -> None:
    """`path` is relative to the experiment, or absolute."""
    relative = fill(make_run(tmp_path, path="out/x.jsonl"), make_rows(0, 1))
    absolute = fill(make_run(tmp_path, path=str(tmp_path / "y.jsonl")), make_rows(0, 2))

    assert relative == tmp_path / "out" / "x.jsonl"
    assert jsonl_numbers(relative) == [0] and jsonl_numbers(absolute) == [0, 1]


@pytest.mark.parametrize("value", ["", 7, None])
def test_a_path_must_be_a_name(tmp_path: Path, value: object) -> None:
    """A wrong type is refused with the value; None is the default."""
    run = make_run(tmp_path, path=value)
    if value is None:
        fill(run, [])
    else:
        with pytest.raises(SinkRefused, match=f"path is {value!r}"):
            JsonlSink().open(run)


def test_a_folder_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    """What an administrator may repair while we run is tried again, not refused."""
    run = make_run(tmp_path)
    run.state_dir.rmdir()
    run.state_dir.write_text("a file where the folder should be")

    with pytest.raises(SinkUnavailable, match=r"rows\.jsonl"):
        JsonlSink().open(run)


def change(path: Path, how: str) -> None:
    """What another hand may do to the file while it is written."""
    if how == "deleted":
        path.unlink()
    elif how == "replaced":
        os.replace(shutil.copy(path, path.with_name("other")), path)
    elif how == "shortened":
        os.truncate(path, path.stat().st_size - 5)
    else:
        with open(path, "ab") as file:
            file.write(b"a note\n")


@pytest.mark.parametrize("at", ["write", "flush"])
@pytest.mark.parametrize("how", ["deleted", "replaced", "shortened", "lengthened"])
def test_a_file_that_is_changed_while_it_is_written_is_mended(tmp_path: Path, how: str, at: str) -> None:
    """A deleted, replaced or edited file is noticed before the next rows go there, and before rows count as delivered;
    after the next `open` each row is there once.
    """
    sink = JsonlSink()
    sink.open(make_run(tmp_path))
    sink.write(make_rows(0, 3))
    path = Path(sink.where)
    change(path, how)
    with pytest.raises(SinkUnavailable, match=r"rows\.jsonl"):
        sink.write(make_rows(3, 4)) if at == "write" else sink.flush()
    sink.close()

    answer = sink.open(make_run(tmp_path))
    assert answer is not None
    sink.write(make_rows(answer, 4))
    sink.flush()
    sink.close()
    assert path.read_bytes() == b"".join(row.to_json() + b"\n" for row in make_rows(0, 4))


def test_a_file_with_a_later_owner_is_refused(tmp_path: Path) -> None:
    """Where a later sidecar of the same store writes, an earlier one does not, and learns the generation."""
    fill(replace(make_run(tmp_path), generation=5), make_rows(0, 2))
    sink = JsonlSink()
    with pytest.raises(SinkRefused, match=r"generation 5.*this one has generation 4"):
        sink.open(replace(make_run(tmp_path), generation=4))
    sink.close()
    assert sink.open(replace(make_run(tmp_path), generation=6)) == 2
    sink.close()
    assert sorted(found.name for found in (tmp_path / "rlship" / "state").iterdir()) == [
        "rows.jsonl",
        "rows.jsonl.store1.6.owner",
    ]


@pytest.mark.parametrize(("suspect", "copied"), [(-1, False), (3, False), (5, True), (6, True)])
def test_only_a_predecessor_that_may_be_alive_costs_a_copy(tmp_path: Path, suspect: int, copied: bool) -> None:
    """The file keeps its inode unless a sidecar that had it open may wake up; the copy has the same bytes and mode."""
    path = fill(replace(make_run(tmp_path), generation=5), make_rows(0, 2))
    path.chmod(0o640)
    before, data = path.stat().st_ino, path.read_bytes()
    sink = JsonlSink()
    run = replace(make_run(tmp_path), generation=7, suspect=suspect)
    assert sink.open(run) == 2
    sink.close()
    assert (path.stat().st_ino != before) == copied
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (data, 0o640)

    again = path.stat().st_ino
    assert sink.open(run) == 2
    sink.close()
    assert path.stat().st_ino == again, "once is enough"


@pytest.mark.parametrize("kind", ["device", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A device or a FIFO under the name stays what it is, and nothing is put beside it."""
    path = tmp_path / "there"
    if kind == "fifo" or os.geteuid() != 0:
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    before = os.lstat(path)
    with pytest.raises(SinkRefused, match="is not a regular file"):
        JsonlSink().open(make_run(tmp_path, path="there"))
    assert os.path.samestat(os.lstat(path), before)
    assert [found.name for found in tmp_path.iterdir() if found.name.startswith("there")] == ["there"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """A path that is a link stays one: what it leads to is written, and replaced where that is called for."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "rows.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("disk/rows.jsonl")
    for generation in range(2):
        sink = JsonlSink()
        run = replace(make_run(tmp_path, path="link.jsonl"), generation=generation, suspect=generation - 1)
        assert sink.open(run) == generation
        sink.write(make_rows(generation, generation + 1))
        sink.close()
    assert (tmp_path / "link.jsonl").is_symlink()
    assert jsonl_numbers(tmp_path / "disk" / "rows.jsonl") == [0, 1]


def test_a_full_disk_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of a batch when the disk was full is cut at the next `open`, and each row is there once."""
    sink = JsonlSink()
    sink.open(make_run(tmp_path))
    sink.write(make_rows(0, 2))
    real = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) // 2], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(SinkUnavailable, match="No space left"):
            sink.write(make_rows(2, 5))
    sink.close()
    answer = sink.open(make_run(tmp_path))
    assert answer is not None and 2 <= answer < 5
    sink.write(make_rows(answer, 5))
    sink.close()
    assert jsonl_numbers(Path(sink.where)) == list(range(5))
