"""The settings of each experiment of a folder, checked: what `watch` and `replay` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rlship_sidecar import config
from rlship_sidecar.alerts.rules import rules_of
from rlship_sidecar.config import Config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.notifiers import registry as notifiers
from rlship_sidecar.sinks import registry

_Version = tuple[int, ...]


class SettingsOf:
    """Maps an experiment to its settings. `folder` holds those that count where an experiment sets nothing.

    An experiment's own `rlship.toml` takes precedence over the watched folder's. `file`, which a person named, replaces
    both. `console`: standard output is free for the sink console. `ships`: rows go to sinks. `say` reports once which
    keys of an experiment's file do not count.
    """

    def __init__(
        self,
        directory: Path,
        flags: Mapping[str, Any],
        env: Mapping[str, str],
        file: Path | None,
        *,
        console: bool,
        say: Callable[[str], None],
        apart: Mapping[str, Collection[str]] = {},
        ships: bool = True,
    ) -> None:
        """Raises UsageProblem if the folder's settings are wrong."""
        self._load = partial(config.load, directory, flags, env, file=file, apart=apart)
        self._directory = os.path.realpath(directory)
        self._env = env
        self._file = file
        self._console = console
        self._say = say
        self._ships = ships
        self._known: dict[Path, tuple[_Version, Config | UsageProblem]] = {}
        self.folder: Config = self._checked(None, file or directory / config.CONFIG_FILE)

    def __call__(self, experiment: Path) -> Config:
        """The settings of one experiment; raises UsageProblem.

        A file is parsed once, however often its experiment is opened: one that costs the most may be a stranger's.
        """
        if self._file is not None or os.path.realpath(experiment) == self._directory:
            return self.folder
        version = _version(experiment / config.CONFIG_FILE)
        if version is None:
            return self.folder
        known, found = self._known.get(experiment, (None, None))
        if found is None or known != version:
            found = self._read(experiment)
            self._known[experiment] = version, found
        if isinstance(found, UsageProblem):
            raise found
        return found

    def _read(self, experiment: Path) -> Config | UsageProblem:
        file = experiment / config.CONFIG_FILE
        try:
            found = self._checked(experiment, file)
            keys = [key for key in config.settings_in(experiment) if key in config.OF_THE_SIDECAR]
        except UsageProblem as problem:
            return problem
        if keys:
            self._say(
                f"{file}: {', '.join(keys)} counts only if {experiment} is watched by itself. {self._directory} is "
                f"watched: set it in {config.CONFIG_FILE} there"
            )
        return found

    def _checked(self, experiment: Path | None, place: Path) -> Config:
        found = self._load(experiment=experiment)
        if "console" in found.sinks and not self._console:
            raise UsageProblem(
                "--json and the sink console both write to standard output",
                "leave one of them out; the sink jsonl has the rows as JSON",
            )
        if self._ships:
            registry.check_options(place, found, self._env)
        if found.notify:
            notifiers.check(str(place), found.notify, {rule.name: rule for rule in rules_of(found.alert)})
        return found


def _version(file: Path) -> _Version | None:
    """What tells one version of a file from another one, or None without a file."""
    try:
        link, found = os.lstat(file), os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return (problem.errno or 0,)
    return link.st_ino, link.st_ctime_ns, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
