"""What a point in W&B and TensorBoard holds."""

from __future__ import annotations

from dataclasses import replace

from rlship_sidecar.rows import Coverage, Row, Unit, axis, flatten
from tests.sinks.rows import make_row


def test_a_complete_row() -> None:
    """x, the figures and four counts of ranks; neighbours written as one name count each."""
    assert flatten(make_row(12, values={"trainer/loss": 0.5})) == {
        "global_step": 12,
        "trainer/loss": 0.5,
        "trainer/ranks/in": 2,
        "trainer/ranks/expected": 2,
        "trainer/ranks/missing": 0,
        "trainer/ranks/short": 0,
    }


def test_a_row_that_lacks_ranks_names_them() -> None:
    """Only a row with missing ranks has the text of their names, and it counts a range by its ranks."""
    flat = flatten(make_row(0, missing=("0.3", "0.5-7")))

    assert flat["trainer/missing_ranks"] == "0.3 0.5-7"
    assert flat["trainer/ranks/missing"] == 4


def test_ranks_that_are_short_of_several_metrics_count_once() -> None:
    """A range counts by its ranks. Only steps have the count."""
    made = make_row(0)
    coverage = replace(made.coverage, short={"trainer/kl": ("0.3", "0.5-7"), "trainer/loss": ("0.3",)})

    assert flatten(replace(made, coverage=coverage))["trainer/ranks/short"] == 4
    assert "trainer/aligned/ranks/short" not in flatten(replace(made, unit=Unit("trainer", "aligned", 0)))


def test_a_revision_ships_what_changed() -> None:
    """A later version of a row holds x, its number, and the figures that are new or changed."""
    flat = flatten(
        make_row(9, step=4, revision=2, values={"trainer/loss": 1.0, "trainer/kl": 2.0}, changed=("trainer/kl",))
    )

    assert flat["trainer/revision"] == 2 and flat["global_step"] == 4 and flat["trainer/kl"] == 2.0
    assert "trainer/loss" not in flat
    assert "trainer/revision" not in flatten(make_row(9))


def test_a_users_figure_wins_over_a_derived_one() -> None:
    """A job that logs `ranks/in` or `revision` itself sees its own figure."""
    flat = flatten(make_row(0, values={"trainer/ranks/in": 0.25, "trainer/revision": 7.5}, revision=0))

    assert flat["trainer/ranks/in"] == 0.25 and flat["trainer/revision"] == 7.5


def test_x_wins_over_a_figure_of_the_same_key() -> None:
    """A metric named like the axis does not move the point."""
    assert flatten(make_row(5, axis="env/steps", values={"env/steps": 4.5}))["env/steps"] == 5


def test_axis_is_the_rows_own() -> None:
    """The first x key says where a row stands; a row without x stands at its unit's index."""
    row = Row(Unit("buffer", "clock", 3), 0.0, {}, {}, Coverage((), 0))

    assert axis(make_row(5, axis="env_step")) == ("env_step", 5)
    assert axis(row) == ("clock", 3)


def test_values_of_ranks_are_keys_of_their_own() -> None:
    """What a sink shows of single ranks stands beside the figures, which win where a key is the same."""
    row = make_row(0, values={"trainer/loss": 1.0, "trainer/loss/r0.1": 7.0})
    flat = flatten(row, {"trainer/loss/r0.0": 0.5, "trainer/loss/r0.1": 1.5})

    assert (flat["trainer/loss/r0.0"], flat["trainer/loss/r0.1"]) == (0.5, 7.0)
