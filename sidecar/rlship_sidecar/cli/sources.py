"""The experiments whose tables a verb reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar.cli import places
from rlship_sidecar.errors import INCOMPLETE, OK, RlshipError
from rlship_sidecar.report import terminal

if TYPE_CHECKING:
    from rlship_sidecar.tabular.source import ExperimentTables


@contextmanager
def sources_of(directory: Path, state_dir: str | None) -> Iterator[list[ExperimentTables]]:
    """Yield the experiments in a folder with snapshots of their stores.

    If there are several, it reports those without a store. One with an unusable store is `broken` and has no snapshot;
    for a single experiment the error is raised instead.
    """
    places.require(directory)
    from rlship_sidecar import config
    from rlship_sidecar.ownership.state_owner import require_readable
    from rlship_sidecar.tabular.snapshot import look
    from rlship_sidecar.tabular.source import ExperimentTables
    from rlship_sidecar.tail import discover

    settings = config.load(directory, {"state_dir": state_dir}, os.environ, ships=False)
    named = bool(state_dir or os.environ.get("RLSHIP_STATE_DIR"))  # named by the user, not by a file in the folder
    found = discover.experiments(directory)
    if not found:
        raise discover.nothing_in(directory)
    with ExitStack() as stack:
        sources = []
        for experiment in found:
            state = config.state_dir_for(experiment, settings)
            source = ExperimentTables(experiment.resolve().name, experiment, None, others=len(found) > 1)
            try:
                if require_readable(experiment, state, any_owner=named):
                    source.snapshot, source.state_dir = stack.enter_context(look(state)), state
            except RlshipError as problem:
                if not source.others:
                    raise
                source.broken = problem.message
            else:
                if source.snapshot is None and source.others:
                    why = "no sidecar has watched it yet, so it has no rows"
                    click.echo(f"{terminal.clean(experiment.name)}: {why}", err=True)
            sources.append(source)
        yield sources


def unreadable_code(sources: Sequence[ExperimentTables]) -> int:
    """Report the stores and files that could not be read; returns the exit code."""
    for source in sources:
        source.look_at_files()
        if source.broken:
            lacks = "rows or dead letters of it are not in the answer"
            click.echo(f"{terminal.clean(source.name)}: {terminal.clean(source.broken, 2000)}; {lacks}", err=True)
        for name, why in source.unreadable.items():
            click.echo(f"{terminal.clean(f'{source.name}/{name}')} cannot be read: {why}", err=True)
    return INCOMPLETE if any(source.broken or source.unreadable for source in sources) else OK
