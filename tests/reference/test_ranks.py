"""Values of ranks, barriers and policy lag in step units: the reference on cases worked out by hand."""

from __future__ import annotations

from typing import Any

from tests.reference.building import T0, barrier, clock, define, event, file, log, rollback, row, rows, span
from tests.reference.records import Entry
from tests.reference.settings import Known, Settings, nothing_known


def ask(metric: str, **entry: Any) -> dict[str, Any]:
    """A `define` of one metric."""
    return {"kind": "define", "m": {metric: entry}}


UNKNOWING = Settings(catalogue=nothing_known)
PER_RANK = ask("x", reduce=["mean", "max"], per_rank=True)


def known(**entries: Entry) -> Settings:
    """A configuration whose catalogue knows these metrics of the trainer."""

    def lookup(actor: str, metric: str) -> Known | None:
        return entries.get(metric) if actor == "trainer" else None

    return Settings(catalogue=lookup)


# --- what is known of a metric without a define ---


def test_the_catalogue_stands_in_for_a_define() -> None:
    """Without a `define` the catalogue gives the reductions, and else the mean; a `define` replaces its entry."""
    settings = known(x=Entry(("max", "sum"), per_rank=True))
    data = file(log(1, x=[1, 3], y=[1, 3]), world=2)
    assert row(data, settings=settings).values == {
        "trainer/x": 3.0,
        "trainer/x/sum": 4.0,
        "trainer/y": 2.0,
        "trainer/x/max": 3.0,
        "trainer/x/min": 3.0,
        "trainer/x/argmax_rank": 0.0,
    }
    assert row(file(ask("x", reduce="min"), log(1, x=[1, 3])), settings=settings).values == {"trainer/x": 1.0}


def test_a_define_without_reductions_asks_for_the_default() -> None:
    """An entry without `reduce` leaves those to the catalogue, one without `unit` the unit; per_rank is its own."""
    settings = known(x=Entry(("max",), per_rank=True), y=Entry(("sum",)))
    data = file(ask("x", unit="s"), ask("y", per_rank=True), log(1, x=[1, 3], y=[1, 3]))
    assert row(data, settings=settings).per_rank == {"trainer/y": [("0.0", 4.0)]}
    assert row(data, settings=settings).values["trainer/x"] == 3.0


def test_defaults_of_spans_and_events() -> None:
    """A span's metric is its mean and max, an event's its sum, whatever the catalogue says; a `define` rules."""
    settings = known(**{"rollout_s": Entry(("min",), per_rank=True), "event/push": Entry(("count", "min"))})
    lines = [span("rollout", 2, step=1), span("rollout", 4, step=1), event("push", step=1), event("push", step=1)]
    found = row(file(*lines), settings=settings)
    assert found.values == {
        "trainer/rollout_s": 3.0,
        "trainer/rollout_s/max": 4.0,
        "trainer/rollout_s/min": 3.0,
        "trainer/rollout_s/argmax_rank": 0.0,
        "trainer/event/push": 2.0,
    }
    defined = file({"kind": "define", "m": {"rollout_s": {"reduce": "sum"}, "event/push": {}}}, *lines)
    assert row(defined, settings=settings).values == {"trainer/rollout_s": 6.0, "trainer/event/push": 2.0}
    both = file(log(1, rollout_s=1), span("rollout", 3, step=1))
    assert row(both).values == {"trainer/rollout_s": 2.0, "trainer/rollout_s/max": 3.0}


# --- per rank ---


def test_values_of_ranks() -> None:
    """Each rank's first reduction in merge order, and the greatest of them; the key that `max` has stays its own."""
    zero = file(PER_RANK, log(1, x=[1, 5]))
    ten = file(PER_RANK, log(1, x=4), rank=10, id="b")
    two = file(PER_RANK, log(1, x=2), rank=2, id="c")
    found = row(ten, two, zero)
    assert found.per_rank == {"trainer/x": [("0.0", 3.0), ("0.2", 2.0), ("0.10", 4.0)]}
    assert found.values == {
        "trainer/x": 3.0,
        "trainer/x/max": 5.0,
        "trainer/x/min": 2.0,
        "trainer/x/argmax_rank": 10.0,
    }


