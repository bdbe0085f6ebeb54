"""The names of the reductions."""

from __future__ import annotations

import pytest

from rlship import Reduce
from rlship.reduce import reduction_names


def test_members_and_strings_are_the_same() -> None:
    """A Reduce compares and encodes as its name."""
    assert Reduce.MEAN == "mean"
    assert reduction_names(Reduce.STD) == ["std"]
    assert reduction_names("std") == ["std"]
    assert reduction_names([Reduce.MAX, "mean", "max"]) == ["max", "mean"]
    assert [member.value for member in Reduce] == ["mean", "sum", "min", "max", "first", "last", "std", "count"]


@pytest.mark.parametrize("wrong", ["average", "MEAN", ["mean", "p200"], []])
def test_an_unknown_name_is_refused_with_what_is_allowed(wrong: object) -> None:
    """The error shows the value and all the names there are."""
    with pytest.raises(ValueError, match="mean, sum, min, max, first, last, std, count"):
        reduction_names(wrong)  # type: ignore[arg-type]
