"""`rlship diff`: what two experiments differ in."""

from __future__ import annotations

import json as as_json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import PATH, json_option
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.report.terminal import NOTHING, align, clean, counted

if TYPE_CHECKING:
    from rlship_sidecar.diff.partings import Apart, Comparison, Metric
    from rlship_sidecar.diff.said import SaidTwice
    from rlship_sidecar.tabular.source import ExperimentTables

MAX_METRICS = 20
MAX_KEYS = 20
MAX_CHARS = 32  # of a value of the run's data


@click.command(short_help="What two experiments differ in, and from which step on.")
@click.argument("a", metavar="A", type=PATH)
@click.argument("b", metavar="B", type=PATH)
@click.option(
    "--metric", "patterns", metavar="PATTERN", multiple=True, show_envvar=True, help="Only such metrics, as */loss."
)
@click.option(
    "--rtol",
    "relative",
    metavar="NUMBER",
    type=float,
    default=0.0,
    show_envvar=True,
    help="Values agree that differ by at most this part of the larger one.",
)
@click.option(
    "--atol",
    "absolute",
    metavar="NUMBER",
    type=float,
    default=0.0,
    show_envvar=True,
    help="Values agree that differ by at most this.",
)
@click.option("--all", "whole", is_flag=True, show_envvar=True, help="List all metrics and keys, those of time too.")
@click.option("--exit-code", "tells", is_flag=True, show_envvar=True, help="End with 1 if the experiments differ.")
@json_option("difference")
@click.pass_context
def diff(
    context: click.Context,
    a: Path,
    b: Path,
    patterns: tuple[str, ...],
    relative: float,
    absolute: float,
    whole: bool,
    tells: bool,
    json: bool,
) -> None:
    """Compare the experiments A and B: what was said of each run, and per metric the first step at which they part.

    Metrics are compared in the newest rows of steps that both have, bit by bit unless a tolerance is given. Rows over
    time have no counterpart in another run.
    """
    for name, number in (("--rtol", relative), ("--atol", absolute)):
        if not (math.isfinite(number) and number >= 0):
            raise UsageProblem(f"{name} {number}: a tolerance is a number from 0 on", f"such as {name} 1e-6")
    from rlship_sidecar.diff.partings import KINDS, Tolerance, compare
    from rlship_sidecar.diff.said import compare_run_data

    with tidied(), ExitStack() as stack:
        sources = [_the_one(stack.enter_context(sources_of(directory, None)), directory) for directory in (a, b)]
        left, right = (source.stored() for source in sources)
        said = [one for one in compare_run_data(left.run_data(), right.run_data()) if one.differs]
        tolerance = Tolerance(relative, absolute)
        found = compare(left.rows_by_unit(KINDS), right.rows_by_unit(KINDS), tolerance)
    if patterns:
        found.metrics = {
            place: metric
            for place, metric in found.metrics.items()
            if any(fnmatchcase(metric.key, pattern) for pattern in patterns)
        }
        if not found.metrics:
            raise RlshipError(
                f"no step that both have a row of has a metric like {', '.join(patterns)}",
                "* stands for any characters; leave --metric out for all",
            )
    lines = _as_json(said, found) if json else _as_text((a, b), said, found, whole=whole)
    if not (json or relative or absolute):
        lines = chain(lines, _rounding_lines(found))
    for line in lines:
        click.echo(line)
    differ = bool(said or found.ranks or any(one.first is not None for one in found.metrics.values()))
    context.exit(max((unreadable_code([source]) for source in sources), default=0) or int(tells and differ))


def _the_one(sources: list[ExperimentTables], directory: Path) -> ExperimentTables:
    if len(sources) > 1:
        raise UsageProblem(
            f"{directory} holds {len(sources)} experiments, and diff takes one on each side",
            f"name it, such as {sources[0].path}",
        )
    return sources[0]


def _as_json(said: list[SaidTwice], found: Comparison) -> Iterator[str]:
    from rlship_sidecar.diff.said import ABSENT

    for one in said:
        values = {side: value for side, value in (("a", one.a), ("b", one.b)) if value is not ABSENT}
        yield _line({"kind": "run", "part": one.part, "key": one.key, **values})
    for ranks in found.ranks.values():
        yield _line({"kind": "ranks", "actor": ranks.actor, "step": ranks.step, "a": ranks.a, "b": ranks.b})
    for metric in (*found.parted(), *found.of_one()):
        place = {"kind": "metric", "actor": metric.actor, "rows": metric.kind, "key": metric.key}
        counts = {"apart": metric.apart, "in_a": metric.in_a, "in_b": metric.in_b}
        yield _line({**place, **counts, "first": _form(metric.first), "widest": _form(metric.widest)})


def _form(apart: Apart | None) -> dict[str, Any] | None:
    return None if apart is None else apart._asdict()


