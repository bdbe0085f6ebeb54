"""`rlship query`: SQL over the tables of experiments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlship_sidecar import output
from rlship_sidecar.cli.options import refuse_empty, state_dir_option
from rlship_sidecar.cli.progress import ReadingProgress
from rlship_sidecar.cli.signals import tidied
from rlship_sidecar.cli.sources import sources_of, unreadable_code
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.report import terminal
from rlship_sidecar.scratch import scratch

if TYPE_CHECKING:
    from rlship_sidecar.tabular.database import Answer

STDIN = "-"
_WIDEST = 60  # characters of one cell on a terminal
_MEASURED = 500  # records that determine the column widths of a table


@click.command(short_help="SQL over rows, spans, events, samples, dead letters.")
@click.argument("words", metavar="[DIR] SQL", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, show_envvar=True, help="Print one JSON object a line.")
@click.option("--csv", "as_csv", is_flag=True, show_envvar=True, help="Print CSV.")
@click.option(
    "--memory", metavar="SIZE", default="512MB", show_envvar=True, help="What may be in RAM; the rest is on disk."
)
@state_dir_option
@click.pass_context
def query(
    context: click.Context, words: tuple[str, ...], as_json: bool, as_csv: bool, memory: str, state_dir: str | None
) -> None:
    """Answer the question SQL (- reads it from standard input) about the experiments in DIR.

    Tables: rows, figures, per_rank, hists (the last revision of each row; with _all behind the name every revision),
    dead_letters and dead_counts, as the sidecar has them; writers, observations, spans, events, samples, barriers and
    clocks, from the writers' files; and for each actor its rows with a column for each value, such as trainer_steps.
    DESCRIBE <table> lists its columns.

    A running sidecar is not disturbed, and SQL can only read these tables. Exits with 3 if files, or the store of one
    of several experiments, could not be read.
    """
    if as_json and as_csv:
        raise UsageProblem("--json and --csv are two forms of one answer", "choose one")
    directory, sql = _parts(words)
    if sql == STDIN:
        sql = sys.stdin.read()
    from rlship_sidecar.tabular import database

    database.check(sql)
    with tidied(), ExitStack() as stack:
        sources = stack.enter_context(sources_of(directory, state_dir))
        folder = stack.enter_context(scratch("query"))
        progress = ReadingProgress(sys.stderr, os.environ)
        stack.callback(progress.clear)
        for source in sources:
            source.on_read = progress.add
        answer = stack.enter_context(
            database.answering(os.fspath(folder), sources, sql, memory, on_start=progress.start)
        )
        progress.clear()
        for note in answer.notes:
            click.echo(terminal.clean(note, terminal.MAX_ERROR_CHARS), err=True)
        for line in _lines(answer, as_json=as_json, as_csv=as_csv):
            click.echo(line)
    context.exit(unreadable_code(sources))


def _parts(words: tuple[str, ...]) -> tuple[Path, str]:
    """The folder and the question. The folder comes first, as with every verb; it may also come last."""
    if len(words) > 2:
        raise UsageProblem(f"query takes a folder and a question, and these are {len(words)} words", "quote the SQL")
    if len(words) == 1:
        if os.path.isdir(words[0]):
            raise UsageProblem(f"{words[0]} is a folder, no question", "the question follows: rlship query DIR SQL")
        return Path(), words[0]
    first, last = words
    refuse_empty(first, "DIR")
    refuse_empty(last, "DIR")
    is_sql = first == STDIN or len(first.split()) > 1 or os.path.isdir(last)
    return (Path(last), first) if is_sql and not os.path.isdir(first) else (Path(first), last)


def _lines(answer: Answer, *, as_json: bool, as_csv: bool) -> Iterator[str]:
    if as_csv:
        shown = sys.stdout.isatty()  # files and other programs get every character unchanged
        return (terminal.clean(line, sys.maxsize) if shown else line for line in _csv(answer))
    return _json_lines(answer) if as_json else _table(answer)


def _json_lines(answer: Answer) -> Iterator[str]:
    from rlship_sidecar.tabular.writing import plain

    for record in answer.records:
        values = [
            plain(json.loads(value)) if nested and value is not None else plain(value)
            for nested, value in zip(answer.nested, record)
        ]
        line = json.dumps(dict(zip(answer.columns, values)), ensure_ascii=False)
        yield output.as_printed(line.encode()).decode()


def _csv(answer: Answer) -> Iterator[str]:
    from rlship_sidecar.tabular.writing import csv_line

    yield csv_line(answer.columns)
    for record in answer.records:
        yield csv_line(record)


def _table(answer: Answer) -> Iterator[str]:
    """Yield aligned columns, as wide as the first records need. Nothing in them can move a cursor."""
    short = sys.stdout.isatty()
    head = [terminal.clean(name, _WIDEST) for name in answer.columns]
    records = ([_cell(value, short=short) for value in record] for record in answer.records)
    first = list(islice(records, _MEASURED))
    widths = [max(len(text) for text, _ in column) for column in zip(*([(name, False) for name in head], *first))]
    numbers = [all(number for _, number in column) for column in zip(*first)] or [False] * len(head)

    def line(cells: list[str]) -> str:
        places = (
            text.rjust(width) if right else text.ljust(width) for text, width, right in zip(cells, widths, numbers)
        )
        return "  ".join(places).rstrip()

    yield line(head)
    for record in chain(first, records):
        yield line([text for text, _ in record])


def _cell(value: Any, *, short: bool) -> tuple[str, bool]:
    """Format a value, and return True if it is right-aligned: a number, or nothing."""
    from rlship_sidecar.tabular.writing import plain

    value = plain(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or (short and isinstance(value, float)):
        return "" if value is None else f"{value:.6g}", True
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return terminal.clean(text, _WIDEST if short else sys.maxsize), number
