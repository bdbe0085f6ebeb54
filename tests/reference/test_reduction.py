"""Which figures a row holds: the reference reduction on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.building import ALL, T0, barrier, beat, coverage, define, figures, file, log, logged, rollback, row
from tests.reference.reduction import final_rows
from tests.reference.rows import ReferenceRow

# --- values to figures ---


def test_a_whole_row() -> None:
    """Two ranks log a step and its barrier: one row says everything of it."""
    zero = file({"t": T0 + 2, **log(1, loss=0.5)}, barrier(1), world=2)
    one = file({"t": T0 + 3, **log(1, loss=1.5)}, barrier(1), world=2, rank=1, id="b")
    assert final_rows({"x": one, "y": zero}) == {
        Unit("trainer", "step", 1): ReferenceRow(
            unit=Unit("trainer", "step", 1),
            t=T0 + 3,
            x={"global_step": 1},
            values={"trainer/loss": 1.0, "trainer/barrier/spread_s": 1.0},
            coverage=Coverage(ranks=("0.0-1",), expected=2, attempts=(0,)),
        )
    }


def test_every_reduction() -> None:
    """Of 1, 3 and 5: m2 is 0 + 0 + 2·2·(1/2) = 2, then 2 + 0 + 3·3·(2·1/3) = 8, so std is sqrt(8/3)."""
    assert figures(file(define(loss=ALL), log(1, loss=[1, 3, 5]))) == {
        "loss": 3.0,
        "loss/sum": 9.0,
        "loss/min": 1.0,
        "loss/max": 5.0,
        "loss/first": 1.0,
        "loss/last": 5.0,
        "loss/std": 1.632993161855452,
        "loss/count": 3.0,
    }


def test_std_is_evaluated_in_the_written_order() -> None:
    """(d·d)·((a.w·b.w)/(a.w + b.w)): every other grouping gives another last digit for 0 (w 3) and 1.7 (w 2)."""
    assert figures(file(define(loss="std"), log(1, loss={"v": [0, 1.7], "w": [3, 2]}))) == {"loss": 0.8328265125462805}


def test_equal_values_have_no_spread() -> None:
    """Of 0.1 four times m2 is 3.6e-35 by rounding, and std 0: of values, ranks, weights and a summary."""
    equal = {"n": 3, "w": 2, "sum": 0.2, "min": 0.1, "max": 0.1, "m2": 1e-20}
    for value in ([0.1] * 4, {"v": [0.1] * 4, "w": [1, 0, 3, 0.7]}, equal):
        assert figures(file(define(loss="std"), log(1, loss=value))) == {"loss": 0.0}
    assert figures(*(file(define(loss="std"), log(1, loss=0.1), rank=n, id=f"{n}") for n in range(4))) == {"loss": 0.0}
    unknown = file(define(loss="std"), log(1, loss={"n": 3, "sum": 0.3, "min": 0.1, "max": 0.1}))
    assert figures(unknown) == {}
    assert figures(file(define(loss="std"), log(1, loss={"v": [0.1, 0.1], "w": [0, 0]}))) == {}


def test_weights_act_on_mean_sum_and_std_only() -> None:
    """2 (w 3), 6 (w 1), -1 (w 0): sum 12, w 4, m2 = 4·4·(3·1/4) = 12, std sqrt(12/4); the weightless one is counted."""
    value = {"v": [2, 6, -1], "w": [3, 1, 0]}
    assert figures(file(define(loss=ALL), log(1, loss=value))) == {
        "loss": 3.0,
        "loss/sum": 12.0,
        "loss/min": -1.0,
        "loss/max": 6.0,
        "loss/first": 2.0,
        "loss/last": -1.0,
        "loss/std": 1.7320508075688772,
        "loss/count": 3.0,
    }


def test_no_weight_at_all() -> None:
    """Where the weights add up to 0, mean and std are absent without being underivable; sum stays what was added."""
    only = row(file(define(loss=["mean", "std", "sum", "max"]), log(1, loss={"v": [-3], "w": [0]})))
    assert only.values == {"trainer/loss/sum": 0.0, "trainer/loss/max": -3.0}
    assert only.coverage.underivable == ()
    lacking = row(file(define(loss=["mean", "sum"]), log(1, loss={"n": 2, "w": 0})))
    assert (lacking.values, lacking.coverage.underivable) == ({}, ("trainer/loss/sum",))


def test_nonfinite_observations_are_counted_apart() -> None:
    """Non-finite observations enter no figure but their own count, unless their weight is 0."""
    value = {"v": ["NaN", 4, "Infinity", "-Infinity"], "w": [1, 1, 0, 2]}
    assert figures(file(define(loss=["mean", "count"]), log(1, loss=value))) == {
        "loss": 4.0,
        "loss/count": 1.0,
        "loss/nonfinite": 2.0,
    }
    assert figures(file(define(loss=ALL), log(1, loss="NaN"))) == {"loss/count": 0.0, "loss/nonfinite": 1.0}
    assert figures(file(define(loss=ALL), log(1, loss={"v": ["NaN"], "w": [0]}))) == {"loss/count": 0.0}


def test_a_nonfinite_observation_makes_a_contribution() -> None:
    """A rank that has only a NaN of weight 0 is in the row, and supersedes like any other."""
    old = file(log(1, loss=7))
    new = file(log(1, loss={"v": ["NaN"], "w": [0]}), attempt=1, id="b")
    assert logged(row(old, new)) == {}
    assert coverage(old, new).ranks == ("0.0",)
    assert coverage(old, new).attempts == (1,)


def test_summaries_merge_with_observations() -> None:
    """(n 2, sum 4, m2 2) and then 5: d = 5/1 - 4/2 = 3, m2 = 2 + 0 + 9·(2/3) = 8 and mean 9/3."""
    summary = {"n": 2, "sum": 4, "m2": 2, "min": 1, "max": 3, "first": 3, "last": 1}
    assert figures(file(define(loss=ALL), log(1, loss=summary), log(1, loss=5))) == {
        "loss": 3.0,
        "loss/sum": 9.0,
        "loss/min": 1.0,
        "loss/max": 5.0,
        "loss/first": 3.0,
        "loss/last": 5.0,
        "loss/std": 1.632993161855452,
        "loss/count": 3.0,
    }


def test_weight_of_a_summary() -> None:
    """A summary's w is n unless given: means 6/3 and 6/4; a weightless side leaves m2 alone: std = sqrt((0 + 16)/4)."""
    assert figures(file(log(1, loss={"n": 3, "sum": 6}))) == {"loss": 2.0}
    assert figures(file(log(1, loss={"n": 3, "sum": 6, "w": 4}))) == {"loss": 1.5}
    weightless = file(define(loss="std"), log(1, loss={"v": [9], "w": [0]}), log(1, loss={"n": 4, "sum": 4, "m2": 16}))
    assert figures(weightless) == {"loss": 2.0}


