"""`rlship why`: from an episode of an alert, or a metric, to its ranked causes."""

from __future__ import annotations

import json as as_json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import PATH
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.report.terminal import clean, date

if TYPE_CHECKING:
    from rlship_sidecar.config import Config
    from rlship_sidecar.rows import Row
    from rlship_sidecar.tabular.source import ExperimentTables
    from rlship_sidecar.why.asking import Question, Reply
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
            settings = _settings(directory, source)
            graph = _graph(settings, over)
            for line in _answered(source, _reply(source, question, settings, graph), graph, json=json):
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


def _settings(directory: Path, source: ExperimentTables) -> Config:
    """The settings of an experiment; those of the folder count where its own file sets nothing."""
    from rlship_sidecar import config

    below = None if os.path.realpath(source.path) == os.path.realpath(directory) else source.path
    return config.load(directory, {}, os.environ, experiment=below)


def _graph(settings: Config, over: Tables | None) -> Graph:
    from rlship_sidecar.why.graph import BadGraph, graph_of

    try:
        return graph_of(settings.why, *([] if over is None else [over]))
    except BadGraph as problem:  # each is right by itself
        named = ".".join(problem.at)
        raise UsageProblem(f"rlship.toml and --graph together: {named}: {problem.message}", problem.hint) from problem


def _reply(source: ExperimentTables, question: Question, settings: Config, graph: Graph) -> Reply:
    from rlship_sidecar.alerts.rules import rules_of
    from rlship_sidecar.why.asking import UnknownMetric, reply_to

    # As `rlship alerts` does: what steps were before they were done again lies beside the rows, but in old stores.
    has_rows = source.snapshot is not None or not source.others
    try:
        past = source.stored().past_rows(settings.lead) if has_rows else None
        return reply_to(
            question,
            partial(_rows, source, every=past is None),
            settings.lead,
            rules_of(settings.alert),
            graph,
            _WriterFiles(source),
            past,
        )
    except UnknownMetric as problem:
        near = f"did you mean {' or '.join(problem.near)}? " if problem.near else ""
        raise UsageProblem(
            f"no row of {source.path} has the metric {question.metric}",
            f"{near}Give a key of a row (trainer/loss) or a name of the catalogue (rlship metrics).",
        ) from problem
    except (TypeError, ValueError, LookupError, AttributeError) as problem:  # a store that no sidecar wrote
        raise RlshipError(
            f"a row of {source.path} cannot be used",
            f"make the rows again from the files: rlship replay {source.path}",
        ) from problem


def _rows(source: ExperimentTables, *, every: bool) -> Iterable[Row]:
    from rlship_sidecar.tabular.source import RecordFilter

    if source.snapshot is None and source.others:
        return ()
    return source.rows(RecordFilter(), every=every)


class _KnownProcess(NamedTuple):
    """What one file says of its process."""

    rank: str
    attempt: int
    t: float
    host: str


class _WriterFiles:
    """What the files of an experiment say of its processes. They are read once, when first asked for."""

    def __init__(self, source: ExperimentTables) -> None:
        self._source = source

    @cached_property
    def _processes(self) -> list[_KnownProcess]:
        from rlship_sidecar.export.reading import Unreadable, files_of, identify

        found = []
        with suppress(OSError), files_of(self._source.path) as files:
            for file in files:
                with suppress(Unreadable):  # it is reported with the exit code
                    identify(file)
                if (opened := file.open) is not None:
                    rank = f"{opened.actor}/{opened.replica}.{opened.rank}"
                    found.append(_KnownProcess(rank, opened.attempt, opened.t or 0.0, opened.host or ""))
        return found

    def hosts(self, ranks: set[str]) -> Mapping[str, str]:
        """The hosts of ranks, as their newest files say."""
        newest: dict[str, _KnownProcess] = {}
        for one in self._processes if ranks else ():
            if one.rank in ranks and one.host and one[1:] > newest.get(one.rank, _NO_PROCESS)[1:]:
                newest[one.rank] = one
        return {rank: one.host for rank, one in newest.items()}

    def begun(self, actor: str, first: float, last: float) -> Sequence[str]:
        """The ranks of an actor of which a later process began between two times."""
        own = [one for one in self._processes if one.rank.startswith(f"{actor}/")]
        earlier = {one.rank: min(other.t for other in own if other.rank == one.rank) for one in own}
        return sorted({one.rank for one in own if earlier[one.rank] < one.t and first <= one.t <= last})


_NO_PROCESS = _KnownProcess("", -1, 0.0, "")


def _answered(source: ExperimentTables, reply: Reply, graph: Graph, *, json: bool) -> Iterator[str]:
    from rlship_sidecar.why.text import Text, form

    if json:
        yield output.as_printed(as_json.dumps(form(source.name, reply, graph)).encode()).decode()
    else:
        yield from Text(source.name, graph, clean, date).lines(reply)
