"""What every sink promises, asked of every sink."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rlship_sidecar.sinks.contract import Sink, SinkRefused, SinkUnavailable
from tests.kit.cases import long
from tests.loopback.backend import LoopbackBackend
from tests.sinks.kinds import KINDS, Place
from tests.sinks.rows import make_rows

# W&B's client takes seconds to start; of it, test_rows_arrive_once_and_in_order_over_restarts is enough in short.
STARTED_AT_A_COST = [kind for kind in KINDS if not kind.startswith("wandb")] + long("wandb-online", "wandb-offline")
TELLING = [kind for kind in STARTED_AT_A_COST if kind != "console"]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, backend: LoopbackBackend) -> Place:
    """The destination of the kind that the test is run for."""
    return KINDS[request.param](tmp_path, backend)


def ship(place: Place, sink: Sink, cursor: int, rows: int) -> int | None:
    """One life of a sink: open, what it lacks of `rows` rows in batches of two, flush. Returns its answer to open."""
    answer = sink.open(place.run(rows))
    first = cursor if answer is None else answer
    for batch in range(first, rows, 2):
        sink.write(make_rows(batch, min(batch + 2, rows)))
    sink.flush()
    return answer


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_rows_arrive_once_and_in_order_over_restarts(place: Place) -> None:
    """Rows written over several lives of a sink, one without news, are at the destination once and in order."""
    cursor = 0
    for rows in (3, 3, 7):
        sink = place.make()
        answer = ship(place, sink, cursor, rows)
        sink.close()

        assert (answer is None) == (not place.tells)
        assert place.numbers() == list(range(rows))
        cursor = rows


@pytest.mark.parametrize("place", STARTED_AT_A_COST, indirect=True)
def test_a_sink_can_be_opened_again(place: Place) -> None:
    """The same object serves again after close, and closing twice does no harm."""
    sink = place.make()
    ship(place, sink, 0, 2)
    sink.close()
    sink.close()
    ship(place, sink, 2, 4)
    sink.close()

    assert place.numbers() == [0, 1, 2, 3]


@pytest.mark.parametrize("place", TELLING, indirect=True)
def test_rows_written_but_not_flushed_before_a_crash_arrive_once(place: Place) -> None:
    """A sink that dies with rows under way leaves the next one to find out what is lacking: none lost, none doubled."""
    sink = place.make()
    ship(place, sink, 0, 3)
    sink.write(make_rows(3, 6))
    place.crash(sink)
    with contextlib.suppress(SinkUnavailable):
        sink.write(make_rows(6, 7))

    successor = place.make()
    try:
        ship(place, successor, 0, 8)
    finally:
        successor.close()
        sink.close()

    assert place.numbers() == list(range(8))


@pytest.mark.parametrize("place", TELLING, indirect=True)
def test_the_rows_of_another_store_are_refused(place: Place) -> None:
    """A destination that another store filled is left as it is, and the refusal names the way out."""
    if "project" in place.options:
        place.options = {**place.options, "run_id": "store1"}
    if place.options.get("mode") == "offline":
        place.options = {**place.options, "run_id": "ours"}
    sink = place.make()
    ship(place, sink, 0, 2)
    sink.close()

    stranger = place.make()
    with pytest.raises(SinkRefused, match=r"store2.*(move|set \[sink)"):
        stranger.open(place.run(5, store_id="store2"))
    stranger.close()

    assert place.numbers() == [0, 1]


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_an_unknown_option_is_refused_by_name(place: Place) -> None:
    """A misspelt option does not pass silently."""
    place.options = {"projekt": "x"}
    sink = place.make()

    with pytest.raises(SinkRefused, match="projekt"):
        sink.open(place.run(1))
    sink.close()


@pytest.mark.parametrize("place", ["jsonl", "tensorboard"], indirect=True)
def test_files_know_their_last_row(place: Place) -> None:
    """By it a store that was restored from an older copy is distinguished from the one that the rows came from."""
    sink = place.make()
    ship(place, sink, 0, 3)
    sink.close()
    assert sink.open(place.run(3)) == 3
    assert [sink.ends_with(row) for row in make_rows(0, 4)] == [False, False, True, False]  # type: ignore[attr-defined]
    sink.close()
