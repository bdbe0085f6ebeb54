"""Who is expected, covered, missing and absent, on rosters made by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.records import MAX_WORLD, Gap, Open
from rlship_sidecar.align.lineage import (
    Segment,
    Writer,
    counting,
    newest,
    order_of,
    replica_key,
    side_by_side,
    still_in_world,
    submissions,
)
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.rows import name_ranks

T0 = 1763600000.0


def writer(
    name: str,
    rank: int = 0,
    *,
    begins: int | None = 0,
    barrier: int = -1,
    last: int = -1,
    world: int | None = None,
    closed: bool = False,
    attempt: int = 0,
    t: float = T0,
    replica: str = "0",
    parent: str | None = None,
    newest_t: float = 0.0,
) -> Writer:
    """A writer whose first segment begins there; with a barrier it is explicit, else its metrics reached `last`."""
    opened = Open(name, "trainer", replica, rank, world, attempt, t=t, parent=parent, beat=10.0)
    made = Writer(f"{name}.jsonl", opened, closed=closed, implicit=barrier < 0, newest_t=newest_t, seen_at=100.0)
    made.segments[0].begins, made.segments[0].barrier, made.segments[0].last = begins, barrier, last
    return made


def roster(*writers: Writer) -> Roster:
    made = Roster()
    for one in writers:
        made.add(one)
    return made


def coverage(made: Roster, step: int) -> tuple[int, list[str], tuple[str, ...]]:
    expected, missing, absent = made.coverage(step)
    return expected, [f"{rank.replica}.{rank.rank}" for rank in missing], name_ranks(absent)


def waited(made: Roster, step: int, *, now: float = 100.0, closed_any: bool = False) -> tuple[list[str], bool]:
    waiting = made.waiting(step, now, closed_any=closed_any, join_s=60.0)
    return [one.open.id for one in waiting.writers], waiting.unopened


def test_a_whole_world() -> None:
    """Ranks with a barrier at or past the step are covered, the others are waited for and missing."""
    made = roster(*(writer(f"r{rank}", rank, barrier=4 + rank, world=3) for rank in range(3)))
    assert coverage(made, 4) == (3, [], ())
    assert coverage(made, 6) == (3, ["0.0", "0.1"], ())
    assert waited(made, 4) == ([], False)
    assert waited(made, 6) == (["r0", "r1"], False)


def test_ranks_below_the_world_that_never_opened_are_absent() -> None:
    """They are no part of what is expected or missing, and waited for only a minute after the replica's first open."""
    made = roster(writer("a", 0, barrier=9, world=8), writer("b", 5, barrier=9, world=8))
    assert coverage(made, 9) == (2, [], ("0.1-4", "0.6-7"))
    assert waited(made, 9, now=159.9) == ([], True)
    assert waited(made, 9, now=160.1) == ([], False)


def test_a_rank_that_began_later_is_not_expected_before() -> None:
    """A rank is expected from the step of its first stepped line on; below the world it is absent before."""
    made = roster(writer("a", 0, barrier=9, world=2), writer("b", 1, begins=7, barrier=9, world=2))
    assert coverage(made, 6) == (1, [], ("0.1",))
    assert coverage(made, 7) == (2, [], ())


def test_the_newest_open_that_began_governs_the_world() -> None:
    """A job restarted with fewer ranks no longer expects the others from where it resumed, and still does before."""
    old = [writer(f"o{rank}", rank, barrier=5, world=4) for rank in range(4)]
    new = [writer(f"n{rank}", rank, begins=4, barrier=9, world=2, attempt=1, t=T0 + 500) for rank in range(2)]
    made = roster(*old, *new)
    assert coverage(made, 3) == (4, [], ())
    assert coverage(made, 4) == (2, [], ())
    assert coverage(made, 9) == (2, [], ())
    grown = roster(*new, *(writer(f"o{rank}", rank, barrier=5, world=1) for rank in range(1)))
    assert coverage(grown, 3) == (1, [], ())
    assert coverage(grown, 4) == (2, [], ())


