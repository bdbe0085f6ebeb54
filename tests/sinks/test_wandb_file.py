"""The reader of `.wandb` files, against a writer of its own kind."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.sinks.wandb.file import MAGIC, HeldRows, RecordReader, history, store_of
from tests.kit.cases import few
from tests.sinks.wandb_log import encode, exit_record, history_record, run_record


@settings(max_examples=few(60))
@given(sizes=st.lists(st.sampled_from([0, 1, 100, 32747, 32748, 32754, 32755, 32761, 40000, 70000]), max_size=6))
def test_records_come_back_wherever_blocks_end(sizes: list[int]) -> None:
    """Records of any size, over any number of blocks, with any padding before a block's end, come back whole."""
    records = [bytes([no + 1]) * size for no, size in enumerate(sizes)]
    with tempfile.NamedTemporaryFile() as file:
        file.write(encode(records))
        file.flush()
        assert list(RecordReader(Path(file.name)).read()) == records


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    """Cut anywhere, the file gives the whole records so far; the rest comes when it is there, each once."""
    records = [b"a" * 50, b"b" * 40000, b"c" * 10]
    whole = encode(records)
    path = tmp_path / "x.wandb"
    for cut in [*range(80), 20000, 32767, 32768, 32775, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        reader = RecordReader(path)
        before = list(reader.read())
        path.write_bytes(whole)
        assert before + list(reader.read()) == records
        assert list(reader.read()) == []


def test_a_damaged_record_ends_the_reading(tmp_path: Path) -> None:
    """What follows a wrong checksum cannot be trusted."""
    whole = bytearray(encode([b"a" * 50, b"b" * 50, b"c" * 50]))
    whole[len(MAGIC) + 57 + 20] ^= 1
    path = tmp_path / "x.wandb"
    path.write_bytes(whole)

    assert list(RecordReader(path).read()) == [b"a" * 50]


def test_a_chunk_out_of_place_ends_the_reading(tmp_path: Path) -> None:
    """The middle or end of a record whose beginning is not there is no record."""
    path = tmp_path / "x.wandb"
    for kind in (3, 4):
        chunk = struct.pack("<IHB", zlib.crc32(bytes([kind]) + b"rest"), 4, kind) + b"rest"
        path.write_bytes(MAGIC + chunk)
        assert list(RecordReader(path).read()) == []


def test_no_file_and_another_format_hold_nothing(tmp_path: Path) -> None:
    """A file that is not there yet, and one that is no `.wandb` file, have no records."""
    path = tmp_path / "x.wandb"
    assert list(RecordReader(path).read()) == []
    path.write_bytes(b"something else, and long enough")
    assert list(RecordReader(path).read()) == []


def test_held_rows(tmp_path: Path) -> None:
    """Rows are counted as long as `_step` is their number; store and end of the run are known."""
    path = tmp_path / "x.wandb"
    rows = [history_record(_step=no, loss=0.5) for no in range(3)]
    path.write_bytes(encode([run_record("store1"), *rows[:2]]))
    held = HeldRows(path).update()
    assert (held.rows, held.whole, held.store_id, held.finished) == (2, True, "store1", False)
    assert store_of(path) == "store1" and store_of(tmp_path / "none") is None

    path.write_bytes(encode([run_record("store1"), *rows, exit_record()]))
    held.update()
    assert (held.rows, held.whole, held.finished) == (3, True, True)
    assert list(history(path)) == [{"_step": no, "loss": 0.5} for no in range(3)]


def test_a_row_out_of_turn_makes_the_file_not_whole(tmp_path: Path) -> None:
    """A gap or a repetition is noticed, not counted over."""
    path = tmp_path / "x.wandb"
    for steps, rows in (((0, 2), 1), ((0, 1, 1), 2), ((1,), 0)):
        path.write_bytes(encode([history_record(_step=step) for step in steps]))
        held = HeldRows(path).update()
        assert (held.rows, held.whole) == (rows, False)
