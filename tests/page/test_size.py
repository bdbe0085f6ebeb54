"""The size of an exported file, and what is in it of a large run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.view import exported
from tests.kit.chromium import Browser
from tests.page import made
from tests.page.seeing import columns, opened, wholesome

pytestmark = pytest.mark.toolchain
RANKS, STEPS, WIDTH, METRICS = 1024, 2000, 4, 20


def large(name: str, given: Mapping[str, str]) -> Any:
    """Answers about 1,024 ranks x 2,000 steps of noise, which deflates worst, in buckets of a power of two."""
    held = made.embedded(steps=STEPS, ranks=2, span_steps=10)
    noise = np.random.default_rng(len(given.get("m", "")))
    if name == "metrics":
        rows = [{**held["metrics"]["metrics"][0], "id": f"m{at}", "key": f"trainer/m{at}"} for at in range(METRICS)]
        return {**held["metrics"], "metrics": [*rows, *(one for one in held["metrics"]["metrics"] if one["per_rank"])]}
    if name == "series":
        values = noise.normal(1, 0.1, STEPS).tolist()
        curve = {"grid": 0, "mean": values, "min": None, "max": None, "n": None}
        return {**held["series"], "curves": dict.fromkeys(given["m"].split(","), curve)}
    if name == "rollouts":
        return {**made.rollouts(10), "steps": [10]}
    if name != "ranks":
        return held[name]  # type: ignore[literal-required]
    narrow = "from" in given
    wide = 1 if narrow else WIDTH
    x = list(range(int(given.get("from", 0)), STEPS, wide))
    mean = noise.normal(8, 0.3, (RANKS, len(x))).astype("<f4")
    spread = np.abs(noise.normal(0, 0.2, mean.shape))
    by = made.by_rank(len(x), [f"0.{rank}" for rank in range(RANKS)], [f"n{rank // 8}" for rank in range(RANKS)], 8.0)
    stats = {"min": made.packed(mean - spread), "max": made.packed(mean + spread)}
    return {
        **held["ranks"]["r0"],
        **by,
        "metric": given["m"],
        "mean": made.packed(mean),
        **(stats if not narrow else {}),
        "grid": {**made.grid(len(x)), "x": x, "rows": [wide] * len(x), "width": wide},
    }


def test_what_does_not_fit_is_left_out(browser: Browser, tmp_path: Path) -> None:
    """Where the file would be too large, parts of it are left out one after the other, and the overview names them; the
    panels of these parts still open.
    """
    held = exported.packed_ranks(made.embedded(ranks=64))
    whole = len(exported.one_file(held))
    path = tmp_path / "page.html"
    path.write_bytes(exported.fitting(held, most=whole - 20_000))
    assert path.stat().st_size <= whole - 20_000
    page = opened(browser, path.as_uri(), "panel=overview")
    page.wait("document.querySelector('main').innerText.includes('This file leaves out the rollouts')")
    for panel in ("timeline", "ranks", "memory", "rollouts"):
        page.click(f"nav [data-panel={panel}]")
        page.wait(f"document.querySelector('[data-shown={panel}]')")
    wholesome(page)
    with pytest.raises(RlshipError, match="MB are allowed"):
        exported.fitting(held, most=1000)


def test_a_large_run_is_at_most_twenty_megabytes(browser: Browser, tmp_path: Path) -> None:
    """1,024 ranks x 2,000 steps with 20 row metrics and 4 metrics by rank: all ranks are in the file, in at least 400
    buckets with mean, least and greatest, the newest 50 steps one by one; the file opens from disk.
    """
    held = exported.held_by(large, made.embedded(steps=STEPS, ranks=2)["experiments"])
    assert [note for note in held["overview"]["notes"] if "leaves out" in note] == []
    assert sorted(held["ranks"]) == ["r0", "r1", "r2", "r3"] == sorted(held["newest"])
    for ranks in held["ranks"].values():
        assert ranks["mean"]["rows"] == RANKS and ranks["mean"]["columns"] >= exported.LEAST_BUCKETS
        assert ranks["min"] is not None and ranks["max"] is not None
    for ranks in held["newest"].values():
        assert (ranks["mean"]["rows"], ranks["mean"]["columns"], ranks["grid"]["width"]) == (RANKS, 50, 1)
    path = tmp_path / "page.html"
    path.write_bytes(exported.one_file(held))
    assert path.stat().st_size <= exported.MOST_BYTES
    page = opened(browser, path.as_uri(), "panel=ranks")
    page.wait("document.querySelector('canvas.carpet').dataset.ranks === '1024'")
    assert len(columns(page, "Ranks that stand out")) == 10
    page.click("nav [data-panel=memory]")
    page.wait("document.querySelector('[data-metric=r2]')?.dataset.worst")
    wholesome(page)
