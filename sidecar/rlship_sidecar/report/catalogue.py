"""The catalogue of metrics for people: columns, a rich table, JSON, and the page docs/metrics.md.

All of it is pure, except the main block: `python -m rlship_sidecar.report.catalogue > docs/metrics.md` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from rlship_formats.catalogue.evidence import BARE
from rlship_formats.catalogue.metrics import METRICS, Alias, Metric
from rlship_sidecar.report.terminal import align

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("name", "unit", "reductions", "scope", "meaning")
PLAIN = "-"  # shown as the unit of plain numbers in columns

_PAGE_HEAD = """\
# The catalogue of metrics

Reference: the metrics that RL post-training jobs have in common. A metric that is logged under one of these names needs
no `define`: it has the reductions and the unit of this page. `rlship metrics` prints the same list, and
`rlship metrics actor/pg_loss` finds a name that another framework uses. This page is generated from
`names.py`, `evidence.py` and `foreign_names.py` in `formats/rlship_formats/catalogue/`.

## Which reductions a metric gets

The first of these that names the metric decides:

1. the configuration: `[reductions]` in `rlship.toml`;
2. the job: `rlship.define(…)`, or `reduce` of `record_metric`, in the file of the process that logs it;
3. the catalogue: the metric's name as it was logged, else `<actor>/<metric>`, else a foreign name in either form;
4. the mean.

A name is only looked up: a row shows the metric under the name that was logged, and its values as they were logged. A
foreign name may imply another reduction or unit than the catalogue's. Then the implied ones count: `critic/rewards/max`
is reduced by `max` alone, and `perf/max_memory_allocated_gb` is in GiB.

One number has no spread. Where only the catalogue asks, a single number of an actor with one rank has its first
reduction alone. A list of observations has all reductions, and so has whatever `define` asks for.

From Python: `from rlship import metrics`, then `metrics.lookup(actor, metric)`.

## Names

- The first reduction is the metric itself. The others are shown as `<metric>/<reduction>`.
- Where the meaning names a weight, log it with `weight=`. A mean of shares is the share of all only with their
  denominators as weights.
- *Increments* are how many more since the last time they were logged.
- `sum` is for counts, which add up over lines and ranks. `sum_last` is for levels: what each process logged last, added
  up over processes. [Counts and levels](reductions.md#counts-and-levels) has more.
- Metrics marked *per rank* keep a value for every rank and name the rank that has the greatest.
"""

_EVIDENCE_HEAD = """
## What a change is evidence of

The [alerts](alerts.md) use this. A change that is smaller than the size is no evidence, however unusual it is.

- *invariant*: the healthy value is known. The size is the bound that a healthy value does not pass.
- *level*: the metric keeps a level. The size is a ratio to that level.
- *curve*: the metric is expected to move. The size is a break with its own recent trend, in its unit.
- *peer*: ranks are alike. The size is a ratio to the median of the others, the floor the least difference.
- *claim*: a value that a process reports about itself, or that explains other metrics. It has no practical size.

The direction is the one that counts against the job. A source that names no thread, paper or program is our own
reasoning or simulation.
"""

_BARE_HEAD = """
## Bare names

The [alerts](alerts.md) and [why](why.md) also take these names for the metric, if the lead logs them or an actor in the
metric's scope, and the catalogue does not know them otherwise. They do so only to find evidence. For rows the
catalogue does not know such a metric: it has the mean and no unit, if neither the configuration nor the job says more.
"""

_FOREIGN_HEAD = """
## Foreign names

A metric that is logged under one of these names, as it stands here, has the catalogue's reductions: `reward` alone has
those of `reward/total`. A short name that is not here has the mean alone: `grad_norm` has not the reductions of
`train/grad_norm`, unless the actor is called `train`.

Parentheses hold what differs from the catalogue: the reduction, the unit, and the factor that brings a value into the
catalogue's unit. A standard deviation that was already taken is averaged. The list leaves out names whose meaning no
metric of the catalogue has: hit rates, KL times a coefficient, memory as a share of the device's.
"""


def matching(pattern: str | None, *, every_alias: bool = False) -> list[Metric]:
    """The metrics with a name or foreign name that contains `pattern`, ignoring case.

    A pattern with `*`, `?` or `[` has to match the whole name. A metric found by foreign names only keeps just those;
    with `every_alias` it keeps all.
    """
    if not pattern:
        return list(METRICS)
    found = []
    for metric in METRICS:
        if fits(metric.name, pattern):
            found.append(metric)
        elif aliases := tuple(alias for alias in metric.aliases if fits(alias.name, pattern)):
            found.append(metric if every_alias else replace(metric, aliases=aliases))
    return found


def bare(pattern: str, metrics: Sequence[Metric]) -> list[str]:
    """The names among `metrics` that end in `/<pattern>`, if `pattern` alone is no name of the catalogue."""
    if any(name == pattern for metric in METRICS for name in (metric.name, *(one.name for one in metric.aliases))):
        return []
    return [metric.name for metric in metrics if metric.name.endswith(f"/{pattern}")]


def columns(metrics: Sequence[Metric], *, aliases: bool, pattern: str | None = None) -> list[str]:
    """Aligned lines under a heading, each followed by the foreign names of the metric, indented: with `aliases` all,
    else the one that is `pattern`.
    """
    heading, *lines = align([COLUMNS, *map(_cells, metrics)])
    shown = [heading]
    for metric, line in zip(metrics, lines):
        shown.append(line)
        shown += [f"    {name}" for name in _foreign(metric, aliases, pattern)]
    return shown


def _foreign(metric: Metric, every: bool, pattern: str | None) -> list[str]:
    shown = [alias for alias in metric.aliases if every or alias.name == pattern]
    return [f"{alias.framework}: {alias.name}{differences(alias)}" for alias in shown]


def table(metrics: Sequence[Metric], *, aliases: bool, pattern: str | None = None) -> Table:
    """The same as a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None)
    for name in COLUMNS:
        shown.add_column(name, no_wrap=name == "name", overflow="fold")
    for metric in metrics:
        shown.add_row(*map(Text, _cells(metric)))
        for name in _foreign(metric, aliases, pattern):
            shown.add_row(*map(Text, ("", "", "", "")), Text(name, style="dim"))
    return shown


