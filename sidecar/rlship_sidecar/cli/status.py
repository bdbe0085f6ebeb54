"""`rlship status`: the sidecar's last status, from `status.json`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places
from rlship_sidecar.cli.options import file_option
from rlship_sidecar.cli.plain_report import is_terminal
from rlship_sidecar.errors import FAILED, INCOMPLETE, OK, REFUSED, NothingToWatch, RlshipError, no_experiment, worst
from rlship_sidecar.report import terminal

if TYPE_CHECKING:
    from rlship_sidecar.ownership.lease import Owner
    from rlship_sidecar.report.ended import EndedProcesses
    from rlship_sidecar.report.status import Status

STALE_S = 30.0  # a sidecar writes a status at least every few seconds
DATED_S = 120.0  # older than that, a person wants to see a date
PIPED_WIDTH = 120  # for curves; other lines are whole
OFFLINE_RUN = "offline-run-"  # how names of W&B's folders of offline runs begin
ENDS_S = 2.0  # the time that a process may need to end once it has released its lease


@click.command(short_help="Steps, lag, missing ranks, dead letters, sinks.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--json", is_flag=True, show_envvar=True, help="Print one JSON object a line for each experiment.")
@click.option("--full", is_flag=True, show_envvar=True, help="Show all of every experiment, however long it gets.")
@click.option("--writers", is_flag=True, show_envvar=True, help="List every writer, not only those with a note.")
@click.option(
    "--state-dir",
    metavar="PATH",
    allow_from_autoenv=False,
    help="The sidecar's --state-dir.  [env var: RLSHIP_STATE_DIR; default: rlship/state in the experiment]",
)
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

    Exits with 3 if data are incomplete or a process ended without a close, with 4 if a sink of the last sidecar
    refused the rows.
    """
    places.require(directory)
    from rlship_sidecar import config
    from rlship_sidecar.ownership import state_owner
    from rlship_sidecar.ownership.place import require_place
    from rlship_sidecar.tail import discover

    settings = config.load(directory, {"state_dir": state_dir}, os.environ, file=file, ships=False)
    found = sorted(discover.experiments(directory), key=lambda path: terminal.natural(str(path)))
    if not found:
        raise no_experiment(directory)
    unwatched, codes = [], set()
    overview: list[tuple[Status, EndedProcesses]] = []
    fits = not (full or writers or json) and len(found) > 1 and is_terminal(sys.stdout, os.environ)
    shown = 0
    for experiment in found:
        state = config.state_dir_for(experiment, settings)
        known = None
        try:
            require_place(experiment, state, any_owner=True)
            if (refused := state_owner.look(experiment, state)) is not None:
                raise refused
            known = _read(state, settings.lease_ttl_s)
        except RlshipError as problem:
            if len(found) == 1:
                raise
            click.echo(
                f"rlship: {terminal.clean(problem.message, 2000)}\n  {terminal.clean(problem.hint, 2000)}", err=True
            )
            codes.add(FAILED)
            continue
        if known is None:
            unwatched.append(experiment)
            continue
        now, owner = known
        ended = _ended(now)
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
        raise NothingToWatch(
            f"no sidecar has watched {directory} yet"
            if len(found) == 1
            else f"no sidecar has watched anything in {directory} yet",
            f"start one: rlship watch {directory}",
        )
    for experiment in unwatched:
        click.echo(
            f"{terminal.clean(str(experiment))}: no sidecar has watched it yet: rlship watch {directory}", err=True
        )
    context.exit(worst(codes))


def _read(state_dir: Path, lease_ttl_s: float) -> tuple[Status, Owner | None] | None:
    import msgspec

    from rlship_sidecar.ownership.lease import last_owner
    from rlship_sidecar.report.status import STATUS_FILE, read_status

    try:
        known = read_status(state_dir)
        holder = last_owner(state_dir)
    except msgspec.DecodeError as problem:
        raise RlshipError(
            f"{state_dir / STATUS_FILE} is damaged: {problem}", "a running sidecar writes it anew"
        ) from problem
    except OSError as problem:
        raise RlshipError(
            f"{problem.filename or state_dir} cannot be read: {problem.strerror}",
            "run as the user who runs the sidecar",
        ) from problem
    if known is None:
        return None
    for sink in known.sinks:
        sink.where = _still_there(sink.where)
    known.running = holder is not None and (
        _rests(known, holder) if holder.released else _alive(holder, known, lease_ttl_s)
    )
    return known, holder


