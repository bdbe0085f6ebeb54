"""What happens once this process imports a module that rlship looks after, and where the job finds rlship.

This file is loaded by its path, under the name `_rlship_hook`, because the job's Python need not have rlship. Until one
of the modules below is imported it imports nothing itself and costs a look into a set at each import. It uses
`find_spec`, the only protocol of finders that Python has since 3.12.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# By module: the module of rlship that has `patch(module)`, to be called right after the import.
AFTER = {"wandb": "rlship.facade.wandb", "ray": "rlship.hook.ray"}
# The sidecar's own packages. Its wandb is the real one, in whatever environment it is started.
SIDECAR = frozenset(("rlship_sidecar", "rlship_agents"))
OWN = "rlship"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_finder: Finder | None = None
_reported: set[str] = set()


def start() -> None:
    """Watch this process's imports from now on. Does nothing the second time."""
    global _finder
    if _finder is not None or any(name in sys.modules for name in SIDECAR):
        return
    _finder = Finder()
    sys.meta_path.insert(0, _finder)
    for name in AFTER:
        module = sys.modules.get(name)
        # A start-up file of the environment, or what runs before Ray's hook, may have imported it before.
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _hand_over(module)


def stop() -> None:
    """Leave this process's further imports alone."""
    if _finder is not None and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class Finder:
    """Finds rlship where the job has none, and calls rlship after the modules in `AFTER` were imported."""

    def __init__(self) -> None:
        self._names = frozenset((*AFTER, *SIDECAR, OWN))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `name`; None leaves it to the other finders, as for nearly every module."""
        if name not in self._names:
            return None
        if name in SIDECAR:
            stop()
            return None
        spec = self._others(name, path, target)
        if name == OWN:
            # A folder without `__init__.py` is no package of that name: experiments have one called rlship.
            return spec if spec is not None and spec.origin is not None else _own_spec()
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec

    def _others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """What the other finders give."""
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


class _Loader:
    """The loader of a module, with a call of rlship behind it. While the module runs, it sees its own loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does it."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then hand it over. An error of the module itself passes."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _hand_over(module)


def _own_spec() -> ModuleSpec | None:
    """The spec of the rlship that this file belongs to: of that package alone, whatever stands beside it."""
    from _frozen_importlib_external import spec_from_file_location

    file = os.path.join(_PACKAGE, "__init__.py")
    return spec_from_file_location(OWN, file, submodule_search_locations=[_PACKAGE])


def _hand_over(module: ModuleType) -> None:
    """Call rlship's `patch` for a module. If that fails, the job has the module as it was."""
    name = module.__name__
    try:
        __import__(AFTER[name])
        sys.modules[AFTER[name]].patch(module)
    except Exception as error:  # noqa: BLE001 - the job runs as it would without rlship
        report(name, f"the job's {name} is left as it is: {type(error).__name__}: {error}{_other_rlship()}")


def _other_rlship() -> str:
    """A hint at another rlship, which the job has itself."""
    place = getattr(sys.modules.get(OWN), "__file__", None) or ""
    return (
        "" if not place or os.path.dirname(place) == _PACKAGE else f" (in {place}, the rlship that the job has itself)"
    )


def report(topic: str, message: str) -> None:
    """Print one line on stderr, once for each topic in this process."""
    if topic in _reported:
        return
    _reported.add(topic)
    try:
        sys.stderr.write(f"rlship: {message}\n")
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - stderr may be closed, or any object
        return
