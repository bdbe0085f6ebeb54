"""The experiments in the folder that the page shows: which there are, where their state is, what is known of each."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlship._version import __version__
from rlship_sidecar import config
from rlship_sidecar.config import Config
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership import last_status
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.ownership.lease import Owner
from rlship_sidecar.ownership.state_owner import require_readable
from rlship_sidecar.report.status import STATUS_FILE, Status
from rlship_sidecar.tail import discover
from rlship_sidecar.view.contract import CONTRACT, ExperimentEntry, Experiments
from rlship_sidecar.view.entries import bare_entry, entry_of
from rlship_sidecar.view.making import Making
from rlship_sidecar.view.texts import text

LIST_EVERY_S = 2.0
REFRESH_S = 30.0  # an entry without news is made anew: its age and its silence are part of it
KEEP_STATUS_S = 0.5
CHECK_S = 10.0  # between looks whether a state may be read, each of which opens its store
MAX_LISTED = 5_000


@dataclass(slots=True)
class _KnownEntry:
    state: Path | None
    checked_at: float
    version: tuple[int, ...]
    made_at: float
    entry: ExperimentEntry


class ViewedFolder:
    """Experiments by id. `any_owner`: a person named the state folder, which may then be another user's."""

    def __init__(self, directory: Path, settings: Config, making: Making, *, any_owner: bool) -> None:
        self.directory = directory
        self.making = making
        self._settings = settings
        self._any_owner = any_owner
        self._folders: dict[str, Path] = {}
        self._looked = -LIST_EVERY_S
        self._known: dict[str, _KnownEntry] = {}
        self._negative = discover.NegativeCache()
        self._lock = threading.Lock()

    def folders(self) -> Mapping[str, Path]:
        """The experiments that there are by now. Raises RlshipError if the folder cannot be read."""
        with self._lock:
            if time.monotonic() - self._looked >= LIST_EVERY_S:
                try:
                    self._find()
                except OSError as problem:
                    raise RlshipError(
                        f"{self.directory} cannot be read: {problem.strerror}",
                        "is it still there, and its filesystem mounted?",
                    ) from problem
            return self._folders

    def _find(self) -> None:
        known = {os.fspath(path): path for path in self._folders.values()}
        found = discover.experiments(self.directory, self._negative, known if self._is_folder() else {})
        self._folders = {identity(path): path for path in found[:MAX_LISTED] if path.is_dir()}
        self._looked = time.monotonic()

    def _is_folder(self) -> bool:
        return os.fspath(self.directory) not in {os.fspath(path) for path in self._folders.values()}

    def only(self) -> str | None:
        """The experiment that the folder itself is; None for a folder of experiments. Raises RlshipError."""
        found = self.folders()
        return next(iter(found), None) if not self._is_folder() else None

    def settings_of(self, experiment: Path) -> Config:
        """The settings of an experiment. Raises UsageProblem."""
        below = None if os.path.realpath(experiment) == os.path.realpath(self.directory) else experiment
        return config.load(self.directory, {}, os.environ, ships=False, experiment=below)

    def state_dir(self, experiment: Path) -> Path | None:
        """Where the state of an experiment is: its sidecar's, else where rows are made for the page; None without
        rows. Raises RlshipError.
        """
        state = config.state_dir_for(experiment, self._settings)
        if require_readable(experiment, state, any_owner=self._any_owner) and newest_store(state) is not None:
            return state
        made = self.making.state_dir(experiment)
        return made if self.making.has_begun(experiment) and newest_store(made) is not None else None

    def status(self, experiment: Path) -> tuple[Status, Owner | None] | None:
        """The last status of an experiment. Raises RlshipError."""
        state = self.state_dir(experiment)
        return None if state is None else last_status.read(experiment, state, self._settings.lease_ttl_s)

    def entry(self, one: str, experiment: Path) -> ExperimentEntry:
        """An experiment as the list shows it."""
        name = experiment.resolve().name
        now = time.monotonic()
        known = self._known.get(one)
        if known is not None and known.entry["state"] == "unreadable" and now - known.made_at < CHECK_S:
            return known.entry
        state: Path | None
        try:
            state = known.state if known is not None and now - known.checked_at < CHECK_S else None
            checked_at = known.checked_at if known is not None and state is not None else now
            state = state or self.state_dir(experiment)
            version = _version(state)
            fresh_s = KEEP_STATUS_S if known is not None and known.entry["state"] in ("running", "held") else REFRESH_S
            if known is not None and known.version == version and now - known.made_at < fresh_s:
                known.state, known.checked_at = state, checked_at
                return known.entry
            entry = self._made(one, name, experiment, state)
        except RlshipError as problem:
            entry = bare_entry(one, name, "unreadable", f"{problem.message}. {problem.hint}".rstrip(". "))
            self._known[one] = _KnownEntry(None, now, (), now, entry)
            return entry
        self._known[one] = _KnownEntry(state, checked_at, version, now, entry)
        return entry

    def _made(self, one: str, name: str, experiment: Path, state: Path | None) -> ExperimentEntry:
        found = None if state is None else last_status.read(experiment, state, self._settings.lease_ttl_s)
        if found is None:
            begun = last_status.beginning(state) if state is not None else None
            return bare_entry(one, name, "unwatched", begun or "no sidecar has watched it yet")
        status, _ = found
        return entry_of(one, name, status, last_status.ended(status), time.time())

    def listed(self) -> Experiments:
        """The answer about all experiments. Raises RlshipError if the folder cannot be read."""
        folders = self.folders()
        left_out: dict[str, str] = {}
        with suppress(OSError):
            left_out = discover.excluded(self.directory)
        return {
            "contract": CONTRACT,
            "version": __version__,
            "folder": text(os.fspath(self.directory)),
            "single": not self._is_folder(),
            "now": time.time(),
            "experiments": [self.entry(one, path) for one, path in folders.items()],
            "left_out": {text(path): text(why) for path, why in list(left_out.items())[:100]},
        }


def identity(path: Path) -> str:
    """The id of an experiment: of the name of its folder."""
    name = os.fsencode(path.resolve().name)
    return hashlib.blake2b(name, digest_size=6).hexdigest()


def _version(state: Path | None) -> tuple[int, ...]:
    try:
        found = os.stat(state / STATUS_FILE) if state is not None else None
    except OSError:
        return ()
    return () if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
