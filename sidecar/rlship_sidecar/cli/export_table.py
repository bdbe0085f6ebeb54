"""`rlship export` of a table: rows or records of an experiment as Parquet, CSV or JSON lines."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import click

from rlship_sidecar.cli.outfile import STDOUT, outages, writing
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.report import terminal
from rlship_sidecar.rows import ALIGNED, OWN_KINDS, STEP
from rlship_sidecar.similar import similar
from rlship_sidecar.tabular.columns import TABLES, TableSpec
from rlship_sidecar.tabular.source import ExperimentTables, RecordFilter, refusal
from rlship_sidecar.tabular.wide import columns as wide_columns
from rlship_sidecar.tabular.wide import keys_of, table_name
from rlship_sidecar.tabular.wide import records as wide_records
from rlship_sidecar.tabular.writing import write

FIGURES = "figures"


def export_table(
    directory: Path,
    state_dir: str | None,
    form: str | None,
    name: str | None,
    choice: RecordFilter,
    output: str,
    *,
    wide: bool,
) -> int:
    """Write a table and report its size; returns the exit code."""
    table = _table(name, directory, state_dir, wide=wide)
    if form is None:
        raise UsageProblem(
            f"{output} does not say in which format to write" if output != STDOUT else "in which format?",
            "--format parquet, csv or jsonl; or let the name of the file end like that",
        )
    if form == "parquet" and output == STDOUT and sys.stdout.isatty():
        raise UsageProblem("Parquet is not for the terminal", "write it to a file: -o rows.parquet")
    if option := refusal(table, choice):
        raise UsageProblem(f"{option} chooses nothing in {table.name}, which has no such column", "leave it out")
    _require_kinds_with_steps(choice)
    with sources_of(directory, state_dir) as sources:
        (source,) = sources
        if table.of != "records":
            source.stored()
        _require_actors(source, table, choice.actors)
        if wide:
            keys = keys_of(source.rows(choice, every=False))
            columns = wide_columns(keys)
            records = wide_records(source.name, source.rows(choice, every=False), keys)
        else:
            columns, records = table.columns, source.records(table, choice)
        with outages(output, "the table"):
            first = list(islice(records, 1))
            if not first:
                _require_kinds(source, choice)
                _require_steps(source, table, choice)
            with writing(output) as stream:
                count = write(form, columns, chain(first, records), stream)
        where = "standard output" if output == STDOUT else terminal.clean(output)
        click.echo(f"{where}: {terminal.counted(count, 'record')} of {'rows, wide' if wide else table.name}", err=True)
        return unreadable_code(sources)


def _require_kinds_with_steps(choice: RecordFilter) -> None:
    """Raise for --step beside kinds of rows that have no step."""
    if choice.steps is not None and choice.kinds and not {STEP, ALIGNED, *OWN_KINDS} & {*choice.kinds}:
        raise UsageProblem(
            f"--step {choice.steps} chooses nothing of --kind {', '.join(choice.kinds)}: these rows have no step",
            f"leave one of them out, or choose --kind {STEP} or {ALIGNED}",
        )


def _require_kinds(source: ExperimentTables, choice: RecordFilter) -> None:
    """Raise if the chosen actors have rows, but none of the chosen kinds; names those that there are."""
    if not choice.kinds:
        return
    units = [unit for unit in source.units() if not choice.actors or unit[0] in choice.actors]
    kinds = sorted({kind for _, kind in units})
    if kinds and not {*kinds} & {*choice.kinds}:
        asked = f"--kind {', '.join(choice.kinds)}"
        whose = f" of --actor {', '.join(map(terminal.clean, choice.actors))}" if choice.actors else ""
        raise RlshipError(
            f"{source.path} has no rows of {asked}{whose}: it has {', '.join(kinds)}",
            "choose others, or leave --kind out",
        )


def _require_steps(source: ExperimentTables, table: TableSpec, choice: RecordFilter) -> None:
    """Raise if a table without any chosen record has records of other steps, which it names."""
    if choice.steps is None:
        return
    place = [column.name for column in table.columns].index("step")
    found = (record[place] for record in source.records(table, replace(choice, steps=None)))
    there = {step for step in found if step is not None}
    if there:
        has = f"it has steps {min(there)} to {max(there)}"
        raise RlshipError(
            f"{table.name} of {source.path} has none of the steps {choice.steps}: {has}",
            "choose others, or leave --step out",
        )


def _require_actors(source: ExperimentTables, table: TableSpec, asked: tuple[str, ...]) -> None:
    """Raise for an actor that the table's source does not know: it is misspelled, or has logged nothing."""
    there = source.actors(of_files=table.of == "records") if asked else set()
    for actor in asked:
        if actor not in there:
            known = ", ".join(sorted(map(terminal.clean, there))) or "none yet"
            raise UsageProblem(f"{source.path} has no actor {terminal.clean(actor)}", f"its actors are: {known}")


def _table(name: str | None, directory: Path, state_dir: str | None, *, wide: bool) -> TableSpec:
    if wide and name not in (None, "rows"):
        raise UsageProblem(f"--wide is a form of rows, not of {name}", "leave --table out")
    found = TABLES.get(name or ("rows" if wide else FIGURES))
    if found is None:
        if (unit := _unit_of(name or "", directory, state_dir)) is not None:
            actor, kind = map(shlex.quote, unit)
            query = f"rlship query --csv {shlex.quote(str(directory))} {shlex.quote(f'FROM {name}')}"
            raise UsageProblem(
                f"export has no table {name}, which query has",
                f"write it with --wide --actor {actor} --kind {kind}; or: {query}",
            )
        near = similar(name or "", TABLES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(TABLES)}"
        raise UsageProblem(f"there is no table {name}", hint)
    return found


def _unit_of(name: str, directory: Path, state_dir: str | None) -> tuple[str, str] | None:
    """The actor and the kind of rows whose table has this name in `rlship query`; None if there is no such table."""
    with sources_of(directory, state_dir) as sources:
        units = [unit for source in sources if source.snapshot is not None for unit in source.units()]
    return next((unit for unit in units if table_name(*unit).lower() == name.lower()), None)
