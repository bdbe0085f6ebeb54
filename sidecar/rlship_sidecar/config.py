"""Configuration: flag > `RLSHIP_<KEY>` > `rlship.toml` of the experiment > that of the watched folder > default.

A mistake raises a UsageProblem that names the place, the key, the value, what is allowed and, if near, the right word.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta

from rlship_formats.values import REDUCTIONS, is_reduction
from rlship_sidecar import bounded_toml
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.plainfiles import NotAFile
from rlship_sidecar.similar import similar

CONFIG_FILE = "rlship.toml"
# Keys that direct rows, files, credentials, alerts and what explains them. They are taken only from a file that no user
# but this one and root can write.
WHERE = (
    *("state_dir", "sinks", "sink", "metrics_address", "metrics_port", "metrics_file"),
    *("alert", "alerts", "why", "notify", "notify_max_age_s"),
)
# Keys that concern the sidecar as a whole. Below a watched folder, the file of an experiment does not set them.
OF_THE_SIDECAR = ("state_dir", "drain_s", "metrics_address", "metrics_port", "metrics_file")
BUILTIN_SINKS = ("wandb", "tensorboard", "jsonl", "console")
FLAGS = {"sinks": "--sink", "poll_s": "--poll", "own_rows_s": "--own-rows"}

_ABOVE = 3  # folders above an experiment that may be the watched one
_PREFIX = "RLSHIP_"
_PATHS = ("state_dir", "metrics_file")
_SINK_PREFIX = "RLSHIP_SINK__"
_SECRET = re.compile(r"(^|_)(api_?key|key|token|secret|password|passwd|credentials?)$")

# Error messages quote the description as what is allowed.
_Path = Annotated[str, Meta(min_length=1, description="a path")]
_Seconds = Annotated[float, Meta(ge=0, description="seconds, a finite number >= 0")]
_MoreSeconds = Annotated[float, Meta(gt=0, description="seconds, a finite number > 0")]
_LeaseSeconds = Annotated[float, Meta(ge=1, description="seconds, a finite number >= 1")]
_PollSeconds = Annotated[float, Meta(ge=0.01, le=60, description="seconds, a number in 0.01..60")]
_Opens = Annotated[int, Meta(ge=1, le=1_000_000, description="an integer in 1..1000000")]
_Window = Annotated[float, Meta(ge=0.1, le=86_400, description="seconds, a number in 0.1..86400")]
_Names = Annotated[list[str], Meta(description="a list of sink names")]
_Tables = Annotated[dict[str, dict[str, Any]], Meta(description="tables such as [sink.wandb]")]
_Rules = Annotated[dict[str, dict[str, Any]], Meta(description="tables such as [alert.divergence]")]
_Graph = Annotated[dict[str, dict[str, Any]], Meta(description="tables such as [why.cause.NAME]")]
_Notifiers = Annotated[dict[str, dict[str, Any]], Meta(description="tables such as [notify.oncall]")]
_Switch = Annotated[bool, Meta(description="true or false")]
_Samples = Annotated[int, Meta(ge=0, le=100, description="an integer in 0..100")]
_ShortWindow = Annotated[int, Meta(ge=0, le=1000, description="an integer in 0..1000; 0: not looked for")]
_Port = Annotated[int, Meta(ge=0, le=65_535, description="an integer in 0..65535; 0: any that is free")]
_Address = Annotated[str, Meta(min_length=1, description="a numeric address, such as 127.0.0.1, 0.0.0.0 or ::")]
_OwnSeconds = Annotated[float, Meta(ge=0, le=3600, description="seconds, a number in 0..3600; 0: none")]
_Every = Annotated[int, Meta(ge=1, le=1_000_000_000, description="an integer in 1..1000000000")]
_Reductions = Annotated[
    dict[str, list[str]], Meta(description='a table of lists of names, such as "trainer/loss" = ["mean", "max"]')
]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings; the commented reference file `rlship.toml` explains each key. Times are in seconds.

    `poll_s` None: the filesystem decides. `state_dir` None: `rlship/state` in each experiment. `metrics_port` and
    `metrics_file` None: no metrics there. `reductions` is keyed "<actor>/<metric>" or "<metric>"; the former wins.
    `alert` has by name what rules of alerts have other than those that come with rlship, and `why` what the graph of
    signs and causes has.
    """

    grace_s: _MoreSeconds = 30.0
    max_wait_s: _MoreSeconds = 600.0
    join_s: _Seconds = 60.0
    implicit_s: _MoreSeconds = 10.0
    revise_s: _Seconds = 5.0
    lease_ttl_s: _LeaseSeconds = 30.0
    lead: str = "trainer"
    clock_window_s: _Window = 10.0
    poll_s: _PollSeconds | None = None
    opens_per_s: _Opens = 8000
    drain_s: _Seconds = 60.0
    state_dir: _Path | None = None
    sinks: _Names = msgspec.field(default_factory=lambda: ["wandb", "tensorboard"])
    sink: _Tables = msgspec.field(default_factory=dict)
    per_rank: _Switch = False
    samples: _Samples = 4
    samples_every: _Every = 10
    short_window: _ShortWindow = 20
    ledger_wait_s: _MoreSeconds = 3600.0
    own_rows_s: _OwnSeconds = 0.0
    metrics_port: _Port | None = None
    metrics_address: _Address = "127.0.0.1"
    metrics_file: _Path | None = None
    reductions: _Reductions = msgspec.field(default_factory=dict)
    alerts: _Switch = True
    alert: _Rules = msgspec.field(default_factory=dict)
    why: _Graph = msgspec.field(default_factory=dict)
    notify_max_age_s: _Seconds = 3600.0
    notify: _Notifiers = msgspec.field(default_factory=dict)


