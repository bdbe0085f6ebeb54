"""Event files, as TensorBoard reads them."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard import data_compat  # type: ignore[import-untyped, unused-ignore]
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)
from tensorboard.compat.proto.event_pb2 import Event as SummaryEvent  # type: ignore[import-untyped, unused-ignore]
from tensorboard.util import tensor_util  # type: ignore[import-untyped, unused-ignore]
from tensorboardX.record_writer import masked_crc32c

from rlship_formats.values import Histogram
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.ship import Shipper
from rlship_sidecar.sinks.tensorboard import again
from rlship_sidecar.sinks.tensorboard import events as tfevents
from rlship_sidecar.sinks.tensorboard import sink as tensorboard
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink, event
from tests.kit.board import default_charts
from tests.kit.waiting import wait_until
from tests.sinks.readback import run_folder, tensorboard_events, tensorboard_points
from tests.sinks.rows import T0, MemorySource, make_row, make_rows, make_run
from tests.sinks.test_jsonl import change


def fill(run: Run, rows: list[Row]) -> Path:
    sink = TensorBoardSink()
    sink.open(run)
    sink.write(rows)
    sink.flush()
    sink.close()
    return Path(sink.where)


def parts(folder: Path) -> list[Path]:
    return sorted(run_folder(folder).glob("events.*"))


def test_a_row_is_one_event() -> None:
    """Step from the row's own axis, time from the records, every number a scalar, no text."""
    made = event(make_row(3, step=40, axis="env_step", values={"trainer/loss": 0.5}, missing=("0.2",)))

    assert (made.step, made.wall_time) == (40, T0 + 3)
    assert {value.tag: value.simple_value for value in made.summary.value} == {
        "aa_headline/trainer/loss": 0.5,
        "zz_rlship/trainer/ranks/in": 2.0,
        "zz_rlship/trainer/ranks/expected": 3.0,
        "zz_rlship/trainer/ranks/missing": 1.0,
        "zz_rlship/trainer/ranks/short": 0.0,
    }


def test_the_framing_is_tensorflows() -> None:
    """Length, masked CRC-32C of the length, data, masked CRC-32C of the data; all little-endian."""
    header = struct.pack("<Q", 3)
    expected = header + struct.pack("<I", masked_crc32c(header)) + b"abc" + struct.pack("<I", masked_crc32c(b"abc"))

    assert tfevents.encode(b"abc") == expected
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_points_survive_steps_that_go_back(tmp_path: Path) -> None:
    """A late revision of step 2 after step 900, in one file and over restarts, takes no later point away: the reader of
    `--load_fast false` has all of them, in the order of steps.
    """
    steps = [900, 901, 2, 902, 3, 903]
    rows = [make_row(no, step=step) for no, step in enumerate(steps)]
    folder = fill(make_run(tmp_path), rows[:4])
    fill(make_run(tmp_path), rows[4:])

    assert [step for step, _ in tensorboard_points(folder, "aa_headline/trainer/loss")] == sorted(steps)


def test_a_row_without_figures_counts(tmp_path: Path) -> None:
    """A point that has only coverage is a point, so that rows and events stay in step."""
    fill(make_run(tmp_path), [make_row(0, values={}), make_row(1)])

    assert TensorBoardSink().open(make_run(tmp_path)) == 2


def test_restarts_without_rows_leave_no_files(tmp_path: Path) -> None:
    """A part is made with its first row."""
    folder = fill(make_run(tmp_path), make_rows(0, 1))
    for _ in range(3):
        sink = TensorBoardSink()
        sink.open(make_run(tmp_path))
        sink.close()

    assert [path.name for path in parts(folder)] == ["events.out.tfevents.00000000.rlship.store1.0"]


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
    assert tensorboard_points(folder, "aa_headline/trainer/loss") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]


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
    (run_folder(folder) / "events.out.tfevents.00000002.rlship.store1.0").write_bytes(b"\x18\x00\x00")
    fill(make_run(tmp_path), make_rows(2, 3))

    assert len(parts(folder)) == 2
    assert TensorBoardSink().open(make_run(tmp_path)) == 3


