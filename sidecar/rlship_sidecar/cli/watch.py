"""`rlship watch`: the daemon."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar.cli import places
from rlship_sidecar.cli.report import report
from rlship_sidecar.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from rlship_sidecar.cli.report import OnStatus
    from rlship_sidecar.status import Status


# The settings' variables (RLSHIP_SINKS, …) are read with the rest of the configuration, where a mistake can name them.
@click.command(short_help="Ship the rows of one experiment or of a folder of them.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, show_envvar=True, help="Deliver what is there and exit.")
@click.option(
    "--sink",
    "sinks",
    metavar="NAME",
    multiple=True,
    allow_from_autoenv=False,
    help="Where rows go: wandb, tensorboard, jsonl, console. Repeat for several."
    "  [env var: RLSHIP_SINKS; default: wandb tensorboard]",
)
@click.option(
    "--lead",
    metavar="ACTOR",
    allow_from_autoenv=False,
    help="The actor whose steps are the global steps.  [env var: RLSHIP_LEAD; default: trainer]",
)
@click.option(
    "--state-dir",
    metavar="PATH",
    allow_from_autoenv=False,
    help="Keep the sidecar's state under PATH/<experiment>.  [env var: RLSHIP_STATE_DIR; default: rlship/state in it]",
)
@click.option(
    "--poll",
    "poll_s",
    metavar="SECONDS",
    type=float,
    allow_from_autoenv=False,
    help="Time between two looks at the files.  [env var: RLSHIP_POLL_S; default: by filesystem]",
)
@click.option("--json", is_flag=True, show_envvar=True, help="Print each status as a line of JSON on stdout.")
@click.option("--table/--no-table", default=True, show_envvar=True, help="A live table on a terminal, or plain lines.")
@click.option("--quiet", "-q", is_flag=True, show_envvar=True, help="Print errors only.")
@click.pass_context
def watch(
    context: click.Context,
    directory: Path,
    once: bool,
    sinks: tuple[str, ...],
    lead: str | None,
    state_dir: str | None,
    poll_s: float | None,
    json: bool,
    table: bool,
    quiet: bool,
) -> None:
    """Ship the rows of the experiment in DIR, or of all experiments in the folder DIR (default: where you are).

    Goes on where the last sidecar stopped. Ctrl-C or SIGTERM: delivers what is read, then exits.
    """
    places.require(directory)
    from rlship_sidecar import config

    flags = {"sinks": sinks, "lead": lead, "state_dir": state_dir, "poll_s": poll_s}
    settings = config.load(directory, flags, os.environ)
    # Rows on the console and a table that redraws itself would overwrite each other.
    table = table and not json and "console" not in settings.sinks

    # numpy adds a few hundred numbers at a time here: its library's threads would only spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rlship_sidecar import daemon  # slow: only once the settings are known to be right

    with (
        report(sys.stderr, os.environ, quiet=quiet, table=table) as on_status,
        stop_on_signals(_say if not quiet else lambda line: None) as stop,
    ):
        tell = _both(on_status, _print_json) if json else on_status
        code = daemon.watch(directory, settings, once=once, on_status=tell, stop=stop, say=_say)
    context.exit(code)


def _say(line: str) -> None:
    # Through sys.stderr as it is now: a live table takes its place there and keeps the line above itself.
    with suppress(OSError):  # a terminal that is gone must not keep the signal from being obeyed
        sys.stderr.write(f"rlship: {line}\n")
        sys.stderr.flush()


def _print_json(statuses: list[Status]) -> None:
    import msgspec

    for status in statuses:
        click.echo(msgspec.json.encode(status))


def _both(first: OnStatus | None, second: OnStatus) -> OnStatus:
    def tell(statuses: list[Status]) -> None:
        if first:
            first(statuses)
        second(statuses)

    return tell