def test_without_a_world_those_who_came_are_expected() -> None:
    """Writers that do not say how many they are count from their first stepped line on."""
    made = roster(writer("a", 0, barrier=5), writer("b", 7, begins=3, barrier=4), writer("c", 9, begins=None))
    assert coverage(made, 2) == (1, [], ())
    assert coverage(made, 5) == (2, ["0.7"], ())
    assert waited(made, 2) == ([], False)


def test_one_that_closed_covers_what_it_did_not_reach() -> None:
    """A rank whose expected writer closed is not missing; an older writer of it that never closed does not matter."""
    old = writer("old", barrier=3, world=1)
    new = writer("new", begins=2, barrier=4, world=1, attempt=1, closed=True)
    assert coverage(roster(old, new), 9) == (1, [], ())
    assert coverage(roster(old), 9) == (1, ["0.0"], ())
    assert waited(roster(old, new), 9) == ([], False)


def test_one_that_failed_is_missing_and_not_waited_for() -> None:
    """The row without it is partial."""
    failed = writer("b", 1, barrier=3, world=2)
    failed.end.failure = "RuntimeError: CUDA out of memory"
    made = roster(writer("a", 0, barrier=5, world=2), failed)
    assert coverage(made, 3) == (2, [], ())
    assert coverage(made, 4) == (2, ["0.1"], ())
    assert made.waiting(4, 100.0, closed_any=True, join_s=60.0) == ((), False, "partial")
    assert made.waiting(3, 100.0, closed_any=True, join_s=60.0) == ((), False, "complete")


def test_any_candidate_covers_but_only_the_newest_is_waited_for() -> None:
    """What an older attempt finished is covered at once; the newer one, which may rewrite it, is waited for."""
    made = roster(writer("old", barrier=5, world=1), writer("new", begins=3, barrier=2, world=1, attempt=1))
    assert coverage(made, 4) == (1, [], ())
    assert waited(made, 4) == (["new"], False)


def test_implicit_writers() -> None:
    """Without barriers a line of step s ends all steps before; for coverage the step itself counts as well."""
    made = roster(writer("a", 0, last=5, world=2), writer("b", 1, last=4, world=2))
    assert waited(made, 3) == ([], False)
    assert waited(made, 4) == (["b"], False)
    assert coverage(made, 4) == (2, [], ())
    assert coverage(made, 5) == (2, ["0.1"], ())


def test_a_rollback_takes_promises_back() -> None:
    """After a rollback the writer is waited for from there on again; the steps before stay covered."""
    one = writer("a", barrier=9, world=1)
    one.segments.append(Segment(one, 1, begins=6, barrier=5))
    made = roster(one)
    assert waited(made, 5) == ([], False)
    assert waited(made, 6) == (["a"], False)
    assert coverage(made, 6) == (1, [], ())


def test_two_at_once_for_one_rank() -> None:
    """Writers of one rank and attempt that ran side by side are both expected; one that was restarted is not."""
    first, second = writer("a", barrier=9, newest_t=T0 + 161), writer("b", barrier=3, t=T0 + 100)
    assert side_by_side(first, second) and side_by_side(second, first)
    made = roster(first, second)
    assert waited(made, 5) == (["b"], False)
    assert made.shared_places() == [[first, second]]
    first.newest_t = T0 + 160
    assert not side_by_side(first, second)
    other = writer("c", attempt=1, t=T0 + 1)
    first.newest_t = T0 + 500
    assert not side_by_side(first, other)


def test_which_of_a_ranks_segments_count() -> None:
    """A newer attempt, open time, id or rollback supersedes, except side by side; members of a family never do."""
    old, new = writer("a", t=T0), writer("b", t=T0 + 50)
    assert counting([old.segments[0], new.segments[0]]) == [new.segments[0]]
    old.newest_t = T0 + 111
    assert counting([old.segments[0], new.segments[0]]) == [old.segments[0], new.segments[0]]
    rolled = Segment(new, 1, begins=3)
    assert counting([old.segments[0], new.segments[0], rolled]) == [old.segments[0], rolled]
    child = writer("c", parent="b", attempt=9, t=T0 + 900)
    roster(old, new, child)
    assert counting([new.segments[0], child.segments[0]]) == [new.segments[0], child.segments[0]]


