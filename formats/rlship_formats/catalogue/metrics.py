"""Metrics that RL post-training jobs have in common, with unit, reductions and meaning; jobs import `rlship.metrics`.

    from rlship import metrics

    metrics.lookup("trainer", "train/entropy").reduce  # ("mean",)
    metrics.lookup("trainer", "actor/pg_loss").name  # "train/loss_decomp/pg": verl's name for it

A metric with a known name needs no `define`: the sidecar reduces it as the catalogue states. The job and the
configuration take precedence. Names are only looked up; rows show the names that the job logged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlship_formats.catalogue import foreign_names, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["METRICS", "Alias", "Metric", "lookup"]


@dataclass(frozen=True, slots=True)
class Alias:
    """What `framework` calls the metric named `metric`.

    `reduce` is the reduction that the foreign name implies and `unit` the unit of its values. Both are `None` where the
    catalogue's apply. A value times `scale` is in the catalogue's unit.
    """

    name: str
    framework: str
    metric: str
    reduce: str | None = None
    unit: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the catalogue.

    `unit` is "" for plain numbers and "0-1" for shares. `reduce` holds the reductions over ranks: the first one is the
    metric itself, the others appear as `<metric>/<reduction>`. `scope` lists the kinds of processes that write it:
    trainer, generator, reward, reference, buffer, service, controller, node or any. With `per_rank` rows keep a value
    for every rank and name the rank with the greatest. `meaning` is one sentence; it also states what to pass as
    `weight=` of `log`.
    """

    name: str
    unit: str
    reduce: tuple[str, ...]
    scope: tuple[str, ...]
    meaning: str
    aliases: tuple[Alias, ...] = ()
    per_rank: bool = False


def lookup(actor: str, metric: str) -> Metric | None:
    """The catalogue's entry for the name under which an actor logs a metric, or None.

    Looks for the name as it is, then as `<actor>/<metric>`, then as a foreign name in both forms. An entry found under
    a foreign name has that name's reduction and unit, and the catalogue's `name`.
    """
    found = _OWN.get(metric)
    if found is None:
        path = f"{actor}/{metric}"
        found = _OWN.get(path) or _FOREIGN.get(metric) or _FOREIGN.get(path)
    return found


def _expand(pattern: str) -> Iterator[tuple[str, str | None]]:
    """Yields the names in `a/{mean,max}`, each with its member of the braces."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern, None
        return
    members, _, after = rest.partition("}")
    for member in members.split(","):
        yield before + member + after, member


def _aliases() -> Iterator[Alias]:
    for framework, rows in foreign_names.ROWS.items():
        for metric, patterns, *differing in rows:
            own = differing[0] if differing else {}
            for pattern in patterns.split():
                for name, member in _expand(pattern):
                    implied = {} if member is None else {"reduce": foreign_names.MEMBERS[member]}
                    yield Alias(name, framework, metric, **(implied | own))


def _metrics() -> tuple[Metric, ...]:
    aliases: dict[str, list[Alias]] = {}
    for alias in _aliases():
        aliases.setdefault(alias.metric, []).append(alias)
    return tuple(
        Metric(
            name,
            unit,
            tuple(reduce.split()),
            scope,
            meaning,
            tuple(aliases.get(name, ())),
            name in names.PER_RANK,
        )
        for name, unit, reduce, scope, meaning in names.ROWS
    )


def _as_logged(metric: Metric, alias: Alias) -> Metric:
    return replace(
        metric,
        reduce=metric.reduce if alias.reduce is None else (alias.reduce,),
        unit=metric.unit if alias.unit is None else alias.unit,
    )


METRICS: tuple[Metric, ...] = _metrics()
_OWN = {metric.name: metric for metric in METRICS}
_FOREIGN = {alias.name: _as_logged(metric, alias) for metric in METRICS for alias in metric.aliases}
