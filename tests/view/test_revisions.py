"""Revisions: what the page shows of rows is made of the newest revision of each, however they came."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.rows import Arrival, Coverage, Row, Sample, Unit
from rlship_sidecar.store.store import Changes
from rlship_sidecar.view import following
from rlship_sidecar.view import rollup as rollups
from rlship_sidecar.view.binned import Binned
from rlship_sidecar.view.charts import KeyPlace, Span, metrics_of, ranks_of
from rlship_sidecar.view.following import Followed
from rlship_sidecar.view.lean import decoded
from rlship_sidecar.view.rollup import PARTIAL, REVISED, Family, Rollup
from tests.tabular.stores import rich_rows, store

T0 = 1_763_600_000
RANKS = ("0.0", "0.1", "0.2")
WHOLE, PART = Coverage(RANKS, 3, attempts=(0,)), Coverage(RANKS[:2], 3, ("0.2",), attempts=(0,))

numbers = st.integers(-9, 9).map(float)
units = st.one_of(
    st.builds(Unit, st.just("trainer"), st.sampled_from(("step", "aligned")), st.integers(0, 40)),
    st.builds(Unit, st.just("trainer"), st.just("point"), st.integers(0, 3), st.sampled_from("ab")),
)
# A unit, its values, those by rank, whether it lacks a rank and shows samples, and its time.
written = st.tuples(
    units,
    st.dictionaries(st.sampled_from(("trainer/a", "trainer/b", "trainer/c")), numbers),
    st.dictionaries(st.just("trainer/busy_s"), st.dictionaries(st.sampled_from(RANKS), numbers, min_size=1)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 40),
)


def rows_of(said: Sequence[Any]) -> list[Row]:
    """These as rows of a store: whichever a unit has already is revised."""
    revisions: dict[Unit, int] = {}
    found = []
    for no, (unit, values, ranks, lacks, shows, at) in enumerate(said):
        revision = revisions[unit] = revisions.get(unit, -1) + 1
        by_rank = {key: list(each.items()) for key, each in ranks.items()} if unit.kind != "point" else {}
        arrival = Arrival(no, revision, tuple(values), "revision" if revision else "complete")
        made = Row(unit, T0 + at / 1000, {"global_step": unit.index}, values, PART if lacks else WHOLE, arrival)
        samples = {"rollouts": [Sample(("top",), "0.0", T0, 1.0, {})]} if shows else {}
        found.append(replace(made, per_rank=by_rank, samples=samples))
    return found


def buckets(table: Binned, line: int) -> dict[int, tuple[float, float, float, int]]:
    """The buckets of a line that have values."""
    total, low, high, n = (one[line] for one in table.columns(0, table.used))
    return {
        table.first + at: (float(total[at]), float(low[at]), float(high[at]), int(n[at]))
        for at in np.flatnonzero(n > 0).tolist()
    }


def slow(values: Sequence[tuple[int, float]], stride: int) -> dict[int, tuple[float, float, float, int]]:
    """The same by its definition: sum, least, greatest and number of the values at the positions of each bucket."""
    found: dict[int, list[float]] = {}
    for position, value in values:
        found.setdefault(position // stride, []).append(value)
    return {at: (sum(each), min(each), max(each), len(each)) for at, each in found.items()}


def agrees(rollup: Rollup, rows: Sequence[Row]) -> None:
    """A rollup is that of these rows, each the newest of its unit."""
    by_family: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    for row in rows:
        place = decoded(row.to_json())
        by_family.setdefault(place.family, []).append((place.position, row))
    assert set(rollup.families) == set(by_family) and not rollup.again and rollup.stale() is None
    for name, placed in by_family.items():
        family_agrees(name, rollup.families[name], placed)
    listed = {(one["kind"], one["key"], one["last"] is not None, one["per_rank"]) for one in metrics_of(rollup, "")}
    assert listed == {
        (name[1], key, key in family.last, key in family.ranks)
        for name, family in rollup.families.items()
        for key in {key for _, row in by_family[name] for key in (*row.values, *row.per_rank)}
    }


def family_agrees(name: tuple[str, str], family: Family, placed: Sequence[tuple[int, Row]]) -> None:
    stride = family.table.stride
    for line, of in (
        (PARTIAL, lambda row: float(bool(row.coverage.missing))),
        (REVISED, lambda row: float(row.arrival.revision > 0)),
    ):
        assert buckets(family.table, line) == slow([(at, of(row)) for at, row in placed], stride)
    keys = {key for _, row in placed for key in row.values}
    assert set(family.last) == keys
    for key in keys:
        having = [(at, row.values[key]) for at, row in placed if key in row.values]
        assert buckets(family.table, family.keys[key]) == slow(having, stride)
        newest = max(at for at, _ in having)
        assert family.last[key] in [one for one in having if one[0] == newest]
    assert set(family.lacking) == {at for at, row in placed if row.coverage.missing} or name[1] == "point"
    assert set(family.shown) == {at for at, row in placed if row.samples} or name[1] == "point"
    by_rank = [(at, rank, value) for at, row in placed for each in row.per_rank.values() for rank, value in each]
    assert set(family.ranks) == ({"trainer/busy_s"} if by_rank else set())
    for key, of_ranks in family.ranks.items():
        for rank in {rank for _, rank, _ in by_rank}:
            having = [(at, value) for at, one, value in by_rank if one == rank]
            found = buckets(of_ranks.table, of_ranks.lines[rank])
            assert found == slow(having, of_ranks.table.stride)
        shown = ranks_of(KeyPlace(name, key), family, Span(), ("mean",), {})
        assert shown["ranks"] == sorted({rank for _, rank, _ in by_rank})


@given(st.lists(st.lists(written, min_size=1, max_size=8), min_size=1, max_size=6))
def test_a_rollup_is_that_of_the_newest_revisions(commits: list[list[Any]]) -> None:
    """Whichever rows are revised, whatever a revision changes, adds or takes away, and how wide buckets are by then:
    values, ranks, samples, newest values and the list of metrics are those of the newest revisions alone, as if the
    history was read at once.
    """
    rows = iter(rows_of([one for commit in commits for one in commit]))
    newest: dict[Unit, Row] = {}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(rollups, "MOST_BUCKETS", 8)
        patch.setattr(rollups, "MOST_RANK_BUCKETS", 4)
        patch.setattr(following, "POINTS_SHARE", float("inf"))  # points are made again at once
        made = store(Path(folder))
        state = Path(folder) / "rlship" / "state"
        grown = Followed(state)
        for commit in commits:
            part = [next(rows) for _ in commit]
            newest |= {row.unit: row for row in part}
            made.commit(Changes(rows=part))
            grown.look()
            agrees(grown.rollup, list(newest.values()))
        whole = Followed(state)
        whole.look()
        agrees(whole.rollup, list(newest.values()))
        made.close()


def test_a_stretch_of_many_revisions_is_read_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its rows were revised."""
    monkeypatch.setattr(rollups, "MOST_BUCKETS", 64)
    rollup = Rollup()
    units = [Unit("trainer", "step", step) for step in range(1_000)]
    said = [(unit, {"trainer/a": 1.0}, {}, False, False, 0) for unit in units]
    rows = [decoded(row.to_json()) for row in rows_of(said)]
    rollup.take(rows)
    width = rollup.families["trainer", "step"].widest
    for row in rows:
        row.arrival.revision = 1
    rollup.take(rows)
    taken: list[int] = []
    while (stretch := rollup.stale()) is not None:
        name, first, last = stretch
        taken.append(first)
        rollup.retake(name, first, last, rows[first : last + 1])
    assert sorted(taken) == list(range(0, 1_000, width)) and width > 1


