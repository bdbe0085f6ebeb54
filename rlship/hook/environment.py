"""The variables by which a process has the hook: set for the job's command, removed for the sidecar."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
NAMED = "RLSHIP_NAMED"  # the folder that `rlship run` names on stderr
_OURS = os.path.join("rlship", "hook", "site")


def with_hook(environ: Mapping[str, str], folder: str, actor: str = "") -> dict[str, str]:
    """The environment of a command whose processes log into the experiment `folder`, as `actor` if that is given."""
    found = without_hook(environ)
    path = found.get("PYTHONPATH")
    found["PYTHONPATH"] = f"{SITE}{os.pathsep}{path}" if path else SITE
    found["RLSHIP_DIR"] = found[NAMED] = folder
    if actor:
        found["RLSHIP_ACTOR"] = actor
    return found


def is_named(folder: str) -> bool:
    """Whether this process runs below `rlship run`, which names the folder itself, with where the run can be seen."""
    return os.environ.get(NAMED) == folder


def without_hook(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the folder of any hook on PYTHONPATH."""
    found = dict(environ)
    path = found.get("PYTHONPATH", "")
    kept = [part for part in path.split(os.pathsep) if not _is_ours(part)]
    if len(kept) == len(path.split(os.pathsep)):
        return found
    if kept:
        found["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        del found["PYTHONPATH"]
    return found


def drop_hook(environ: MutableMapping[str, str]) -> None:
    """Remove the hook from this process and from those that it starts: what the sidecar does first of all."""
    kept = without_hook(environ)
    if kept.get("PYTHONPATH") != environ.get("PYTHONPATH"):
        if "PYTHONPATH" in kept:
            environ["PYTHONPATH"] = kept["PYTHONPATH"]
        else:
            del environ["PYTHONPATH"]
    sys.path[:] = [path for path in sys.path if not _is_ours(path)]
    hook = sys.modules.get("_rlship_hook")
    if hook is not None:
        hook.stop()


def _is_ours(path: str) -> bool:
    return bool(path) and os.path.abspath(path).endswith(os.sep + _OURS)
