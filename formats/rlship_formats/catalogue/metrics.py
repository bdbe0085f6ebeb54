"""Metrics that RL post-training jobs have in common, with unit, reductions and meaning; jobs import `rlship.metrics`.

    from rlship import metrics

    metrics.lookup("trainer", "train/entropy").reduce  # ("mean",)
    metrics.lookup("trainer", "actor/pg_loss").name  # "train/loss_decomp/pg": verl's name for it

A metric with a known name needs no `define`: the sidecar reduces it as the catalogue states. The job and the
configuration take precedence. Names are only looked up; rows show the names that the job logged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlship_formats.catalogue import evidence, foreign_names, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["METRICS", "Alias", "Evidence", "Metric", "lookup", "lookup_evidence"]

_ANY = "<name>"  # stands for one part of a name that the job chooses


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
class Evidence:
    """What a change of a metric is evidence of; `evidence` explains the kinds.

    `kind` is invariant, level, curve, peer or claim. `direction` is that in which a change counts against the job: up,
    down, both, or "" for a claim. `size` is a bound, a ratio or a change in the metric's unit, by the kind; `floor` the
    least difference between peers. `source` is where that is from.
    """

    kind: str
    direction: str
    size: float
    floor: float
    source: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the catalogue.

    `unit` is "" for plain numbers and "0-1" for shares. `reduce` holds the reductions over ranks: the first one is the
    metric itself, the others appear as `<metric>/<reduction>`. `scope` lists the kinds of processes that write it:
    trainer, generator, reward, reference, buffer, service, controller, node or any. With `per_rank` rows keep a value
    for every rank and name the rank with the greatest. `meaning` is one sentence; it also states what to pass as
    `weight=` of `log`. `scale` is 1, but for an entry found under a foreign name the factor from its unit to the
    catalogue's. A name with `<name>` in it stands for any word in that place.
    """

    name: str
    unit: str
    reduce: tuple[str, ...]
    scope: tuple[str, ...]
    meaning: str
    evidence: Evidence
    aliases: tuple[Alias, ...] = ()
    per_rank: bool = False
    scale: float = 1.0


def lookup(actor: str, metric: str) -> Metric | None:
    """The catalogue's entry for the name under which an actor logs a metric, or None.

    Looks for the name as it is, then as `<actor>/<metric>`, then as a foreign name in both forms. An entry found under
    a foreign name has that name's reduction and unit, and the catalogue's `name`.
    """
    found = _OWN.get(metric)
    if found is None:
        path = f"{actor}/{metric}"
        found = _OWN.get(path) or _FOREIGN.get(metric) or _FOREIGN.get(path) or _family(metric) or _family(path)
    return found


def lookup_evidence(actor: str, metric: str, lead: str) -> Metric | None:
    """The catalogue's entry of which a metric's changes are evidence, or None.

    That of `lookup`. Where the catalogue lacks a name, a bare one such as `loss` counts if `actor` is the lead, or is
    expected to write the entry's metric: the loss of an actor `reward_model` is not the policy's. Such a metric has
    neither the entry's reductions nor its unit.
    """
    found = lookup(actor, metric)
    if found is not None:
        return found
    meant = _BARE.get(metric)
    return meant if meant is not None and (actor == lead or actor in meant.scope) else None


def _family(name: str) -> Metric | None:
    """The entry whose name has `<name>` in the place of one part of `name`, or None."""
    for before, after, metric in _FAMILIES:
        word = name[len(before) : len(name) - len(after)]
        if name.startswith(before) and name.endswith(after) and word and "/" not in word:
            return metric
    return None


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


def _evidence() -> dict[str, Evidence]:
    return {
        name: Evidence(kind, direction, size, floor, source)
        for kind, direction, size, floor, source, of in evidence.ROWS
        for name in of.split()
    }


def _metrics() -> tuple[Metric, ...]:
    evidences = _evidence()
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
            evidences[name],
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
        scale=alias.scale,
    )


METRICS: tuple[Metric, ...] = _metrics()
_OWN = {metric.name: metric for metric in METRICS}
_FOREIGN = {alias.name: _as_logged(metric, alias) for metric in METRICS for alias in metric.aliases}
_BARE = {name: _OWN[metric] for metric, names_of in evidence.BARE for name in names_of.split()}
_FAMILIES = tuple(
    (before, after, metric)
    for names_of in (_OWN, _FOREIGN)
    for name, metric in names_of.items()
    for before, any_word, after in (name.partition(_ANY),)
    if any_word
)
