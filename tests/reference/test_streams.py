"""Lines without a step: the lead's timeline, aligned, clock and point units, on cases worked out by hand.

T0 is 176360000 windows of 10 s after the epoch.
"""

from __future__ import annotations

from typing import Any

import pytest

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.building import (
    CLOSE,
    T0,
    barrier,
    beat,
    clock,
    define,
    event,
    file,
    log,
    rollback,
    rows,
    sample,
    span,
    stream,
    tag,
)
from tests.reference.custom import CUSTOM
from tests.reference.rows import Histogram, ReferenceRow
from tests.reference.settings import DEFAULTS, Settings

WINDOW = 176360000
Rows = dict[Unit, ReferenceRow]


def lead(*ends: float, first: int = 1) -> bytes:
    """A trainer that starts at T0 and ends its steps so many seconds later."""
    return file(*(barrier(step, after) for step, after in enumerate(ends, first)), id="lead")


def streams(*records: dict[str, Any], **who: Any) -> bytes:
    """A generator."""
    return file(*records, **{"actor": "generator", "id": "g"} | who)


def aligned(found: Rows, actor: str = "generator") -> dict[int, ReferenceRow]:
    return {unit.index: row for unit, row in found.items() if unit.actor == actor and unit.kind == "aligned"}


def clocked(found: Rows, actor: str = "generator") -> dict[int, ReferenceRow]:
    """Clock units by how many windows they are after T0."""
    return {unit.index - WINDOW: row for unit, row in found.items() if unit.actor == actor and unit.kind == "clock"}


def points(found: Rows) -> dict[int, ReferenceRow]:
    """Points by whole seconds after T0."""
    return {int(row.t - T0): row for unit, row in found.items() if unit.writer == "g"}


def sums(*files: bytes, settings: Settings = DEFAULTS) -> dict[int, float]:
    """The sums of the generator's metric `x` in its aligned units."""
    found = aligned(rows(*files, reductions={"x": ["sum"]}, settings=settings))
    return {step: row.values["generator/x"] for step, row in found.items()}


# --- the timeline ---


def test_a_step_covers_what_comes_after_the_step_before() -> None:
    """The end of a step belongs to it, what comes before the lead's open or after its last barrier to none."""
    marks = {-1: 1, 0: 2, 0.5: 4, 10: 8, 10.5: 16, 30: 32, 30.5: 64}
    assert sums(lead(10, 30), streams(*(stream(after, x=x) for after, x in marks.items()))) == {1: 12.0, 2: 48.0}


def test_without_a_lead_nothing_is_aligned() -> None:
    """There are clock units alone; and so with a lead that has no barrier records."""
    data = streams(stream(1, x=1))
    assert sums(data) == {}
    assert sums(data, file(log(1, x=1), log(2, x=1))) == {}
    assert list(clocked(rows(data))) == [0]


def test_the_lead_is_configured() -> None:
    """Another actor's barriers may be the steps."""
    pace = file(barrier(7, 5), actor="reward", id="r", axis="update")
    data = streams(stream(1, x=1), stream(7, x=2))
    settings = Settings(lead="reward")
    assert sums(pace, lead(10), data, settings=settings) == {7: 1.0}
    assert aligned(rows(pace, lead(10), data, settings=settings))[7].x == {"update": 7}


def test_the_lowest_rank_with_the_barrier_gives_the_time() -> None:
    """Step 1 ends by rank 0, step 2, of which rank 0 has no barrier, by rank 1; children do not count. What was logged
    while rank 1 was still in step 1 is in none.
    """
    zero = file(barrier(1, 10), barrier(1, 12), id="l0")
    one = file(barrier(1, 19), barrier(2, 20), rank=1, id="l1")
    child = file(barrier(2, 11), parent="l0", id="l2")
    assert sums(zero, one, child, streams(stream(10, x=1), stream(11, x=2), stream(20, x=4), stream(20.5, x=8))) == {
        1: 1.0,
        2: 4.0,
    }


def test_a_rollback_of_the_lead() -> None:
    """Steps done again are the later ones; the time of the undone ones belongs to no step."""
    data = file(
        barrier(1, 10), barrier(2, 20), barrier(3, 30), {"t": T0 + 40, **rollback(2)}, barrier(2, 50), id="lead"
    )
    marks = {5: 1, 15: 2, 25: 4, 35: 8, 40: 16, 45: 32, 55: 64}
    assert sums(data, streams(*(stream(after, x=x) for after, x in marks.items()))) == {1: 1.0, 3: 4.0, 2: 32.0}


