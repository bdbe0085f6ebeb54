"""Python imports this at its start, where `rlship run` put this folder first on PYTHONPATH.

Without RLSHIP_DIR it does nothing. In any case it runs the `sitecustomize` that it hides, such as the job's own or that
of the distribution. It imports nothing: what it uses is there before any start-up code runs. Older versions of Python
than rlship supports run it too, so it keeps to their syntax.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OURS = os.path.join("rlship", "hook", "site")


def _start() -> None:
    if not os.environ.get("RLSHIP_DIR") or sys.version_info < (3, 10):
        return
    # A program with other rights than its caller must not run code that the caller's variables name.
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return
    try:
        here = os.path.dirname(os.path.abspath(__file__))
        _load("_rlship_hook", os.path.join(os.path.dirname(here), "interception.py")).start()
    except Exception as error:  # noqa: BLE001 - the job runs as it would without rlship
        _report(error)


def _load(name: str, path: str) -> "Any":
    """The module `name`, from the file `path` if it is not there yet."""
    found = sys.modules.get(name)
    if found is None:
        from _frozen_importlib import module_from_spec
        from _frozen_importlib_external import spec_from_file_location

        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
        sys.modules[name] = found
    return found


def _report(error: Exception) -> None:
    try:
        sys.stderr.write(f"rlship: the job's wandb is left as it is: {type(error).__name__}: {error}\n")
    except Exception:  # noqa: BLE001 - stderr may be closed, or any object
        return


def _run_the_hidden_one() -> None:
    """Run the next `sitecustomize` on the path in this one's place. Its errors are for Python to report, as always."""
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    # Another installation of rlship may have a folder here too. Each would find the other one for ever.
    rest = [path for path in sys.path if not os.path.abspath(path).endswith(_OURS)]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    hidden = module_from_spec(spec)
    sys.modules["sitecustomize"] = hidden
    spec.loader.exec_module(hidden)


_start()
_run_the_hidden_one()
