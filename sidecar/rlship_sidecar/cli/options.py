"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path

import click

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
