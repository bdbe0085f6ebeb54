"""What a row says it is made of: the reference on cases worked out by hand."""

from __future__ import annotations

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.building import (
    CLOSE,
    T0,
    barrier,
    beat,
    clock,
    coverage,
    event,
    file,
    log,
    rollback,
    row,
    sample,
    span,
)
from tests.reference.reduction import final_rows


def test_missing_rank() -> None:
    """A rank that logs step 2 but has no barrier there is missing; later barriers cover earlier steps."""
    zero = file(log(1, loss=1), log(2, loss=1), barrier(2), world=2)
    one = file(log(1, loss=1), barrier(1), log(2, loss=1), world=2, rank=1, id="b")
    assert coverage(zero, one, step=1) == Coverage(ranks=("0.0-1",), expected=2, attempts=(0,))
    assert coverage(zero, one, step=2) == Coverage(ranks=("0.0-1",), expected=2, missing=("0.1",), attempts=(0,))


def test_implicit_writers() -> None:
    """Without any barrier record the newest metrics step is the barrier; one barrier record anywhere ends that."""
    assert coverage(file(log(1, loss=1), log(2, loss=1))).missing == ()
    two_behind = [file(log(1, loss=1), world=2), file(log(2, loss=1), log(0, loss=1), world=2, rank=1, id="b")]
    assert coverage(*two_behind, step=2).missing == ("0.0",)
    assert coverage(file(barrier(0), log(1, loss=1))).missing == ("0.0",)
    assert coverage(file(log(1, loss=1), rollback(5), log(5, loss=1))).missing == ()
    assert coverage(file(log(1, loss=1), rollback(5), barrier(5))).missing == ("0.0",)
    assert coverage(file(log(1, loss=1), rollback(1), barrier(0))).missing == ("0.0",)


def test_closed_writers_are_not_missing() -> None:
    """A close stands for all barriers, except one that only rolls over to the next file."""
    assert coverage(file(barrier(0), log(1, loss=1), CLOSE)).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), {"kind": "close"})).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), {"kind": "close", "reason": "roll"})).missing == ("0.0",)


def test_a_writer_that_an_error_ended_is_missing() -> None:
    """Such a close stands for no barrier; one in order counts, wherever it stands."""
    failed = {"kind": "close", "reason": "error", "error": "RuntimeError: CUDA out of memory"}
    assert coverage(file(barrier(0), log(1, loss=1), failed)).missing == ("0.0",)
    assert coverage(file(barrier(1), log(1, loss=1), failed)).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), failed, CLOSE)).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), CLOSE, failed)).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), failed), file(barrier(1), attempt=1, id="b")).missing == ()


def test_the_newest_candidate_must_be_closed() -> None:
    """A closed attempt does not cover its successor, which began and has no barrier yet; an old barrier does."""
    new = file(barrier(0), log(1, loss=2), attempt=1, id="b")
    assert coverage(file(barrier(0), log(1, loss=1), CLOSE), new).missing == ("0.0",)
    assert coverage(file(log(1, loss=1), barrier(1)), new).missing == ()
    assert (
        coverage(file(barrier(0), log(1, loss=1)), file(log(1, loss=2), barrier(0), CLOSE, attempt=1, id="b")).missing
        == ()
    )


def test_side_by_side_writers_are_all_expected() -> None:
    """Of two that run side by side both must be closed; without an overlap the newer one is enough."""
    new = file(barrier(0), log(1, loss=2), CLOSE, id="b", t=T0 + 10)
    assert coverage(file(barrier(0), log(1, loss=1), beat(99)), new).missing == ("0.0",)
    assert coverage(file(barrier(0), log(1, loss=1), beat(99), CLOSE), new).missing == ()
    assert coverage(file(barrier(0), log(1, loss=1), beat(70)), new).missing == ()


def test_where_writers_begin() -> None:
    """A rank is expected from its first stepped line in file order: a metrics record, what stands for one, or a
    barrier; dead lines, clocks and streams are left out.
    """
    zero = file(log(1, loss=1), barrier(9))
    idle = [{"kind": "span", "step": 1}, clock(0) | {"step": 1}, {"m": {"loss": 1}}]
    late = file(*idle, log(5, loss=1), log(1, seldom=1), id="b", rank=1)
    assert coverage(zero, late, step=1).expected == 1
    assert coverage(zero, late, step=5).expected == 2
    for first in (barrier(1), span("a", 1, step=1), event("a", step=1), sample(1)):
        assert coverage(zero, file(first, id="b", rank=1)).expected == 2


def test_where_rolled_back_segments_begin() -> None:
    """After a rollback to 3 a segment begins at 3 and has the barrier 2; the segment before keeps its own."""
    data = file(log(5, loss=1), barrier(5), rollback(3), log(2, loss=1), log(3, loss=1), log(6, loss=1), world=2)
    assert (coverage(data, step=2).expected, coverage(data, step=2).absent) == (0, ())
    assert (coverage(data, step=3).expected, coverage(data, step=3).missing) == (1, ("0.0",))
    assert (coverage(data, step=5).expected, coverage(data, step=5).missing) == (1, ())
    assert (coverage(data, step=6).expected, coverage(data, step=6).missing) == (1, ("0.0",))
    implicit = file(log(9, loss=1), rollback(3), log(2, loss=1))
    assert coverage(implicit, step=9).missing == ()


def test_world_and_absent_ranks() -> None:
    """Ranks below the world that never began are absent; ranks at or above it contribute without being expected."""
    zero, five = file(log(1, loss=1), world=4), file(log(1, loss=3), barrier(0), rank=5, id="b", t=T0 - 1)
    assert coverage(zero, five) == Coverage(ranks=("0.0", "0.5"), expected=1, absent=("0.1-3",), attempts=(0,))
    assert row(zero, five).values == {"trainer/loss": 2.0}


