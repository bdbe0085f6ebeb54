"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Verb = TypeVar("_Verb", bound=Callable[..., Any])

sinks_option = click.option(
    "--sink",
    "sinks",
    metavar="NAME",
    multiple=True,
    allow_from_autoenv=False,
    help="Where rows go: wandb, tensorboard, jsonl, console. Repeat for several."
    "  [env var: RLSHIP_SINKS; default: wandb tensorboard]",
)

file_option = click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar="RLSHIP_CONFIG",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Read settings from FILE, in place of rlship.toml in DIR.",
)

state_dir_option = click.option(
    "--state-dir",
    metavar="PATH",
    allow_from_autoenv=False,
    help="The sidecar's --state-dir.  [env var: RLSHIP_STATE_DIR; default: rlship/state in the experiment]",
)


def json_option(of: str) -> Callable[[_Verb], _Verb]:
    """The option `--json` of a verb that prints a line for each `of`, such as "finding"."""
    return click.option("--json", is_flag=True, show_envvar=True, help=f"Print one JSON object a line for each {of}.")
