"""The rollup: the same whether it grew, was read from its file or was made at once, and within its bounds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from rlship_sidecar.store.store import Changes
from rlship_sidecar.view import following, rollup_file
from rlship_sidecar.view import rollup as rollups
from rlship_sidecar.view.binned import Binned, MergedSlots
from rlship_sidecar.view.following import Followed
from rlship_sidecar.view.rollup import Rollup, state_of
from tests.tabular.stores import row, store

NAMES = ("trainer", "step")


def content(rollup: Rollup) -> tuple[object, ...]:
    """All that a rollup holds."""
    data, arrays = state_of(rollup)
    return str(data), [one.tolist().__repr__() for one in arrays]


@pytest.mark.parametrize("case", range(40))
def test_buckets_keep_sum_extremes_and_number(case: int) -> None:
    """Whatever the order of positions, and after a bucket was emptied and filled again."""
    draw = random.Random(case)
    table = Binned(np.float64, draw.choice([4, 16, 64]), 3)
    base, span = draw.choice([0, 17, 1000]), draw.choice([5, 40, 400])
    truth: dict[int, dict[int, float]] = {}
    for position in draw.sample(range(base, base + span), min(span, draw.randint(1, 200))):
        lines = sorted(draw.sample(range(3), draw.randint(1, 3)))
        truth[position] = {line: draw.random() for line in lines}
        table.put(table.slot(position), np.array(lines), np.array(list(truth[position].values())))
    low = draw.choice(sorted(truth)) // table.stride * table.stride
    table.wipe(low, low + table.stride - 1)
    for position in range(low, low + table.stride):
        if position in truth:
            values = truth[position]
            table.put(table.slot(position), np.array(list(values)), np.array(list(values.values())))
    merged = MergedSlots(table, np.arange(3), 0, table.used, points := draw.choice([1, 3, 10, 100]))
    assert len(merged.edges) <= points and table.used <= table.most
    first = table.first * table.stride // merged.width
    for line in range(3):
        for at in range(len(merged.edges)):
            inside = [
                values[line]
                for position, values in truth.items()
                if line in values and position // merged.width == first + at
            ]
            assert merged.n[line, at] == len(inside)
            if inside:
                assert merged.mean[line, at] == pytest.approx(sum(inside) / len(inside))
                assert (merged.low[line, at], merged.high[line, at]) == (min(inside), max(inside))
            else:
                assert np.isnan(merged.mean[line, at])


def test_a_rollup_that_grew_is_that_of_the_whole_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where revisions came after their buckets had grown wide: the stretch is read again."""
    monkeypatch.setattr(rollups, "MOST_BUCKETS", 16)
    monkeypatch.setattr(rollups, "MOST_RANK_BUCKETS", 8)
    made = store(tmp_path / "run")
    grown = Followed(tmp_path / "run" / "rlship" / "state")
    draw = random.Random(7)
    revisions: dict[int, int] = {}
    for no in range(120):
        step = draw.randint(0, no)
        revision = revisions[step] = revisions.get(step, -1) + 1
        values = {"trainer/loss": float(no), **({"trainer/kl": 0.5} if no % 3 else {})}
        ranks = {"trainer/busy_s": [(f"0.{rank}", float(rank + no)) for rank in range(3)]}
        changed = (*values, *ranks)
        made.commit(Changes(rows=[row(no, step, revision=revision, changed=changed, values=values, per_rank=ranks)]))
        grown.look()
    whole = Followed(tmp_path / "run" / "rlship" / "state")
    whole.look()
    one, other = (followed.rollup.families[NAMES] for followed in (grown, whole))
    assert one.table.stride == other.table.stride > 1 and one.keys == other.keys
    for mine, its in zip(one.table.columns(0, one.table.used), other.table.columns(0, other.table.used)):
        np.testing.assert_allclose(mine[: one.table.lines], its[: other.table.lines])
    ranks = [family.ranks["trainer/busy_s"].table for family in (one, other)]
    for mine, its in zip(*(table.columns(0, table.used) for table in ranks)):
        np.testing.assert_allclose(mine[:3], its[:3], rtol=1e-6)
    made.close()


def test_how_far_a_history_is_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long history comes in pieces, and after each it is known how much of it is there; at the end all of it."""
    monkeypatch.setattr(following, "MANY_ROWS", 50)
    monkeypatch.setattr(following, "PIECE_ROWS", 40)
    made = store(tmp_path / "run", [row(no) for no in range(200)])
    followed = Followed(tmp_path / "run" / "rlship" / "state")
    told: list[tuple[float, int]] = []
    followed.look(lambda: told.append((followed.progress or 0.0, followed.rollup.families[NAMES].table.used)))
    assert len(told) > 4 and told == sorted(told)
    assert [round(share * 200) for share, _ in told] == [rows for _, rows in told]
    assert told[-1] == (1.0, 200) and followed.progress is None
    made.close()


def test_its_file_is_continued_and_anything_wrong_with_it_is_not(tmp_path: Path) -> None:
    """Only this user's file of the same store counts; a damaged one is made again."""
    made = store(tmp_path / "run", [row(no, per_rank={"trainer/x": [("0.0", 1.0)]}) for no in range(600)])
    state = tmp_path / "run" / "rlship" / "state"
    first = Followed(state)
    first.look()
    first.save()
    path = rollup_file.path_of(state)
    assert path == state / "store.3.rollup"
    kept = rollup_file.read(state, made.store_id)
    assert kept is not None and content(kept) == content(first.rollup)
    made.commit(Changes(rows=[row(600)]))
    again = Followed(state)
    assert len(again.look().rows or ()) == 1 and again.count == 601
    assert rollup_file.read(state, "another") is None
    whole = path.read_bytes()
    for broken in (b"", whole[:-1], whole[:40], b"x" + whole, whole[:60] + b"\xff" + whole[61:]):
        path.write_bytes(broken)
        third = Followed(state)
        third.look()
        assert third.count == 601
    path.unlink()
    os.symlink(tmp_path / "elsewhere", path)
    assert rollup_file.read(state, made.store_id) is None
    made.close()


def test_its_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the rows, the metrics and the ranks of a run its buckets grow wider; metrics without room are counted."""
    monkeypatch.setattr(rollups, "ROWS_BYTES", 200_000)
    monkeypatch.setattr(rollups, "RANKS_BYTES", 100_000)
    monkeypatch.setattr(rollups, "LEAST_BUCKETS", 16)
    monkeypatch.setattr(rollups, "LEAST_RANK_BUCKETS", 16)
    monkeypatch.setattr(rollups, "MAX_METRICS", 20)
    rows = [
        row(
            no,
            values={f"trainer/m{key}": 1.0 for key in range(30)},
            per_rank={f"trainer/r{key}": [(f"0.{rank}", 1.0) for rank in range(32)] for key in range(30)},
        )
        for no in range(200)
    ]
    made = store(tmp_path / "run", rows)
    followed = Followed(tmp_path / "run" / "rlship" / "state")
    followed.look()
    rollup = followed.rollup
    assert rollup.nbytes <= 300_000
    family = rollup.families[NAMES]
    assert len(family.keys) == 20 and len(rollup.left_out) == 10
    assert family.ranks and rollup.left_out_by_rank
    assert family.table.columns(0, family.table.used)[3][1].sum() == 200
    made.close()