def test_ranks_that_a_later_attempt_has_not() -> None:
    """An attempt of two ranks leaves no seat for rank 2 of the one before, in its replica; without a world all stay."""
    old = [writer(f"o{rank}", rank, world=4) for rank in range(4)]
    other = writer("other", 3, world=4, replica="1")
    before = [one.segments[0] for one in (*old, other)]
    assert still_in_world(before) == before
    smaller = writer("n", 0, world=2, attempt=1).segments[0]
    assert still_in_world([*before, smaller]) == [*before[:2], before[4], smaller]
    assert newest([*before, smaller]) == {before[1], before[4], smaller}
    unknown = writer("u", 1, attempt=1).segments[0]
    assert still_in_world([*before, unknown]) == [*before, unknown]
    same = writer("m", 1, world=2, t=T0 + 500).segments[0]
    assert still_in_world([*before, same]) == [*before[:2], before[4], same]
    for one in old:
        one.newest_t = T0 + 560
    assert still_in_world([*before, same]) == [*before[:2], before[4], same]
    for one in old:
        one.newest_t = T0 + 561
    assert still_in_world([*before, same]) == [*before, same]


def test_children_count_for_their_parents_rank() -> None:
    """A child is never expected or waited for, whatever rank and world it names, and has its root's rank."""
    child = writer("c", 5, parent="p", world=99, last=3)
    made = roster(writer("p", 1, barrier=9, world=2), child, writer("q", 0, barrier=9, world=2))
    assert coverage(made, 9) == (2, [], ())
    assert waited(made, 9) == ([], False)
    assert (child.rank, child.at_home) == (("0", 1), False)


def test_a_child_may_come_before_its_parent() -> None:
    """Until the parent's file is there a child stands for itself; then it moves, and so do its own children."""
    made = Roster()
    grandchild, child, parent = writer("g", 4, parent="c"), writer("c", 3, parent="p"), writer("p", 0, barrier=9)
    assert made.add(grandchild) == []
    assert made.add(child) == [grandchild]
    assert coverage(made, 0)[0] == 1
    assert grandchild.rank == ("0", 3)
    assert set(made.add(parent)) == {grandchild, child}
    assert grandchild.rank == child.rank == ("0", 0)
    assert coverage(made, 9) == (1, [], ())


@pytest.mark.parametrize(
    "parents",
    [{"a": "a", "b": "b"}, {"a": "b", "b": "a"}, {"a": "nowhere", "b": "neither"}],
    ids=["themselves", "each other", "strangers"],
)
def test_families_without_a_root(parents: dict[str, str]) -> None:
    """Writers that name themselves, each other or an unknown writer as parents are their own roots and expected."""
    made = roster(*(writer(name, rank, parent=parents[name], barrier=1) for rank, name in enumerate(parents)))
    assert coverage(made, 1) == (2, [], ())
    assert all(one.root is one for one in made.writers.values())


def test_joiners() -> None:
    """A writer without a stepped line is waited for, once there is a row only for a minute after its open."""
    made = roster(writer("a", 0, barrier=9, world=2), writer("b", 1, begins=None, world=2))
    assert waited(made, 9, now=10_000.0) == (["b"], False)
    assert waited(made, 9, now=159.0, closed_any=True) == (["b"], False)
    assert waited(made, 9, now=161.0, closed_any=True) == ([], False)
    gone = roster(writer("a", 0, barrier=9, world=2), writer("b", 1, begins=None, world=2, closed=True))
    assert waited(gone, 9) == ([], False)


def test_replicas_stand_apart() -> None:
    """Each replica has its own world, and they sort as numbers first, then as text."""
    made = roster(
        writer("a", 0, replica="10", barrier=3, world=2),
        writer("b", 0, replica="2", barrier=1, world=1),
        writer("c", 0, replica="x", barrier=1, world=1),
    )
    assert coverage(made, 3) == (3, ["2.0", "x.0"], ("10.1",))
    assert sorted(("x", "10", "2", "01", "1", "", "²"), key=replica_key) == ["01", "1", "2", "10", "", "x", "²"]


