"""The click group `rlship`, and the way in which an error ends a command."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

from rlship import _version
from rlship_sidecar import output
from rlship_sidecar.cli.alerts import alerts
from rlship_sidecar.cli.check import check
from rlship_sidecar.cli.demo import demo
from rlship_sidecar.cli.diff import diff
from rlship_sidecar.cli.doctor import doctor
from rlship_sidecar.cli.export import export
from rlship_sidecar.cli.hook import hook
from rlship_sidecar.cli.metrics import metrics
from rlship_sidecar.cli.panels import panels
from rlship_sidecar.cli.query import query
from rlship_sidecar.cli.replay import replay
from rlship_sidecar.cli.run import run
from rlship_sidecar.cli.scrape import scrape
from rlship_sidecar.cli.status import status
from rlship_sidecar.cli.sysmon import sysmon
from rlship_sidecar.cli.view import view
from rlship_sidecar.cli.watch import watch
from rlship_sidecar.cli.why import why
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.report.terminal import clean

EPILOG = """\b
Exit codes:
  0  done
  1  failed
  2  wrong usage: a flag, a variable or rlship.toml
  3  done, but data are incomplete: missing ranks or dead letters
  4  a sink refused the rows
  5  another sidecar owns the experiment

Each setting is also a variable RLSHIP_<KEY> and a key of rlship.toml in DIR."""

# With `| head` the reader has what it wanted: these verbs end without a message, as other programs do.
_SHORT = ("status", "alerts", "why", "diff", "export", "panels", "query", "metrics", "check", "doctor")

SETTINGS: dict[str, Any] = {
    "auto_envvar_prefix": "RLSHIP",
    "help_option_names": ["-h", "--help"],
    "show_default": True,
}


class Verbs(click.Group):
    """The group. An RlshipError of any verb ends it with message and hint on stderr, and with the error's exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except RlshipError as problem:
            # Names of files and actors are not trusted: characters that move the cursor are escaped.
            click.echo(f"rlship: {_lines(problem.message)}", err=True)
            if problem.hint:
                click.echo(f"  {_lines(problem.hint)}", err=True)
            ctx.exit(problem.exit_code)
        except BrokenPipeError:
            output.discard(sys.stdout)
            if ctx.invoked_subcommand not in _SHORT:
                with suppress(OSError):  # standard error may be gone too
                    click.echo(f"rlship: {output.OUTPUT_CLOSED}", err=True)
            ctx.exit(1)


@click.group(cls=Verbs, context_settings=SETTINGS, epilog=EPILOG)
@click.version_option(_version.__version__, package_name="rlship", message="rlship %(version)s")
def rlship() -> None:
    """Every process of an RL job in one Weights & Biases run.

    Processes log with `import rlship`; one sidecar ships their rows.
    """


def _name_variables(verb: click.Command) -> None:
    """Name the variable of each flag after the flag, whatever the function calls its parameter."""
    for flag in verb.params:
        if isinstance(flag, click.Option) and flag.allow_from_autoenv and flag.envvar is None:
            long = max(flag.opts, key=len).removeprefix("--")
            flag.envvar = f"RLSHIP_{verb.name}_{long}".upper().replace("-", "_")
            flag.allow_from_autoenv = False  # the automatic name would be the parameter's


_VERBS: tuple[click.Command, ...] = (
    *(run, watch, view, replay, status, alerts, why, query, diff, export, panels),
    *(sysmon, scrape, metrics, check, doctor, hook, demo),
)
for verb in _VERBS:
    _name_variables(verb)
    rlship.add_command(verb)


def main() -> None:
    """Run the command line on sys.argv and exit."""
    try:
        rlship(prog_name="rlship")
    finally:
        output.settle()


def _lines(text: str) -> str:
    return "\n  ".join(clean(line, 2000) for line in text.splitlines())
