"""`rlship run`: a job whose calls of wandb reach rlship."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import click

from rlship_sidecar.cli.options import PATH
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.report.terminal import clean


@click.command(
    short_help="Run a job that logs to wandb, unchanged, into rlship.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    envvar="RLSHIP_DIR",
    show_envvar=True,
    type=PATH,
    help="The experiment's folder, the same on all nodes.  [default: by WANDB_RUN_ID, WANDB_NAME or the launcher's job"
    " id below outputs/, else a new one there]",
)
@click.option(
    "--actor",
    metavar="NAME",
    envvar="RLSHIP_ACTOR",
    show_envvar=True,
    help="What the processes are called.  [default: by their job_type, else trainer]",
)
@click.option(
    "--watch",
    is_flag=True,
    show_envvar=True,
    help="Ship the rows as well, and log what this node uses: first node only.",
)
@click.argument("command", metavar="[--] COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context, directory: Path | None, actor: str | None, watch: bool, command: tuple[str, ...]
) -> None:
    """Run COMMAND so that what its processes log with wandb goes to files in DIR, which `rlship watch` ships.

    The code stays as it is, and its Python need not have rlship. Output, signals and exit code are the command's.
    """
    from rlship_sidecar.launch import command as starting
    from rlship_sidecar.launch.folder import choose, kept_if_started
    from rlship_sidecar.launch.nodes import crowd

    starting.require(command, os.environ)
    others = crowd(os.environ, command)
    if watch and others.is_first:
        from rlship_sidecar.launch.beside import require_packages

        require_packages()  # before there is a folder
    choice = choose(directory, os.environ, command, others)
    folder = choice.folder
    if folder.exists() and not folder.is_dir():
        raise UsageProblem(f"{folder} is not a folder", "name the experiment's folder: rlship run --dir DIR")
    with kept_if_started(choice.made):
        if watch and others.is_first:
            from rlship_sidecar.launch.run import run_watched

            context.exit(run_watched(command, folder, actor or "", os.environ, _say, alone=not others.several))
        from rlship.hook.environment import with_hook
        from rlship.registry import is_off

        if others.is_first and is_off():
            _say("RLSHIP_DISABLE is set: nothing of this run is recorded")
        elif others.is_first:
            _say(f"this run is in {folder}{_why(choice.by)}; to ship it: rlship watch {shlex.quote(str(folder))}")

        sys.stdout.flush()
        starting.become(command, with_hook(os.environ, str(folder), actor or ""))


def _why(by: str) -> str:
    """Why this folder, where the user did not name it."""
    if by == "--dir":
        return ""
    return f" (by {by})" if by else " (a new one; --dir names one, and goes on with it)"


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # a terminal that is gone is no matter of the job
        sys.stderr.write(f"rlship: {clean(line, 2000)}\n")
        sys.stderr.flush()