def _line(value: dict[str, Any]) -> str:
    return output.as_printed(as_json.dumps(value).encode()).decode()


def _as_text(paths: tuple[Path, Path], said: list[SaidTwice], found: Comparison, *, whole: bool) -> Iterator[str]:
    for letter, path, reach in zip("AB", paths, found.reach):
        steps = ", ".join(f"{clean(actor)} {of.lowest}..{of.highest}" for actor, of in reach.items())
        yield f"{letter}  {clean(str(path))}: {f'steps of {steps}' if steps else 'no rows of steps'}"
    yield ""
    yield from _said_lines(said, whole=whole)
    for ranks in found.ranks.values():
        a, b = (" ".join(map(clean, names)) or NOTHING for names in (ranks.a, ranks.b))
        yield f"{clean(ranks.actor)}: rows are made of other ranks from step {ranks.step} on: {a} | {b}"
    yield from _metric_lines(found, whole=whole)


def _said_lines(said: list[SaidTwice], *, whole: bool) -> Iterator[str]:
    yield f"what was said of the run: {counted(len(said), 'key')} differ{'s' if len(said) == 1 else ''}"
    shown = said if whole else said[:MAX_KEYS]
    cells = [(f"  {one.part}", clean(one.key, 60), *_beside(one.a, one.b)) for one in shown]
    yield from align([("  part", "key", "A", "B"), *cells]) if cells else ()
    if len(shown) < len(said):
        yield f"  and {len(said) - len(shown)} more: --all"


def _beside(a: object, b: object) -> tuple[str, str]:
    """Two values in a cell each. Long ones begin shortly before the place where they part."""
    from rlship_sidecar.diff.said import ABSENT

    texts = [NOTHING if value is ABSENT else as_json.dumps(value, ensure_ascii=False) for value in (a, b)]
    same = next((at for at, (one, other) in enumerate(zip(*texts)) if one != other), min(map(len, texts)))
    skipped = same - MAX_CHARS // 4
    if skipped > 0 and max(map(len, texts)) > MAX_CHARS:
        texts = [f"…{text[skipped:]}" for text in texts]
    return clean(texts[0], MAX_CHARS), clean(texts[1], MAX_CHARS)


def _metric_lines(found: Comparison, *, whole: bool) -> Iterator[str]:
    from rlship_sidecar.diff.partings import is_of_time

    if not found.both:
        yield "metrics: no step has a row in both"
        return
    parted, of_one = found.parted(), found.of_one()
    equal = len(found.metrics) - len(parted) - len(of_one)
    parting = f"{counted(len(parted), 'metric')} part{'s' * (len(parted) == 1)}"
    same = f"{equal} {'is' if equal == 1 else 'are'} equal"
    yield f"{parting} and {same}, in {counted(found.both, 'row')} that both have"
    kept = parted if whole else [one for one in parted if not is_of_time(one)]
    shown = kept if whole else kept[:MAX_METRICS]
    cells = [_cells(one) for one in shown]
    yield from align([("  from step", "metric", "A", "B", "widest"), *cells]) if cells else ()
    if len(shown) < len(kept):
        yield f"  and {len(kept) - len(shown)} more: --all"
    if len(kept) < len(parted):
        first = min(one.first.step for one in parted if one.first is not None and is_of_time(one))
        yield f"  and {len(parted) - len(kept)} of time, from step {first} on, as in any two runs: --all"
    for letter, held in (("A", [one for one in of_one if one.in_a]), ("B", [one for one in of_one if one.in_b])):
        if held:
            names = [clean(one.key) for one in (held if whole else held[:MAX_METRICS])]
            more = f", and {len(held) - len(names)} more: --all" if len(names) < len(held) else ""
            yield f"only in {letter}: {', '.join(names)}{more}"


def _rounding_lines(found: Comparison) -> Iterator[str]:
    """The line that names the tolerance, where metrics differ by so little that it leaves them out."""
    from rlship_sidecar.diff.partings import ROUNDING, is_of_time

    parted = [one for one in found.parted() if not is_of_time(one)]
    tiny = sum(one.is_rounding for one in parted)
    if tiny:
        which = "all" if tiny == len(parted) else f"{tiny} of {len(parted)}"
        limits = f"--rtol {ROUNDING.relative:g} --atol {ROUNDING.absolute:g}"
        yield f"{which} that part differ by rounding alone: {limits} takes them as equal"


def _cells(metric: Metric) -> tuple[str, ...]:
    first, widest = metric.first, metric.widest
    assert first is not None
    both = [NOTHING if value is None else f"{value:.8g}" for value in (first.a, first.b)]
    values = both if both[0] != both[1] else map(repr, (first.a, first.b))  # as many digits as they need to differ
    far = NOTHING if widest is None else f"{widest.size:.3g} at step {widest.step}"
    return f"  {first.step}", clean(metric.key, 60), *values, far