def test_unknown_fields_spread() -> None:
    """What one summary lacks cannot be derived for the unit, even if another summary has it; m2 goes with sum."""
    lacking = file(log(1, loss={"n": 2, "m2": 1, "max": 3}), rank=1, id="b")
    whole = row(file(define(loss=ALL), log(1, loss=5)), lacking)
    assert whole.values == {
        "trainer/loss/max": 5.0,
        "trainer/loss/first": 5.0,
        "trainer/loss/last": 5.0,
        "trainer/loss/count": 3.0,
    }
    assert whole.coverage.underivable == ("trainer/loss", "trainer/loss/min", "trainer/loss/std", "trainer/loss/sum")


def test_an_unknown_field_stays_unknown() -> None:
    """It does not matter whether the side that lacks the field is merged first or last; first and last have a side."""
    lacking, whole = log(1, loss={"n": 2, "w": 2}), log(1, loss=5)
    for lines, known in (((lacking, whole), "last"), ((whole, lacking), "first")):
        only = row(file(define(loss=ALL), *lines))
        assert only.values == {"trainer/loss/count": 3.0, f"trainer/loss/{known}": 5.0}
        assert len(only.coverage.underivable) == 6


def test_unknown_first_within_one_rank() -> None:
    """Within the rank that gives them, `last` is unknown if its last part lacks it, even if an earlier part had one."""
    only = row(file(define(loss=["first", "last"]), log(1, loss=5), log(1, loss={"n": 1, "first": 2})))
    assert only.values == {"trainer/loss": 5.0}
    assert only.coverage.underivable == ("trainer/loss/last",)