def test_a_new_attempt_of_the_lead() -> None:
    """Between the end of one attempt and the open of the next there is no step."""
    again = file(barrier(2, 60), attempt=1, t=T0 + 50, id="again")
    marks = {5: 1, 15: 2, 45: 4, 50: 8, 55: 16}
    assert sums(lead(10, 20), again, streams(*(stream(after, x=x) for after, x in marks.items()))) == {1: 1.0, 2: 16.0}


def test_a_part_done_again_adds_to_no_later_step() -> None:
    """A new attempt does steps 2 and 3 again. Step 4, which the old one had done, holds what was logged during it."""
    again = file(barrier(2, 60), barrier(3, 70), CLOSE, attempt=1, t=T0 + 50, id="again")
    marks = {5: 1, 15: 2, 25: 4, 35: 8, 45: 16, 55: 32, 65: 64, 75: 128}
    found = sums(lead(10, 20, 30, 40), again, streams(*(stream(after, x=x) for after, x in marks.items())))
    assert found == {1: 1.0, 4: 8.0, 2: 32.0, 3: 64.0}


def test_a_repeated_barrier_begins_no_step() -> None:
    """What is logged between two barriers of one step belongs to the next step."""
    twice = file(barrier(1, 10), barrier(1, 15), barrier(2, 20), barrier(2, 25), barrier(3, 30), id="lead")
    marks = {5: 1, 12: 2, 17: 4, 22: 8, 27: 16}
    assert sums(twice, streams(*(stream(after, x=x) for after, x in marks.items()))) == {1: 1.0, 2: 6.0, 3: 24.0}


def test_clock_offsets_in_alignment() -> None:
    """The lead's and the stream's times are both taken to the file server's clock."""
    ahead = file(clock(100), barrier(1, 110), id="lead", host="n1", t=T0 + 100)
    behind = streams(clock(-50, after=-50), stream(-45, x=1), stream(-40, x=2), stream(-39, x=4), host="n2")
    assert sums(ahead, behind) == {1: 3.0}
    drifting = streams(clock(0), clock(10, after=12), stream(9, x=1), stream(13, x=2), stream(30, x=4), host="n3")
    assert sums(lead(10), drifting) == {1: 3.0}


# --- aligned units ---


def test_an_aligned_row() -> None:
    """All that is in a row of an aligned unit."""
    data = streams(
        stream(1, x=[1, 2]), tag("eval", t=T0 + 2), span("roll", 3, after=4), stream(12, x=9), axis="rollout"
    )
    assert aligned(rows(lead(10), data)) == {
        1: ReferenceRow(
            unit=Unit("generator", "aligned", 1),
            t=T0 + 7,
            x={"global_step": 1},
            values={
                "generator/x": 1.5,
                "generator/roll_s": 3.0,
                "generator/roll_s/max": 3.0,
            },
            coverage=Coverage(ranks=("0.0",), expected=1, attempts=(0,)),
            tags=["eval"],
        )
    }


def test_a_span_belongs_where_it_ends() -> None:
    """A span that begins in step 1 and ends in step 2 is of step 2."""
    assert list(aligned(rows(lead(10, 20), streams(span("roll", 5, after=8))))) == [2]


def test_the_leads_own_streams() -> None:
    """They are aligned like others; where the metric has steps as well, the key says which it is."""
    data = file(barrier(0, 1), stream(2, x=1, y=2), log(1, x=5), barrier(1, 9))
    found = rows(data)
    assert aligned(found, "trainer")[1].values == {"trainer/x/aligned": 1.0, "trainer/y": 2.0}
    assert found[Unit("trainer", "step", 1)].values == {"trainer/x": 5.0}


def test_keys_of_metrics_that_have_steps() -> None:
    """Any line of any of the actor's files that has the metric with a step counts, superseded or not; not a null."""
    ask = define(x=["mean", "hist", "max"], y="max")
    other = streams(log(3, x=1, y=None), attempt=0, id="h")
    data = streams(ask, stream(1, x=[1, "NaN"], y=1), stream(2, **{"x/aligned": 7}), attempt=1)
    found = aligned(rows(lead(10), other, streams(log(3, x=2), attempt=3, id="i"), data))[1]
    assert found.values == {
        "generator/x/aligned": 1.0,
        "generator/x/aligned/max": 1.0,
        "generator/x/aligned/nonfinite": 1.0,
        "generator/y": 1.0,
    }
    assert found.hists == {"generator/x/aligned/hist": Histogram((1.0, 1.0), (1,))}


