"""What happens once this process imports a module that rlship looks after, and where the job finds rlship.

The hook loads this file by its path, under the name `_rlship_hook`, because the job's Python need not have rlship.
Without the hook, `import rlship` loads it for the modules in `ASKED`. Until one of them is imported it imports nothing
itself and costs a look into a set at each import. It uses `find_spec`, the only protocol of finders that Python has
since 3.12.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# By module: the module of rlship that has `patch(module)`, to be called right after the import.
_TRAINER = "transformers.integrations.integration_utils"
AFTER = {"wandb": "rlship.facade.wandb", "ray": "rlship.hook.ray", _TRAINER: "rlship.integrations.trainer"}
# Those that change nothing until the job names rlship, as by `report_to="rlship"`.
ASKED = (_TRAINER,)
# The sidecar's own packages. Its wandb is the real one, in whatever environment it is started.
SIDECAR = frozenset(("rlship_sidecar", "rlship_agents"))
OWN = "rlship"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_finder: Finder | None = None
_reported: set[str] = set()


def start(after: Sequence[str] = tuple(AFTER)) -> None:
    """Watch this process's imports of the modules `after` from now on. Does nothing the second time.

    With the hook, a process of a run of a sweep and those that it starts log into that run's own folder.
    """
    global _finder
    if _finder is not None or any(name in sys.modules for name in SIDECAR):
        return
    folder, run_id = os.environ.get("RLSHIP_DIR"), os.environ.get("WANDB_RUN_ID")
    if folder and run_id and os.environ.get("WANDB_SWEEP_ID") and tuple(after) != ASKED:
        os.environ["RLSHIP_DIR"] = folder_in_sweep(folder, run_id)
    _finder = Finder(after)
    sys.meta_path.insert(0, _finder)
    for name in after:
        # A start-up file of the environment, or what runs before Ray's hook, may have imported it before.
        if (module := imported(name)) is not None:
            _hand_over(module)


def folder_in_sweep(folder: str, run_id: str) -> str:
    """The folder of one run of a sweep whose agent was given `folder`: `<folder>-sweep-<run id>`. Applying it twice
    changes nothing, and neither does applying it to a folder that has the run's id for a name.

    `rlship run --watch` finds it by this name (`discover.further_runs`).
    """
    # W&B's ids have no `/`; what else a name of a folder should not have is replaced.
    name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in run_id)
    folder = folder.rstrip("/") or folder
    if os.path.basename(folder) == name or folder.endswith(f"-sweep-{name}"):
        return folder
    return f"{folder}-sweep-{name}"


def stop() -> None:
    """Leave this process's further imports alone."""
    if _finder is not None and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class Finder:
    """Finds rlship where the job has none, and calls rlship after the modules `after` were imported."""

    def __init__(self, after: Sequence[str]) -> None:
        self._names = frozenset((*after, *SIDECAR, OWN))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `name`; None leaves it to the other finders, as for nearly every module."""
        if name not in self._names:
            return None
        if name in SIDECAR:
            stop()
            return None
        spec = found_by_others(self, name, path, target)
        if name == OWN:
            # A folder without `__init__.py` is no package of that name: experiments have one called rlship.
            return spec if spec is not None and spec.origin is not None else _own_spec()
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LoaderBefore(spec.loader, _hand_over)  # type: ignore[assignment]
        return spec


def imported(name: str) -> ModuleType | None:
    """The module, if its import has ended."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def found_by_others(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """The spec of a module as all finders but `finder` give it, in their order."""
    for other in list(sys.meta_path):
        find = None if other is finder else getattr(other, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


class LoaderBefore:
    """The loader of a module, with the call `then(module)` after it. While the module runs, it sees its own loader."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], object]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does it."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then make the call. An error of the module itself passes."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


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
