"""What an experiment has at W&B that a chart can show, under the names that the sink gives it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rlship_sidecar.panels.placing import parts
from rlship_sidecar.rows import ALERT, ALIGNED, CLOCK, LEDGER, STEP, Row
from rlship_sidecar.sinks.names import SinkNames, family
from rlship_sidecar.sinks.wandb.point import axis_name, charted_names, has_axis
from rlship_sidecar.tally import OWN_ACTOR

# Of a metric that several kinds of rows have, the chart is that of the first one. Points have no charts of interest.
_KINDS = (STEP, ALIGNED, LEDGER, ALERT, CLOCK)
OWN_STEP = "_step"  # W&B's own axis
MAX_NAME = 256
# A panel reads a metric that begins like this as a part of the run's configuration, of its summary and so on.
_MEANT_OTHERWISE = ("config.", "config:", "c::", "summary.", "summary:", "summary_metrics.", "run.", "run:", "system/")


class Charted(NamedTuple):
    """One metric of an actor. `names` are those of its values at W&B, by reduction; "" is the first one.

    `axis` is the name of the axis that its charts have. `ranks` is the beginning of the names that values of its single
    ranks have at W&B, "" if no row has such values. `kind` is that of its rows.
    """

    actor: str
    metric: str
    kind: str
    axis: str
    names: Mapping[str, str]
    ranks: str

    @property
    def name(self) -> str:
        """The name of its first value."""
        return next(iter(self.names.values()))


class Chartable(NamedTuple):
    """What rows have, and how many names were left out because no panel can show what they stand for."""

    metrics: Sequence[Charted]
    left_out: int


def charted(rows: Iterable[Row], shown: SinkNames) -> Chartable:
    """All metrics of the rows, by actor and metric."""
    found: dict[_Place, Charted] = {}
    seen: set[tuple[object, ...]] = set()
    unusable: set[str] = set()
    for row in rows:
        unit = row.unit
        if unit.kind not in _KINDS or unit.actor == OWN_ACTOR or (unit.kind == CLOCK and not shown.over_time):
            continue
        like = (unit.actor, unit.kind, axis_name(row), row.asked, frozenset(row.values), frozenset(row.per_rank))
        if like in seen:
            continue
        seen.add(like)
        for key, name in charted_names(row, shown).items():
            metric, reduction = _parts(row, key)
            if metric.startswith("aligned/") or reduction == "aligned":
                continue  # the steps of the actor have the chart
            if not _is_usable(name):
                unusable.add(name)
                continue
            _add(found, row, metric, reduction, name)
    return Chartable([_sorted(one) for _, one in sorted(found.items())], len(unusable))


_Place = tuple[str, str, str]


def _add(found: dict[_Place, Charted], row: Row, metric: str, reduction: str, name: str) -> None:
    actor, kind = row.unit.actor, row.unit.kind
    place = actor, "" if actor else kind, metric
    known = found.get(place)
    if known is not None and _KINDS.index(known.kind) < _KINDS.index(kind):
        return
    axis = axis_name(row)
    axis = axis if _is_usable(axis) and has_axis(actor + axis + name) else OWN_STEP
    key = f"{family(row)}/{metric}"
    ranks = f"{key}/r" if key in row.per_rank else ""
    if known is None or known.kind != kind:
        found[place] = Charted(actor, metric, kind, axis, {reduction: name}, ranks)
    else:
        found[place] = known._replace(names={**known.names, reduction: name}, ranks=known.ranks or ranks)


def _parts(row: Row, key: str) -> tuple[str, str]:
    """The metric of a key, and its reduction if it is not the first one."""
    there = row.values, row.hists, row.coverage.underivable
    metric, reduction = parts(key, lambda base: any(base in one for one in there))
    return metric.removeprefix(f"{family(row)}/"), reduction


def _sorted(one: Charted) -> Charted:
    return one._replace(names=dict(sorted(one.names.items())))


def _is_usable(name: str) -> bool:
    """Whether a panel shows what has this name, and the name can be sent."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and not name.startswith(_MEANT_OTHERWISE)