def test_neutral_partials_make_nothing_unknown() -> None:
    """NaNs and empty summaries leave all figures of the others as they are, even the sign of a zero."""
    only = row(file(define(loss=["sum", "first"]), log(1, loss=["NaN", -0.0, "NaN"]), log(1, loss={"n": 0})))
    assert only.values == {"trainer/loss": 0.0, "trainer/loss/first": 0.0, "trainer/loss/nonfinite": 2.0}
    assert str(only.values["trainer/loss"]) == "-0.0"


def test_overflow_is_underivable() -> None:
    """A figure that is not finite is absent and named; the finite ones beside it stay."""
    only = row(file(define(loss=["mean", "max"]), log(1, loss=[1.7e308, 1.7e308])))
    assert only.values == {"trainer/loss/max": 1.7e308}
    assert only.coverage.underivable == ("trainer/loss",)


def test_ties_of_min_and_max() -> None:
    """Of 0.0 and -0.0 the earlier one is both the least and the greatest."""
    only = figures(file(define(loss=["min", "max"]), log(1, loss=[-0.0, 0.0])))
    assert [str(figure) for figure in only.values()] == ["-0.0", "-0.0"]


# --- order ---


def summed(*values: list[float]) -> float:
    """The sum over files of one rank each, in rank order."""
    files = [file(define(loss="sum"), log(1, loss=v), rank=rank, id=f"w{rank}") for rank, v in enumerate(values)]
    return figures(*reversed(files))["loss"]


def test_each_writer_adds_up_first() -> None:
    """0.1 + (0.2 + 0.3) = 0.6 but (0.1 + 0.2) + 0.3 = 0.6000000000000001: each writer has its own moments."""
    assert summed([0.1], [0.2, 0.3]) == 0.6
    assert summed([0.1, 0.2], [0.3]) == 0.6000000000000001
    assert summed([0.1], [0.2], [0.3]) == 0.6000000000000001


def test_partials_merge_in_rank_order() -> None:
    """1 is lost in 1e16 unless 1e16 is gone before it comes."""
    assert summed([1e16], [1.0], [-1e16]) == 0.0
    assert summed([1e16], [-1e16], [1.0]) == 1.0
    assert summed(*[[0.0]] * 9, [1e16], [-1e16], [1.0]) == 1.0


@pytest.mark.parametrize(
    ("ordered"),
    [
        [{"replica": "9"}, {"replica": "10"}, {"replica": "1a"}],
        [{"replica": "01"}, {"replica": "1"}, {"replica": "a"}],
        [{"replica": "2"}, {"replica": ""}, {"replica": "²"}],
        [{"replica": "0", "rank": 7}, {"replica": "1", "rank": 0}, {"replica": "1", "rank": 3}],
    ],
)
def test_replica_order(ordered: list[dict[str, Any]]) -> None:
    """Numbers by value and before all others, equal numbers and others by code point; then ranks."""
    values = [1e16, -1e16, 1.0]
    files = [file(define(loss="sum"), log(1, loss=v), **who) for v, who in zip(values, ordered)]
    names = tuple(f"{who['replica']}.{who.get('rank', 0)}" for who in ordered)
    for turned in (files, files[::-1], [files[1], files[2], files[0]]):
        assert figures(*turned) == {"loss": 1.0}
        assert coverage(*turned).ranks == names


@pytest.mark.parametrize(
    "ordered",
    [
        [{"t": T0, "id": "z"}, {"t": T0 + 1, "id": "a"}, {"t": T0 + 1, "id": "b"}],
        [{"t": T0 + 2, "id": "a"}, {"t": T0 + 2, "id": "b"}, {"t": T0 + 2, "id": "c"}],
    ],
)
def test_writers_of_one_rank_merge_by_time_and_id(ordered: list[dict[str, Any]]) -> None:
    """Side-by-side writers of one rank and attempt merge in the order of (open.t, id)."""
    values = [1e16, -1e16, 1.0]
    files = [file(define(loss="sum"), log(1, loss=v), beat(99), **who) for v, who in zip(values, ordered)]
    assert figures(*files[::-1]) == {"loss": 1.0}