def test_one_line_is_enough_to_declare() -> None:
    """One counting line that is governed so makes the values of all ranks; a superseded one does not."""
    plain, old = file(log(1, x=2), rank=1, id="b"), file(PER_RANK, log(1, x=[1, 3]))
    assert row(old, plain).per_rank == {"trainer/x": [("0.0", 2.0), ("0.1", 2.0)]}
    assert row(old, plain).values["trainer/x/argmax_rank"] == 0.0
    assert row(old, plain, file(log(1, x=1), attempt=1, id="c")).per_rank == {}


def test_ranks_without_a_value() -> None:
    """A rank whose value is absent or underivable is left out; if that is so for all, nothing is shown."""
    define = ask("x", reduce="max", per_rank=True)
    zero = file(define, log(1, x="NaN"))
    one = file(define, log(1, x={"n": 1}), rank=1, id="b")
    two = file(define, log(1, x=7), rank=2, id="c")
    found = row(zero, one, two)
    assert found.per_rank == {"trainer/x": [("0.2", 7.0)]}
    assert found.coverage.underivable == ("trainer/x",)
    assert found.values["trainer/x/argmax_rank"] == 2.0
    assert row(zero, one).per_rank == {}
    assert row(zero, one).values == {"trainer/x/nonfinite": 1.0}


def test_a_histogram_has_no_values_of_ranks() -> None:
    """Not if the first reduction is `hist`; if it is another one, yes."""
    assert row(file(ask("x", reduce=["hist", "mean"], per_rank=True), log(1, x=1))).per_rank == {}
    second = row(file(ask("x", reduce=["mean", "hist"], per_rank=True), log(1, x=1)))
    assert second.per_rank == {"trainer/x": [("0.0", 1.0)]}


def test_children_are_part_of_their_root() -> None:
    """A child's observations are its root's rank's."""
    root, child = file(PER_RANK, log(1, x=1)), file(log(1, x=3), parent="a", id="b", rank=5)
    assert row(root, child).per_rank == {"trainer/x": [("0.0", 2.0)]}


def test_replicas_of_the_greatest() -> None:
    """The first of equals has the name; its replica is given if there are several in the row, all numbers."""
    files = [file(PER_RANK, log(1, x=3), replica=replica, rank=1, id=f"w{replica}") for replica in ("10", "9", "007")]
    assert row(*files).values["trainer/x/argmax_replica"] == 7.0
    assert row(*files).values["trainer/x/argmax_rank"] == 1.0
    assert row(*files[:2]).values["trainer/x/argmax_replica"] == 9.0
    assert "trainer/x/argmax_replica" not in row(files[0]).values
    other = file(log(1, y=3), replica="a", id="z")
    assert "trainer/x/argmax_replica" not in row(*files, other).values
    elsewhere = file(log(1, y=3), replica="4", id="z")
    assert row(files[0], elsewhere).values["trainer/x/argmax_replica"] == 10.0


def test_values_of_ranks_by_configuration() -> None:
    """With per_rank = true every metric has values of ranks, without figures, unless they are declared."""
    data = file(PER_RANK, log(1, x=1, y=[2, 4]))
    found = row(data, settings=Settings(per_rank=True))
    assert found.per_rank == {"trainer/x": [("0.0", 1.0)], "trainer/y": [("0.0", 3.0)]}
    assert "trainer/y/argmax_rank" not in found.values
    assert found.values["trainer/x/argmax_rank"] == 0.0


def test_keys_that_are_taken() -> None:
    """A metric that the user logs keeps its key from what is derived, even where it has no figure to give."""
    data = file(PER_RANK, log(1, **{"x": 1, "x/min": 9, "x/argmax_rank": "NaN", "barrier/spread_s": 5}))
    one = file(log(1, x=2), rank=1, id="b", t=T0 + 3)
    found = row(data, file(), one)
    assert found.values["trainer/x/min"] == 9.0
    assert "trainer/x/argmax_rank" not in found.values
    with_barriers = [data + b'{"kind":"barrier","step":1}\n', one + b'{"kind":"barrier","step":1}\n']
    assert row(*with_barriers).values["trainer/barrier/spread_s"] == 5.0