DAMAGES = ("cut", "zeros", "missing", "twice", "of no row")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", [0, 1])
def test_parts_that_do_not_fit_together_are_written_again(
    tmp_path: Path, which: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """From the first row that a damaged or missing part lacks on, the parts are written anew: each row once."""
    for first in range(0, 6, 2):
        folder = fill(make_run(tmp_path), make_rows(first, first + 2))
    path = parts(folder)[which]
    data = path.read_bytes()
    damaged = {
        "cut": data[:-1],
        "zeros": bytes(len(data)),
        "missing": None,
        "twice": data + data,
        "of no row": data[: next(iter(tfevents.frames(path))).end],
    }[how]
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)

    sink = TensorBoardSink()
    answer = sink.open(make_run(tmp_path))
    assert answer is not None and 2 * which <= answer <= 2 * which + 2
    sink.write(make_rows(answer, 6))
    sink.flush()
    sink.close()
    assert tensorboard_events(folder) == [event(row) for row in make_rows(0, 6)]
    (said,) = caplog.messages
    assert f"written again from the store, from row {answer} on" in said
    assert TensorBoardSink().open(make_run(tmp_path)) == 6


def test_a_long_life_is_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is ended at its size, so that a copy of one is cheap; together they hold every row once, in order."""
    monkeypatch.setattr(tensorboard, "PART_BYTES", 1000)
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path))
    for first in range(0, 100, 5):
        sink.write(make_rows(first, first + 5))
    sink.flush()
    sink.close()
    folder = Path(sink.where)
    assert len(parts(folder)) > 5
    assert max(path.stat().st_size for path in parts(folder)) < 2500
    assert tensorboard_points(folder, "aa_headline/trainer/loss") == [(no, float(no)) for no in range(100)]
    assert TensorBoardSink().open(make_run(tmp_path)) == 100


@pytest.mark.parametrize("how", ["deleted", "replaced", "shortened", "lengthened"])
def test_a_part_that_is_changed_while_it_is_written_is_mended(tmp_path: Path, how: str) -> None:
    """A deleted, replaced or edited part is noticed before the next rows go there; then each row is there once."""
    sink = TensorBoardSink()
    sink.open(make_run(tmp_path))
    sink.write(make_rows(0, 3))
    (path,) = parts(Path(sink.where))
    change(path, how)
    with pytest.raises(SinkUnavailable, match=r"another program changed|No such file"):
        sink.write(make_rows(3, 4))
    sink.close()
    answer = sink.open(make_run(tmp_path))
    assert answer is not None
    sink.write(make_rows(answer, 4))
    sink.close()
    assert tensorboard_events(path.parent) == [event(row) for row in make_rows(0, 4)]


def test_a_folder_with_a_later_owner_is_refused(tmp_path: Path) -> None:
    """Where a later sidecar of the same store writes, an earlier one does not, and learns the generation."""
    fill(replace(make_run(tmp_path), generation=5), make_rows(0, 2))
    with pytest.raises(SinkRefused, match=r"generation 5.*this one has generation 4"):
        TensorBoardSink().open(replace(make_run(tmp_path), generation=4))


def test_a_full_disk_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written when the disk was full, in the middle of an event or of a part's beginning: each row is
    there once after the next `open`.
    """
    real = os.pwrite
    for room in range(0, 400, 7):
        sink = TensorBoardSink()
        run = make_run(tmp_path / str(room))
        sink.open(run)
        left = [room]

        def full(fd: int, data: Any, offset: int, left: list[int] = left) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            part = bytes(data)[: left[0]]
            left[0] -= len(part)
            return real(fd, part, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(SinkUnavailable, match="No space left"):
                sink.write(make_rows(0, 5))
        sink.close()
        answer = sink.open(run)
        assert answer is not None
        sink.write(make_rows(answer, 5))
        sink.close()
        assert tensorboard_events(Path(sink.where)) == [event(row) for row in make_rows(0, 5)]


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


def test_histograms_as_tensorboard_reads_them(tmp_path: Path) -> None:
    """TensorBoard finds the bins of a histogram, and scalars beside it, ranks' values among them if asked for."""
    rows = [
        replace(
            make_row(no),
            hists={"trainer/len": Histogram((0.5, 1.0, 2.5), (3, no)), "trainer/same": Histogram((2.0, 2.0), (5,))},
            per_rank={"trainer/loss": [("0.0", 1.0), ("1.0", 2.0 + no)]},
        )
        for no in range(3)
    ]
    folder = fill(make_run(tmp_path, ranks="per_rank_reduce"), rows)
    found = EventAccumulator(str(run_folder(folder)), size_guidance={"histograms": 0, "scalars": 0})
    found.Reload()

    assert sorted(found.Tags()["histograms"]) == ["trainer/len", "trainer/same"]
    events = found.Histograms("trainer/len")
    assert [(event.step, event.wall_time) for event in events] == [(no, T0 + no) for no in range(3)]
    value = events[2].histogram_value
    assert (value.min, value.max, value.num) == (0.5, 2.5, 5.0)
    assert (value.bucket_limit, value.bucket) == ([1.0, 2.5], [3.0, 2.0])
    assert tensorboard_points(folder, "zz_rlship/trainer/loss/r1.0") == [(0, 2.0), (1, 3.0), (2, 4.0)]
    assert tensorboard_points(folder, "aa_headline/trainer/loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_tensorboard_draws_the_bins_as_they_are() -> None:
    """What TensorBoard turns a histogram into has each bin's left edge, right edge and count."""
    made = event(replace(make_row(0), hists={"trainer/len": Histogram((0.5, 1.0, 2.5), (3, 4))}))
    ours = SummaryEvent.FromString(made.SerializeToString())
    (value,) = [value for value in ours.summary.value if value.tag == "trainer/len"]
    tensor = tensor_util.make_ndarray(data_compat.migrate_value(value).tensor)

    assert tensor.tolist() == [[0.5, 1.0, 3.0], [1.0, 2.5, 4.0]]


def test_without_being_asked_no_values_of_ranks(tmp_path: Path) -> None:
    """By default a row is its figures alone."""
    row = replace(make_row(0), per_rank={"trainer/loss": [("0.0", 1.0)]})
    folder = fill(make_run(tmp_path), [row])

    assert tensorboard_points(folder, "zz_rlship/trainer/loss/r0.0") == []
    assert not (tmp_path / "rlship" / "state" / "tensorboard-keys.json").exists()


def no_event(path: Path, number: int) -> None:
    """Make the data of an event of a part unreadable. Its length stays as it is, so that later events are found."""
    frame = list(tfevents.frames(path))[number]
    data = bytearray(path.read_bytes())
    data[frame.start : frame.start + frame.size] = b"\xff" * frame.size
    path.write_bytes(data)


def delivered(folder: Path, source: MemorySource, *rows: list[Row]) -> Shipper:
    """A shipper that delivered these rows, batch for batch, each in a part of its own."""
    for batch in rows:
        source.append(batch)
        shipper = Shipper("tensorboard", TensorBoardSink, make_run(folder), source)
        shipper.start()
        assert shipper.drain(10.0)
        if batch is not rows[-1]:
            shipper.stop()
    return shipper


LATER = [make_row(6, step=1, values={"trainer/loss": 9.0}, revision=1, changed=("trainer/loss",))]


@pytest.mark.parametrize("how", ["no event", "length", "cut", "missing", "all missing"])
def test_an_older_file_that_changes_while_it_runs_loses_no_point(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where points are to be written again from files that are damaged, cut or gone by now, their rows come again from
    the store at once: charts have the newest value of each step, and the file is named.
    """
    source = MemorySource()
    shipper = delivered(tmp_path, source, *(make_rows(first, first + 2) for first in range(0, 6, 2)))
    folder = Path(shipper.status().where)
    path = parts(folder)[1]
    if how == "no event":
        no_event(path, 1)
    elif how == "length":
        data = bytearray(path.read_bytes())
        data[list(tfevents.frames(path))[1].start - 8] ^= 1
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    for one in {"missing": [path], "all missing": parts(folder)[:2]}.get(how, []):
        one.unlink()
    source.append(LATER)
    shipper.wake()
    wait_until(lambda: any(one.name.endswith(".again") for one in parts(folder)))
    shipper.stop()
    assert tensorboard_events(folder) == [event(row) for row in [*make_rows(0, 6), *LATER]]
    loss = [(0, 0.0), (1, 9.0), *((no, float(no)) for no in range(2, 6))]
    assert tensorboard_points(folder, "aa_headline/trainer/loss") == loss
    assert default_charts(run_folder(folder))["aa_headline/trainer/loss"] == loss
    assert any(str(path.parent) in said and "written again from the store" in said for said in caplog.messages)


def test_damage_that_the_last_close_finds_is_said_and_mended_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else would show it. The message names the file and the way out, and the next sidecar goes that way."""
    monkeypatch.setattr(again, "SPACING_S", 60.0)
    source = MemorySource()
    shipper = delivered(tmp_path, source, make_rows(0, 2), make_rows(2, 4), make_rows(4, 6))
    folder = Path(shipper.status().where)
    latest = make_row(7, step=1, values={"trainer/loss": 10.0}, revision=2, changed=("trainer/loss",))
    for row in (*LATER, latest):
        source.append([row])
        assert shipper.drain(10.0)
    no_event(parts(folder)[1], 2)
    caplog.clear()
    shipper.stop()
    said = "\n".join(caplog.messages)
    assert f"{parts(folder)[1]} is damaged at byte" in said and "the next `rlship watch`" in said
    delivered(tmp_path, source, []).stop()
    assert tensorboard_events(folder) == [event(row) for row in [*make_rows(0, 6), *LATER, latest]]
    assert tensorboard_points(folder, "aa_headline/trainer/loss")[1] == (1, 10.0)


@pytest.mark.parametrize("number", [1, 2])
def test_an_older_event_that_a_start_cannot_read_is_written_again(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A start without the file of curves reads all events; where one is damaged, the rows from there on come again."""
    source = MemorySource()
    delivered(tmp_path, source, make_rows(0, 2), make_rows(2, 4), make_rows(4, 6)).stop()
    folder = tmp_path / "rlship/state/tensorboard"
    path = parts(folder)[1]
    no_event(path, number)
    (tmp_path / "rlship/state/tensorboard-curves.json").unlink()
    delivered(tmp_path, source, LATER).stop()
    assert tensorboard_events(folder) == [event(row) for row in [*make_rows(0, 6), *LATER]]
    assert any(f"{path} is damaged at byte" in said for said in caplog.messages)


def test_half_an_event_before_zeros_is_written_again(tmp_path: Path) -> None:
    """Where a block of an older file became zeros, the event at its border is half there: it does not count."""
    for first in range(0, 6, 2):
        folder = fill(make_run(tmp_path), make_rows(first, first + 2))
    path = parts(folder)[1]
    frame = list(tfevents.frames(path))[1]
    data = path.read_bytes()
    torn = frame.start + frame.size // 2
    path.write_bytes(data[:torn] + bytes(len(data) - torn))
    sink = TensorBoardSink()
    assert sink.open(make_run(tmp_path)) == 2
    assert sink.ends_with(make_row(1))
    sink.close()