def test_first_and_last_come_from_the_lowest_rank_with_a_finite_value() -> None:
    """Rank 0 has only a NaN, so rank 1 gives first and last, in its own file order and whatever the clocks say."""
    ask = define(loss=["first", "last"])
    zero = file(ask, log(1, loss="NaN"))
    one = file(ask, {"t": T0 + 9, **log(1, loss=[4, 5])}, {"t": T0 + 1, **log(1, loss=6)}, rank=1, id="b")
    two = file(ask, log(1, loss=8), rank=2, id="c")
    assert figures(two, one, zero) == {"loss": 4.0, "loss/last": 6.0, "loss/nonfinite": 1.0}


# --- reductions asked for ---


def test_a_define_governs_later_lines_of_its_own_file() -> None:
    """Before the define a line asks for the mean; after it for what it says; another file for the mean again."""
    one = file(log(1, loss=4), define(loss=["max", "min"]), log(2, loss=[1, 2, 6]))
    two = file(log(2, loss=9), rank=1, id="b")
    assert row(one).values == {"trainer/loss": 4.0}
    assert row(one, two, step=2).values == {"trainer/loss": 9.0, "trainer/loss/min": 1.0, "trainer/loss/mean": 4.5}


def test_a_later_define_replaces_the_earlier() -> None:
    """Lines of one step on both sides of a change ask for both, first come first; an unusable entry changes nothing."""
    lines = [define(loss="max"), log(1, loss=1), define(loss="sum"), define(loss="median"), log(1, loss=2)]
    assert figures(file(*lines)) == {"loss": 2.0, "loss/sum": 3.0}
    assert figures(file(*lines[:3], log(1, loss=None))) == {"loss": 1.0}


def test_union_in_merge_order() -> None:
    """The first reduction is that of the first counting writer in merge order, not of the first file or clock."""
    one = file(define(loss="max"), log(1, loss=1), rank=1, id="a", t=T0 - 9)
    zero = file(define(loss="min"), log(1, loss=2), rank=0, id="b")
    assert figures(one, zero) == {"loss": 1.0, "loss/max": 2.0}


def test_superseded_lines_ask_for_nothing() -> None:
    """What only a superseded writer asks for is not shown."""
    old = file(define(loss="max"), log(1, loss=1))
    new = file(define(loss="min"), log(1, loss=2), attempt=1, id="b")
    assert figures(old, new) == {"loss": 2.0}


def test_configuration_comes_first() -> None:
    """The configuration silences defines; `<actor>/<metric>` goes before `<metric>`; a repeated name counts once."""
    data = file(define(loss="max"), log(1, loss=[1, 5]))
    assert figures(data, loss=["sum", "min", "sum"]) == {"loss": 6.0, "loss/min": 1.0}
    assert figures(data, **{"trainer/loss": ["count"], "loss": ["min"]}) == {"loss": 2.0}
    assert figures(data, **{"reward/loss": ["count"]}) == {"loss": 5.0}


def test_key_collisions() -> None:
    """A metric called loss/max owns the key that loss's max would have, and so does one called loss/nonfinite."""
    ask = define(loss=["mean", "max"])
    m = {"loss": [1, 3, "NaN"], "loss/max": 10, "loss/nonfinite": 20}
    assert figures(file(ask, log(1, **m))) == {"loss": 2.0, "loss/max": 10.0, "loss/nonfinite": 20.0}


def test_an_owner_without_a_figure_keeps_its_key() -> None:
    """Where the metric that owns a key has no figure to give, the other's figure does not slip in under its name."""
    ask = define(loss=["mean", "max"])
    only = row(file(ask, log(1, **{"loss": [1, 3], "loss/max": {"n": 1}})))
    assert (only.values, only.coverage.underivable) == ({"trainer/loss": 2.0}, ("trainer/loss/max",))
    only = row(file(ask, log(1, **{"loss": {"n": 1, "sum": 1}, "loss/max": 10})))
    assert (only.values, only.coverage.underivable) == ({"trainer/loss": 1.0, "trainer/loss/max": 10.0}, ())