def test_nothing_is_superseded_in_streams() -> None:
    """Attempts that follow each other, and lines before and after a rollback, all count, in merge order."""
    old = streams(stream(1, x=1e16), stream(2, x=-1e16), rollback(3), stream(3, x=1), id="a")
    new = streams(stream(4, x=2), attempt=1, id="b", t=T0 + 3)
    assert sums(lead(10), new, old) == {1: 3.0}
    assert aligned(rows(lead(10), new, old))[1].coverage.attempts == (0, 1)
    samples = [streams({"t": T0 + 1 + i, **stepless(sample(i))}, attempt=i, id=f"s{i}", t=T0 + 1 + i) for i in (0, 1)]
    assert [
        one["score"]
        for one in aligned(rows(lead(10), *samples, settings=Settings(samples_every=1)))[1].samples["rollouts"]
    ] == [0.0, 1.0]


def test_windows_show_their_newest_samples() -> None:
    """The last ones by time of each window, whatever number it has, over ranks; of one time the last in merge order."""
    times = ((0, 1.0), (0, 4.0), (1, 4.0), (1, 3.0), (1, 11.0))
    files = [
        streams(
            *({"t": T0 + t, **stepless(sample(t + rank / 2))} for of, t in times if of == rank), rank=rank, id=f"{rank}"
        )
        for rank in (0, 1)
    ]
    for most, first in ((1, [4.5]), (2, [4.0, 4.5]), (3, [4.0, 4.5, 3.5]), (0, None)):
        found = clocked(rows(*files, settings=Settings(samples=most, samples_every=7)))
        shown = [
            [(one["score"], one["why"]) for one in row.samples.get("rollouts", ())] for _, row in sorted(found.items())
        ]
        windows = [first, [11.5]] if first else [[], []]
        assert shown == [[(score, ["newest"]) for score in window] for window in windows]


def stepless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "step"}


def test_values_of_ranks_in_streams() -> None:
    """Values of ranks have the unit's key, and there are no barrier figures."""
    ask = {"kind": "define", "m": {"x": {"per_rank": True}}}
    files = [streams(ask, stream(1, x=rank), barrier(1, 3 + rank), rank=rank, id=f"g{rank}") for rank in (0, 1)]
    found = rows(lead(10), *files, streams(log(0, x=1), rank=2, id="z"))
    assert aligned(found)[1].per_rank == {"generator/x/aligned": [("0.0", 0.0), ("0.1", 1.0)]}
    assert aligned(found)[1].values["generator/x/aligned/argmax_rank"] == 1.0
    assert clocked(found)[0].per_rank == {"clock/generator/x": [("0.0", 0.0), ("0.1", 1.0)]}
    assert not any("barrier" in key for key in aligned(found)[1].values)


def test_rates_of_streams() -> None:
    """The merged sum over the length of the unit: 6 in a step of 4 s, and in a window of 10 s."""
    data = streams(define(x="rate"), stream(11, x=[1, 2]), stream(12, x=3), stream(1, y=1), beat(25))
    found = rows(lead(10, 14), data)
    assert aligned(found)[2].values["generator/x"] == 1.5
    assert clocked(found)[1].values["clock/generator/x"] == 0.6
    unknown = rows(lead(10, 14), data, streams(define(x="rate"), stream(11, x={"n": 1}), id="h"))
    assert aligned(unknown)[2].coverage.underivable == ("generator/x",)
    nothing = rows(lead(10), streams(define(x="rate"), stream(1, x="NaN")))
    assert (aligned(nothing)[1].coverage.underivable, clocked(nothing)[0].coverage.underivable) == ((), ())


