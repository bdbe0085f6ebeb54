"""Sinks by name: rlship's own and those of installed packages, through the entry-point group `rlship.sinks`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rlship_sidecar.config import Config, did_you_mean
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.sinks.contract import Sink, SinkRefused
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.sinks.options import TEXT, WrongOption

GROUP = "rlship.sinks"


def make_sink(name: str) -> Sink:
    """A new sink, not opened. Its module is imported only now. Raises UsageProblem for an unknown name."""
    cls = _sink_class(name)
    return cls() if cls.observe is Sink.observe else ObservingSink(name, cls())


def foreseen(name: str, options: Mapping[str, Any]) -> str:
    """The advice of a sink that is not open yet, or ""."""
    return _sink_class(name).foresee(options)


def check_options(file: Path, config: Config, env: Mapping[str, str]) -> None:
    """Let every sink in use check its options, before anything is started.

    `file` and `env` are the sources of `config`, so that an error names the place to correct. Raises UsageProblem.
    """
    for name in config.sinks:
        options = config.sink.get(name, {})
        try:
            _sink_class(name).check_options(options)
        except WrongOption as wrong:
            raise _usage_problem(name, options.get(wrong.option), wrong, file, env) from wrong
        except SinkRefused as refusal:
            raise UsageProblem(str(refusal), f"correct it in [sink.{name}] of {file}") from refusal


def _usage_problem(name: str, value: Any, wrong: WrongOption, file: Path, env: Mapping[str, str]) -> UsageProblem:
    variable = f"RLSHIP_SINK__{name}__{wrong.option}".upper()
    from_env = bool(env.get(variable, "").strip())  # a variable wins over the file
    near = did_you_mean(wrong.said, wrong.words)
    hint = f"{near} Allowed: {wrong.allowed}" if near else f"allowed: {wrong.allowed}"
    if from_env and wrong.allowed == TEXT and not isinstance(value, str):
        hint += f"; a number as text needs quotes: {variable}='\"{value}\"'"
    place = variable if from_env else f"{file}: [sink.{name}]"
    return UsageProblem(f"{place}: option {wrong.option} {wrong.problem}", hint)


def _sink_class(name: str) -> type[Sink]:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise UsageProblem(
            f"there is no sink {name!r}", f"Sinks that are installed: {', '.join(sorted(found)) or 'none'}."
        )
    loaded = found[name].load()
    if not isinstance(loaded, type):
        raise UsageProblem(f"the sink {name!r} is {loaded!r}, not a class", f"Derive a class from {_contract()}.")
    cls = loaded if issubclass(loaded, Sink) else with_defaults(loaded)
    if cls.__abstractmethods__:
        lacking = ", ".join(sorted(cls.__abstractmethods__))
        raise UsageProblem(
            f"the sink {name!r} ({loaded!r}) lacks {lacking}", f"Every sink defines these of {_contract()}."
        )
    return cls


def with_defaults(plain: type) -> type[Sink]:
    """A sink of a class that is not derived from `Sink`: its own members, and the defaults for those that it lacks.

    Plug-ins for earlier releases are such classes: the contract had only four methods then.
    """
    return types.new_class(plain.__name__, (plain, Sink), {}, lambda body: body.update(__module__=plain.__module__))


def _contract() -> str:
    return f"{Sink.__module__}.{Sink.__qualname__}"
