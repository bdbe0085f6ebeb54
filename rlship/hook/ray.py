"""The way into the workers of a Ray cluster, whose environment is not the driver's.

While `ray.init` runs, RAY_RUNTIME_ENV_HOOK names `runtime_env`, which adds a `worker_process_setup_hook` to the job's
runtime environment. Ray calls that in each worker process before any task. It is a function that travels by value:
a worker that overrides PYTHONPATH could not import one from here. Hooks that the job has itself are called as well.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module

from rlship.notices import Notices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    Setup = Callable[[], object]

HOOK = "RAY_RUNTIME_ENV_HOOK"
SETUP = "worker_process_setup_hook"
# Where Ray notes a setup hook that it has stored, as in the environment of a job that `ray job submit` started.
_STORED = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
_UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
# These say which process the driver is, which its workers are not.
_NOT_PASSED = frozenset(f"RLSHIP_{name}" for name in ("PARENT", "RANK", "WORLD", "REPLICA", "ATTEMPT"))
_FOLDER = os.path.dirname(os.path.abspath(__file__))

_notices = Notices()
_calls: list[_Call] = []


class _Call:
    """One `ray.init` under way: the job's own RAY_RUNTIME_ENV_HOOK, and whether Ray would ask `uv run` first."""

    def __init__(self, constants: ModuleType | None) -> None:
        self.former = os.environ.get(HOOK)
        self.asks_uv = getattr(constants, _UV, None) is True
        self._constants = constants

    def __enter__(self) -> None:
        _calls.append(self)
        os.environ[HOOK] = f"{__name__}.runtime_env"
        if self.asks_uv:  # Ray would call the hook of `uv run` in place of ours, which calls it
            setattr(self._constants, _UV, False)

    def __exit__(self, *_: object) -> None:
        _calls.remove(self)
        self.restore()
        if self.asks_uv:
            setattr(self._constants, _UV, True)

    def restore(self) -> None:
        """Give the variable the job's own value again."""
        if self.former is None:
            os.environ.pop(HOOK, None)
        else:
            os.environ[HOOK] = self.former


def patch(module: ModuleType) -> None:
    """Make `ray.init` of the imported package set up its workers."""
    init = getattr(module, "init", None)
    if init is None or getattr(init, "_rlship", False):
        return

    @functools.wraps(init)
    def init_with_workers(*args: Any, **kwargs: Any) -> Any:
        if not os.environ.get("RLSHIP_DIR"):
            return init(*args, **kwargs)
        with _Call(sys.modules.get(f"{module.__name__}._private.ray_constants")):
            return init(*args, **kwargs)

    init_with_workers._rlship = True  # type: ignore[attr-defined]
    module.init = init_with_workers  # type: ignore[attr-defined]


def runtime_env(given: Mapping[str, Any] | None) -> Any:
    """The runtime environment of the job with our setup hook: Ray calls this in `ray.init`."""
    call = _calls[-1]
    # What Ray starts from here on inherits the variable, and need not be able to import this module.
    call.restore()
    found: Any = _asked_for(given, call)
    try:
        return with_setup(found, os.environ, _FOLDER)
    except Exception as error:  # noqa: BLE001 - Ray runs as it would without rlship
        _notices.once("setup", f"Ray's workers are left as they are: {type(error).__name__}: {error}")
        return found


def with_setup(given: Mapping[str, Any] | None, environ: Mapping[str, str], folder: str) -> dict[str, Any]:
    """A copy of a runtime environment whose setup hook begins with ours and goes on with the one it has.

    `environ` is the driver's, `folder` that of the hook, by the same path on all nodes.
    """
    made: dict[str, Any] = dict(given or {})
    variables = dict(made.get("env_vars") or {})
    stored = variables.pop(_STORED, None)
    if stored is not None:
        made["env_vars"] = variables
    passed = {name: value for name, value in environ.items() if name.startswith("RLSHIP_") and name not in _NOT_PASSED}
    made[SETUP] = setup_function(folder, passed, stored or made.get(SETUP))
    return made


def setup_function(folder: str, variables: Mapping[str, str], former: Setup | str | None) -> Setup:
    """The setup hook: it may use nothing of this module, which a worker need not have."""
    kept = dict(variables)

    def set_up_rlship() -> None:
        import os
        import sys

        try:
            for name, value in kept.items():
                if name == "RLSHIP_DIR" or name not in os.environ:
                    os.environ[name] = value
            site = os.path.join(folder, "site")
            path = os.environ.get("PYTHONPATH", "")
            if site not in path.split(os.pathsep):
                os.environ["PYTHONPATH"] = site + (os.pathsep + path if path else "")
            hook = sys.modules.get("_rlship_hook")
            if hook is None:
                from importlib.util import module_from_spec, spec_from_file_location

                spec = spec_from_file_location("_rlship_hook", os.path.join(folder, "interception.py"))
                assert spec is not None and spec.loader is not None
                hook = module_from_spec(spec)
                spec.loader.exec_module(hook)
                sys.modules["_rlship_hook"] = hook
            hook.start()
        except Exception as error:  # noqa: BLE001 - the worker runs as it would without rlship
            where = os.uname().nodename
            sys.stderr.write(f"rlship: a Ray worker on {where} is left as it is: {type(error).__name__}: {error}\n")
        if callable(former):
            former()
        elif former and former.startswith("ray_runtime_env_func::"):
            from ray._private.runtime_env.setup_hook import load_and_execute_setup_hook

            problem = load_and_execute_setup_hook(former)
            if problem is not None:
                raise RuntimeError(problem)
        elif former:
            from importlib import import_module

            module, _, name = former.rpartition(".")
            getattr(import_module(module), name)()

    return set_up_rlship


def _asked_for(given: Mapping[str, Any] | None, call: _Call) -> Any:
    """What Ray would use without us: that of `uv run`, else that of the job's own hook, else what was given."""
    if call.asks_uv:
        uv = import_module("ray._private.runtime_env.uv_runtime_env_hook")
        if uv._get_uv_run_cmdline():
            return uv.hook(given)
    if call.former:
        module, _, name = call.former.rpartition(".")
        return getattr(import_module(module), name)(given)
    return given
