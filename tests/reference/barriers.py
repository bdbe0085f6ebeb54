"""Who was last at the barrier: section "Barriers" of docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.reference.clocks import Clocks
from tests.reference.order import age, has_no_rank_for, jobs_of, rank_order
from tests.reference.records import Writer
from tests.reference.unit import are_numbers, place


@dataclass(frozen=True)
class Reached:
    """When one rank reached the barrier, on the file server's clock; `err`: how wrong that may be, None if unknown."""

    root: Writer
    time: float
    err: float | None


def barrier_figures(crew: Sequence[Writer], step: int, clocks: Clocks) -> dict[str, float]:
    """The figures, by what comes after `<actor>/barrier/`."""
    roots = [writer for writer in crew if writer.root is writer]
    ranks = {rank_order(root): root for root in roots}
    all_reached = [reached(roots, order, step, clocks) for order in sorted(ranks)]
    times = [one for one in all_reached if one is not None]
    if len(times) < 2:
        return {}
    last = next(one for one in times if one.time == max(other.time for other in times))
    least = next(one for one in times if one.time == min(other.time for other in times))
    spread = last.time - least.time
    figures = {"spread_s": spread}
    on_one_host = spread > 0 and last.root.host != "" and last.root.host == least.root.host
    beyond_error = last.err is not None and least.err is not None and spread > last.err + least.err
    if on_one_host or beyond_error:
        figures |= place(last.root, "last", are_numbers({one.root.replica for one in times}))
    return figures


def reached(
    roots: Sequence[Writer], order: tuple[tuple[int, int, str, str], int], step: int, clocks: Clocks
) -> Reached | None:
    """The barrier time of one rank."""
    jobs = jobs_of(roots)
    all_having = [
        (root, segment) for root in roots for segment in root.segments if any(at == step for at, _ in segment.barriers)
    ]
    having = [
        (root, segment)
        for root, segment in all_having
        if rank_order(root) == order and not any(has_no_rank_for(new, root, jobs) for new, _ in all_having)
    ]
    if not having:
        return None
    root, segment = max(having, key=lambda one: age(*one))
    t = next(t for at, t in segment.barriers if at == step)
    offset, err = clocks.offset(root.host, t)
    return Reached(root, t - offset, err)
