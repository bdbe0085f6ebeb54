"""Sets of ranks as whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.align.lineage import rank_names
from rlship_sidecar.reduce.rank_sets import RankSets, decode_ranks
from rlship_sidecar.rows import RankName

RANKS = st.builds(RankName, st.sampled_from(("0", "1", "01", "10", "a", 'q"')), st.integers(0, 12))
SOME = st.lists(RANKS, max_size=12)


@given(met=st.lists(SOME, min_size=1, max_size=4), one=SOME, other=SOME)
def test_they_hold_what_sets_of_names_hold(
    met: list[list[RankName]], one: list[RankName], other: list[RankName]
) -> None:
    """However the ranks came, sets are joined and compared as sets of their names are, have the same names and come
    back from their JSON. Ranks that were not met are in none.
    """
    sets = RankSets()
    for ranks in (*met, one):
        sets = sets.meeting(ranks)
    known = {rank for ranks in (*met, one) for rank in ranks}
    ours, theirs = {*one}, {*other} & known
    a, b = sets.of(one), sets.of(other)
    for found, expected in ((a, ours), (b, theirs), (a | b, ours | theirs), (a & ~b, ours - theirs)):
        assert sets.names(found) == rank_names(expected)
        assert decode_ranks(sets.encode(found)) == expected
        assert sets.decode(sets.encode(found)) == found
        assert found.bit_count() == len(expected)


def test_a_set_stays_what_it_was_where_later_ranks_follow() -> None:
    """Only ranks that merge before known ones make other sets."""
    sets = RankSets().meeting([RankName("0", 0), RankName("0", 2)])
    before = sets.of([RankName("0", 2)])
    assert sets.meeting([RankName("0", 5), RankName("1", 0)]) is sets
    assert sets.of([RankName("0", 2)]) == before
    assert sets.meeting([RankName("0", 1)]) is not sets


def test_lines_of_one_rank_are_joined() -> None:
    """Where a rank has several lines, a column holds it if one of them is true."""
    ranks = [RankName("0", 0), RankName("0", 3), RankName("0", 0)]
    sets = RankSets().meeting(ranks)
    there = np.array([[True, False], [False, False], [False, True]])
    assert sets.of_columns(ranks, there) == [sets.of(ranks[:1])] * 2
