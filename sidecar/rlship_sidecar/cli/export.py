"""`rlship export`: an experiment's files in the format of another program."""

from __future__ import annotations

import gzip
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from rlship_sidecar.cli import places
from rlship_sidecar.errors import NothingToWatch, RlshipError, UsageProblem
from rlship_sidecar.report import terminal

if TYPE_CHECKING:
    from rlship_sidecar.export.chrome import Writes
    from rlship_sidecar.export.selection import Steps
    from rlship_sidecar.export.trace import Exported

INCOMPLETE = 3
STDOUT = "-"
VIEWERS = "https://ui.perfetto.dev or chrome://tracing"


@click.command(short_help="A trace for Perfetto, or a table of samples.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--chrome-trace", is_flag=True, show_envvar=True, help=f"Trace Event Format, for {VIEWERS}.")
@click.option(
    "--samples",
    "table",
    metavar="TABLE",
    show_envvar=True,
    help="Every sample of a table, as JSON lines, or as Parquet if FILE ends in .parquet.",
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
@click.pass_context
def export(
    context: click.Context,
    directory: Path,
    chrome_trace: bool,
    table: str | None,
    output: str,
    steps: str | None,
    counters: tuple[str, ...],
    align_clocks: bool,
) -> None:
    """Write what the processes of the experiment in DIR did when as one trace: a process for each writer, all actors
    on one time axis. Or every sample of a table.

    Reads the writers' files alone: no sidecar is needed. Exits with 3 if files could not be read, or lines of a trace
    not be used.
    """
    if chrome_trace == (table is not None):
        raise UsageProblem(
            "export needs to know what to write: one thing",
            "--chrome-trace writes a trace for Perfetto, --samples TABLE a table of samples",
        )
    from rlship_sidecar.export.selection import Selection, parse_steps

    chosen = None if steps is None else parse_steps(steps)
    if table is not None:
        _require_of_samples(output, counters, align_clocks=align_clocks)
        context.exit(_export_samples(_the_experiment(directory), table, output, chosen))
    from rlship_sidecar.export.trace import export as write_trace

    selection = Selection(chosen, counters)
    experiment = _the_experiment(directory)
    if output == STDOUT and sys.stdout.isatty():
        raise UsageProblem("a trace is not for the terminal", "write it to a file: -o trace.json.gz")
    with _outages(output, "the trace"), _writing(output) as stream:
        told = write_trace(experiment, stream, selection, align_clocks=align_clocks)
    for line in _report(told, selection.steps is not None, counters, output):
        click.echo(line, err=True)
    context.exit(0 if told.complete else INCOMPLETE)


def _the_experiment(directory: Path) -> Path:
    places.require(directory)
    from rlship_sidecar.intake import discover

    found = discover.experiments(directory)
    if not found:
        raise NothingToWatch(
            f"no experiment in {directory}: neither it nor a sub-folder holds a folder `rlship`, or files of a "
            "framework that rlship reads",
            "give the folder that a job logs to",
        )
    if len(found) > 1:
        raise UsageProblem(
            f"{directory} holds {len(found)} experiments, and this is of one", f"name it, such as {found[0]}"
        )
    return found[0]


def _require_of_samples(output: str, counters: tuple[str, ...], *, align_clocks: bool) -> None:
    """Raise where something was asked for that only a trace has, or that no table can be written to."""
    if counters or not align_clocks:
        name = "--counter" if counters else "--no-align-clocks"
        raise UsageProblem(f"{name} is for a trace, not for a table of samples", "leave it out, or use --chrome-trace")
    if output.endswith(".parquet.gz"):
        raise UsageProblem("Parquet is compressed already", f"write it to {terminal.clean(output[:-3])}")


def _export_samples(experiment: Path, table: str, output: str, steps: Steps | None) -> int:
    """Write the samples of a table and tell how many; returns the exit code."""
    from rlship_sidecar.export.tables import export_lines, export_parquet

    write = export_parquet if output.endswith(".parquet") else export_lines
    with _outages(output, "the table"), _writing(output) as stream:
        told = write(experiment, table, stream, steps)
        if not (told.samples or told.unreadable) and (steps is None or not told.of_other_steps):
            others = ", ".join(map(terminal.clean, sorted(told.others)))
            raise RlshipError(
                f"there is no sample of {terminal.clean(table)}",
                f"there are samples of: {others}" if others else "there are none of any table",
            )
    where = "standard output" if output == STDOUT else terminal.clean(output)
    dropped = f"; {told.dropped} more (of all tables) were dropped by their writers" if told.dropped else ""
    click.echo(f"{where}: {told.samples} samples of {terminal.clean(table)}{dropped}", err=True)
    for name, why in told.unreadable.items():
        click.echo(f"{terminal.clean(name)} cannot be read: {why}", err=True)
    return INCOMPLETE if told.unreadable else 0


@contextmanager
def _outages(output: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if output == STDOUT and isinstance(problem, BrokenPipeError):
            raise
        raise RlshipError(
            f"{problem.filename or output}: {problem.strerror or problem}",
            f"{what} was not written; is there room, and may you write there?",
        ) from problem


@contextmanager
def _writing(output: str) -> Iterator[Writes]:
    """The stream to write to. A file appears under its name once it is whole."""
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_special(output):
        with open(output, "wb") as file, _compressing(file, output) as stream:
            yield stream
        return
    part = f"{output}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file, _compressing(file, output) as stream:
            yield stream
        os.replace(part, output)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


@contextmanager
def _compressing(file: BinaryIO, output: str) -> Iterator[Writes]:
    if not output.endswith(".gz"):
        yield file
        return
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:  # no name, no time: the same trace is the same bytes
        yield stream


def _is_special(output: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(output).st_mode)
    except FileNotFoundError:
        return False


def _report(told: Exported, ranged: bool, counters: tuple[str, ...], output: str) -> Iterator[str]:
    where = "standard output" if output == STDOUT else terminal.clean(output)
    parts = f"{told.spans} spans, {told.events} events, {told.barriers} barriers of {told.writers} writers"
    yield f"{where}: {parts}; open it in {VIEWERS}"
    if told.hosts:
        yield f"times are corrected on {told.hosts} host{'s' if told.hosts > 1 else ''} by what the clocks were off"
    if counters and not told.values:
        yield f"no value of {', '.join(map(terminal.clean, counters))}{' in these steps' if ranged else ''}"
    lines = [f"{terminal.clean(name)} cannot be read: {why}" for name, why in told.unreadable.items()]
    for name, reasons in told.unusable.items():
        listed = ", ".join(f"{reason} ({count})" for reason, count in reasons.items())
        lines.append(f"{terminal.clean(name)}: {sum(reasons.values())} could not be used: {listed}")
    yield from lines[: terminal.MOST_LINES]
    if len(lines) > terminal.MOST_LINES:
        yield f"and {len(lines) - terminal.MOST_LINES} files more"
