"""Values per rank and the figures that follow from them, worked out by hand, through the whole pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlship_sidecar.rows import Row
from tests.pipeline.simulated import simulation
from tests.reference.building import T0, barrier, file, log


def defined(**entries: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "define", "m": entries}


def lacks_ranks(files: dict[str, bytes], **settings: Any) -> Row:
    """The one row that the files make."""
    with simulation(**settings) as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        (row,) = sim.rows()
    # What barriers measure is not what these tests are of.
    return replace(row, values={key: value for key, value in row.values.items() if "/barrier/" not in key})


def ranks(*values: Any, define: dict[str, Any], replicas: int = 1, metric: str = "busy") -> dict[str, bytes]:
    """A file for each value, dealt out to ranks, then replicas."""
    per_replica = len(values) // replicas
    return {
        f"{number}.jsonl": file(
            define,
            log(1, **{metric: value}),
            barrier(1),
            id=f"w{number}",
            replica=str(number // per_replica),
            rank=number % per_replica,
        )
        for number, value in enumerate(values)
    }


def test_a_metric_declared_per_rank() -> None:
    """Each rank's first reduction, the greatest and least of them, and the first rank with the greatest."""
    row = lacks_ranks(ranks([1, 3], 5, [4, 6], define=defined(busy={"per_rank": True, "reduce": ["mean", "count"]})))
    assert row.per_rank == {"trainer/busy": [("0.0", 2.0), ("0.1", 5.0), ("0.2", 5.0)]}
    assert row.values == {
        "trainer/busy": 19 / 5,
        "trainer/busy/count": 5.0,
        "trainer/busy/max": 5.0,
        "trainer/busy/min": 2.0,
        "trainer/busy/argmax_rank": 1.0,
    }


def test_plain_numbers_of_replicas() -> None:
    """With several replicas the greatest one's is named as well; they stand in the order of their numbers."""
    row = lacks_ranks(ranks(1, 2, 9, 4, define=defined(busy={"per_rank": True, "reduce": "sum"}), replicas=2))
    assert row.per_rank == {"trainer/busy": [("0.0", 1.0), ("0.1", 2.0), ("1.0", 9.0), ("1.1", 4.0)]}
    assert (row.values["trainer/busy/argmax_rank"], row.values["trainer/busy/argmax_replica"]) == (0.0, 1.0)
    assert row.values["trainer/busy"] == 16.0


def test_a_reduction_asked_for_has_the_key() -> None:
    """Where `max` is asked for, that key is the greatest observation, not the greatest of the ranks' means."""
    row = lacks_ranks(ranks([1, 3], [0, 10], define=defined(busy={"per_rank": True, "reduce": ["mean", "max"]})))
    assert (row.values["trainer/busy/max"], row.values["trainer/busy/min"]) == (10.0, 2.0)


def test_ranks_without_a_value_are_left_out() -> None:
    """A rank that has only non-finite observations, or no weight, has no mean, and is not among the values."""
    row = lacks_ranks(ranks("NaN", 5, {"v": [7], "w": [0]}, define=defined(busy={"per_rank": True})))
    assert row.per_rank == {"trainer/busy": [("0.1", 5.0)]}
    assert row.values["trainer/busy/argmax_rank"] == 1.0
    nothing = lacks_ranks(ranks("NaN", "NaN", define=defined(busy={"per_rank": True})))
    assert (nothing.per_rank, nothing.values) == ({}, {"trainer/busy/nonfinite": 2.0})


def test_a_child_counts_for_its_parents_rank() -> None:
    """What a child logs is part of its parent's rank's value, wherever it merges itself."""
    define = defined(busy={"per_rank": True, "reduce": "sum"})
    files = {
        "a.jsonl": file(define, log(1, busy=1), barrier(1), id="r0"),
        "b.jsonl": file(define, log(1, busy=10), barrier(1), id="r1", rank=1),
        "c.jsonl": file(define, log(1, busy=100), id="c", rank=5, parent="r0"),
    }
    assert lacks_ranks(files).per_rank == {"trainer/busy": [("0.0", 101.0), ("0.1", 10.0)]}


def test_histograms_have_no_values_per_rank() -> None:
    """A metric whose first reduction is a histogram has none; its histogram is no figure."""
    row = lacks_ranks(ranks(1, 2, define=defined(busy={"per_rank": True, "reduce": ["hist", "p50"]})), per_rank=True)
    assert (row.per_rank, row.values) == ({}, {"trainer/busy/p50": 1.5})
    assert sum(row.hists["trainer/busy"].counts) == 2


def test_a_median_of_each_rank() -> None:
    """Values per rank are of the first reduction whatever it is: here of each rank's own observations."""
    row = lacks_ranks(ranks([1, 2, 9], [4, 5], define=defined(busy={"per_rank": True, "reduce": "p50"})))
    assert row.per_rank == {"trainer/busy": [("0.0", 2.0), ("0.1", 4.5)]}
    assert row.values["trainer/busy"] == 4.0


def test_a_summary_hides_the_observations() -> None:
    """With a summary among the values quantiles and histograms cannot be derived; what can is there."""
    define = defined(busy={"reduce": ["p50", "hist", "max"]})
    row = lacks_ranks(ranks(1, {"n": 2, "sum": 5, "max": 3}, define=define))
    assert (row.values, row.hists) == ({"trainer/busy/max": 3.0}, {})
    assert row.coverage.underivable == ("trainer/busy", "trainer/busy/hist")


def test_rates_over_the_time_between_barriers() -> None:
    """The first step's rate is underivable, for nothing tells how long it took; later ones add up over the ranks."""
    define = defined(tokens={"reduce": ["rate", "sum"], "per_rank": True})
    with simulation() as sim:
        for rank, seconds in enumerate((2.0, 4.0)):
            records = [define]
            for step in range(3):
                ended = {"kind": "barrier", "step": step, "t": T0 + seconds * step}
                records += [log(step, tokens=100.0 * step), ended]
            sim.write(f"{rank}.jsonl", file(*records, id=f"w{rank}", rank=rank))
        sim.finish()
        rows = {unit.index: row for unit, row in sim.final().items()}
    assert (rows[0].values["trainer/tokens/sum"], rows[0].per_rank) == (0.0, {})
    assert rows[0].coverage.underivable == ("trainer/tokens",)
    assert [rows[step].values["trainer/tokens"] for step in (1, 2)] == [75.0, 150.0]
    assert rows[2].per_rank == {"trainer/tokens": [("0.0", 100.0), ("0.1", 50.0)]}
    assert rows[2].coverage.underivable == ()