def load(
    directory: Path,
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    file: Path | None = None,
    apart: Mapping[str, Collection[str]] = {},
    ships: bool = True,
    experiment: Path | None = None,
) -> Config:
    """Load the configuration for watching `directory`, an experiment or a folder of them. Raises UsageProblem.

    The folder's own `rlship.toml` counts. With `experiment`, a folder below it, so does the experiment's file, which
    takes precedence, except for the keys OF_THE_SIDECAR. With `ships`, these files direct where rows go, so such keys
    must not come from a file that another user made or can write.

    `flags` maps keys of Config to values; None and () mean not given. `env` may hold RLSHIP_<KEY>, and
    RLSHIP_SINK__<NAME>__<OPTION> for one option of a sink; an empty variable means not given. Sink options of all
    places are merged option by option. `file` replaces both files. Of these files, the options `apart` (by sink) do not
    count. Paths are relative to the working directory, and in `rlship.toml` to its folder.
    """
    settings: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {}
    if file is None:
        of_strangers = () if ships else WHERE
        from_file = list(_from_file(directory / CONFIG_FILE, apart, of_strangers=of_strangers))
        if experiment is not None:
            own = _from_file(experiment / CONFIG_FILE, apart, of_strangers=of_strangers)
            from_file += [found for found in own if found[1] not in OF_THE_SIDECAR]
    else:
        from_file = list(_from_file(file, {}, named=True, of_strangers=WHERE))
    for place, key, value in (*from_file, *_from_env(env), *_from_flags(flags)):
        if key == "sink":
            for name, table in _checked_sinks(place, value).items():
                options.setdefault(name, {}).update(table)
        elif key == "alert":
            from rlship_sidecar.alerts import rules

            settings[key] = rules.merged(settings.get(key, {}), value)
        elif key == "why":
            from rlship_sidecar.why import graph

            settings[key] = graph.merged(settings.get(key, {}), value)
        elif key == "notify":
            settings[key] = {**settings.get(key, {}), **_checked(place, key, value)}
        else:
            settings[key] = _checked(place, key, value)
    return Config(**settings, sink=options)