@pytest.mark.parametrize(
    ("begins", "ends", "rate"),
    [(0, 30, 0.6), (14, 30, 1.0), (0, 18, 0.75), (12, 17.5, 6 / 5.5), (16, 30, None), (0, 13, None), (13, 17, None)],
)
@pytest.mark.parametrize("closes", [True, False])
def test_a_window_that_streams_did_not_fill(begins: float, ends: float, rate: float | None, closes: bool) -> None:
    """Its rate is that of the part in which they ran, and underivable for less than half a window. They run from the
    `open` to the close, or to the last line of a writer without one.
    """
    last = [beat(ends), CLOSE] if closes else [beat(ends)]
    between = min(max(begins, 10.5), 17.0)
    data = streams(define(x="rate"), stream(between, x=6), *last, t=T0 + begins)
    found = clocked(rows(lead(10), data))[1]
    if rate is None:
        assert found.coverage.underivable == ("clock/generator/x",)
    else:
        assert found.values["clock/generator/x"] == rate


def test_custom_reductions_of_streams() -> None:
    """They work as in steps."""
    data = streams(define(x="tests.recent"), stream(1, x=8), stream(2, x=[4]))
    assert aligned(rows(lead(10), data, settings=Settings(custom=CUSTOM)))[1].values == {"generator/x": 8.0}


# --- coverage ---


def cover(*files: bytes, step: int = 2) -> tuple[int, tuple[str, ...]]:
    """How many ranks are expected in an aligned unit of steps that end at 10, 20 and 30, and which are missing."""
    found = aligned(rows(lead(10, 20, 30), streams(stream(1, x=1), stream(11, x=1), stream(40, x=1)), *files))[step]
    return found.coverage.expected, found.coverage.missing


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((stream(20, x=1), stream(20.5, x=1)), (2, ())),
        ((stream(20, x=1),), (2, ())),
        ((stream(20, x=1), {"kind": "beat", "t": T0 + 21}), (2, ())),
        ((stream(20, x=1), span("a", 15, after=6)), (2, ())),
        ((stream(20.5, x=1),), (1, ())),
        ((log(1, x=1), barrier(1, 99)), (1, ())),
        ((stream(1, x=None),), (2, ("0.1",))),
        (({"kind": "gap", "n": 1, "t": T0 + 1},), (1, ())),
        ((stream(9, x=1), {"t": T0 + 9.5, **CLOSE}), (1, ())),
        ((stream(9, x=1), {"t": T0 + 10, **CLOSE}), (2, ())),
        ((stream(9, x=1), {"t": T0 + 9, "kind": "close", "reason": "roll"}), (2, ("0.1",))),
        ((stream(9, x=1), {"t": T0 + 9, "kind": "close", "reason": "error"}), (2, ("0.1",))),
        ((stream(9, x=1), {"t": T0 + 11, **CLOSE}, {"t": T0 + 9, **CLOSE}), (2, ())),
    ],
    ids=["past", "at the end", "a beat", "a span's end", "later", "no stream", "without values", "a gap",
         "closed before", "closed in it", "rolled", "failed", "closed twice"],
)  # fmt: skip
def test_who_is_expected_in_streams(records: tuple[dict[str, Any], ...], expected: tuple[int, tuple[str, ...]]) -> None:
    """A rank with a stream line so far, unless it closed before; it is missing unless it is in the row, or past the
    end.
    """
    assert cover(streams(*records, rank=1, id="h")) == expected


def test_a_rank_is_as_far_as_its_newest_writer() -> None:
    """An attempt that died is awaited no longer once the next one is past the end, or began; children are no help."""
    died = streams(stream(9, x=1), rank=1, id="h")
    assert cover(died) == (2, ("0.1",))
    assert cover(died, streams({"kind": "beat", "t": T0 + 25}, rank=1, attempt=1, id="i", t=T0 + 15)) == (2, ())
    assert cover(died, streams(stream(25, x=1), rank=1, id="i", parent="h")) == (2, ("0.1",))
    closed = streams(stream(9, x=1), {"t": T0 + 10.5, **CLOSE}, rank=1, id="i", t=T0 + 1)
    assert cover(closed) == (2, ())
    assert cover(died, closed) == (2, ())


def test_times_of_coverage_are_those_of_the_least_and_greatest_t() -> None:
    """Where a clock was set back, the line with the greatest t is not the one with the greatest time."""
    lines = [stream(20, x=1), stream(9, x=1), stream(25, x=1), clock(50, after=21), clock(-99, after=15)]
    who = {"rank": 1, "id": "h", "host": "n"}
    assert cover(streams(*lines, **who)) == (1, ())
    assert cover(streams(*lines, clock(0), **who)) == (2, ("0.1",))


