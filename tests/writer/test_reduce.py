"""The names of the reductions."""

from __future__ import annotations

import pytest

from rlship import Reduce
from rlship.reduce import reduction_names
from rlship_formats.values import MAX_CUSTOM_NAME


def test_members_and_strings_are_the_same() -> None:
    """A Reduce compares and encodes as its name."""
    assert Reduce.MEAN == "mean"
    assert reduction_names(Reduce.STD) == ["std"]
    assert reduction_names("std") == ["std"]
    assert reduction_names([Reduce.MAX, "mean", "max"]) == ["max", "mean"]
    assert " ".join(Reduce) == "mean sum min max first last std count p50 p90 p95 p99 hist rate sum_last"


def test_a_name_with_a_dot_is_passed_through() -> None:
    """A reduction of one's own is known where the sidecar runs, not here."""
    assert reduction_names("mypkg.trimmed_mean") == ["mypkg.trimmed_mean"]
    assert reduction_names(["mean", "a.b.c"]) == ["mean", "a.b.c"]
    longest = "a." + "b" * (MAX_CUSTOM_NAME - 2)  # as long as the sidecar takes it
    assert reduction_names(longest) == [longest]


@pytest.mark.parametrize(
    "wrong", ["average", "MEAN", ["mean", "p200"], [], ".", "a.", ".b", "a. b", "a." + "b" * 99, [0.5], 5]
)
def test_an_unknown_name_is_refused_with_what_is_allowed(wrong: object) -> None:
    """The error shows the value and all the names there are."""
    with pytest.raises(
        ValueError, match="p50, p90, p95, p99, hist, rate, sum_last, or the name of your own reduction with a dot"
    ):
        reduction_names(wrong)  # type: ignore[arg-type]
