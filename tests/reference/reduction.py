"""The final rows of an experiment, slowly: docs/semantics.md, read literally.

Nothing here is shared with the pipeline but the names of units and the coverage. Worth knowing while reading the
results: only lines that yield something ask for reductions; dead lines and lines of unknown kind leave no trace, not
even their `t`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from rlship_sidecar.rows import Unit
from tests.reference.asking import Keys
from tests.reference.barriers import barrier_figures
from tests.reference.coverage import Having, having_of, is_alone, step_coverage
from tests.reference.experiment import Experiment, read_experiment
from tests.reference.figures import step_rate
from tests.reference.lines import read_file
from tests.reference.order import contributions_of, lines_of, making_up, merge_order, without_superseded
from tests.reference.records import Writer
from tests.reference.returns import return_figures
from tests.reference.rows import FinalRows, ReferenceRow, differing, exactly, same_row
from tests.reference.settings import DEFAULTS, NO_OVERRIDES, Reductions, Settings
from tests.reference.streams import empty_row, stream_rows
from tests.reference.unit import finished, policy_lag, reduced

__all__ = ["NO_OVERRIDES", "Settings", "dead_letters", "differing", "exactly", "final_rows", "same_row"]


def final_rows(
    files: Mapping[str, bytes], reductions: Reductions = NO_OVERRIDES, settings: Settings = DEFAULTS
) -> FinalRows:
    """The row of every unit. `reductions`: the configuration's, by `<actor>/<metric>`, failing that `<metric>`."""
    experiment = read_experiment(files, reductions, settings)
    rows = []
    for actor in sorted({writer.actor for writer in experiment.writers}):
        crew = experiment.crew(actor)
        steps = {line.step for _, _, line in lines_of(crew) if line.step is not None}
        having = having_of(crew)
        rows += thinned([step_row(experiment, crew, step, having) for step in sorted(steps)], settings.samples_every)
        rows += stream_rows(experiment, crew)
    return FinalRows({row.unit: row for row in rows}, partial(empty_row, experiment))


def thinned(rows: Sequence[ReferenceRow], every: int) -> list[ReferenceRow]:
    """Rows of one actor's steps in their order: of each stretch of so many steps, the first one that has a table shows
    it.
    """
    seen: set[tuple[int, str]] = set()
    found = []
    for row in rows:
        stretch = row.unit.index // every
        shown = {table: samples for table, samples in row.samples.items() if (stretch, table) not in seen}
        seen.update((stretch, table) for table in shown)
        found.append(replace(row, samples=shown))
    return found


def dead_letters(files: Mapping[str, bytes]) -> list[tuple[str, int, str, str | None]]:
    """(file, byte where its line begins, reason, metric or None for a whole line), by file and offset."""
    return [(name, *dead) for name in sorted(files) for dead in read_file(name, files[name]).dead]


def step_row(experiment: Experiment, crew: Sequence[Writer], step: int, having: Having) -> ReferenceRow:
    """The row of one step of an actor."""
    actor, keys, rate = crew[0].actor, Keys(crew[0].actor), step_rate(step)
    counting = without_superseded(contributions_of(crew, lambda line: line.step == step), crew)
    present = making_up(counting) or [one for one in lines_of(crew) if one[2].step == step]
    axis = min(present, key=lambda one: merge_order(one[0], one[1]))[0].axis

    result = reduced(experiment, counting, keys, rate, alone=is_alone(crew, step))
    for name, figure in barrier_figures(crew, step, experiment.clocks).items():
        result.add(f"{actor}/barrier/{name}", figure)
    begun = [
        one for one in lines_of(crew) if one[2].step == step and one[1].number == 0 and one[1].first_stepped == step
    ]
    for name, figure in return_figures(crew, counting, begun).items():
        result.add(f"{actor}/{name}", figure)
    lag = policy_lag(experiment, counting, rate, step if axis == experiment.lead_axis() else None)
    if lag is not None:
        result.add(f"{actor}/policy_lag", lag)
    return finished(
        experiment,
        result,
        counting,
        unit=Unit(actor, "step", step),
        t=max(line.t for _, _, line in present),
        x={axis: step},
        cover=step_coverage(crew, step, counting, result.underivable, having, experiment.settings.short_window),
    )