def test_nobody_is_absent_in_streams() -> None:
    """The world says nothing of who streams; a child's lines are its root's rank's."""
    child = streams(stream(1, x=3), parent="g", id="h", rank=5)
    found = aligned(rows(lead(10), streams(stream(1, x=1), stream(11, x=1), world=9), child))[1]
    assert found.coverage == Coverage(ranks=("0.0",), expected=1, attempts=(0,))
    assert found.values == {"generator/x": 2.0}


def test_gaps_in_streams() -> None:
    """A gap without from and to is where the line before it was, whatever its own time; others are of steps."""
    gap = {"kind": "gap", "n": 3, "t": T0 + 15}
    data = streams(stream(5, x=1), gap, {"kind": "gap", "n": 5, "from": 0, "to": 9}, gap, stream(25, x=1))
    other = streams({"kind": "gap", "n": 100}, span("a", 13, after=2), {"kind": "gap", "n": 10}, id="h", t=T0 + 2)
    found = rows(lead(10, 20, 30), data, other)
    assert {step: row.coverage.gap for step, row in aligned(found).items()} == {1: 113, 2: 3, 3: 0}
    assert {window: row.coverage.gap for window, row in clocked(found).items()} == {0: 113, 1: 3, 2: 0}


# --- clock units ---


def test_clock_rows() -> None:
    """All that is in a row of a clock unit: a window has its start, not its end."""
    old = file(actor="reward", id="r", t=T0 - 7)
    data = streams(define(x=["max", "count"]), stream(9.5, x=1), stream(10, x=2), stream(19.5, x=4), stream(20, x=8))
    found = clocked(rows(old, data))
    assert {window: row.values["clock/generator/x"] for window, row in found.items()} == {0: 1.0, 1: 4.0, 2: 8.0}
    assert found[1] == ReferenceRow(
        unit=Unit("generator", "clock", WINDOW + 1),
        t=T0 + 19.5,
        x={"clock/elapsed_s": 17.0},
        values={"clock/generator/x": 4.0, "clock/generator/x/count": 2.0},
        coverage=Coverage(ranks=("0.0",), expected=1, attempts=(0,)),
        asked=("clock/generator/x/count",),
    )


def test_windows_are_configured() -> None:
    """`clock_window_s` is the length of a clock unit."""
    found = rows(streams(stream(9, x=1), stream(69, x=3)), settings=Settings(window=60.0))
    assert [(unit.index, row.values["clock/generator/x"]) for unit, row in found.items()] == [
        (29393333, 1.0),
        (29393334, 3.0),
    ]


def test_elapsed_time() -> None:
    """It counts from the least time of an `open`, none being no time, and never runs below zero."""
    found = clocked(rows(streams(stream(-15, x=1), stream(5, x=1)), file(id="z", t=None)))
    assert [row.x for row in found.values()] == [{"clock/elapsed_s": 0.0}, {"clock/elapsed_s": 0.0}]
    (row,) = clocked(rows(streams(stream(5, x=1), t=None))).values()
    assert row.x == {"clock/elapsed_s": T0}


def test_unit_without_values() -> None:
    """A stream line whose values are all dead makes its units, with nothing in them."""
    found = rows(lead(10), streams(stream(5, x="rubbish")))
    for row in (aligned(found)[1], clocked(found)[0]):
        assert (row.values, row.t, row.coverage.ranks, row.coverage.expected) == ({}, T0 + 5, (), 1)


# --- policy lag ---


def test_policy_lag_of_streams() -> None:
    """Aligned: by the unit's step; clock: by the step that covers the window's end, else the last one ended by then."""
    ask = {"kind": "define", "m": {"policy_version": {"unit": "global_step"}}}
    data = streams(ask, *(stream(after, policy_version=1) for after in (3, 13, 23, 33)))
    found = rows(lead(9, 12, 25, first=4), data)
    assert {step: row.values["generator/policy_lag"] for step, row in aligned(found).items()} == {4: 3.0, 6: 5.0}
    lags = {window: row.values.get("clock/generator/policy_lag") for window, row in clocked(found).items()}
    assert lags == {0: 4.0, 1: 5.0, 2: 5.0, 3: 5.0}
    early = rows(lead(99), streams(ask, stream(-13, policy_version=1)))
    assert "clock/generator/policy_lag" not in clocked(early)[-2].values
    stepped = rows(lead(10), data, streams(log(3, policy_version=1), id="h"))
    assert aligned(stepped)[1].values["generator/policy_lag/aligned"] == 0.0


