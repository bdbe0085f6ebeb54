"""`rlship watch`: the daemon."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlship_sidecar import output
from rlship_sidecar.cli import places as folders
from rlship_sidecar.cli.live import report
from rlship_sidecar.cli.options import PATH, file_option, sinks_option
from rlship_sidecar.cli.panels_offer import PanelsOffer
from rlship_sidecar.cli.plain_report import is_terminal
from rlship_sidecar.cli.signals import stop_on_signals
from rlship_sidecar.cli.whereabouts import ADVICE, PLACES, Printed, Whereabouts
from rlship_sidecar.report.terminal import MAX_ERROR_CHARS, clean

if TYPE_CHECKING:
    from rlship_sidecar.cli.plain_report import OnStatus
    from rlship_sidecar.report.status import Status


# The configuration reads the settings' variables (RLSHIP_SINKS, …), because it can name a mistake in them.
@click.command(short_help="Ship the rows of one experiment or of a folder of them.")
@click.argument("directory", metavar="[DIR]", default=".", type=PATH)
@click.option("--once", is_flag=True, show_envvar=True, help="Deliver what is there and exit.")
@sinks_option
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
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=int,
    allow_from_autoenv=False,
    help="Answer /metrics (Prometheus), /healthz and /readyz there; 0: any free port.  [env var: RLSHIP_METRICS_PORT]",
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS",
    allow_from_autoenv=False,
    help="On which address.  [env var: RLSHIP_METRICS_ADDRESS; default: 127.0.0.1]",
)
@click.option(
    "--metrics-file",
    metavar="PATH",
    allow_from_autoenv=False,
    help="Write the metrics to a file, every 15 s, for node_exporter.  [env var: RLSHIP_METRICS_FILE]",
)
@click.option(
    "--own-rows",
    "own_rows_s",
    metavar="SECONDS",
    type=float,
    allow_from_autoenv=False,
    help="Log the sidecar's own lag, late and lost lines and sinks into the run so often; 0: never."
    "  [env var: RLSHIP_OWN_ROWS_S; default: 0]",
)
@file_option
@click.option("--json", is_flag=True, show_envvar=True, help="Print each status as a line of JSON on stdout.")
@click.option("--table/--no-table", default=True, show_envvar=True, help="A live screen on a terminal, or plain lines.")
@click.option("--quiet", "-q", is_flag=True, show_envvar=True, help="Print errors only.")
@click.option(
    "--announce-stop/--no-announce-stop",
    default=True,
    hidden=True,
    help="Report when a signal stops the sidecar; a program that starts and stops it prints its own message.",
)
@click.option(
    "--beside",
    metavar="TIME",
    type=float,
    hidden=True,
    help="Watch a job that began then (Unix seconds), with its further runs. Print where each run is, and errors:"
    " `rlship run --watch` prints the rest.",
)
@click.option(
    "--places",
    metavar="FD",
    type=int,
    hidden=True,
    help="With --beside: a file of what was printed once: places of experiments, and advice.",
)
@click.pass_context
def watch(
    context: click.Context,
    directory: Path,
    once: bool,
    sinks: tuple[str, ...],
    state_dir: str | None,
    poll_s: float | None,
    metrics_port: int | None,
    metrics_address: str | None,
    metrics_file: str | None,
    own_rows_s: float | None,
    file: Path | None,
    json: bool,
    table: bool,
    quiet: bool,
    announce_stop: bool,
    beside: float | None,
    places: int | None,
) -> None:
    """Ship the rows of the experiment in DIR, or of all experiments in the folder DIR (default: where you are).

    Goes on where the last sidecar stopped. Ctrl-C or SIGTERM: delivers what is read, then exits.
    """
    folders.require(directory, waits=not once)
    alone = beside is None
    flags = {
        "sinks": sinks,
        "state_dir": state_dir,
        "poll_s": poll_s,
        "metrics_port": metrics_port,
        "metrics_address": metrics_address,
        "metrics_file": metrics_file,
        "own_rows_s": own_rows_s,
    }
    with _no_collection():
        from rlship_sidecar import config
        from rlship_sidecar.cli.settings import SettingsOf

    settings_of = SettingsOf(directory, flags, os.environ, file, console=not json, say=_say)
    settings = settings_of.folder
    # Rows on the console and a screen that redraws itself would overwrite each other.
    table = table and not json and "console" not in settings.sinks
    has_screen = table and alone and is_terminal(sys.stderr, os.environ)

    # numpy adds a few hundred numbers at a time here; the threads of its library would only spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with _no_collection():
        from rlship_sidecar.daemon import loop as daemon  # slow to import, so only once the settings are valid
        from rlship_sidecar.observe.wiring import observed

    with (
        log_through(_say, logging.ERROR if quiet else logging.WARNING),
        report(sys.stderr, os.environ, title=str(directory), quiet=quiet or not alone, table=table, once=once) as (
            on_status,
            resized,
        ),
        stop_on_signals(
            _say if announce_stop and not quiet and alone else lambda line: None,
            others={signal.SIGWINCH: resized},
        ) as stop,
        observed(settings, os.environ, say=_say, quiet=quiet) as pulse,
    ):
        if not quiet:
            only = os.path.realpath(directory) if has_screen else ""
            offer = PanelsOffer(_say, lambda experiment: config.state_dir_for(experiment, settings)) if alone else None
            said = Printed(PLACES, places)
            on_status = Whereabouts(_say, on_status, only=only, finished=not alone, said=said, offer=offer)
        tell = _both(on_status, _print_json) if json else on_status
        code = daemon.watch(
            directory,
            settings,
            once=once,
            on_status=tell,
            stop=stop,
            say=_say,
            pulse=pulse,
            settings_of=settings_of,
            further_since=beside,
            advised=Printed(ADVICE, places),
        )
    context.exit(code)


@contextmanager
def _no_collection() -> Iterator[None]:
    """For imports: what they make stays, and looking through it for garbage takes a tenth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _say(line: str) -> None:
    # Through the current sys.stderr: a screen replaces it, and keeps the line above itself.
    with suppress(OSError):  # a terminal that is gone must not prevent a stop
        # Names of folders, files and actors are not trusted: characters that move the cursor are escaped.
        text = "\n  ".join(clean(part, MAX_ERROR_CHARS) for part in line.splitlines())
        sys.stderr.write(f"rlship: {text}\n")
        sys.stderr.flush()


class _Through(logging.Handler):
    """Passes each message that a sink logs to `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


@contextmanager
def log_through(say: Callable[[str], None], level: int) -> Iterator[None]:
    """Send the messages of the sidecar's loggers from `level` on to `say`."""
    logger, handler = logging.getLogger("rlship"), _Through(say)
    former = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(former)
        logger.removeHandler(handler)


def _print_json(statuses: list[Status]) -> None:
    import msgspec

    for status in statuses:
        output.put(output.as_printed(msgspec.json.encode(replace(status, running=True))))  # this process is the sidecar


def _both(first: OnStatus | None, second: OnStatus) -> OnStatus:
    def tell(statuses: list[Status]) -> None:
        if first:
            first(statuses)
        second(statuses)

    return tell
