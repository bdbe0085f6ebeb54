"""Errors that end a command: each has a message, a hint about the way out, and an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The exit codes of all verbs; docs/cli.md says what each means.
OK, FAILED, USAGE, INCOMPLETE, REFUSED, OWNED = range(6)
MAX_NAMED = 5  # files that a message names
UNKNOWN = "not recognised: no reader knows its first lines; left alone"  # of a file in an experiment
FORMATS = "docs/foreign.md lists the formats, and shows a reader of your own"
_BEST_FIRST = (OK, INCOMPLETE, OWNED, USAGE, FAILED, REFUSED)


def worst(codes: Iterable[int]) -> int:
    """The exit code of a verb that did several experiments."""
    return max(codes, key=_BEST_FIRST.index, default=OK)


class RlshipError(Exception):
    """A problem to report to a person. `message` names the cause, `hint` the way out, or ""."""

    exit_code = FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NothingToWatch(RlshipError):
    """The given folder holds no experiment, or cannot be read. Exit code 1."""


def few_of(files: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(files) - MAX_NAMED
    return f"{', '.join(files[:MAX_NAMED])}{f' and {more} more' if more > 0 else ''}"


def no_experiment(directory: object, near: Sequence[object] = (), unknown: Sequence[str] = ()) -> NothingToWatch:
    """The error of every verb for a folder without an experiment. `near`: folders below it that hold experiments;
    `unknown`: files in it that are named like those of a framework.
    """
    if near:
        which = "that folder" if len(near) == 1 else "one of them"
        return NothingToWatch(
            f"no experiment in {directory}, but {'a folder' if len(near) == 1 else 'folders'} in it "
            f"hold{'s' if len(near) == 1 else ''} experiments",
            f"give {which}: {', '.join(map(str, near))}",
        )
    if unknown:
        return NothingToWatch(
            f"no experiment in {directory}: rlship does not know the format of {few_of(unknown)}",
            f'{FORMATS}; or a process logs by itself: rlship.init("{directory}/my-run", actor="trainer")',
        )
    return NothingToWatch(
        f"no experiment in {directory}: neither it nor a sub-folder holds a folder `rlship`, or files of a framework "
        "that rlship reads",
        f'a process makes one when it logs: rlship.init("{directory}/my-run", actor="trainer")',
    )


class UsageProblem(RlshipError):
    """A flag, a variable or a configuration key that cannot be used as given. Exit code 2."""

    exit_code = USAGE


class ServerRefused(RlshipError):
    """A server does not take what it was given, or the key. Exit code 4."""

    exit_code = REFUSED


class OwnedElsewhere(RlshipError):
    """Another sidecar owns an experiment, or several. Exit code 5. `owner` says which sidecar."""

    exit_code = OWNED

    def __init__(self, what: str, owner: str, hint: str) -> None:
        super().__init__(f"{what} owned by {owner}", hint)
        self.owner = owner