# --- which contributions count ---


def test_a_newer_attempt_supersedes_step_by_step_and_metric_by_metric() -> None:
    """Attempt 1 logs step 2 again, and there only the loss: step 1 and the score of step 2 stay attempt 0's."""
    old = file(log(1, loss=1), log(2, loss=2, score=3))
    new = file(log(2, loss=20), attempt=1, id="b", t=T0 - 5)
    assert row(old, new, step=1).values == {"trainer/loss": 1.0}
    assert row(old, new, step=1).coverage.attempts == (0,)
    assert logged(row(old, new, step=2)) == {"trainer/loss": 20.0, "trainer/score": 3.0}
    assert row(old, new, step=2).coverage.attempts == (0, 1)


def test_a_smaller_attempt_supersedes_the_ranks_that_it_has_not() -> None:
    """Attempt 1 has one rank: what it logs again counts without ranks 1 and 2 of attempt 0; what it does not log, and
    other steps, other replicas and an attempt of unknown or sufficient size, leave them alone.
    """
    old = [file(log(1, loss=10**rank), log(2, loss=10**rank), rank=rank, id=f"o{rank}", world=3) for rank in range(3)]
    old[2] = file(log(1, loss=100, score=7), log(2, loss=100), rank=2, id="o2", world=3)
    total = {"loss": ["sum"]}

    def again(**identity: Any) -> dict[str, float]:
        made = file(log(1, loss=5), **({"attempt": 1, "id": "n"} | identity))
        return logged(row(*old, made, reductions=total))

    assert again(world=1) == {"trainer/loss": 5.0, "trainer/score": 7.0}
    assert again(world=2) == {"trainer/loss": 15.0, "trainer/score": 7.0}
    assert again(world=3) == again() == {"trainer/loss": 115.0, "trainer/score": 7.0}
    assert again(world=1, attempt=0, t=T0 - 1) == {"trainer/loss": 111.0, "trainer/score": 7.0}
    assert again(world=1, replica="1") == {"trainer/loss": 116.0, "trainer/score": 7.0}
    untouched = row(*old, file(log(1, loss=5), attempt=1, id="n", world=1), step=2, reductions=total)
    assert logged(untouched) == {"trainer/loss": 111.0}


def test_a_smaller_second_submission_supersedes_the_ranks_that_it_has_not() -> None:
    """Attempts are equal: what opened with a smaller world goes on without a rank that wrote for 60 s more at most. A
    rank that goes on for longer, or that names no world, counts.
    """
    total = {"loss": ["sum"]}
    old = [file(log(1, loss=10**rank), beat(90), rank=rank, id=f"o{rank}", world=3) for rank in range(3)]

    def again(*files: bytes, **identity: Any) -> float:
        return row(*files, file(log(1, loss=5), id="n", **identity), reductions=total).values["trainer/loss"]

    assert again(*old, world=1, t=T0 + 30) == 5.0
    assert again(*old, world=2, t=T0 + 30) == 15.0
    assert again(*old, world=3, t=T0 + 30) == again(*old, t=T0 + 30) == 115.0
    assert again(*old, world=1, t=T0 + 29) == 116.0
    assert again(file(log(1, loss=100), rank=2, id="o2"), world=1, t=T0 + 30) == 105.0


def test_a_later_submission_wins_over_higher_attempts() -> None:
    """Attempts begin at 0 again: the lower one wins if it opened more than 60 s after the higher one."""
    first = [
        file(log(1, loss=1), log(2, loss=1), id="a"),
        file(log(1, loss=2), log(2, loss=2), id="b", t=T0 + 10, attempt=1),
    ]
    assert figures(*first, file(log(1, loss=4), id="c", t=T0 + 70)) == {"loss": 2.0}
    later = file(log(1, loss=4), id="c", t=T0 + 70.5)
    assert figures(*first, later) == {"loss": 4.0}
    assert row(*first, later, step=2).values == {"trainer/loss": 2.0}
    restarted = file(log(1, loss=8), id="d", t=T0 + 80, attempt=1)
    assert figures(*first, later, restarted) == {"loss": 8.0}
    again = file(log(1, loss=16), id="e", t=T0 + 200)
    assert figures(*first, later, restarted, again) == {"loss": 16.0}


