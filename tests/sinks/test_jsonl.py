"""The file of rows: its format, torn tails, and files that are not ours."""

from __future__ import annotations

import os
from pathlib import Path

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
    """One line a row, as `Row.to_json` writes it, and the id of the store beside the file."""
    row = make_row(0, figures={"trainer/loss": 0.5}, missing=("0.2",))
    path = fill(make_run(tmp_path), [row])

    assert path == tmp_path / "rlship" / "state" / "rows.jsonl"
    assert path.read_bytes() == (
        b'{"row":0,"actor":"trainer","kind":"step","index":0,"t":1763600000.0,"x":{"global_step":0},'
        b'"m":{"trainer/loss":0.5},"coverage":{"ranks":["0.0-1"],"expected":3,"missing":["0.2"],"absent":[],'
        b'"attempts":[0],"gap":0,"underivable":[]},"arrival":{"revision":0,"changed":[],"closed":"complete"}}\n'
    )
    assert path.with_name("rows.jsonl.store").read_text() == "store1\n"


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


@pytest.mark.parametrize("line", [b"{}\n", b"nonsense\n", b'{"row":7}\n', b"[1]\n", b"\n"])
def test_a_line_that_is_not_the_next_row_refuses_the_file(tmp_path: Path, line: bytes) -> None:
    """A file that somebody edited is not continued; the error names the place and the way out."""
    path = fill(make_run(tmp_path), make_rows(0, 2))
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(line)

    sink = JsonlSink()
    with pytest.raises(SinkRefused, match=rf"byte {size}: here should be row 2.*move the file away"):
        sink.open(make_run(tmp_path))
    sink.close()
    assert path.read_bytes().endswith(line)


def test_a_file_without_its_mark_is_refused(tmp_path: Path) -> None:
    """Rows of unknown origin are not continued."""
    path = fill(make_run(tmp_path), make_rows(0, 2))
    os.unlink(path.with_name("rows.jsonl.store"))

    with pytest.raises(SinkRefused, match="unknown store"):
        JsonlSink().open(make_run(tmp_path))


def test_an_empty_file_may_be_taken_over(tmp_path: Path) -> None:
    """A store may begin in the file of another one that holds no row."""
    path = fill(make_run(tmp_path, store_id="old"), [])
    fill(make_run(tmp_path, store_id="new"), make_rows(0, 1))

    assert path.with_name("rows.jsonl.store").read_text() == "new\n"


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
    (tmp_path / "rlship").write_text("a file where the folder should be")

    with pytest.raises(SinkUnavailable, match=r"rows\.jsonl"):
        JsonlSink().open(make_run(tmp_path))
