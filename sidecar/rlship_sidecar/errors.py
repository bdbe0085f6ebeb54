"""Errors that end a command: each has a message, a hint about the way out, and an exit code."""

from __future__ import annotations


class RlshipError(Exception):
    """A problem to report to a person. `message` names the cause, `hint` the way out, or ""."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NothingToWatch(RlshipError):
    """The given folder holds no experiment, or cannot be read. Exit code 1."""


class UsageProblem(RlshipError):
    """A flag, a variable or a configuration key that cannot be used as given. Exit code 2."""

    exit_code = 2


class OwnedElsewhere(RlshipError):
    """Another sidecar owns the experiment. Exit code 5."""

    exit_code = 5