def test_what_writers_dropped() -> None:
    """Gaps count for the steps they span, of all writers, and stay within what JSON can hold."""
    one, two = writer("a"), writer("b", 1)
    one.gaps = [Gap(3, 1, 5), Gap(7, None, None)]
    two.gaps = [Gap(10, 5, 6)]
    made = roster(one, two)
    assert [made.gap(step) for step in (0, 1, 5, 6, 7)] == [0, 3, 13, 10, 0]
    two.gaps += [Gap((1 << 64) - 1, 5, 5)] * 2
    assert made.gap(5) == (1 << 53) - 1


def test_the_order_in_which_lines_merge() -> None:
    """Replica, rank, attempt, open time and id decide, never the order of arrival; ranks have short names."""
    writers = [writer("b", 2), writer("a", 1), writer("z", 0, attempt=1), writer("y", 0), writer("x", 0, replica="-")]
    order = order_of(tuple(one.segments[0] for one in writers))
    assert [segment.writer.open.id for segment in order.segments] == ["y", "z", "a", "b", "x"]
    assert (order.places, order.ranks, order.attempts) == ((3, 2, 1, 0, 4), ("0.0-2", "-.0"), (0, 1))


def test_a_world_of_a_million_costs_nothing() -> None:
    """One rank of a world of 2^20 is answered for a thousand steps in a moment, and the absent ones in one name."""
    made = roster(writer("a", 77, barrier=5, world=MAX_WORLD))
    began = time.process_time()
    for step in range(1000):
        made._replicas["0"].forget()
        answer = coverage(made, step)
        waited(made, step)
    assert time.process_time() - began < 2.0
    assert answer == (1, ["0.77"], ("0.0-76", "0.78-1048575"))


def test_answers_are_not_kept_beyond_a_change() -> None:
    """A settled answer is given up when a writer comes, when one begins, and when two turn out to run side by side."""
    made = roster(writer("a", 0, barrier=9, world=3))
    assert coverage(made, 9) == (1, [], ("0.1-2",))
    late = writer("b", 1, begins=None, world=3)
    made.add(late)
    assert coverage(made, 9) == (1, [], ("0.1-2",))
    late.segments[0].begins = 5
    made.changed(late)
    assert coverage(made, 9) == (2, ["0.1"], ("0.2",))
    rival = writer("c", 1, begins=5, barrier=9, world=3, t=T0 - 1)
    made.add(rival)
    assert waited(made, 9, now=1e6) == (["b"], False)
    rival.newest_t, rival.segments[0].barrier, late.segments[0].barrier = T0 + 100, 5, 9
    made.changed(rival)
    assert waited(made, 9, now=1e6) == (["c"], False)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2),
            st.sampled_from((0.0, 30.0, 59.0, 61.0, 200.0, 1000.0)),
            st.sampled_from((None, "a", "b", "c")),
            st.sampled_from(("0", "0", "x")),
        ),
        max_size=12,
    )
)
def test_submissions_are_the_same_in_whatever_order_writers_come(
    found: list[tuple[int, int, float, str | None, str]],
) -> None:
    """A roster that gets its writers one by one gives each the submission that all of them together give it, and each
    job the number of those that are over for it.
    """
    made = Roster()
    for number, (rank, attempt, t, job, replica) in enumerate(found):
        one = writer(f"w{number}", rank, attempt=attempt, t=T0 + t)
        one.open = replace(one.open, job=job, replica=replica)
        one.belong_to(one)
        made.add(one)
        jobs = made.jobs()
        assert [job.follows for job in jobs] == [sum(other.over_for(job) for other in jobs) for job in jobs]
        for replica in {root.open.replica for root in made.writers.values()}:
            roots = [root for root in made.writers.values() if root.open.replica == replica]
            assert {root.file: root.submission for root in roots} == {
                root.file: number for root, number in submissions(roots).items()
            }
