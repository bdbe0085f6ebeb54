"""Artifacts that a job logs: nothing is uploaded, and they behave as those that have arrived."""

from __future__ import annotations

import functools
import glob
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _Client: Any
else:
    _Client = object

MAX_FILES = 1000  # that are listed
_VERSION = "v0"
_MAX_KNOWN = 100
_classes: dict[type, type] = {}
_known: dict[str, Any] = {}  # the newest ones that this process logged, by name and alias


class ArrivedArtifact(_Client):  # type: ignore[misc]  # the client is not installed where types are checked
    """Stands in front of the client's class of artifacts, in a class made of both. It answers what a job asks of an
    artifact that it has logged; what reads from W&B raises as for one that is not there yet.
    """

    _rlship: tuple[Any, list[str]]

    def wait(self, timeout: Any = None) -> Any:
        return self

    def link(self, target_path: Any, aliases: Any = None) -> None:
        self._rlship[0].link_artifact(self, target_path, aliases)

    def download(self, root: Any = None, *_: Any, **__: Any) -> str:
        """Copy its files from where the job has them, those that have no address elsewhere."""
        root = os.fspath(root) if root else os.path.join(".", "artifacts", f"{_name_of(self)}:{_VERSION}")
        for path, entry in self.manifest.entries.items():
            source = getattr(entry, "local_path", None)
            if source and os.path.isfile(source):
                target = os.path.join(root, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(source, target)
        return str(root)

    @property
    def version(self) -> str:
        return _VERSION

    @property
    def aliases(self) -> list[str]:
        return self._rlship[1]

    @aliases.setter
    def aliases(self, value: Any) -> None:
        self._rlship[1][:] = list(value)

    @property
    def entity(self) -> str:
        return str(self._rlship[0].entity)

    @property
    def project(self) -> str:
        return str(self._rlship[0].project)

    @property
    def qualified_name(self) -> str:
        return f"{self.entity}/{self.project}/{_name_of(self)}:{_VERSION}"


def arrived(artifact: Any, base: type, run: Any, aliases: Any) -> bool:
    """Let an artifact that `run` logged behave as one that has arrived. False for a path."""
    if not isinstance(artifact, base):
        return False
    kind = type(artifact)
    if not issubclass(kind, ArrivedArtifact):
        if kind not in _classes:
            facts = {"__qualname__": kind.__qualname__, "__module__": kind.__module__, "__doc__": kind.__doc__}
            _classes[kind] = type(kind.__name__, (ArrivedArtifact, kind), facts)
        artifact.__class__ = _classes[kind]
    known = ["latest", *([aliases] if isinstance(aliases, str) else aliases or ())]
    artifact.__dict__["_rlship"] = run, list(dict.fromkeys(known))
    for alias in dict.fromkeys(("", *known, _VERSION)):
        key = f"{_name_of(artifact)}:{alias}"
        _known.pop(key, None)
        _known[key] = artifact
    while len(_known) > _MAX_KNOWN:
        del _known[next(iter(_known))]
    return True


def known_as(name: str, run: Any) -> Any:
    """The artifact that this process logged under a name as W&B has them, with an alias or not; None for another."""
    *place, short = name.split("/")
    if place and place[-1] != run.project:
        return None
    return _known.get(short if ":" in short else f"{short}:")


def _name_of(artifact: Any) -> str:
    return str(artifact.name).partition(":")[0]


def log_to(base: type, newest: Callable[[], Any]) -> None:
    """Let `artifact.save()` log to the run `newest()`. The client sees no run of ours: it would begin one, get the
    open one, and end it.
    """
    real = getattr(base, "save", None)
    if real is None or getattr(real, "_rlship", False):
        return

    @functools.wraps(real)
    def save(self: Any, *args: Any, **options: Any) -> Any:
        run = newest()
        return real(self, *args, **options) if run is None else run.log_artifact(self) and None

    save._rlship = True  # type: ignore[attr-defined]
    base.save = save  # type: ignore[attr-defined]


def facts_of(artifact: Any) -> dict[str, Any]:
    """Name, type and files (paths and sizes) of one of the client's artifacts, or of a path."""
    if isinstance(artifact, (str, os.PathLike)):
        return {"path": os.path.abspath(artifact), **sizes(os.fspath(artifact))}
    facts: dict[str, Any] = {"name": _text(artifact, "name"), "type": _text(artifact, "type")}
    entries = getattr(getattr(artifact, "manifest", None), "entries", None)
    if not isinstance(entries, dict):  # that of a path which was logged, of which a disabled run knows nothing
        return facts
    facts["files"] = [
        {"path": str(getattr(one, "local_path", None) or path), "name": str(path), "size": getattr(one, "size", None)}
        for path, one in list(entries.items())[:MAX_FILES]
    ]
    facts["count"] = len(entries)
    return facts


def _text(artifact: Any, member: str) -> str:
    found = getattr(artifact, member, None)
    return found if isinstance(found, str) else ""


def files_like(pattern: str) -> list[str]:
    """The files that a path with wildcards stands for."""
    return sorted(path for path in glob.glob(pattern) if os.path.isfile(path))


def sizes(path: str) -> dict[str, Any]:
    """The size of a file, or how many entries a folder has."""
    try:
        found = os.stat(path)
        if os.path.isdir(path):
            return {"entries": len(os.listdir(path))}
        return {"size": found.st_size}
    except OSError as error:
        return {"missing": error.strerror or "cannot be read"}