def settings_in(experiment: Path) -> list[str]:
    """The keys that an experiment's own `rlship.toml` sets; none without a file. Raises UsageProblem."""
    return [key for _, key, _ in _from_file(experiment / CONFIG_FILE, {}, of_strangers=WHERE)]


def settings_above(experiment: Path) -> tuple[Path, list[str]] | None:
    """The nearest `rlship.toml` of a folder above an experiment, and the keys in it that would count for the
    experiment if that folder was watched; None without any.
    """
    own = set(settings_in(experiment))
    for folder in Path(os.path.realpath(experiment)).parents[:_ABOVE]:
        file = folder / CONFIG_FILE
        try:
            keys = settings_in(folder)
        except UsageProblem:  # a stranger's, or one that cannot be used: no sidecar takes it either
            return None
        if keys:
            more = [key for key in dict.fromkeys(keys) if key not in own and key not in OF_THE_SIDECAR]
            return (file, more) if more else None
    return None


def state_dir_for(experiment: Path, config: Config) -> Path:
    """The folder of an experiment's lease, store and status: `<experiment>/rlship/state`, or `<state_dir>/<its
    name>`.
    """
    if config.state_dir is None:
        return experiment / "rlship" / "state"
    return Path(config.state_dir) / experiment.resolve().name