# --- barriers ---


def barriers(*files: bytes, step: int = 1) -> dict[str, float]:
    """The barrier figures of the trainer's step."""
    found = row(*files, step=step).values
    return {key.rpartition("/")[2]: figure for key, figure in found.items() if key.startswith("trainer/barrier/")}


def reaching(after: float, rank: int = 0, *before: dict[str, Any], **who: Any) -> bytes:
    """A rank that logs step 1 and reaches its barrier some seconds after T0."""
    identity = {"rank": rank, "id": f"w{rank}", "host": f"n{rank}"} | who
    return file(*before, log(1, x=1), barrier(1, after), barrier(1, after + 900), **identity)


def test_spread() -> None:
    """From the first to the last of the ranks' first barriers of the step; one rank alone has none."""
    assert barriers(reaching(3), reaching(7.5, 1), reaching(4, 2)) == {"spread_s": 4.5}
    assert barriers(reaching(3)) == {}
    assert barriers(reaching(3), file(log(1, x=1), rank=1, id="b")) == {}


def test_the_last_rank_of_one_host() -> None:
    """On one host the clock is the same, so the last rank has a name, however little it is late."""
    one_host = [reaching(t, rank, host="n") for rank, t in enumerate((3, 7.5, 7.5))]
    assert barriers(*one_host) == {"spread_s": 4.5, "last_rank": 1.0}
    assert barriers(reaching(3, host=""), reaching(4, 1, host="")) == {"spread_s": 1.0}


def test_nobody_is_last_where_all_come_at_once() -> None:
    """Without a spread there is no last rank, on one host or on two."""
    for host in ("n", "m"):
        assert barriers(reaching(3, 0, clock(0), host="n"), reaching(3, 1, clock(0), host=host)) == {"spread_s": 0.0}


def test_the_last_rank_of_several_hosts() -> None:
    """With clock records of both hosts, if the spread is beyond their errors; offsets are taken away first."""
    zero = reaching(3, 0, clock(-10, err=0.5))
    one = reaching(7, 1, clock(-4, err=1.5))
    assert barriers(zero, one) == {"spread_s": 2.0}
    assert barriers(reaching(3.5, 0, clock(-10, err=0.5)), one) == {"spread_s": 2.5, "last_rank": 0.0}
    assert barriers(zero, reaching(99, 1)) == {"spread_s": 86.0}
    third = reaching(13.5, 2, clock(0, err=7))
    assert barriers(zero, one, third) == {"spread_s": 2.5}


def test_whose_barrier_counts() -> None:
    """A rank's newest segment that has the barrier counts, superseded or not in metrics; children have no say."""
    old = file(log(1, x=1), barrier(1, 3), rollback(1), barrier(1, 50), rollback(2), log(2, x=1), host="n")
    assert barriers(old, reaching(60, 1, host="n"))["spread_s"] == 10.0
    newer = file(barrier(1, 58), attempt=1, id="c", host="n")
    assert barriers(old, newer, reaching(60, 1, host="n"))["spread_s"] == 2.0
    child = file(barrier(1, 500), parent="w1", id="d", rank=7)
    assert barriers(old, newer, reaching(60, 1, host="n"), child)["spread_s"] == 2.0


def test_ranks_that_a_later_attempt_has_not_are_not_waited_upon() -> None:
    """Ranks 1 and 2 of attempt 0 were there long before the two ranks of attempt 1, which have no rank 2."""
    old = [reaching(2.0, rank, id=f"o{rank}", world=3) for rank in range(3)]
    new = [reaching(700.0 + rank, rank, id=f"n{rank}", world=2, attempt=1) for rank in range(2)]
    assert barriers(*old, *new) == {"spread_s": 1.0}


