"""Checks of options that all sinks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlship_sidecar.sinks.contract import SinkRefused

TEXT = "a string that is not empty"


class WrongOption(SinkRefused):
    """An option that a sink does not know, or whose value it cannot use.

    `option` is its name, `problem` describes the fault, `allowed` the possible values. If one of `words` was meant,
    `said` is the word in its place.
    """

    def __init__(
        self, sink: str, option: str, problem: str, allowed: str, said: str = "", words: Iterable[str] = ()
    ) -> None:
        super().__init__(f"sink {sink}: option {option} {problem}; allowed: {allowed}")
        self.option = option
        self.problem = problem
        self.allowed = allowed
        self.said = said
        self.words = tuple(words)


def check_names(sink: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise WrongOption for the first of `options` that is not `known`."""
    names = tuple(known)
    for option, value in options.items():
        if option not in names:
            raise WrongOption(sink, option, f"(= {value!r}) is not known", ", ".join(names) or "none", option, names)


def check_text(sink: str, option: str, value: Any, allowed: str = TEXT) -> None:
    """Raise WrongOption unless `value` is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise WrongOption(sink, option, f"is {value!r}", allowed)