def known_sinks() -> list[str]:
    """The names of the installed sinks: built-in ones, then those of the entry-point group `rlship.sinks`."""
    from importlib.metadata import entry_points  # slow to import, so only when a name is checked

    plugins = {point.name for point in entry_points(group="rlship.sinks")} - set(BUILTIN_SINKS)
    return [*BUILTIN_SINKS, *sorted(plugins)]


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`did you mean "x"?` for the nearest of `words`, or ""."""
    near = similar(word, words)
    return f'did you mean "{near[0]}"?' if near else ""


_TYPES: dict[str, Any] = get_type_hints(Config, include_extras=True)


def _from_file(
    path: Path, apart: Mapping[str, Collection[str]], *, named: bool = False, of_strangers: Collection[str] = ()
) -> Iterator[tuple[str, str, Any]]:
    """Yield the settings of a file. A missing file yields nothing, unless a person `named` it.

    Of the keys in WHERE, only `of_strangers` are taken from a file that another user made or can write.
    """
    try:
        raw, distrust = _read(path)
    except OSError as problem:
        if isinstance(problem, (FileNotFoundError, NotADirectoryError)) and not named:
            return
        way_out = "give the path of a file" if named else "make it readable, or move it away to use the defaults"
        raise UsageProblem(f"{path}: cannot be read: {problem.strerror}", way_out) from problem
    try:
        table = bounded_toml.decode(raw)
    except bounded_toml.BadToml as problem:
        raise UsageProblem(f"{path}: {problem.message}", problem.hint) from problem
    _refuse_secrets(str(path), {key: value for key, value in table.items() if key != "reductions"})
    for key, value in table.items():
        if key not in _TYPES:
            raise UsageProblem(
                f"{path}: unknown key {key} = {value!r}",
                did_you_mean(key, _TYPES) or f"allowed are: {', '.join(_TYPES)}",
            )
        if key in _PATHS and isinstance(value, str) and value:
            value = str(path.parent.absolute() / Path(value).expanduser())
        if key == "sink" and isinstance(value, dict):
            value = {name: _without(options, apart.get(name, ())) for name, options in value.items()}
        if key == "notify" and isinstance(value, dict):
            value = {name: _with_paths(path.parent, options) for name, options in value.items()}
        if key == "reductions" and isinstance(value, dict):
            value = {metric: [names] if isinstance(names, str) else names for metric, names in value.items()}
        if distrust is not None and key in WHERE and key not in of_strangers:
            raise UsageProblem(
                f"{path} {distrust.why} and says where rows go: {key} is not taken from it", distrust.way_out
            )
        if key == "alert":
            from rlship_sidecar.alerts import rules  # most settings have none

            rules.check(value, str(path), raw.decode())
        if key == "why":
            from rlship_sidecar.why import graph

            graph.check(value, str(path), raw.decode())
        yield str(path), key, value


def _with_paths(folder: Path, options: Any) -> Any:
    """Options of a notifier, with the files that they name relative to the folder of the settings."""
    if not isinstance(options, dict):
        return options  # the type check reports it
    return {
        option: str(folder.absolute() / Path(value).expanduser())
        if option.endswith("_file") and isinstance(value, str) and value
        else value
        for option, value in options.items()
    }


def _without(options: Any, names: Collection[str]) -> Any:
    if not isinstance(options, dict):
        return options  # the type check reports it
    return {option: value for option, value in options.items() if option not in names}


class _Distrust(NamedTuple):
    """Why a file must not direct where rows go, and what the operator can do."""

    why: str
    way_out: str


def _read(path: Path) -> tuple[bytes, _Distrust | None]:
    """Read a settings file, and return why it must not direct where rows go. Raises OSError."""
    # A link counts as a file here, if it is ours. O_NONBLOCK and the size limit guard against a FIFO and a device.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotAFile(0, "it is not a regular file", os.fspath(path))
        raw = opened.read(bounded_toml.MAX_BYTES + 1)
    return raw, _distrust(path, found)


def _distrust(path: Path, found: os.stat_result) -> _Distrust | None:
    owner = stranger(path, found)
    if owner is not None:
        return _Distrust(
            f"belongs to another user (uid {owner})",
            f"If that user is to be trusted: --config {path}, or make the file yours. Otherwise remove it: "
            "docs/security.md.",
        )
    # With a POSIX ACL that names users or groups, the group bits are its mask, so they show what others may write.
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return _Distrust(
            f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o})",
            f"Look at what it says, then: chmod go-w {path}. If they are to be trusted: --config {path}. "
            "docs/security.md says more.",
        )
    return None


def stranger(path: Path, found: os.stat_result) -> int | None:
    """The owner of a file, or of a link to it, if that is neither root nor this user; `found` is the file's own
    status.
    """
    owners = (os.lstat(path).st_uid, found.st_uid)
    return next((uid for uid in owners if uid not in (0, os.geteuid())), None)


def _from_env(env: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    variables = {_PREFIX + key.upper(): key for key in _TYPES if key not in ("sink", "alert", "why", "notify")}
    for variable, text in sorted(env.items()):
        if not variable.startswith(_PREFIX) or not text.strip():
            continue
        if variable.startswith(_SINK_PREFIX):
            name, separator, option = variable[len(_SINK_PREFIX) :].lower().partition("__")
            if not name or not separator or not option:
                raise UsageProblem(
                    f"{variable} does not name a sink's option", "the form is RLSHIP_SINK__WANDB__PROJECT=name"
                )
            _refuse_secrets(variable, {option: text}, where="")
            yield variable, "sink", {name: {option: _toml_value(text)}}
        elif variable in variables:
            key = variables[variable]
            yield variable, key, _env_value(variable, key, text.strip())
        elif near := difflib.get_close_matches(variable, variables, 1, cutoff=0.9):
            # Other RLSHIP_ names belong to the writers, so only a near miss is rejected.
            raise UsageProblem(f"{variable} is not a setting", f"did you mean {near[0]}?")


def _env_value(variable: str, key: str, text: str) -> Any:
    if key == "sinks":
        return text.replace(",", " ").split()
    if key == "reductions":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as problem:
            raise UsageProblem(
                f"{variable}: not JSON: {problem}", """write RLSHIP_REDUCTIONS='{"trainer/loss": ["mean", "max"]}'"""
            ) from problem
    if key in ("per_rank", "alerts"):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if key in ("samples", "samples_every", "short_window", "metrics_port", "opens_per_s"):
        return int(text) if text.isascii() and text.isdigit() else text
    if key.endswith("_s"):
        try:
            return float(text)
        except ValueError:
            return text
    return text


def _toml_value(text: str) -> Any:
    """Parse `true`, 3 and ["a"] as TOML does; any other text is a string."""
    try:
        return bounded_toml.decode(f"value = {text}".encode())["value"]
    except (bounded_toml.BadToml, UnicodeEncodeError):
        return text


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in flags.items():
        if value is None or value == () or value == []:
            continue
        yield FLAGS.get(key, "--" + key.replace("_", "-")), key, list(value) if isinstance(value, tuple) else value


def _checked(place: str, key: str, value: Any) -> Any:
    named = f"{place} = {value!r}" if place.startswith((_PREFIX, "--")) else f"{place}: {key} = {value!r}"
    try:
        checked = msgspec.convert(value, _TYPES[key])
    except msgspec.ValidationError as problem:
        raise UsageProblem(f"{named} is not allowed: {problem}", f"allowed: {_allowed(key)}") from problem
    if isinstance(checked, float) and not math.isfinite(checked):
        raise UsageProblem(f"{named} is not allowed", f"allowed: {_allowed(key)}")
    if key == "sinks":
        _check_sink_names(named, checked)
        return list(dict.fromkeys(checked))
    if key == "reductions":
        _check_reductions(place, checked)
    if key in _PATHS:
        return os.path.abspath(Path(checked).expanduser())
    return checked


def _checked_sinks(place: str, value: Any) -> dict[str, dict[str, Any]]:
    try:
        tables = msgspec.convert(value, _Tables)
    except msgspec.ValidationError as problem:
        raise UsageProblem(
            f"{place}: sink = {value!r} is not allowed: {problem}", f"allowed: {_allowed('sink')}"
        ) from problem
    for name in tables:
        _check_sink_names(place if place.startswith(_PREFIX) else f"{place}: [sink.{name}]", [name])
    return tables


def _check_sink_names(named: str, names: list[str]) -> None:
    installed = known_sinks()
    for name in names:
        if name not in installed:
            hint = " ".join(filter(None, (did_you_mean(name, installed), f"Installed are: {', '.join(installed)}")))
            raise UsageProblem(f'{named}: there is no sink "{name}"', hint)


def _check_reductions(place: str, reductions: dict[str, list[str]]) -> None:
    for metric, names in reductions.items():
        if not metric or not names:
            raise UsageProblem(
                f'{place}: reductions: "{metric}" = {names!r} is not allowed',
                "allowed: a metric's name and a non-empty list",
            )
        for name in names:
            if not is_reduction(name):
                allowed = f"Allowed are: {', '.join(REDUCTIONS)}, and names with a dot, of other packages"
                hint = " ".join(filter(None, (did_you_mean(name, REDUCTIONS), allowed)))
                raise UsageProblem(f'{place}: reductions: "{metric}" = {names!r}: there is no reduction "{name}"', hint)


def _refuse_secrets(place: str, table: Mapping[str, Any], where: str | None = None) -> None:
    """Raise UsageProblem for a key that looks like a secret. The message omits the value, which would end up in a
    log.
    """
    for key, value in table.items():
        path = key if not where else f"{where}.{key}"
        if _SECRET.search(key.lower().replace("-", "_")):
            raise UsageProblem(
                f"{place}: {path} looks like a secret, and secrets are not taken from here",
                "remove it; for W&B set WANDB_API_KEY in the sidecar's environment or run `wandb login` once",
            )
        if isinstance(value, dict):
            _refuse_secrets(place, value, path)


def _allowed(key: str) -> str:
    return next(iter(_descriptions(_TYPES[key])), "see the reference rlship.toml")


def _descriptions(hint: Any) -> Iterator[str]:
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.description:
            yield meta.description
    for part in getattr(hint, "__args__", ()):
        yield from _descriptions(part)
