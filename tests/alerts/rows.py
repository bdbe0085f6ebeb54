"""Rows as a store has them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlship_sidecar.rows import STEP, Arrival, Coverage, Lineage, Row, Unit

T0 = 1_763_600_000.0


def row(
    step: int,
    values: Mapping[str, float],
    *,
    actor: str = "trainer",
    kind: str = STEP,
    lineage: Lineage | None = None,
    attempts: Sequence[int] = (0,),
    t: float | None = None,
    axis: str = "global_step",
    per_rank: Mapping[str, Sequence[tuple[str, float]]] | None = None,
    coverage: Mapping[str, object] | None = None,
    tags: Sequence[str] = (),
    number: int = 0,
) -> Row:
    """A row with `values` by metric, without the actor before them."""
    said = Coverage(("0.0",), 1, attempts=tuple(attempts), lineage=lineage)
    for name, value in (coverage or {}).items():
        object.__setattr__(said, name, value)
    return Row(
        Unit(actor, kind, step),
        T0 + step if t is None else t,
        {axis: step},
        {f"{actor}/{name}": value for name, value in values.items()},
        said,
        Arrival(number, 0, (), "complete"),
        per_rank={f"{actor}/{name}": list(found) for name, found in (per_rank or {}).items()},
        tags=tuple(tags),
    )