def as_json(metric: Metric) -> dict[str, Any]:
    """The JSON form of a metric: all of its fields and those of its foreign names."""
    return {
        "name": metric.name,
        "unit": metric.unit,
        "reduce": list(metric.reduce),
        "scope": list(metric.scope),
        "per_rank": metric.per_rank,
        "meaning": metric.meaning,
        "evidence": {
            "kind": metric.evidence.kind,
            "direction": metric.evidence.direction,
            "size": metric.evidence.size,
            "floor": metric.evidence.floor,
            "source": metric.evidence.source,
        },
        "aliases": [
            {
                "name": alias.name,
                "framework": alias.framework,
                "reduce": alias.reduce,
                "unit": alias.unit,
                "scale": alias.scale,
            }
            for alias in metric.aliases
        ],
    }


def differences(alias: Alias) -> str:
    """Describe how a foreign name differs from the metric, such as " (max, GiB, x 1073741824)", or ""."""
    scale = f"x {alias.scale:.15g}" if alias.scale != 1 else None
    parts = [part for part in (alias.reduce, alias.unit, scale) if part]
    return f" ({', '.join(parts)})" if parts else ""


def page() -> str:
    """Return the text of docs/metrics.md."""
    lines = [*_PAGE_HEAD.splitlines(), "", *_markdown(COLUMNS, map(_page_cells, METRICS))]
    lines += _EVIDENCE_HEAD.splitlines()
    lines += ["", *_markdown(("name", "kind", "direction", "size", "floor", "source"), map(_evidence_cells, METRICS))]
    lines += _BARE_HEAD.splitlines()
    short = ((f"`{metric}`", ", ".join(f"`{name}`" for name in names.split())) for metric, names in BARE)
    lines += ["", *_markdown(("catalogue", "bare names"), short)]
    lines += _FOREIGN_HEAD.splitlines()
    named = [alias for metric in METRICS for alias in metric.aliases]
    for framework in dict.fromkeys(alias.framework for alias in named):
        rows = [
            (f"`{metric.name}`", ", ".join(f"`{alias.name}`{differences(alias)}" for alias in ours))
            for metric in METRICS
            if (ours := [alias for alias in metric.aliases if alias.framework == framework])
        ]
        lines += ["", f"### {framework}", "", *_markdown(("catalogue", framework), rows)]
    return "\n".join(lines) + "\n"


def fits(name: str, pattern: str) -> bool:
    """True if a name matches the pattern by the rules of `matching`."""
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def _reductions(metric: Metric) -> str:
    return ", ".join(metric.reduce) + (" per rank" if metric.per_rank else "")


def _cells(metric: Metric) -> tuple[str, ...]:
    return (metric.name, metric.unit or PLAIN, _reductions(metric), ", ".join(metric.scope), metric.meaning)


def _page_cells(metric: Metric) -> tuple[str, ...]:
    return (f"`{metric.name}`", metric.unit, _reductions(metric), ", ".join(metric.scope), metric.meaning)


def _evidence_cells(metric: Metric) -> tuple[str, ...]:
    found = metric.evidence
    size = "" if found.kind == "claim" else f"{found.size:g}"
    return (
        f"`{metric.name}`",
        found.kind,
        found.direction,
        size,
        f"{found.floor:g}" if found.floor else "",
        found.source,
    )


def _markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|---" * len(heading) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
