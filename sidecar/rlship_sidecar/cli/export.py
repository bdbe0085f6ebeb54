"""`rlship export`: what an experiment holds, in the format of another program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import PATH, state_dir_option
from rlship_sidecar.cli.outfile import STDOUT, outages, writing
from rlship_sidecar.errors import INCOMPLETE, OK, RlshipError, UsageProblem
from rlship_sidecar.report import terminal
from rlship_sidecar.similar import similar

if TYPE_CHECKING:
    from rlship_sidecar.export.selection import Selection
    from rlship_sidecar.export.trace import ExportedTrace
    from rlship_sidecar.steps import Steps

KINDS = ("step", "aligned", "clock", "point", "ledger", "alert")
FORMATS = ("parquet", "csv", "jsonl")
VIEWERS = "https://ui.perfetto.dev or chrome://tracing"


@click.command(short_help="Rows and records as Parquet, CSV or JSON lines; a trace for Perfetto.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@click.option("--chrome-trace", is_flag=True, show_envvar=True, help=f"Trace Event Format, for {VIEWERS}.")
@click.option(
    "--samples",
    "table",
    metavar="TABLE",
    show_envvar=True,
    help="Every sample of a table, as JSON lines, or as Parquet if FILE ends in .parquet.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    show_envvar=True,
    help="A table, as Parquet, CSV or JSON lines; by default as FILE ends. A cell of CSV may begin with =, which a "
    "spreadsheet takes for a formula.",
)
@click.option(
    "--table",
    "name",
    metavar="NAME",
    show_envvar=True,
    help="Which one: rows, figures, spans, … (see `rlship query --help`).  [default: figures]",
)
@click.option("--wide/--long", show_envvar=True, help="Rows with a column for each value, or a line for each.")
@click.option("--actor", "actors", metavar="ACTOR", multiple=True, show_envvar=True, help="Only of this actor.")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    show_envvar=True,
    help=f"Only rows of this kind: {', '.join(KINDS)}.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default=STDOUT,
    show_envvar=True,
    help="Where to; - is standard output. Compressed if it ends in .gz.",
)
@click.option(
    "--step",
    "steps",
    metavar="A:B",
    show_envvar=True,
    help="Only steps A to B, in a trace with what went on meanwhile.",
)
@click.option(
    "--counter",
    "counters",
    metavar="NAME",
    multiple=True,
    show_envvar=True,
    help="Also draw a metric, <metric> or <actor>/<metric>. Repeat for several.",
)
@click.option(
    "--align-clocks/--no-align-clocks",
    default=True,
    show_envvar=True,
    help="Correct each host's times by what its clock is known to be off.",
)
@state_dir_option
@click.pass_context
def export(
    context: click.Context,
    directory: Path,
    chrome_trace: bool,
    table: str | None,
    form: str | None,
    name: str | None,
    wide: bool,
    actors: tuple[str, ...],
    kinds: tuple[str, ...],
    output: str,
    steps: str | None,
    counters: tuple[str, ...],
    align_clocks: bool,
    state_dir: str | None,
) -> None:
    """Write the rows of the experiment in DIR, or another table of it. Or what its processes did when as one trace: a
    process for each writer, all actors on one time axis. Or every sample of a table.

    Rows and dead letters are those that the sidecar made so far; all else is read from the writers' files alone. Exits
    with 3 if files could not be read, or lines of a trace not be used.
    """
    _require_kinds(kinds)
    if chrome_trace or table is not None:
        _require_no_filter(actors, kinds, "" if table is None else table)
    of_table = form or name or wide or actors or kinds
    form = form or (format_of(output) if table is None else None)
    if (wanted := (chrome_trace, table is not None, bool(form or of_table)).count(True)) != 1:
        unclear = "export needs to know what to write" if output == STDOUT else f"{output} does not say what to write"
        raise UsageProblem(
            "export writes one thing at a time, and these options ask for several" if wanted else unclear,
            "-o rows.parquet, rows.csv, rows.jsonl or --format write a table, --chrome-trace a trace for Perfetto, "
            "--samples TABLE a table of samples",
        )
    from rlship_sidecar.export.selection import Selection, parse_steps

    chosen = None if steps is None else parse_steps(steps)
    if not chrome_trace:
        _require_of_tables(output, counters, align_clocks=align_clocks)
    if table is None and not chrome_trace:
        from rlship_sidecar.cli.export_table import export_table
        from rlship_sidecar.tabular.source import RecordFilter

        choice = RecordFilter(actors, kinds, chosen)
        _the_experiment(directory)
        context.exit(export_table(directory, state_dir, form, name, choice, output, wide=wide))
    if table is not None:
        context.exit(_export_samples(_the_experiment(directory), table, output, chosen))
    from rlship_sidecar.export.trace import export as write_trace

    selection = Selection(chosen, counters)
    experiment = _the_experiment(directory)
    if output == STDOUT and sys.stdout.isatty():
        raise UsageProblem("a trace is not for the terminal", "write it to a file: -o trace.json.gz")
    with outages(output, "the trace"), writing(output) as stream:
        done = write_trace(experiment, stream, selection, align_clocks=align_clocks)
    for line in _report(done, selection, output):
        click.echo(line, err=True)
    context.exit(OK if done.complete else INCOMPLETE)


def format_of(output: str) -> str | None:
    """The format that the name of a file implies."""
    return next((form for form in FORMATS if output.removesuffix(".gz").endswith(f".{form}")), None)


def _the_experiment(directory: Path) -> Path:
    places.require(directory)
    from rlship_sidecar.tail import discover

    found = discover.experiments(directory)
    if not found:
        raise discover.nothing_in(directory)
    if len(found) > 1:
        raise UsageProblem(
            f"{directory} holds {len(found)} experiments, and export takes one", f"name it, such as {found[0]}"
        )
    return found[0]


def _require_kinds(kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind not in KINDS:
            near = [f"did you mean {one}?" for one in similar(kind, KINDS)]
            there_are = f"there are: {', '.join(KINDS)}"
            raise UsageProblem(
                f"--kind {terminal.clean(kind)}: there is no such kind of rows", " ".join([*near, there_are])
            )


def _require_no_filter(actors: tuple[str, ...], kinds: tuple[str, ...], samples_of: str) -> None:
    """Raise for options that choose records of a table, which neither a trace nor --samples is."""
    if not (actors or kinds):
        return
    option, given = ("--actor", actors[0]) if actors else ("--kind", kinds[0])
    given = terminal.clean(given)
    if samples_of:
        what, instead = "--samples writes all actors", f"--table samples -o {terminal.clean(samples_of)}.csv"
        hint = f"write the table of all samples instead: {instead}{f' --actor {given}' if actors else ''}"
    else:
        what = "a trace shows all actors"
        hint = "leave it out: a viewer can hide processes, and --step keeps a part of the time"
    raise UsageProblem(f"{option} {given} is for a table of rows or records; {what}", hint)


def _require_of_tables(output: str, counters: tuple[str, ...], *, align_clocks: bool) -> None:
    """Raise for options that only a trace has, or for an output that no table can be written to."""
    if counters or not align_clocks:
        name = "--counter" if counters else "--no-align-clocks"
        raise UsageProblem(f"{name} is for a trace, not for a table", "leave it out, or use --chrome-trace")
    if output.endswith(".parquet.gz"):
        raise UsageProblem("Parquet is compressed already", f"write it to {terminal.clean(output[:-3])}")


def _export_samples(experiment: Path, table: str, output: str, steps: Steps | None) -> int:
    """Write the samples of a table and report their number; returns the exit code."""
    from rlship_sidecar.export.tables import export_lines, export_parquet

    write = export_parquet if output.endswith(".parquet") else export_lines
    with outages(output, "the table"), writing(output) as stream:
        done = write(experiment, table, stream, steps)
        if not (done.samples or done.unreadable) and (steps is None or not done.of_other_steps):
            others = ", ".join(map(terminal.clean, sorted(done.others)))
            raise RlshipError(
                f"there is no sample of {terminal.clean(table)}",
                f"there are samples of: {others}" if others else "the experiment has no samples of any table",
            )
    where = "standard output" if output == STDOUT else terminal.clean(output)
    dropped = f"; {done.dropped} more (of all tables) were dropped by their writers" if done.dropped else ""
    click.echo(f"{where}: {terminal.counted(done.samples, 'sample')} of {terminal.clean(table)}{dropped}", err=True)
    for name, why in done.unreadable.items():
        click.echo(f"{terminal.clean(name)} cannot be read: {why}", err=True)
    return INCOMPLETE if done.unreadable else OK


def _report(done: ExportedTrace, selection: Selection, output: str) -> Iterator[str]:
    where = "standard output" if output == STDOUT else terminal.clean(output)
    held = ((done.spans, "span"), (done.events, "event"), (done.barriers, "barrier"))
    parts = ", ".join(terminal.counted(number, what) for number, what in held)
    yield f"{where}: {parts} of {terminal.counted(done.writers, 'writer')}; open it in {VIEWERS}"
    if done.hosts:
        yield f"times are corrected on {terminal.counted(done.hosts, 'host')} by what the clocks were off"
    if selection.counters and not done.values:
        names = ", ".join(map(terminal.clean, selection.counters))
        yield f"no value of {names}{' in these steps' if selection.steps is not None else ''}"
        near = [one for name in selection.counters for one in similar(name.rpartition("/")[2], selection.metrics)]
        there = [terminal.clean(name) for name in sorted(selection.metrics)]
        if near:
            yield f"  did you mean {' or '.join(map(terminal.clean, dict.fromkeys(near)))}?"
        elif there:
            more = f" and {len(there) - terminal.MAX_LINES} more" if len(there) > terminal.MAX_LINES else ""
            yield f"  there are: {', '.join(there[: terminal.MAX_LINES])}{more}"
    lines = [f"{terminal.clean(name)} cannot be read: {why}" for name, why in done.unreadable.items()]
    for name, reasons in done.unusable.items():
        listed = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
        lines.append(f"{terminal.clean(name)}: {sum(reasons.values())} could not be used: {listed}")
    yield from lines[: terminal.MAX_LINES]
    if len(lines) > terminal.MAX_LINES:
        yield f"and {terminal.counted(len(lines) - terminal.MAX_LINES, 'line')} more"
