"""What alerts and `why` say of an experiment, from its store, its files and its settings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar import config
from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.rules import Rule, rules_of
from rlship_sidecar.config import Config
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.export.reading import Unreadable, files_of, identify
from rlship_sidecar.ownership import last_status
from rlship_sidecar.report.ended import held_back
from rlship_sidecar.report.terminal import failures
from rlship_sidecar.rows import Row
from rlship_sidecar.tabular.source import ExperimentTables, RecordFilter
from rlship_sidecar.why.asking import Question, Reply, UnknownMetric, reply_to
from rlship_sidecar.why.graph import Graph


def settings_of(directory: Path, experiment: Path) -> Config:
    """The settings of an experiment; those of the folder count where its own file sets nothing."""
    below = None if os.path.realpath(experiment) == os.path.realpath(directory) else experiment
    return config.load(directory, {}, os.environ, experiment=below)


def history_of(source: ExperimentTables, lead: str, rules: tuple[Rule, ...]) -> History:
    """The rules, evaluated over all rows of an experiment. Raises RlshipError for rows that no sidecar made."""
    history = History(rules, lead)
    if source.snapshot is not None or not source.others:
        try:
            past = source.stored().past_rows(lead)
            history.take(source.rows(RecordFilter(), every=past is None), past)
        except (TypeError, ValueError, LookupError, AttributeError) as problem:  # a store that no sidecar wrote
            raise RlshipError(
                f"a row of {source.path} cannot be used",
                f"make the rows again from the files: rlship replay {source.path}",
            ) from problem
    history.settle()
    return history


def explained(source: ExperimentTables, question: Question, settings: Config, graph: Graph) -> Reply:
    """The answer to a question about an experiment. Raises UsageProblem for a metric that no row has, RlshipError."""
    # As `rlship alerts` does: what steps were before they were done again lies beside the rows, but in old stores.
    has_rows = source.snapshot is not None or not source.others
    try:
        past = source.stored().past_rows(settings.lead) if has_rows else None
        reply = reply_to(
            question,
            partial(_rows, source, every=past is None),
            settings.lead,
            rules_of(settings.alert),
            graph,
            _WriterFiles(source),
            past,
        )
        return _with_processes(reply, source, settings)
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


def _with_processes(reply: Reply, source: ExperimentTables, settings: Config) -> Reply:
    """The answer with the processes that did not end in order, and the ranks that steps wait for, as `rlship status`
    names them.
    """
    if source.state_dir is None:
        return reply
    try:
        known = last_status.read(source.path, source.state_dir, settings.lease_ttl_s)
    except RlshipError:  # `rlship status` says so, and the rows have their answer
        return reply
    if known is None:
        return reply
    status, _ = known
    ended = (*failures(status), *last_status.ended(status).without_close(status, time.time()))
    return replace(reply, ended=ended, waits=tuple(held_back(status)))


def _rows(source: ExperimentTables, *, every: bool) -> Iterable[Row]:
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
