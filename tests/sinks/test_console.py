"""Lines on a terminal."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlship_formats.values import Histogram
from rlship_sidecar.sinks.console import ConsoleSink, line
from rlship_sidecar.sinks.contract import SinkRefused
from tests.sinks.rows import make_row, make_run


def test_the_line_of_a_row() -> None:
    """Actor, x, then reward, loss and the rest by name, with four digits."""
    row = make_row(12, values={"trainer/reward": 0.123456, "trainer/loss": 2.0})

    assert line(row) == "trainer global_step=12  reward=0.1235  loss=2"


def test_metrics_that_ranks_left_out_stand_out() -> None:
    """By metric the ranks that are short of it."""
    made = make_row(0)
    made = replace(made, coverage=replace(made.coverage, short={"trainer/kl": ("0.1",), "trainer/loss": ("0.1-2",)}))
    assert line(made) == "trainer global_step=0  [left out: kl r1, loss r1-2]  loss=0"


def test_missing_ranks_and_revisions_stand_out() -> None:
    """What is not whole or not new is said before the figures."""
    row = make_row(0, missing=("0.3", "0.5-7"), revision=1, changed=("trainer/loss",))

    assert line(row) == "trainer global_step=0  [2 of 4 ranks, missing r3, r5-7]  [revision 1]  loss=0"


def test_tags_stand_beside_the_step() -> None:
    """What a step was tagged with is said in its line, and again in that of a revision."""
    row = replace(make_row(5), tags=("eval", "warm up"))
    assert line(row) == "trainer global_step=5  [eval, warm up]  loss=5"
    revised = replace(make_row(5, revision=2, changed=("trainer/loss",)), tags=("eval",))
    assert line(revised) == "trainer global_step=5  [eval]  [revision 2]  loss=5"


def test_control_characters_in_names_are_neutralised() -> None:
    """A metric's name cannot move the cursor, colour the terminal or begin a line."""
    assert (
        line(make_row(0, values={"trainer/\x1b[31mx\n\u202e": 1.0}))
        == "trainer global_step=0  \ufffd[31mx\ufffd\ufffd=1"
    )


def test_it_prints_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are data: they go to standard output, nothing goes to standard error, and no stream is closed."""
    sink = ConsoleSink()
    assert sink.open(make_run(tmp_path)) is None
    sink.write([make_row(0), make_row(1)])
    sink.flush()
    sink.close()

    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == "trainer global_step=0  loss=0\ntrainer global_step=1  loss=1\n"


def test_a_given_stream_is_left_open(tmp_path: Path) -> None:
    """The stream belongs to its giver, who closes it."""
    stream = io.StringIO()
    sink = ConsoleSink(stream)
    sink.open(make_run(tmp_path))
    sink.close()

    assert not stream.closed


def test_a_reader_that_is_gone_refuses_the_rest(tmp_path: Path) -> None:
    """Once the other end of the pipe is closed, no more rows are taken, as a refusal that says so."""
    read, write = os.pipe()
    sink = ConsoleSink(os.fdopen(write, "w"))
    sink.open(make_run(tmp_path))
    sink.write([make_row(0)])
    sink.flush()
    os.close(read)
    with pytest.raises(SinkRefused, match="the reader of standard output is gone"):
        sink.write([make_row(1)])
        sink.flush()


def test_histograms_and_values_of_ranks_are_short() -> None:
    """A histogram is its ends and its count; values of ranks stand there only if they are asked for."""
    row = replace(
        make_row(3),
        hists={"trainer/len": Histogram((0.5, 1.0, 1234.5), (3, 4))},
        per_rank={"trainer/loss": [("0.0", 1.0), ("1.0", 5.25)]},
    )

    assert line(row) == "trainer global_step=3  loss=3  len=[0.5..1234 n=7]"
    assert line(row, ranks=True) == "trainer global_step=3  loss=3  len=[0.5..1234 n=7]  loss/r0.0=1  loss/r1.0=5.25"
