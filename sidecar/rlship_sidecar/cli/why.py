"""`rlship why`: from an episode of an alert, or a metric, to its ranked causes."""

from __future__ import annotations

import json as as_json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import PATH
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.report.terminal import clean, date

if TYPE_CHECKING:
    from rlship_sidecar.config import Config
    from rlship_sidecar.tabular.source import ExperimentTables
    from rlship_sidecar.why.asking import Reply
    from rlship_sidecar.why.graph import Graph, Tables

_step = click.IntRange(-(2**53), 2**53)


@click.command(short_help="Which causes an episode has, by a graph of signs and causes.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@click.option("--metric", metavar="KEY", default="", help="Explain this metric, not the episode of a rule.")
@click.option("--step", metavar="N", type=_step, help="The episode at or nearest to step N.")
@click.option("--from", "first", metavar="N", type=_step, help="Episodes from step N on.")
@click.option("--to", "last", metavar="N", type=_step, help="Episodes up to step N.")
@click.option("--graph", "file", metavar="FILE", type=PATH, help="Signs and causes to add to the graph.")
@click.option("--json", is_flag=True, help="Print one JSON object a line for each experiment, with everything.")
@click.option(
    "--state-dir",
    metavar="PATH",
    envvar="RLSHIP_STATE_DIR",
    help="The sidecar's --state-dir.  [env var: RLSHIP_STATE_DIR; default: rlship/state in the experiment]",
)
@click.pass_context
def why(
    context: click.Context,
    directory: Path,
    metric: str,
    step: int | None,
    first: int | None,
    last: int | None,
    file: Path | None,
    json: bool,
    state_dir: str | None,
) -> None:
    """Explain an episode of the experiments in DIR from the rows that the sidecar made.

    Without a flag it is the episode that goes on, the critical one, or the last one. docs/why.md explains the answer,
    and how to add to the graph.
    """
    from rlship_sidecar.tabular.asked import explained, settings_of
    from rlship_sidecar.why.asking import Question

    if step is not None and (first is not None or last is not None):
        raise UsageProblem("--step and --from or --to were given", "give either a step or a range of steps")
    if first is not None and last is not None and first > last:
        raise UsageProblem(f"--from {first} is behind --to {last}", "give the lesser step first")
    over = None if file is None else _read(file)
    question = Question(metric, step, first, last)
    with tidied(), ExitStack() as stack:
        sources = stack.enter_context(sources_of(directory, state_dir))
        for source in sources:
            settings = settings_of(directory, source.path)
            graph = _graph(settings, over)
            for line in _answered(source, explained(source, question, settings, graph), graph, json=json):
                click.echo(line)
    context.exit(unreadable_code(sources))


def _read(file: Path) -> Tables:
    from rlship_sidecar import bounded_toml
    from rlship_sidecar.why.graph import read_file

    try:
        with open(file, "rb") as opened:
            raw = opened.read(bounded_toml.MAX_BYTES + 1)
    except OSError as problem:
        raise UsageProblem(
            f"{file} cannot be read: {problem.strerror}", "give the path of a file with signs and causes"
        ) from problem
    return read_file(raw, str(file))


def _graph(settings: Config, over: Tables | None) -> Graph:
    from rlship_sidecar.why.graph import BadGraph, graph_of

    try:
        return graph_of(settings.why, *([] if over is None else [over]))
    except BadGraph as problem:  # each is right by itself
        named = ".".join(problem.at)
        raise UsageProblem(f"rlship.toml and --graph together: {named}: {problem.message}", problem.hint) from problem


def _answered(source: ExperimentTables, reply: Reply, graph: Graph, *, json: bool) -> Iterator[str]:
    from rlship_sidecar.why.text import Text, form

    if json:
        yield output.as_printed(as_json.dumps(form(source.name, reply, graph)).encode()).decode()
    else:
        yield from Text(source.name, graph, clean, date).lines(reply)
