"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rlship_sidecar.errors import UsageProblem

_Verb = TypeVar("_Verb", bound=Callable[..., Any])


def refuse_empty(path: object, what: str) -> None:
    """Raise UsageProblem for an empty path: it would be the current folder, and mostly it is a variable without a
    value.
    """
    if path == "":
        raise UsageProblem(f"{what} is empty", "give a path, such as . for the current folder, or leave it out")


class _Path(click.Path):
    """A path that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; raises UsageProblem for an empty one."""
        is_option = param is not None and param.param_type_name == "option"
        refuse_empty(value, max(param.opts, key=len) if is_option and param is not None else "DIR")
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)

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
    type=PATH,
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