def test_the_last_replica() -> None:
    """It has a number if the barriers are of several replicas, all numbers, whichever ranks contribute."""
    here, there = reaching(3, host="n"), file(barrier(1, 5), replica="8", id="b", host="n")
    assert barriers(here, there) == {"spread_s": 2.0, "last_rank": 0.0, "last_replica": 8.0}
    named = file(barrier(1, 5), replica="a", id="b", host="n")
    assert barriers(here, named) == {"spread_s": 2.0, "last_rank": 0.0}


def test_a_barrier_alone_makes_no_row() -> None:
    """Two ranks that only reach a barrier have no row to show it in."""
    assert rows(file(barrier(1, 3)), file(barrier(1, 4), rank=1, id="b")) == {}


# --- clocks ---


def test_the_offset_of_a_time() -> None:
    """The newest clock record not after the time counts, of any file and actor of the host; before all, the first."""
    elsewhere = file(clock(1, after=10), clock(2, after=20), actor="reward", host="n0", id="z")
    for after, offset in ((5, 1), (10, 1), (19.9, 1), (20, 2), (400, 2)):
        here = [reaching(after), reaching(after, 1, clock(0))]
        assert barriers(*here, elsewhere)["spread_s"] == offset


def test_clock_records_of_one_time() -> None:
    """Of several with one time the one with the least error counts, then the one with the least offset."""
    records = [clock(5, err=0.2), clock(3, err=0.1), clock(2, err=0.1), clock(1, err=0.3)]
    assert barriers(reaching(9, 0, *records), reaching(9, 1))["spread_s"] == 2.0
    assert barriers(reaching(9, 0, *records[::-1]), reaching(9, 1))["spread_s"] == 2.0


# --- policy lag ---


def lag(*files: bytes, settings: Settings | None = None, step: int = 5) -> float | None:
    return row(*files, step=step, settings=settings or Settings()).values.get("trainer/policy_lag")


def test_policy_lag() -> None:
    """The step minus the first reduction of policy_version, if that counts the lead's steps, which it does by name."""
    versioned = ask("policy_version", reduce=["min", "max"], unit="global_step")
    assert lag(file(versioned, log(5, policy_version=[2, 4]))) == 3.0
    assert lag(file(log(5, policy_version=[2, 4]))) == 3.0
    assert lag(file(log(5, policy_version=2)), settings=UNKNOWING) is None
    assert lag(file(ask("policy_version", unit="version"), log(5, policy_version=2))) is None
    catalogue = known(policy_version=Entry(("max",), unit="global_step"))
    assert lag(file(log(5, policy_version=[2, 4])), settings=catalogue) == 1.0
    assert lag(file(versioned, log(5, policy_version="NaN"))) is None
    assert lag(file(versioned, log(5, policy_version={"n": 1}))) is None
    assert lag(file(ask("policy_version", reduce="hist", unit="global_step"), log(5, policy_version=1))) is None
    assert lag(file(versioned, log(5, policy_version=2, policy_lag=77))) == 77.0


def test_policy_lag_needs_the_leads_axis() -> None:
    """An actor that counts something else has none in its steps, and without a lead no actor has one."""
    versioned = ask("policy_version", unit="global_step")
    lines = (versioned, log(5, policy_version=2))
    settings = Settings(lead="reward")
    assert lag(file(*lines), settings=settings) is None
    lead = file(actor="reward", id="z", axis="update")
    assert lag(file(*lines, axis="update"), lead, settings=settings) == 3.0
    assert lag(file(*lines), lead, settings=settings) is None
    first = file(actor="reward", id="y", t=T0 - 1)
    assert lag(file(*lines), lead, first, settings=settings) == 3.0


def test_define_is_not_needed_for_the_first_line() -> None:
    """One counting line that is governed so is enough."""
    data = file(log(5, policy_version=1), define(policy_version="min"), log(5, policy_version=2))
    versioned = file(ask("policy_version", unit="global_step"), log(5, policy_version=3), rank=1, id="b")
    assert lag(data, settings=UNKNOWING) is None
    assert lag(data, versioned, settings=UNKNOWING) == 3.0
