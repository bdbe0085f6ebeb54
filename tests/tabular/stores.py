"""Experiments with a store made by hand: rows as the sidecar would have committed them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlship_formats.values import Histogram
from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.store.store import Changes, Store

ODD = 'a "b", c\n=é\x1b[31m'  # a name that every format has to quote, and no terminal may see


def row(no: int, step: int | None = None, *, actor: str = "trainer", kind: str = "step", **more: Any) -> Row:
    """A row numbered `no`, of step `no` unless it says otherwise, with one figure unless `values` says others."""
    unit = Unit.from_disk(actor, kind, no if step is None else step)
    values = more.pop("values", {f"{actor}/loss": no + 0.1})
    revision = more.pop("revision", 0)
    arrival = Arrival(no, revision, tuple(more.pop("changed", values)), "revision" if revision else "complete")
    coverage = more.pop("coverage", Coverage(("0.0-3",), 4, attempts=(0,)))
    return Row(unit, 1763600000.25 + no, {"global_step": unit.index}, values, coverage, arrival, **more)


SHORT = {f"trainer/{ODD}": ("0.0-1",)}


def rich_rows() -> list[Row]:
    """Rows with all that a row can have, figures with few and with all bits, and a revision of the first row."""
    holes = Coverage(("0.0-1", "1.0"), 4, ("0.2",), ("1.1-2",), (0, 2), 17, ("trainer/std",), SHORT)
    return [
        row(0, values={"trainer/loss": 0.1 + 0.2, "trainer/tokens": 2.0**60, "trainer/low": 5e-324}),
        row(1, coverage=holes, tags=("slow", ODD), values={"trainer/loss": -0.0, f"trainer/{ODD}": 1e308}),
        row(2, actor="generator", kind="aligned", step=0, values={"generator/policy_lag": 3.0}),
        row(3, actor="generator", kind="clock", step=176360000, values={"clock/generator/tokens/rate": 1 / 3}),
        row(4, actor="generator", kind="point:9f2c", step=2**53 - 1, values={"point/generator/x": 1.0}),
        row(5, hists={"trainer/len": Histogram((0.5, 1.5, 2.5), (3, 2**53 + 1))}, values={}),
        row(6, per_rank={"trainer/busy_s": [("0.0", 0.25), ("a.b.11", 1e-9)]}),
        row(7, 0, revision=1, changed=("trainer/loss",), values={"trainer/loss": 0.5, "trainer/tokens": 2.0**60}),
    ]


def store(
    folder: Path, rows: Iterable[Row] = (), dead: Iterable[tuple[str, Dead]] = (), *, local: bool = True
) -> Store:
    """The open store of an experiment in `folder`, of generation 3, with these rows and dead letters."""
    state = folder / "rlship" / "state"
    state.mkdir(parents=True)
    made = Store(state / "store.3.db", local=local)
    made.commit(Changes(rows=list(rows), dead=list(dead)))
    return made


def experiment(folder: Path, rows: Iterable[Row] = (), dead: Iterable[tuple[str, Dead]] = ()) -> Path:
    """The same, of a sidecar that has ended."""
    store(folder, rows, dead).close()
    return folder
