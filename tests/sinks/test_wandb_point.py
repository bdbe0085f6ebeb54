"""A row as W&B takes it, and what happens to one that is too large."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from rlship_formats.values import Histogram
from rlship_sidecar.sinks.names import DEFAULT_NAMES
from rlship_sidecar.sinks.wandb.point import MAX_POINT_BYTES, point
from tests.sinks.rows import T0, make_row


def test_a_point() -> None:
    """Row number, actor and axis for the client; the record's time as `_timestamp`, not the time of shipping."""
    made = point(make_row(7, step=3, axis="env_step", values={"trainer/loss": 0.5}))

    assert (made.row_number, made.actor, made.axis) == (7, "trainer", "env_step")
    assert orjson.loads(made.data) == {
        "_timestamp": T0 + 7,
        "env_step": 3,
        "trainer/loss": 0.5,
        "zz_rlship/trainer/ranks/in": 2,
        "zz_rlship/trainer/ranks/expected": 2,
        "zz_rlship/trainer/ranks/missing": 0,
        "zz_rlship/trainer/ranks/short": 0,
    }


def test_keys_that_the_client_keeps_for_itself_are_renamed() -> None:
    """An axis called `_step` would be overwritten by the client; it goes under another name."""
    made = point(make_row(0, step=5, axis="_step"))

    assert made.axis == "zz_rlship/_step"
    assert orjson.loads(made.data)["zz_rlship/_step"] == 5


def test_a_row_over_a_megabyte_loses_its_longest_names_and_says_so() -> None:
    """The client drops a huge row without a word; so keys go, longest names first, until it fits, and are counted."""
    figures = {f"trainer/{'x' * (no % 50)}{no:06}": 1.0 for no in range(40_000)}
    made = point(make_row(0, values=figures))
    values = orjson.loads(made.data)
    left = values.keys() & figures.keys()
    gone = figures.keys() - values.keys()

    assert len(made.data) <= MAX_POINT_BYTES
    assert len(made.data) > MAX_POINT_BYTES - 200
    assert values["zz_rlship/dropped_keys"] == len(gone) > 0
    assert max((len(key), key) for key in left) < min((len(key), key) for key in gone)
    assert values["global_step"] == 0 and values["zz_rlship/trainer/ranks/in"] == 2
    other_order = point(make_row(0, values=dict(reversed(figures.items()))))
    assert orjson.loads(other_order.data) == values


@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False), max_size=6))
@example({"event/": 0.5, "x": 1.0, "x/nonfinite": 2.0})  # extras among them
def test_values_keep_their_bits(logged: dict[str, float]) -> None:
    """A value is the same double after the way through the point, whatever its name is."""
    row = make_row(0, values={f"trainer/{key}": value for key, value in logged.items()})
    values = orjson.loads(point(row).data)

    assert all(float(values[str(DEFAULT_NAMES.of(row, key))]).hex() == value.hex() for key, value in row.values.items())


def test_histograms_are_named_for_the_client() -> None:
    """A histogram travels as counts and edges under its key, which the point names; an x key of the same name wins."""
    hists = {"trainer/len": Histogram((0.0, 1.0, 2.5), (3, 4)), "global_step": Histogram((0.0, 1.0), (1,))}
    made = point(replace(make_row(7), hists=hists))

    assert made.hists == ("trainer/len",)
    assert orjson.loads(made.data)["trainer/len"] == {"values": [3, 4], "bins": [0.0, 1.0, 2.5]}
    assert orjson.loads(made.data)["global_step"] == 7


def test_values_of_ranks_are_the_first_to_go() -> None:
    """In a row over a megabyte extras go first, whatever the job's names are. A histogram that goes is not named."""
    ranks = {f"trainer/loss/r0.{rank:07}": 0.123456789 for rank in range(40_000)}
    kept, gone = "trainer/a-histogram-with-a-name-longer-than-theirs", "trainer/event/a-histogram-that-is-an-extra"
    hists = dict.fromkeys((kept, gone), Histogram((0.0, 1.0), (1,)))
    made = point(replace(make_row(0), hists=hists), ranks=ranks)
    values = orjson.loads(made.data)

    assert len(made.data) <= MAX_POINT_BYTES
    assert values["trainer/loss"] == 0.0
    assert made.hists == (kept,) and kept in values
    assert values["zz_rlship/dropped_keys"] == 1 + len({f"zz_rlship/{key}" for key in ranks} - values.keys()) > 2