def test_the_newest_candidate_governs_the_world() -> None:
    """The world is the newest open's among those that began by then: a smaller restart, or one without a world."""
    old = [file(log(1, loss=1), log(5, loss=1), world=3, rank=rank, id=f"o{rank}") for rank in (0, 1)]
    smaller = file(log(5, loss=2), world=1, attempt=1, id="n")
    assert coverage(*old, smaller, step=1).absent == ("0.2",)
    assert coverage(*old, smaller, step=5) == Coverage(ranks=("0.0",), expected=1, attempts=(1,))
    worldless = file(log(5, loss=2), attempt=1, id="n")
    assert coverage(*old, worldless, step=5) == Coverage(ranks=("0.0-1",), expected=2, attempts=(0, 1))


def test_replicas_have_worlds_of_their_own() -> None:
    """Absent and missing ranks are listed in merge order over all replicas; one that begins later is not listed."""
    ten = file(barrier(0), log(1, loss=1), replica="10", world=2, id="b")
    nine = file(barrier(0), log(1, loss=1), replica="9", rank=1, world=3, id="c")
    later = file(log(8, loss=1), replica="11", world=9, id="d")
    assert coverage(ten, nine, later) == Coverage(
        ranks=("9.1", "10.0"), expected=2, missing=("9.1", "10.0"), absent=("9.0", "9.2", "10.1"), attempts=(0,)
    )


def test_children_have_no_say_in_coverage() -> None:
    """A child is never expected, absent or a governor of the world; it only contributes to its root's rank."""
    root = file(log(1, loss=1), barrier(1), world=1)
    child = file(barrier(0), log(1, loss=3), parent="a", id="b", rank=7, world=9, attempt=3)
    assert coverage(root, child) == Coverage(ranks=("0.0",), expected=1, attempts=(0, 3))
    assert coverage(file(log(5, loss=1)), child) == Coverage(ranks=("0.0",), expected=0, attempts=(3,))


def test_neighbouring_ranks_are_named_together() -> None:
    """Runs of two or more ranks of one replica have one name; a hole or another replica ends a run."""
    places = [("0", 0), ("0", 1), ("0", 2), ("0", 4), ("1", 5), ("1", 7), ("1", 8)]
    files = [
        file(barrier(0), log(1, loss=1), replica=replica, rank=rank, world=11, id=f"{replica}{rank}")
        for replica, rank in places
    ]
    assert coverage(*files) == Coverage(
        ranks=("0.0-2", "0.4", "1.5", "1.7-8"),
        expected=7,
        missing=("0.0-2", "0.4", "1.5", "1.7-8"),
        absent=("0.3", "0.5-10", "1.0-4", "1.6", "1.9-10"),
        attempts=(0,),
    )


def test_ranks_are_those_of_the_roots() -> None:
    """A child that calls itself rank 7 stands for its parent's rank, and is listed where that rank belongs."""
    root, child = file(barrier(1)), file(log(1, loss=3), parent="a", id="b", rank=7)
    one = file(log(1, loss=1), rank=1, id="c")
    assert coverage(one, child, root).ranks == ("0.0-1",)


def test_gaps() -> None:
    """Gaps of all the actor's files that contain the step add up, superseded or not; not those without from and to."""
    old = file(log(1, loss=1), {"kind": "gap", "n": 3, "from": 0, "to": 1}, {"kind": "gap", "n": 50})
    new = file({"kind": "gap", "n": 4, "from": 1, "to": 1}, log(1, loss=1), log(2, loss=1), attempt=1, id="b")
    other = file({"kind": "gap", "n": 100, "from": 0, "to": 9}, actor="reward", id="c")
    assert coverage(old, new, other, step=1).gap == 7
    assert coverage(old, new, other, step=2).gap == 0


def test_t_and_x_are_of_what_counts() -> None:
    """t is the greatest of the counting lines, x the axis of the first contributing writer in merge order."""
    old = file({"t": T0 + 50, **log(1, loss=1)}, axis="superseded")
    new = file({"t": T0 + 7, **log(1, loss=1)}, {"t": T0 + 9, **log(1, loss=None)}, attempt=1, id="b", axis="episode")
    one = file({"t": T0 + 6, **log(1, loss=1)}, rank=1, id="c", axis="third")
    assert (row(one, new, old).t, row(one, new, old).x) == (T0 + 7, {"episode": 1})


def test_t_and_x_where_nothing_counts() -> None:
    """Where no value counts, t and x are of all metrics records of the unit."""
    one = file({"t": T0 + 5, **log(1, loss="rubbish")}, rank=1, id="b", axis="second")
    zero = file({"t": T0 + 2, **log(1)}, axis="first")
    only = row(one, zero)
    assert (only.t, only.x, only.values) == (T0 + 5, {"first": 1}, {})
    assert only.coverage == Coverage(ranks=(), expected=2)


def test_units() -> None:
    """Every (actor, step) with a metrics record, or what stands for one, is a unit; barriers make none."""
    data = file(log(2, loss=1), log(7), barrier(9), span("a", 1, step=3), {"m": {"loss": 4}}, rollback(1))
    other = file(log(2, loss=1), actor="reward")
    assert [unit for unit in final_rows({"x": data, "y": other}) if unit.kind == "step"] == [
        Unit("reward", "step", 2),
        Unit("trainer", "step", 2),
        Unit("trainer", "step", 3),
        Unit("trainer", "step", 7),
    ]