def test_a_later_submission_that_runs_beside_the_first_counts_too() -> None:
    """The first one goes on for more than 60 s after the second one opened."""
    first = file(log(1, loss=1), beat(260.5), id="a", attempt=1)
    assert figures(first, file(log(1, loss=3), id="b", t=T0 + 200)) == {"loss": 2.0}
    assert figures(first, file(log(1, loss=3), id="b", t=T0 + 201)) == {"loss": 3.0}


def test_a_smaller_submission_after_a_restarted_one() -> None:
    """Its attempts begin at 0 again, and ranks that it has not are gone."""
    total = {"loss": ["sum"]}
    old = [file(log(1, loss=10**rank), rank=rank, id=f"o{rank}", world=3, attempt=2) for rank in range(3)]
    new = file(log(1, loss=5), id="n", t=T0 + 61, world=1)
    assert row(*old, new, reductions=total).values == {"trainer/loss": 5.0}
    assert coverage(*old, new) == Coverage(ranks=("0.0",), expected=1, attempts=(0,), lineage=(1, 0, 0))


def test_a_later_job_supersedes_all_replicas_of_an_earlier_one() -> None:
    """Replicas that end with their job: of each metric and step the last job that has it counts, with all its own."""
    total = {"loss": ["sum"]}
    old = [file(log(1, loss=10**i, x=1), log(2, loss=1), id=f"o{i}", replica=f"r{i}", job="1") for i in range(3)]
    new = [file(log(1, loss=4), id=f"n{i}", replica=f"s{i}", job="2", t=T0 + 9 + i) for i in range(2)]
    both = row(*old, *new, reductions=total)
    assert both.values == {"trainer/loss": 8.0, "trainer/x": 1.0}
    assert (both.coverage.expected, both.coverage.missing) == (2, ())
    assert row(*old, *new, step=2, reductions=total).values == {"trainer/loss": 3.0}
    assert row(*old, new[0], reductions=total).values["trainer/loss"] == 4.0
    unnamed = file(log(1, loss=1000), id="u", replica="u", t=T0 - 500)
    assert row(*old, *new, unnamed, reductions=total).values["trainer/loss"] == 1008.0


def test_jobs_that_run_at_one_time_both_count() -> None:
    """The earlier one goes on for more than 60 s after the later one's first open."""
    late = file(log(1, loss=3), id="b", replica="b", job="2", t=T0 + 10)
    assert figures(file(log(1, loss=1), beat(70), replica="a", job="1"), late) == {"loss": 3.0}
    assert figures(file(log(1, loss=1), beat(70.5), replica="a", job="1"), late) == {"loss": 2.0}


def test_a_null_supersedes_nothing() -> None:
    """A writer has a metric only if it yields an observation or a non-empty summary."""
    old = file(log(1, loss=1))
    nothings: list[Any] = [None, [], {"n": 0}, "rubbish"]
    for empty in nothings:
        assert figures(old, file(log(1, loss=empty), attempt=1, id="b")) == {"loss": 1.0}


def test_ranks_do_not_supersede_each_other() -> None:
    """Attempt 1 of rank 1 says nothing against attempt 0 of rank 0, nor of another replica or actor."""
    old = file(log(1, loss=1))
    assert figures(old, file(log(1, loss=3), attempt=1, rank=1, id="b")) == {"loss": 2.0}
    assert figures(old, file(log(1, loss=3), attempt=1, replica="1", id="b")) == {"loss": 2.0}
    assert figures(old, file(log(1, loss=3), attempt=1, actor="reward", id="b")) == {"loss": 1.0}


def test_age_is_attempt_then_time_then_id() -> None:
    """Of equal attempts the later open wins, of equal times the greater id."""
    old = file(log(1, loss=1), id="b")
    assert figures(old, file(log(1, loss=2), t=T0 + 1, id="a")) == {"loss": 2.0}
    assert figures(old, file(log(1, loss=2), t=T0 - 1, id="z")) == {"loss": 1.0}
    assert figures(old, file(log(1, loss=2), id="c")) == {"loss": 2.0}


