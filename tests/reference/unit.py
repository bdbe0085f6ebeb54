"""What the counting contributions of one unit come to: figures, histograms, values of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.asking import Keys, Metrics, asked_for, asked_keys, entries, is_configured, owners
from tests.reference.experiment import Experiment
from tests.reference.figures import MOST_EXACT, QUANTILES, Figures, Rate, held, histogram, sorted_values
from tests.reference.order import Contribution, is_digits, rank_name, rank_order
from tests.reference.records import Writer
from tests.reference.rows import Histogram, ReferenceRow
from tests.reference.samples import TAGS, samples_of, tags_of
from tests.reference.settings import Settings

POLICY = "policy_version"


@dataclass
class Reduced:
    """The parts of a row that come from its metrics. `owned`: the keys that are taken, with a figure or without."""

    values: dict[str, float] = field(default_factory=dict)
    hists: dict[str, Histogram] = field(default_factory=dict)
    per_rank: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    underivable: set[str] = field(default_factory=set)
    owned: set[str] = field(default_factory=set)
    sketched: dict[str, float] = field(default_factory=dict)
    sketched_ranks: dict[str, dict[str, float]] = field(default_factory=dict)
    chosen: dict[str, list[str]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def add(self, key: str, figure: float) -> bool:
        """Take in a figure that comes after those asked for, unless its key is taken."""
        if key in self.owned:
            return False
        self.owned.add(key)
        self.values[key] = figure
        return True


def metrics_of(counting: Sequence[Contribution]) -> Metrics:
    metrics: dict[str, list[Contribution]] = {}
    for contribution in counting:
        if not contribution.sampled:
            metrics.setdefault(contribution.metric, []).append(contribution)
    return metrics


def reduced(
    experiment: Experiment, counting: Sequence[Contribution], keys: Keys, rate: Rate, *, alone: bool
) -> Reduced:
    """All figures that are asked for, then those of ranks. `alone`: the actor has one rank in this unit."""
    metrics = {metric: found for metric, found in metrics_of(counting).items() if metric != TAGS}
    making = Figures(experiment.settings, rate, experiment.crew)
    result = Reduced()
    result.asked = asked_keys(metrics, keys, experiment.overrides, experiment.settings)
    owning = owners(metrics, keys, experiment.overrides, experiment.settings)
    result.owned |= set(owning)
    for key, (metric, reduction) in owning.items():
        if reduction == "nonfinite":
            result.values[key] = float(sum(contribution.moments.nonfinite for contribution in metrics[metric]))
            continue
        if key != keys.of(metric) and has_no_spread(experiment, metrics[metric], alone):
            continue
        try:
            if reduction == "hist":
                hist = histogram(metrics[metric])
                if hist is not None:
                    result.hists[key] = hist
            else:
                figure = making.of(metrics[metric], reduction)
                if figure is not None:
                    result.values[key] = figure
                    result.sketched |= exact_of({key: metrics[metric]}, reduction)
        except ArithmeticError:
            result.underivable.add(key)
    by_number = several_replicas(counting)
    for metric in sorted(metrics):
        first = asked_for(metrics[metric], experiment.overrides, experiment.settings)[0]
        if first != "hist" and owning[keys.of(metric)] == (metric, first):
            of_ranks(
                experiment,
                result,
                metrics[metric],
                keys.of(metric),
                first,
                making,
                by_number=by_number,
                alone=alone and is_of_one_rank(metrics[metric]),
            )
    return result


def is_of_one_rank(contributions: Sequence[Contribution]) -> bool:
    return len({rank_order(contribution.root) for contribution in contributions}) == 1


def has_no_spread(experiment: Experiment, contributions: Sequence[Contribution], alone: bool) -> bool:
    """Whether only the catalogue asks for more than the first reduction, of a number that has no spread: the one of
    the only rank.
    """
    governing = entries(contributions, experiment.settings)
    if is_configured(contributions, experiment.overrides) or not all(entry.catalogued for entry in governing):
        return False
    if any(contribution.summarised for contribution in contributions):
        return False
    observed = [
        sum(moments.n + moments.nonfinite for moments in line.values[contribution.metric])
        for contribution in contributions
        for line in contribution.lines
    ]
    finite = sum(len(contribution.observed) for contribution in contributions)
    return alone and is_of_one_rank(contributions) and sum(observed) == finite == 1


def exact_of(contributions: dict[str, Sequence[Contribution]], reduction: str) -> dict[str, float]:
    """What sketched quantiles stand for, by the same names."""
    exact = {}
    if reduction in QUANTILES:
        for name, of_name in contributions.items():
            x = sorted_values(of_name)
            if len(x) > MOST_EXACT:
                exact[name] = held(x, QUANTILES[reduction])
    return exact


def several_replicas(counting: Sequence[Contribution]) -> bool:
    """Whether it makes sense to give replicas by number: there are several, and all are numbers."""
    return are_numbers({contribution.root.replica for contribution in counting})


def are_numbers(replicas: set[str]) -> bool:
    return len(replicas) > 1 and all(is_digits(replica) for replica in replicas)


def of_ranks(
    experiment: Experiment,
    result: Reduced,
    contributions: Sequence[Contribution],
    key: str,
    first: str,
    making: Figures,
    *,
    by_number: bool,
    alone: bool,
) -> None:
    """The first reduction of each rank, and who has the greatest."""
    governing = entries(contributions, experiment.settings)
    declared = any(entry.per_rank for entry in governing)
    if not declared and not experiment.settings.per_rank:
        return
    ranks = {rank_order(contribution.root): contribution.root for contribution in contributions}
    values: list[tuple[Writer, float]] = []
    of_rank: dict[str, Sequence[Contribution]] = {}
    for order in sorted(ranks):
        own = [contribution for contribution in contributions if rank_order(contribution.root) == order]
        try:
            value = making.of(own, first)
        except ArithmeticError:
            continue
        if value is not None:
            values.append((ranks[order], value))
            of_rank[rank_name(ranks[order])] = own
    if not values:
        return
    result.per_rank[key] = [(rank_name(root), value) for root, value in values]
    exact = exact_of(of_rank, first)
    if exact:
        result.sketched_ranks[key] = exact
        result.chosen[key] = []
    if any(entry.per_rank and not (alone and entry.catalogued) for entry in governing):
        greatest = max(value for _, value in values)
        where = next(root for root, value in values if value == greatest)
        derived = {"max": greatest, "min": min(value for _, value in values), **place(where, "argmax", by_number)}
        for name, figure in derived.items():
            if result.add(f"{key}/{name}", figure) and exact:
                result.chosen[key].append(f"{key}/{name}")


def place(root: Writer, name: str, by_number: bool) -> dict[str, float]:
    """A rank as figures."""
    found = {f"{name}_rank": float(root.rank)}
    if by_number:
        try:
            found[f"{name}_replica"] = float(int(root.replica))
        except (OverflowError, ValueError):
            return found  # more digits than a double has room for
    return found


def policy_lag(experiment: Experiment, counting: Sequence[Contribution], rate: Rate, now: int | None) -> float | None:
    """How many steps ago the policy was made, where the actor says which one it uses."""
    contributions = metrics_of(counting).get(POLICY, ())
    governed = [entry.unit for entry in entries(contributions, experiment.settings)]
    if now is None or "global_step" not in governed:
        return None
    first = asked_for(contributions, experiment.overrides, experiment.settings)[0]
    if first == "hist":
        return None
    try:
        figure = Figures(experiment.settings, rate, experiment.crew).of(contributions, first)
    except ArithmeticError:
        return None
    return None if figure is None or not math.isfinite(now - figure) else now - figure


def shown_samples(unit: Unit, counting: Sequence[Contribution], settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The newest of each window of time; the chosen ones of each step, of which `thinned` leaves some; beside steps of
    the lead those at every so many.
    """
    if unit.kind == "step":
        return samples_of(counting, settings.samples)
    if unit.kind == "clock":
        return samples_of(counting, settings.samples, newest=True)
    return {} if unit.index % settings.samples_every else samples_of(counting, settings.samples)


def finished(
    experiment: Experiment,
    result: Reduced,
    counting: Sequence[Contribution],
    *,
    unit: Unit,
    t: float,
    x: dict[str, int | float],
    cover: Coverage,
) -> ReferenceRow:
    """The row of a unit, once all of it is known."""
    settings = experiment.settings
    return ReferenceRow(
        unit=unit,
        t=t,
        x=x,
        values=result.values,
        coverage=cover,
        hists=result.hists,
        per_rank=result.per_rank,
        tags=tags_of(counting),
        asked=result.asked,
        samples=shown_samples(unit, counting, settings),
        sketched=result.sketched,
        sketched_ranks=result.sketched_ranks,
        chosen=result.chosen,
    )
