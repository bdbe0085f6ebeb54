"""`rlship hook`: the hook in the environment of a Python, for processes that lose PYTHONPATH on their way."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlship.hook.environment import SITE
from rlship_sidecar import state_file
from rlship_sidecar.errors import RlshipError, UsageProblem

PTH, MODULE, START = "rlship_hook.pth", "_rlship_start.py", "rlship_hook.start"
# Python 3.15 has `.start` files; with one of the same name the `.pth` file's line is not run.
START_SINCE = (3, 15)
LINE = 'import os; os.environ.get("RLSHIP_DIR") and __import__("_rlship_start").start()\n'
ENTRY = "_rlship_start:start\n"
HOOK = os.path.join(os.path.dirname(SITE), "interception.py")
_HOOK_LINE = "HOOK = "
TEXT = '''\
"""Written by `rlship hook install`, removed by `rlship hook remove`. Without RLSHIP_DIR it does nothing."""

import os
import sys

HOOK = {hook!r}
done = []


def start():
    if done:  # Python runs the lines of an environment twice in some ways of starting
        return
    done.append(True)
    if not os.environ.get("RLSHIP_DIR") or sys.version_info < (3, 10):
        return
    if sys.flags.isolated or sys.flags.ignore_environment:  # -I and -E: variables change nothing
        return
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():  # a program with other rights than its caller
        return
    try:
        if "_rlship_hook" not in sys.modules:
            from _frozen_importlib import module_from_spec
            from _frozen_importlib_external import spec_from_file_location

            spec = spec_from_file_location("_rlship_hook", HOOK)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["_rlship_hook"] = module
        sys.modules["_rlship_hook"].start()
    except Exception as error:
        what = "%s: %s" % (type(error).__name__, error)
        way_out = "`rlship hook remove --python %s` removes the hook" % sys.executable
        sys.stderr.write("rlship: the job's wandb is left as it is: %s; %s\\n" % (what, way_out))
'''
_ASK = (
    "import json, site, sys, sysconfig; found = sysconfig.get_path('purelib'); places = site.getsitepackages(); "
    "print(json.dumps([sys.version_info[:3], found if found in places else places[0]]))"
)


@dataclass(frozen=True, slots=True)
class HookState:
    """The hook in one environment: that of the program `python`, whose packages lie in `packages`.

    `installed`: its files are there. `leads_to`: the file of rlship that they load, "" without them. `is_current`: that
    file belongs to this rlship. `works`: the file exists.
    """

    python: str
    version: tuple[int, ...]
    packages: Path
    installed: bool
    leads_to: str
    is_current: bool
    works: bool


def environment_of(python: str | None, environ: Mapping[str, str]) -> HookState:
    """The state of the hook in the environment of `python`, by default the first on PATH. Raises UsageProblem."""
    names = [python] if python else ["python", "python3"]
    program = next(filter(None, (shutil.which(name, path=environ.get("PATH")) for name in names)), None)
    if program is None:
        raise UsageProblem(
            f"there is no program {' or '.join(names)}", "name the job's Python: --python /path/to/python"
        )
    try:
        # Isolated: the current folder and variables must not choose where packages go.
        done = subprocess.run([program, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        version, packages = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        raise UsageProblem(
            f"{program} does not run as Python: {_why(problem)}", "name the job's Python: --python /path/to/python"
        ) from problem
    return _state(program, tuple(version), Path(packages))


def _why(problem: Exception) -> str:
    if isinstance(problem, subprocess.CalledProcessError):
        return f"it ended with exit code {problem.returncode}"
    if isinstance(problem, subprocess.TimeoutExpired):
        return f"it gave no answer within {problem.timeout:g} s"
    return f"its answer cannot be read: {problem}" if isinstance(problem, ValueError) else str(problem)


def _state(program: str, version: tuple[int, ...], packages: Path) -> HookState:
    entry = packages / (START if version >= START_SINCE else PTH)
    installed = entry.is_file() and (packages / MODULE).is_file()
    hook = ""
    if installed:
        for line in (packages / MODULE).read_text(encoding="utf-8").splitlines():
            if line.startswith(_HOOK_LINE):
                hook = str(ast.literal_eval(line.removeprefix(_HOOK_LINE)))
    return HookState(program, version, packages, installed, hook, hook == HOOK, os.path.isfile(hook))


def described(state: HookState) -> tuple[str, str]:
    """What the hook of an environment is, and what to do, or ""."""
    if not state.installed:
        return f"{state.python}: no hook in {state.packages}; `rlship run` needs none", ""
    if not state.works:
        gone = f"{state.python}: the hook in {state.packages} leads to {state.leads_to}, which is gone"
        return gone, f"rlship hook remove --python {shlex.quote(state.python)}"
    whose = "this rlship" if state.is_current else f"another rlship, {state.leads_to}"
    return f"{state.python}: hook of {whose} in {state.packages}; it acts where RLSHIP_DIR is set", ""


def install(state: HookState) -> None:
    """Write the hook's files. Raises RlshipError."""
    if state.version < (3, 10):
        version = ".".join(map(str, state.version))
        raise UsageProblem(f"{state.python} is Python {version}", "rlship's writer needs Python 3.10 or newer")
    try:
        _write(state.packages / MODULE, TEXT.format(hook=HOOK))
        _write(state.packages / PTH, LINE)
        if state.version >= START_SINCE:
            _write(state.packages / START, ENTRY)
    except OSError as problem:
        raise _cannot(state, problem) from problem


def remove(state: HookState) -> None:
    """Remove the hook's files, first those by which Python finds the other one. Raises RlshipError."""
    try:
        for name in (START, PTH, MODULE):
            (state.packages / name).unlink(missing_ok=True)
    except OSError as problem:
        raise _cannot(state, problem) from problem


def _write(path: Path, text: str) -> None:
    # Whatever the umask: all users of the environment start with it.
    with state_file.replacing(path, mode=0o644) as file:
        file.write(text.encode())


def _cannot(state: HookState, problem: OSError) -> RlshipError:
    return RlshipError(
        f"{state.packages} cannot be changed: {problem.strerror}",
        "run this as the user to whom the environment belongs, or name another Python: --python /path/to/python",
    )