def test_revised_points_are_read_again_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All points of an actor are read again where one was revised, in at most a small part of the time; a look that
    is due finds them without a commit, and a rollup that was kept before knows it.
    """
    monkeypatch.setattr(following, "SAVE_ROWS", 1)
    point = (Unit("trainer", "point", 0, "a"), {"trainer/a": 1.0}, {}, False, False, 0)
    rows = rows_of([(*point[:1], {"trainer/a": float(no)}, *point[2:]) for no in range(3)])
    made = store(tmp_path / "run", rows[:1])
    state = tmp_path / "run" / "rlship" / "state"
    followed = Followed(state)
    followed.look()
    key = "trainer", "point"
    for number, share in ((1, 1e-9), (2, float("inf"))):
        monkeypatch.setattr(following, "POINTS_SHARE", share)
        made.commit(Changes(rows=rows[number : number + 1]))
        followed.look()
    assert followed.rollup.families[key].last["trainer/a"][1] == 1.0 and followed.rollup.again == {key}
    followed.save()
    again = Followed(state)
    again.look()
    assert again.rollup.families[key].last["trainer/a"][1] == 2.0 and not again.rollup.again
    made.close()


def test_a_first_row_that_comes_while_a_stretch_is_read_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may have rows by then that are taken at the next look alone."""
    monkeypatch.setattr(rollups, "MOST_BUCKETS", 1)
    rollup = Rollup()
    steps = Unit("trainer", "step", 0), Unit("trainer", "step", 0), Unit("trainer", "step", 1)
    said = [(unit, {"trainer/a": 1.0}, {}, False, False, 0) for unit in steps]
    rows = [decoded(row.to_json()) for row in rows_of(said)]
    rollup.take(rows[:2])
    stretch = rollup.stale()
    assert stretch == (("trainer", "step"), 0, 0)
    rollup.retake(*stretch, rows[1:])
    rollup.take(rows[2:])
    family = rollup.families["trainer", "step"]
    assert [n for *_, n in buckets(family.table, family.keys["trainer/a"]).values()] == [2]


def test_a_charted_row_has_what_the_row_has() -> None:
    """Its members are those that `Row.to_json` writes."""
    for row in rich_rows():
        found = decoded(row.to_json())
        assert (found.row, found.t, found.m, found.x) == (row.row_number, row.t, row.values, row.x)
        assert (found.actor, found.kind, found.index) == (row.unit.actor, row.unit.kind_on_disk, row.unit.index)
        assert found.per_rank == {key: dict(values) for key, values in row.per_rank.items()}
        assert (found.coverage.missing, found.arrival.revision) == (row.coverage.missing, row.arrival.revision)
        assert list(found.samples) == list(row.samples)
