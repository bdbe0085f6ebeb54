"""The command line of each process that rlship starts from its own modules.

`python -m` imports from the current folder before anything else, and then from PYTHONPATH. Both may be folders of the
job: a module planted there would run with the sidecar's rights and see its W&B key. So a child runs isolated (`-I`) and
gets its import folders by its command line.
"""

from __future__ import annotations

import json
import os
import site
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder

_PACKAGES = ("rlship", "rlship_sidecar", "rlship_agents", "rlship_formats")
# The top-level modules that children import from other distributions.
_DEPENDENCIES = (
    *("click", "google.protobuf", "msgspec", "numpy", "orjson", "prometheus_client", "psutil", "pynvml", "rich"),
    *("tensorboardX", "tomli", "wandb", "watchdog"),
)
_PLUGIN_GROUPS = "rlship."
# `-I` ignores these variables. They are passed on because they choose no code, and a container's logs depend on the
# first.
_SWITCHES = {"PYTHONUNBUFFERED": "-u", "PYTHONDONTWRITEBYTECODE": "-B", "PYTHONFAULTHANDLER": "-Xfaulthandler"}
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); del sys.argv[:2]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module` as `python -m` does, but never from the current folder or PYTHONPATH.

    Two kinds of folders are exceptions, and come after the standard library. One is a folder from which this process
    imports rlship itself; the other is the only folder that holds a dependency or a plug-in.
    """
    switches = [switch for variable, switch in _SWITCHES.items() if os.environ.get(variable)]
    if sys.flags.utf8_mode:
        switches.append("-Xutf8")
    return [sys.executable, "-I", *switches, "-c", _START, json.dumps(import_folders()), module, *arguments]


def import_folders() -> list[str]:
    """The folders, in order, from which a child imports."""
    named = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    found = list(dict.fromkeys(path for path in sys.path if os.path.isabs(path)))
    installed = {*_standard_folders(), *site.getsitepackages()}
    # `python -m` and an empty entry of PYTHONPATH put the current folder there.
    strange = {*named, _current_folder()}
    kept = [path for path in found if path in installed or path not in strange]
    own = [path for path in dict.fromkeys(_own_folders(kept)) if path not in kept]
    after = 1 + max((number for number, path in enumerate(kept) if path in _standard_folders()), default=-1)
    kept[after:after] = own
    return [*kept, *_needed([path for path in found if path in named and path not in kept], kept)]


def _own_folders(installed: Sequence[str]) -> Iterator[str]:
    """The folders from which this process imports rlship's packages, or would import them."""
    for package in _PACKAGES:
        spec = getattr(sys.modules.get(package), "__spec__", None)
        spec = spec or PathFinder.find_spec(package, list(installed)) or PathFinder.find_spec(package)
        # without an origin it is just a folder of that name, such as a job's
        if spec is not None and spec.origin is not None:
            yield os.path.dirname(os.path.dirname(os.path.abspath(spec.origin)))


def _standard_folders() -> tuple[str, str]:
    library = os.path.dirname(os.path.abspath(os.__file__))
    return library, os.path.join(library, "lib-dynload")


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was removed, so nothing can be imported from it


def _needed(candidates: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    """The folders of PYTHONPATH that alone hold a dependency or a plug-in."""
    for path in candidates:
        lacking = (name for name in _DEPENDENCIES if not _has(name, kept))
        if any(_has(name, [path]) for name in lacking) or _has_plugin(path):
            yield path


def _has(name: str, folders: Sequence[str]) -> bool:
    top, _, rest = name.partition(".")
    spec = PathFinder.find_spec(top, list(folders))
    if spec is None or not rest:
        return spec is not None
    return PathFinder.find_spec(name, list(spec.submodule_search_locations or ())) is not None


def _has_plugin(path: str) -> bool:
    from importlib.metadata import distributions  # slow, and only needed with PYTHONPATH

    return any(
        point.group.startswith(_PLUGIN_GROUPS)
        for distribution in distributions(path=[path])
        for point in distribution.entry_points
    )
