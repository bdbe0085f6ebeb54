"""`rlship hook`: the hook in the environment of a Python."""

from __future__ import annotations

import json as as_json
import os
from dataclasses import asdict

import click


@click.command(short_help="Put the hook of `rlship run` into the environment of a Python, or remove it.")
@click.argument("action", type=click.Choice(["install", "remove", "status"]))
@click.option(
    "--python",
    metavar="PYTHON",
    show_envvar=True,
    help="The job's Python: a path, or a name on PATH.  [default: the first python or python3 on PATH]",
)
@click.option("--json", is_flag=True, show_envvar=True, help="Print the status as JSON.")
@click.pass_context
def hook(context: click.Context, action: str, python: str | None, json: bool) -> None:
    """Put the hook of `rlship run` into the environment of a Python, remove it, or show whether it is there.

    `rlship run` sets PYTHONPATH, and needs no more than that. A job whose processes set PYTHONPATH anew, or start in a
    clean environment with RLSHIP_DIR, needs the hook in its environment. Without RLSHIP_DIR it does nothing.
    """
    from rlship_sidecar.launch import environments

    state = environments.environment_of(python, os.environ)
    if action != "status":
        (environments.install if action == "install" else environments.remove)(state)
        state = environments.environment_of(python, os.environ)
    if json:
        click.echo(as_json.dumps({**asdict(state), "packages": str(state.packages)}))
    else:
        click.echo(": ".join(filter(None, environments.described(state))))
    context.exit(0)
