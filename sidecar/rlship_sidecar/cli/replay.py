"""`rlship replay`: makes the rows again from the files, at full speed."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import PATH, sinks_option
from rlship_sidecar.cli.progress import reporting
from rlship_sidecar.cli.signals import stop_on_signals
from rlship_sidecar.cli.watch import log_through
from rlship_sidecar.errors import (
    FAILED,
    INCOMPLETE,
    OK,
    REFUSED,
    RlshipError,
    worst,
)
from rlship_sidecar.report import terminal
from rlship_sidecar.steps import parse_steps

if TYPE_CHECKING:
    from rlship_sidecar.cli.settings import SettingsOf
    from rlship_sidecar.replay.found import Replayed, RowsFound
    from rlship_sidecar.report.status import SinkStatus
    from rlship_sidecar.steps import Steps

MAX_KEYS = 40  # keys listed for each actor, except with --json


@click.command(short_help="Make rows again from the files, at full speed.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@click.option(
    "--out",
    metavar="PATH",
    type=PATH,
    show_envvar=True,
    help="Keep the store and what file sinks write there; of a folder of experiments in PATH/<experiment>."
    "  [default: rlship/state/replay-<n>]",
)
@sinks_option
@click.option(
    "--steps", metavar="A:B", show_envvar=True, help="Only rows of steps A to B: no rows over time, no single points."
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    envvar="RLSHIP_CONFIG",
    type=PATH,
    show_envvar=True,
    help="Settings, such as other reductions, in place of DIR/rlship.toml.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    show_envvar=True,
    help="Work with so many processes, in Ray tasks at a time.  [default: one for each core, in Ray for each CPU]",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_envvar=True,
    help="Where to decode: on this machine, or as tasks of the Ray cluster of RAY_ADDRESS (else of this machine).",
)
@click.option("--dry-run", is_flag=True, show_envvar=True, help="Say what would be shipped; keep and ship nothing.")
@click.option("--json", is_flag=True, show_envvar=True, help="Print what it came to as a line of JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, show_envvar=True, help="Print errors only.")
@click.pass_context
def replay(
    context: click.Context,
    directory: Path,
    out: Path | None,
    sinks: tuple[str, ...],
    steps: str | None,
    config_file: Path | None,
    jobs: int | None,
    engine: str,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Make the rows of the experiment in DIR again from the files alone, and ship them as a run of its own.

    If DIR is a folder of experiments, each of them gets a run.

    A sidecar that watches DIR is not disturbed. Ctrl-C stops at once; the same command goes on from there. Exits with 3
    if ranks are missing or lines could not be used.
    """
    places.require(directory)
    import msgspec

    from rlship_sidecar.cli.settings import SettingsOf
    from rlship_sidecar.replay.run import LIVE_PLACES
    from rlship_sidecar.tail.discover import experiments, nothing_in

    chosen = None if steps is None else parse_steps(steps, "--steps")
    settings_of = SettingsOf(
        directory,
        {"sinks": sinks},
        os.environ,
        config_file,
        console=dry_run or not json,
        say=_unless(quiet),
        apart=LIVE_PLACES,
        ships=not dry_run,
    )
    root = Path(os.path.realpath(directory))
    found = experiments(root)
    if not found:
        raise nothing_in(directory)
    if found == [root] and config_file is None and not quiet:
        _say_settings_above(root)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # see `watch`

    processes = jobs or (len(os.sched_getaffinity(0)) if engine == "local" else 0)
    what = _What(settings_of, chosen, out, dry_run, processes, engine, alone=found == [root])
    codes = []
    with (
        log_through(_say, logging.ERROR if quiet else logging.WARNING),
        stop_on_signals(_unless(quiet), "stopping", "stopped; the same command goes on from there") as stop,
    ):
        for experiment in found:
            try:
                done = what.replay(experiment, stop, quiet=quiet)
            except RlshipError as problem:
                if what.alone:
                    raise
                _say(f"{terminal.clean(str(experiment))}: {problem.message}. {problem.hint}".rstrip(". "))
                codes.append(problem.exit_code)
                continue
            if json:
                output.put(output.as_printed(msgspec.json.encode(done)))
            elif not quiet:
                for line in report(done, dry_run=dry_run):
                    click.echo(line, err=not dry_run)
            elif not (done.finished or stop.is_set()):
                for line in undelivered(done):
                    _say(f"{terminal.clean(done.experiment)}: {line}")
            codes.append(_code(done))
            if chosen is not None and done.finished and not done.rows:
                _say(f"{terminal.clean(done.experiment)} has no row of the steps {chosen}{_steps_there(done)}")
                codes.append(FAILED)
            if stop.is_set():
                _say(f"stopped: `{again(sys.argv)}` goes on from there" if not dry_run else "stopped")
                break
    context.exit(worst(codes))