def _still_there(where: str) -> str:
    """The destination of a sink; "" for a command on a folder that was removed since."""
    if not where.startswith("wandb sync "):
        return where
    # The folder of all offline runs, or a pattern of folders in it, or one of them, as an earlier rlship wrote it.
    named = Path(shlex.split(where)[-1])
    runs = (named.parent, named.name) if named.name.startswith(OFFLINE_RUN) else (named, f"{OFFLINE_RUN}*")
    return where if any(runs[0].glob(runs[1])) else ""


def _alive(holder: Owner, known: Status, lease_ttl_s: float) -> bool:
    """True if the owner lives. An owner on another host can only be judged by the age of its status."""
    return holder.alive if holder.alive is not None else time.time() - known.t < lease_ttl_s


def _rests(known: Status, holder: Owner) -> bool:
    """True if a living sidecar put the experiment to rest: it watches the files, and holds nothing open."""
    delivered = all(sink.next_row >= known.rows or sink.state == "refused" for sink in known.sinks)
    made = not any(actor.open_units for actor in known.actors)
    return holder.alive is True and delivered and made


def _incomplete(now: Status) -> bool:
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
    click.echo(_sidecar(now, owner, ended))
    listed = [writer for writer in now.writers if all_writers or writer.note]
    listed.sort(key=lambda writer: (terminal.natural(writer.actor), terminal.natural(writer.replica), writer.rank))
    if listed:
        click.echo()
        shown = listed if all_writers else listed[: terminal.MAX_ROWS]
        for line in terminal.writer_columns(shown):
            click.echo(line)
        if len(shown) < len(listed):
            click.echo(f"and {len(listed) - len(shown)} more files with a note: --writers lists all")


def _ended(now: Status) -> EndedProcesses:
    """The processes that ended. If no sidecar has read on since the status, the files themselves tell how they end and
    when they last grew.
    """
    from rlship_sidecar.report.ended import FileEnds, ended_processes
    from rlship_sidecar.tail.listing import WRITERS_FOLDER

    t = time.time()
    is_stale = not now.running or t - now.t > STALE_S
    silent_s, ends = {}, FileEnds()
    for writer in now.writers:
        if not writer.awaited:
            continue
        silent_s[writer.file] = max(0.0, writer.silent_s + t - now.t)
        if is_stale and not writer.format:
            file = Path(now.experiment, WRITERS_FOLDER, writer.file)
            with suppress(OSError):
                written = os.lstat(file).st_mtime
                silent_s[writer.file] = min(silent_s[writer.file], max(0.0, t - written))
                if written > now.t:
                    ends.unread.add(writer.file)
            close = places.last_close(file)
            if close is not None and not (close.rolls or close.failed):
                ends.closed.add(writer.file)
    return ended_processes(now, silent_s, ends)


def _sidecar(now: Status, owner: Owner | None, ended: EndedProcesses) -> str:
    age_s = max(0.0, time.time() - now.t)
    age = f"{terminal.duration(age_s)} ago{f' ({terminal.date(now.t)})' if age_s >= DATED_S else ''}"
    who = f"pid {owner.pid} on {terminal.clean(owner.host)}" if owner else ""
    # An owner that gave the experiment up and lives on tries to get it back, unless it is just ending.
    gave_up = owner is not None and owner.released and age_s > ENDS_S and not (terminal.finished(now) or now.running)
    if owner and owner.alive and (gave_up or (not owner.released and age_s > STALE_S)):
        host, old = terminal.clean(owner.host), terminal.duration(age_s)
        return f"process {owner.pid} on {host} is alive, but its last status is {old} old (state disk full?)"
    if owner and owner.released and now.running:
        state = "finished: all writers closed, all rows delivered" if terminal.finished(now) else "at rest: nothing new"
        return f"{state}; as of {age}. The sidecar ({who}) goes on if a file changes"
    if owner and owner.released:
        who = ""
    if now.running:
        return f"sidecar running ({who}), as of {age}"
    if terminal.finished(now):
        return f"finished: all writers closed, all rows delivered; as of {age}"
    last = f" (the last was {who})" if who else ""
    where = shlex.quote(terminal.clean(now.experiment))
    without = f"no sidecar running{last}; as of {age}"
    if not ended.all:
        return f"{without}. To go on: rlship watch {where}"
    if _is_left(now, ended, age_s):
        return f"{without}. To make and deliver the last rows: rlship watch --once {where}"
    return f"{without}. All rows are delivered; once the job goes on: rlship watch {where}"


def _is_left(now: Status, ended: EndedProcesses, age_s: float) -> bool:
    """True if a sidecar would find something to do: steps without a row, a sink without all rows, lines not read."""
    return (
        any(actor.open_units for actor in now.actors)
        or any(sink.next_row < now.rows for sink in now.sinks)
        or any(ended.silent_s[writer.file] < age_s for writer in ended.writers)
        or bool(ended.closed)
    )