def test_rollback_starts_a_newer_writer() -> None:
    """After a rollback the same file's lines supersede those before it, for what they log again; twice if need be."""
    data = file(log(1, loss=1), log(2, loss=2, score=5), rollback(2), log(2, loss=3), rollback(2), log(2, loss=4))
    assert row(data, step=1).values == {"trainer/loss": 1.0}
    assert row(data, step=2).values == {"trainer/loss": 4.0, "trainer/score": 5.0}


def test_side_by_side_writers_both_count() -> None:
    """Equal attempts, and the older one still writes more than 60 s after the newer one's open: both count."""
    new = file(log(1, loss=3), t=T0 + 10, id="b")
    assert figures(file(log(1, loss=1), beat(70)), new) == {"loss": 3.0}
    assert figures(file(log(1, loss=1), beat(70.5)), new) == {"loss": 2.0}
    assert figures(file(beat(70.5), {"t": T0 + 1, **log(1, loss=1)}), new) == {"loss": 2.0}
    assert figures(file(log(1, loss=1), beat(70.5)), file(log(1, loss=3), t=T0 + 10, attempt=1, id="b")) == {
        "loss": 3.0
    }
    assert figures(file(log(1, loss=1)), file(log(1, loss=3), beat(99), t=T0 + 10, id="b")) == {"loss": 3.0}


def test_rollbacks_of_a_side_by_side_writer() -> None:
    """Side by side spares the other writer's lines, not a writer's own from before its rollback."""
    old = file(log(1, loss=1), rollback(1), log(1, loss=3), beat(99))
    assert figures(old, file(log(1, loss=5), t=T0 + 10, id="b")) == {"loss": 4.0}


def test_children_count_beside_their_parent() -> None:
    """A child neither supersedes its parent nor is superseded by it, and merges where its own identity sorts."""
    ask = define(loss="sum")
    parent = file(ask, log(1, loss=1e16), log(1, other=1))
    child = file(ask, log(1, loss=-1e16), parent="a", id="b", t=T0 + 5)
    grandchild = file(ask, log(1, loss=1), parent="b", id="c", t=T0 + 9)
    assert figures(grandchild, child, parent)["loss"] == 1.0


def test_a_newer_attempt_supersedes_the_whole_family() -> None:
    """The age and the rank of a child are its root's: attempt 1 of the root's rank takes its place."""
    family = [file(log(1, loss=1)), file(log(1, loss=3), parent="a", id="b", rank=4, attempt=7)]
    new = file(log(1, loss=10), attempt=1, id="c")
    assert figures(*family) == {"loss": 2.0}
    assert coverage(*family).ranks == ("0.0",)
    assert coverage(*family).attempts == (0, 7)
    assert figures(*family, new) == {"loss": 10.0}


def test_orphans_and_cycles_are_their_own_roots() -> None:
    """A parent that is not there, of another actor, the writer itself or a circle: the writer stands for itself."""
    base = file(log(1, loss=1))
    elsewhere = file(log(1, loss=5), actor="reward", id="elsewhere")
    for parent in ("gone", "elsewhere", "b"):
        orphan = file(log(1, loss=2), parent=parent, id="b", t=T0 + 1)
        assert figures(base, orphan, elsewhere) == {"loss": 2.0}
    circle = [
        file(log(1, loss=v), parent=p, id=i, t=T0 + v) for v, p, i in ((1, "y", "x"), (2, "z", "y"), (3, "x", "z"))
    ]
    assert figures(*circle) == {"loss": 3.0}
    led_into_it = file(log(1, loss=9), parent="x", id="w", t=T0 + 9)
    assert figures(*circle, led_into_it) == {"loss": 9.0}


def test_a_childs_side_by_side_is_its_roots() -> None:
    """Families of roots side by side all count; a child's own late lines do not make its root's family so."""
    root, child = file(log(1, loss=1), beat(99)), file(log(1, loss=2), parent="a", id="b")
    rival = file(log(1, loss=6), id="c", t=T0 + 10)
    assert figures(root, child, rival) == {"loss": 3.0}
    assert figures(file(log(1, loss=1)), file(log(1, loss=2), beat(99), parent="a", id="b"), rival) == {"loss": 6.0}
