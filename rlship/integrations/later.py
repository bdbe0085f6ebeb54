"""Calls of rlship once a framework's module has been imported, for plug-ins that run before it."""

from __future__ import annotations

import sys

from ..hook.interception import LoaderBefore, found_by_others, imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def after_import(patches: dict[str, Callable[[ModuleType], object]]) -> None:
    """Call `patches[name](module)` once the module `name` was imported: now if it has been, else right after.

    A patch must not raise. Imports of other modules cost a look into a dict each.
    """
    wanted = {}
    for name, patch in patches.items():
        module = imported(name)
        if module is None:
            wanted[name] = patch
        else:
            patch(module)
    if wanted:
        sys.meta_path.insert(0, _Finder(wanted))


class _Finder:
    """Finds the wanted modules as the other finders do. It leaves once each has been found."""

    def __init__(self, wanted: dict[str, Callable[[ModuleType], object]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a wanted module, with a loader that calls its patch; None for any other module."""
        if name not in self._wanted:
            return None
        spec = found_by_others(self, name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LoaderBefore(spec.loader, self._wanted.pop(name))  # type: ignore[assignment]
            if not self._wanted:
                sys.meta_path[:] = [one for one in sys.meta_path if one is not self]
        return spec
