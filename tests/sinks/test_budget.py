"""How many keys of single ranks a run may come to have."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlship_formats.values import Histogram
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import budget
from rlship_sidecar.sinks.budget import KeyBudget
from rlship_sidecar.sinks.console import ConsoleSink
from rlship_sidecar.sinks.contract import Sink, SinkRefused
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.sinks.rows import make_row, make_run


def ranked(no: int, ranks: int, metric: str = "trainer/loss") -> Row:
    """A row whose metric has values of that many ranks, each its number."""
    return replace(make_row(no), per_rank={metric: [(f"0.{rank}", float(rank)) for rank in range(ranks)]})


def test_keys_count_in_order_of_appearance(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Figures' and histograms' keys count and always stay; those of ranks beyond the budget never come, said once."""
    keys = KeyBudget("wandb", tmp_path / "keys.json", 4)
    hist = {"trainer/len": Histogram((0.0, 1.0), (1,))}
    assert keys.admit(replace(ranked(0, 1), hists=hist)) == {"trainer/loss/r0.0": 0.0}
    assert keys.note == ""
    for no in range(1, 4):
        assert keys.admit(ranked(no, 9)) == {"trainer/loss/r0.0": 0.0, "trainer/loss/r0.1": 1.0}
    (said,) = caplog.messages
    assert said == f"sink wandb: {keys.note}"
    assert keys.note == (
        "the run has 4 keys: trainer/loss/r0.2 and all further keys of single ranks are left out; declare fewer "
        "metrics per_rank, or raise [sink.wandb] max_keys"
    )


def test_what_was_counted_outlives_the_process(tmp_path: Path) -> None:
    """A row that is shipped again after a restart has the same keys as before; more are let in only by a new limit."""
    path = tmp_path / "keys.json"
    first = KeyBudget("wandb", path, 3)
    shown = [first.admit(ranked(0, 2)), first.admit(ranked(1, 5, "trainer/kl"))]
    first.save()
    again = KeyBudget("wandb", path, 3)
    assert [again.admit(ranked(1, 5, "trainer/kl")), again.admit(ranked(0, 2))] == shown[::-1]
    assert list(KeyBudget("wandb", path, 4).admit(ranked(1, 5, "trainer/kl"))) == ["trainer/kl/r0.0"]
    assert list(KeyBudget("wandb", path, 0).admit(ranked(0, 5))) == ["trainer/loss/r0.0", "trainer/loss/r0.1"]


@pytest.mark.parametrize("content", [None, b"", b"[1, 2"])
def test_a_lost_or_torn_file_is_begun_anew(tmp_path: Path, content: bytes | None) -> None:
    """Keys come back with their next rows; the file is replaced at once, and only when there is something new."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    keys = KeyBudget("wandb", path, 3)
    keys.save()
    assert (path.read_bytes() if path.exists() else None) == content
    keys.admit(ranked(0, 1))
    keys.save()
    assert path.read_text() == '["trainer/loss", "trainer/loss/r0.0"]\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_that_was_logged_wins(tmp_path: Path) -> None:
    """A metric that has the name of a rank's key keeps it."""
    row = ranked(0, 2)
    row.values["trainer/loss/r0.1"] = 77.0
    assert KeyBudget("wandb", tmp_path / "keys.json", 99).admit(row) == {"trainer/loss/r0.0": 0.0}


def test_what_the_options_ask_for(tmp_path: Path) -> None:
    """Nothing is counted unless keys of single ranks are asked for; then 2000 keys is the default."""
    assert budget.budget("wandb", tmp_path, {}) is None
    assert budget.budget("wandb", tmp_path, {"ranks": "global_reduce", "max_keys": 5}) is None
    keys = budget.budget("tensorboard", tmp_path, {"ranks": "per_rank_reduce"})
    assert keys is not None
    assert len(keys.admit(ranked(0, 5000))) == 1999
    keys.save()
    assert (tmp_path / "tensorboard-keys.json").exists()


@pytest.mark.parametrize("sink", [WandbSink, TensorBoardSink, ConsoleSink])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": "per_rank"}, "ranks is 'per_rank'; allowed: global_reduce, per_rank_reduce"),
        ({"ranks": 3}, "ranks is 3; allowed: global_reduce"),
    ],
)
def test_a_wrong_mode_is_refused(sink: type[Any], options: dict[str, Any], message: str) -> None:
    """The error says which words there are, in every sink that has the option."""
    sink.check_options({"ranks": "per_rank_reduce"})
    with pytest.raises(SinkRefused, match=message):
        sink.check_options(options)


@pytest.mark.parametrize("sink", [WandbSink, TensorBoardSink])
@pytest.mark.parametrize("most", [-1, 2.0, True, "2000"])
def test_a_wrong_number_of_keys_is_refused(sink: type[Any], most: Any) -> None:
    """The error says what it may be."""
    sink.check_options({"max_keys": 0})
    with pytest.raises(SinkRefused, match=r"max_keys is .*; allowed: how many keys, an integer >= 0"):
        sink.check_options({"max_keys": most})


def test_the_note_is_in_the_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a sink has to tell, though it takes rows, stands in its status and among the notes of the experiment's."""
    from rlship_sidecar.report.survey import survey
    from rlship_sidecar.sinks.ship import Shipper
    from tests.pipeline.simulated import simulation
    from tests.sinks.rows import MemorySource

    caplog.set_level(logging.ERROR)
    source = MemorySource([ranked(0, 9)])
    make: type[Sink] = TensorBoardSink
    run = make_run(tmp_path, ranks="per_rank_reduce", max_keys=3)
    shipper = Shipper("tensorboard", make, run, source)
    shipper.start()
    try:
        assert shipper.drain(20.0)
        status = shipper.status()
    finally:
        shipper.stop()
    assert status.error == ""
    assert status.note.startswith("the run has 3 keys: trainer/loss/r0.2 and all further")
    with simulation() as sim:
        assert survey(sim.experiment, [status], now=0.0, wall=0.0).notes == [f"sink tensorboard: {status.note}"]


def test_ranks_that_no_row_has_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`ranks` alone shows nothing more: after ten rows, or at the end of fewer, people learn what is lacking."""
    keys = KeyBudget("wandb", tmp_path / "keys.json", 9)
    for no in range(9):
        keys.admit(make_row(no))
    assert (keys.note, caplog.messages) == ("", [])
    keys.admit(make_row(9))
    assert "define(…, per_rank=True), or set per_rank = true in rlship.toml" in keys.note
    keys.admit(make_row(10))
    keys.end()
    assert caplog.messages == [f"sink wandb: {keys.note}"]
    keys.admit(ranked(11, 1))
    assert keys.note == ""


@pytest.mark.parametrize("sink", [TensorBoardSink, ConsoleSink])
def test_a_short_run_is_told_at_its_end(tmp_path: Path, sink: type[Sink], caplog: pytest.LogCaptureFixture) -> None:
    """Of three rows none has values of single ranks; where one has, or without `ranks`, nothing is said."""
    for number, (rows, options) in enumerate(
        [
            ([make_row(no) for no in range(3)], {"ranks": "per_rank_reduce"}),
            ([make_row(0), ranked(1, 2), make_row(2)], {"ranks": "per_rank_reduce"}),
            ([make_row(no) for no in range(30)], {}),
        ]
    ):
        made = sink()
        made.open(make_run(tmp_path / str(number), **options))
        made.write(rows)
        made.close()
    (said,) = caplog.messages
    assert 'ranks = "per_rank_reduce" shows nothing more' in said
