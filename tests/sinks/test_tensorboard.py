"""Event files, as TensorBoard reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tensorboardX.record_writer import masked_crc32c

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import tfevents
from rlship_sidecar.sinks.contract import Run, SinkRefused
from rlship_sidecar.sinks.tensorboard import TensorBoardSink, event
from tests.sinks.readback import tensorboard_points
from tests.sinks.rows import T0, make_row, make_rows, make_run


def fill(run: Run, rows: list[Row]) -> Path:
    sink = TensorBoardSink()
    sink.open(run)
    sink.write(rows)
    sink.flush()
    sink.close()
    return Path(sink.where)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_row_is_one_event() -> None:
    """Step from the row's own axis, time from the records, every number a scalar, no text."""
    made = event(make_row(3, step=40, axis="env_step", figures={"trainer/loss": 0.5}, missing=("0.2",)))

    assert (made.step, made.wall_time) == (40, T0 + 3)
    assert {value.tag: value.simple_value for value in made.summary.value} == {
        "env_step": 40.0,
        "trainer/loss": 0.5,
        "trainer/ranks/in": 2.0,
        "trainer/ranks/expected": 3.0,
        "trainer/ranks/missing": 1.0,
    }


def test_the_framing_is_tensorflows() -> None:
    """Length, masked CRC-32C of the length, data, masked CRC-32C of the data; all little-endian."""
    header = struct.pack("<Q", 3)
    expected = header + struct.pack("<I", masked_crc32c(header)) + b"abc" + struct.pack("<I", masked_crc32c(b"abc"))

    assert tfevents.encode(b"abc") == expected
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_points_survive_steps_that_go_back(tmp_path: Path) -> None:
    """A late revision of step 2 after step 900, in one file and over restarts, takes no later point away."""
    steps = [900, 901, 2, 902, 3, 903]
    rows = [make_row(no, step=step) for no, step in enumerate(steps)]
    folder = fill(make_run(tmp_path), rows[:4])
    fill(make_run(tmp_path), rows[4:])

    assert [step for step, _ in tensorboard_points(folder, "trainer/loss")] == steps


def test_a_row_without_figures_counts(tmp_path: Path) -> None:
    """A point that has only coverage is a point, so that rows and events stay in step."""
    fill(make_run(tmp_path), [make_row(0, figures={}), make_row(1)])

    assert TensorBoardSink().open(make_run(tmp_path)) == 2


def test_restarts_without_rows_leave_no_files(tmp_path: Path) -> None:
    """A part is made with its first row."""
    folder = fill(make_run(tmp_path), make_rows(0, 1))
    for _ in range(3):
        sink = TensorBoardSink()
        sink.open(make_run(tmp_path))
        sink.close()

    assert [path.name for path in parts(folder)] == ["events.out.tfevents.00000000.rlship.store1"]


def test_a_tail_torn_at_any_byte_is_cut(tmp_path: Path) -> None:
    """Wherever a crash tore the last event, it is lacking, its rest is gone, and the next part goes on there."""
    folder = fill(make_run(tmp_path), make_rows(0, 3))
    (path,) = parts(folder)
    whole = path.read_bytes()
    *_, before, _ = tfevents.frames(path)
    for cut in range(before.end, len(whole)):
        path.write_bytes(whole[:cut])
        assert TensorBoardSink().open(make_run(tmp_path)) == 2
        assert path.read_bytes() == whole[: before.end]

    fill(make_run(tmp_path), make_rows(2, 4))
    assert tensorboard_points(folder, "trainer/loss") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]


def test_bytes_that_never_reached_the_disk_are_cut(tmp_path: Path) -> None:
    """A power cut may leave zeros or old data inside the last records: their checksums tell."""
    folder = fill(make_run(tmp_path), make_rows(0, 4))
    (path,) = parts(folder)
    records = list(tfevents.frames(path))
    whole = path.read_bytes()
    for kept, damaged in ((2, records[3]), (1, records[2]), (0, records[1])):
        path.write_bytes(whole[: damaged.start + 2] + bytes(len(whole) - damaged.start - 2))
        assert TensorBoardSink().open(make_run(tmp_path)) == kept


def test_a_part_torn_before_its_first_event_counts_nothing(tmp_path: Path) -> None:
    """A crash while the first bytes of a part were written leaves a part of no rows, which a later one follows."""
    folder = fill(make_run(tmp_path), make_rows(0, 2))
    (folder / "events.out.tfevents.00000002.rlship.store1").write_bytes(b"\x18\x00\x00")
    fill(make_run(tmp_path), make_rows(2, 3))

    assert len(parts(folder)) == 2
    assert TensorBoardSink().open(make_run(tmp_path)) == 3


def test_damage_in_an_earlier_part_is_refused(tmp_path: Path) -> None:
    """Cutting there would shift all later rows: the folder has to be written anew, and the error says so."""
    folder = fill(make_run(tmp_path), make_rows(0, 2))
    fill(make_run(tmp_path), make_rows(2, 3))
    first = parts(folder)[0]
    first.write_bytes(first.read_bytes()[:-1])

    with pytest.raises(SinkRefused, match=r"00000000.*damaged.*move .* away"):
        TensorBoardSink().open(make_run(tmp_path))


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    """A trainer's own event files may lie beside ours; they are neither counted nor touched."""
    folder = fill(make_run(tmp_path, dir="tb"), make_rows(0, 1))
    other = folder / "events.out.tfevents.1763600000.host"
    other.write_bytes(b"theirs")
    fill(make_run(tmp_path, dir="tb"), make_rows(1, 2))

    assert folder == tmp_path / "tb"
    assert other.read_bytes() == b"theirs"
    assert TensorBoardSink().open(make_run(tmp_path, dir="tb")) == 2


def test_only_the_end_of_a_long_file_is_checked_byte_by_byte(tmp_path: Path) -> None:
    """Data before the checked tail is stepped over by its length, so that a long history does not slow the start."""
    path = tmp_path / "events"
    path.write_bytes(b"".join(tfevents.encode(b"x" * 100) for _ in range(10)))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)

    assert len(list(tfevents.frames(path))) == 0
    assert len(list(tfevents.frames(path, checked_tail=200))) == 10


def test_a_folder_option_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    """The error names the option, the value and what is allowed."""
    with pytest.raises(SinkRefused, match=r"dir is 3; allowed: a folder"):
        TensorBoardSink().open(make_run(tmp_path, dir=3))