@dataclass(frozen=True, slots=True)
class _What:
    settings_of: SettingsOf
    steps: Steps | None
    out: Path | None
    dry_run: bool
    jobs: int
    engine: str
    alone: bool

    def replay(self, experiment: Path, stop: threading.Event, *, quiet: bool) -> Replayed:
        """Replay one experiment; raises RlshipError."""
        import sqlite3  # slow

        from rlship_sidecar.replay.run import ReplayRequest, replay

        out = self.out if self.out is None or self.alone else self.out / experiment.name
        config = self.settings_of(experiment)
        order = ReplayRequest(experiment, config, self.steps, out, self.dry_run, self.jobs, self.engine)
        try:
            with reporting(sys.stderr, os.environ, terminal.clean(experiment.name), quiet=quiet) as on_progress:
                return replay(order, on_progress=on_progress, say=_unless(quiet), stop=stop)
        except (OSError, sqlite3.Error) as problem:
            raise RlshipError(
                f"{experiment} cannot be replayed: {problem}",
                "Its files have to be readable, and there has to be room where the store is: see --out.",
            ) from problem


def _say_settings_above(experiment: Path) -> None:
    """Name settings of a folder above, which a sidecar that watches that folder uses and this replay does not."""
    from rlship_sidecar import config

    above = config.settings_above(experiment)
    if above is not None:
        file, keys = above
        _say(
            f"{terminal.clean(str(file))} sets {', '.join(map(terminal.clean, keys))}, which this replay does not use: "
            f"rows may differ from those of a `watch` on that folder. To use it: --config {shlex.quote(str(file))}"
        )


def _steps_there(done: Replayed) -> str:
    """The steps that the experiment has, as far as its writers say; else how to see them."""
    if done.logged is not None:
        return f", only of steps {done.logged[0]} to {done.logged[1]}"
    return f". What there is: rlship replay --dry-run {shlex.quote(terminal.clean(done.experiment))}"


def _code(done: Replayed) -> int:
    if any(sink.state == "refused" for sink in done.sinks):
        return REFUSED
    if not done.finished:
        return FAILED
    return OK if done.complete else INCOMPLETE


def report(done: Replayed, *, dry_run: bool) -> Iterator[str]:
    """Describe the result of a replay, in lines for people."""
    rate = f" in {done.read_s:.1f} s, {done.bytes / 1e6 / done.read_s:.0f} MB/s" if done.read_s > 0 else ""
    read = f"{done.lines:,} line{'' if done.lines == 1 else 's'}"
    volume = f"{read}, {done.bytes / 1e6:,.1f} MB of {terminal.counted(done.files, 'file')}"
    yield f"{terminal.clean(done.experiment)}: {volume}{rate}"
    for found in done.units:
        yield f"  {terminal.clean(found.actor) or found.kind}: {_rows(found)}"
    revisions = done.rows - sum(found.rows for found in done.units)
    if revisions:
        which = "a row that" if revisions == 1 else "rows that"
        yield f"  and {terminal.counted(revisions, 'revision')}: {which} lines of files read later changed"
    for actor, keys in done.keys.items():
        more = f" and {len(keys) - MAX_KEYS} more (--json lists them)" if len(keys) > MAX_KEYS else ""
        yield f"  keys of {terminal.clean(actor)}: {', '.join(map(terminal.clean, keys[:MAX_KEYS]))}{more}"
    yield from (f"  {line}" for line in terminal.shortcomings(done))
    yield from (f"  {terminal.clean(note)}" for note in done.notes)
    yield from (f"  {_sink(sink, done.rows)}" for sink in done.sinks)
    if dry_run:
        yield "  nothing was shipped: this was a dry run"


def undelivered(done: Replayed) -> Iterator[str]:
    """Name the sinks that lack rows, and why."""
    yield from (_sink(sink, done.rows) for sink in done.sinks if sink.next_row < done.rows)


def _sink(sink: SinkStatus, rows: int) -> str:
    where = f": {terminal.clean(sink.where)}" if sink.where else ""
    state = f"has {sink.next_row:,} of {rows:,} rows{where}"
    return f"sink {terminal.clean(sink.name)}: {state}{f': {terminal.clean(sink.error)}' if sink.error else ''}"


def _rows(found: RowsFound) -> str:
    what = {
        "step": f"of steps {found.first} to {found.last}",
        "aligned": f"beside steps {found.first} to {found.last}",
        "clock": "over windows of time",
        "point": "of single points",
        "ledger": f"of steps {found.first} to {found.last}",
        "alert": f"of steps {found.first} to {found.last}",
    }[found.kind]
    lacking = f", {found.lacking:,} of them lack ranks" if found.lacking else ""
    return f"{found.rows:,} row{'' if found.rows == 1 else 's'} {what}{lacking}"


def again(argv: list[str]) -> str:
    """The command line, for running it again."""
    return shlex.join(["rlship", *argv[1:]])


def _say(line: str) -> None:
    with suppress(OSError):  # a terminal that is gone must not stop the replay
        click.echo(f"rlship: {line}", err=True)


def _unless(quiet: bool) -> Callable[[str], None]:
    return (lambda line: None) if quiet else _say
