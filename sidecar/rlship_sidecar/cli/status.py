"""`rlship status`: the sidecar's last status, from `status.json`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import PATH, file_option, json_option, state_dir_option
from rlship_sidecar.cli.plain_report import is_terminal
from rlship_sidecar.errors import FAILED, INCOMPLETE, OK, REFUSED, NothingToWatch, RlshipError, worst
from rlship_sidecar.report import terminal

if TYPE_CHECKING:
    from rlship_sidecar.config import Config
    from rlship_sidecar.ownership.lease import Owner
    from rlship_sidecar.report.ended import EndedProcesses
    from rlship_sidecar.report.status import Status

PIPED_WIDTH = 120  # for curves; other lines are whole


@click.command(short_help="Steps, lag, missing ranks, dead letters, sinks.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@json_option("experiment")
@click.option("--full", is_flag=True, show_envvar=True, help="Show all of every experiment, however long it gets.")
@click.option("--writers", is_flag=True, show_envvar=True, help="List every writer, not only those with a note.")
@state_dir_option
@file_option
@click.pass_context
def status(
    context: click.Context,
    directory: Path,
    json: bool,
    full: bool,
    writers: bool,
    state_dir: str | None,
    file: Path | None,
) -> None:
    """Show writers, steps, lag, missing ranks, dead letters and sinks of the experiments in DIR.

    A terminal gets an overview of several experiments that fits it, running ones first.

    Exits with 3 if data are incomplete, a process ended without a close or no sidecar has read a file, with 4 if a sink
    of the last sidecar refused the rows.
    """
    places.require(directory)
    from rlship_sidecar import config
    from rlship_sidecar.ownership import last_status
    from rlship_sidecar.ownership.state_owner import require_readable
    from rlship_sidecar.tail import discover

    settings = config.load(directory, {"state_dir": state_dir}, os.environ, file=file, ships=False)
    found = sorted(discover.experiments(directory), key=lambda path: terminal.natural(str(path)))
    if not found:
        raise discover.nothing_in(directory)
    unwatched: dict[Path, str | None] = {}
    codes = set()
    overview: list[tuple[Status, EndedProcesses]] = []
    fits = not (full or writers or json) and len(found) > 1 and is_terminal(sys.stdout, os.environ)
    shown = 0
    for experiment in found:
        state = config.state_dir_for(experiment, settings)
        known = None
        try:
            require_readable(experiment, state, any_owner=True)
            known = last_status.read(experiment, state, settings.lease_ttl_s)
        except RlshipError as problem:
            if len(found) == 1:
                raise
            click.echo(
                f"rlship: {terminal.clean(problem.message, 2000)}\n  {terminal.clean(problem.hint, 2000)}", err=True
            )
            codes.add(FAILED)
            continue
        if known is None:
            unwatched[experiment] = last_status.beginning(state)
            continue
        now, owner = known
        ended = last_status.ended(now)
        codes.add(INCOMPLETE if _incomplete(now) or ended.writers else OK)
        codes.add(REFUSED if any(sink.state == "refused" for sink in now.sinks) else OK)
        if json:
            _print_json(now)
        elif fits:
            overview.append((now, ended))
        else:
            if shown:
                click.echo()
            _print(now, owner, ended, writers, full)
            shown += 1
    if overview:
        _print_overview(directory, overview)
    if unwatched and not codes:
        if living := next(filter(None, unwatched.values()), ""):
            raise NothingToWatch(f"{directory}: {living}", f"look again: rlship status {shlex.quote(str(directory))}")
        raise NothingToWatch(
            f"no sidecar has watched {directory} yet"
            if len(found) == 1
            else f"no sidecar has watched anything in {directory} yet",
            "\n".join([f"start one: rlship watch {directory}", *_shut_out(found, settings)]),
        )
    for experiment, begun in unwatched.items():
        said = begun or f"no sidecar has watched it yet: rlship watch {directory}"
        click.echo(f"{terminal.clean(str(experiment))}: {said}", err=True)
        for line in () if begun else _shut_out([experiment], settings):
            click.echo(f"  {line}", err=True)
    context.exit(worst(codes))


def _shut_out(experiments: Sequence[Path], settings: Config) -> list[str]:
    """What may have kept a sidecar out of experiments that none has watched, and what to do, as `doctor` says it."""
    from rlship_sidecar import config
    from rlship_sidecar.doctor import findings, looking

    lines = []
    for experiment in experiments:
        with suppress(OSError):  # it has just gone, or this user may not look: the error of the next command says it
            files = looking.files(experiment, config.state_dir_for(experiment, settings))
            lines += [terminal.clean(f"{one.what}: {one.do}", 2000) for one in findings.of_modes(files, watched=False)]
    return lines


def _incomplete(now: Status) -> bool:
    if any(writer.is_never_read for writer in now.writers):
        return True
    return not now.complete or now.dead_letter_count > 0 or now.dead_value_count > 0


def _print_json(now: Status) -> None:
    import msgspec

    click.echo(output.as_printed(msgspec.json.encode(now)))


def _print_overview(directory: Path, found: list[tuple[Status, EndedProcesses]]) -> None:
    from rlship_sidecar.cli.live import styled, terminal_size
    from rlship_sidecar.report import screen

    width, height = terminal_size(sys.stdout)
    silent_s = {now.experiment: ended.silent_s for now, ended in found}
    view = screen.Screen(str(directory), [now for now, _ in found], time.time(), watched=False, silent_s=silent_s)
    # Two lines less: the last one below, and the shell's next prompt.
    for line in screen.lines(view, width, max(4, height - 2)):
        click.echo(styled(line, os.environ), nl=not line.goes_on)
    click.echo(screen.fit(f"more of one: rlship status {shlex.quote(str(directory))}/NAME; of all: --full", width))


def _print(now: Status, owner: Owner | None, ended: EndedProcesses, all_writers: bool, whole: bool) -> None:
    from rlship_sidecar.cli.live import shows_bars, terminal_size
    from rlship_sidecar.ownership import last_status
    from rlship_sidecar.report.run import run_lines
    from rlship_sidecar.report.screen import newest_values

    width = terminal_size(sys.stdout)[0] if is_terminal(sys.stdout, os.environ) else None
    values = newest_values(now, time.time(), width or PIPED_WIDTH, curves=shows_bars(sys.stdout))
    for line in terminal.columns(now, width, whole=whole, values=values):
        click.echo(line)
    for line in run_lines(now.run, over=ended.all) if now.run is not None else ():
        click.echo(line)
    for line in ended.lines(now, time.time()):
        click.echo(line)
    click.echo(last_status.sidecar(now, owner, ended).text)
    listed = [writer for writer in now.writers if all_writers or writer.note]
    listed.sort(key=lambda writer: (terminal.natural(writer.actor), terminal.natural(writer.replica), writer.rank))
    if listed:
        click.echo()
        shown = listed if all_writers else listed[: terminal.MAX_ROWS]
        for line in terminal.writer_columns(shown):
            click.echo(line)
        if len(shown) < len(listed):
            click.echo(f"and {len(listed) - len(shown)} more files with a note: --writers lists all")