# --- points ---


STREAMED = {"kind": "define", "m": {"x": {"stream": True}, "h": {"stream": True, "reduce": "hist"}}}


def test_points() -> None:
    """One line, its declared metrics, its own time; where the line begins in its file is its index."""
    before = streams(STREAMED, t=T0 - 2, attempt=3, rank=2)
    data = streams(STREAMED, stream(5, x=[1, 2, "NaN"], h=4, y=9), t=T0 - 2, attempt=3, rank=2)
    found = {unit: row for unit, row in rows(data).items() if unit.kind not in ("clock", "aligned")}
    assert found == {
        Unit("generator", "point", len(before), "g"): ReferenceRow(
            unit=Unit("generator", "point", len(before), "g"),
            t=T0 + 5,
            x={"clock/elapsed_s": 7.0},
            values={"point/generator/x": 1.5},
            hists={"point/generator/h": Histogram((4.0, 4.0), (1,))},
            coverage=Coverage(ranks=("0.2",), expected=1, attempts=(3,)),
        )
    }


def test_a_point_has_no_value_of_a_metric_called_like_tags() -> None:
    """It counts as a contribution, but has no key in rows of any kind."""
    defined = {"kind": "define", "m": {"event/step_tag": {"stream": True}}}
    (found,) = points(rows(streams(defined, stream(1, **{"event/step_tag": 1})))).values()
    assert (found.values, found.coverage.ranks) == ({}, ("0.0",))


def test_how_often_there_are_points() -> None:
    """At most one a second in each file, in the order of its lines; in large worlds fewer."""
    records = [stream(after, x=after) for after in (5, 5.5, 6, 6.9, 3, 7, 9.5, 20)]
    assert list(points(rows(streams(STREAMED, *records)))) == [5, 6, 7, 9, 20]
    assert list(points(rows(streams(STREAMED, *records, world=16)))) == [5, 6, 7, 9, 20]
    assert list(points(rows(streams(STREAMED, *records, world=32)))) == [5, 7, 9, 20]
    assert list(points(rows(streams(STREAMED, *records, world=160)))) == [5, 20]


def test_what_becomes_a_point() -> None:
    """A stream line that has a metric which its own file's `define` declares by then; not null, no step."""
    late = [
        stream(5, x=1),
        STREAMED,
        stream(6, x=None),
        stream(7, y=1),
        log(1, x=2),
        stream(9, x=3),
        stream(11, x={"n": 0}),
    ]
    assert list(points(rows(streams(*late)))) == [9]
    undone = [STREAMED, define(x="max"), stream(9, x=3)]
    assert points(rows(streams(*undone))) == {}
    assert points(rows(streams(stream(9, x=3)), streams(STREAMED, id="h"))) == {}
    declared = {"kind": "define", "m": {"roll_s": {"stream": True}, "event/e": {"stream": True, "reduce": "count"}}}
    spans = points(rows(streams(declared, span("roll", 2, after=3), event("e", t=T0 + 7))))
    assert {at: row.values for at, row in spans.items()} == {
        5: {"point/generator/roll_s": 2.0},
        7: {"point/generator/event/e": 1.0},
    }


def test_figures_of_points() -> None:
    """The configuration names the first reduction; a rate cannot be derived; a NaN makes an empty row."""
    data = streams(STREAMED, stream(5, x=[1, 4]))
    assert points(rows(data, reductions={"x": ["max", "sum"]}))[5].values == {"point/generator/x": 4.0}
    found = points(rows(data, reductions={"generator/x": ["rate"]}))[5]
    assert (found.values, found.coverage.underivable) == ({}, ("point/generator/x",))
    assert points(rows(streams(STREAMED, stream(5, x="NaN"))))[5].values == {}


def test_points_of_a_child() -> None:
    """A child's point names the rank of its root, and the child's own attempt."""
    child = streams(STREAMED, stream(5, x=1), parent="root", rank=7, attempt=2)
    found = points(rows(streams(id="root", rank=1), child))[5]
    assert found.coverage == Coverage(ranks=("0.1",), expected=1, attempts=(2,))
