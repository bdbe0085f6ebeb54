"""What the hook of `rlship run` adds to the start of an interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.report import Finding, Result, median, ratio
from benchmarks.rounds import Figures, clean_environment, column, in_turn
from rlship.hook.environment import SITE
from rlship_sidecar.launch import environments

METHOD = (
    "CPU = user + system time of a process `python -c CODE`, from its first instruction to its exit, by wait4; ms. "
    "{rounds} rounds, each subject in turn, after one that is not counted and compiles what is imported. Python is "
    "that of an environment without packages; a second one has the hook's files (`rlship hook install`). Bare: no "
    "hook. What the hook adds is the median of the rounds' differences. Import of wandb: a package of that name that "
    "imports what W&B's own takes of the standard library ({library}), so that the difference is rlship's own modules "
    "and their look at the package."
)
LIBRARY = "asyncio, concurrent.futures, dataclasses, hashlib, inspect, json, logging, platform, secrets, subprocess"
INERT_MS, ACTIVE_MS = 1.0, 30.0


def measure(folder: Path, quick: bool) -> Result:
    """Run the rounds in `folder`."""
    rounds = 3 if quick else 80
    bare, hooked = _python(folder / "bare"), _python(folder / "hooked")
    environments.install(environments.environment_of(str(hooked), clean_environment()))
    (folder / "packages" / "wandb").mkdir(parents=True)
    (folder / "packages" / "wandb" / "__init__.py").write_text(f"import {LIBRARY}\ndef init(): pass\n")
    packages, run = str(folder / "packages"), {"RLSHIP_DIR": str(folder / "run")}
    subjects: dict[str, Callable[[], Figures]] = {
        "bare": partial(_start, bare, "pass", {"PYTHONPATH": packages}),
        "path": partial(_start, bare, "pass", {"PYTHONPATH": os.pathsep.join((SITE, packages))}),
        "files": partial(_start, hooked, "pass", {"PYTHONPATH": packages}),
        "path, run": partial(_start, bare, "pass", {"PYTHONPATH": os.pathsep.join((SITE, packages)), **run}),
        "files, run": partial(_start, hooked, "pass", {"PYTHONPATH": packages, **run}),
    }
    wanted = [
        ("PYTHONPATH, without RLSHIP_DIR", "path", "bare", INERT_MS),
        ("files in the environment, without RLSHIP_DIR", "files", "bare", INERT_MS),
        ("PYTHONPATH, with RLSHIP_DIR", "path, run", "bare", ACTIVE_MS),
        ("files in the environment, with RLSHIP_DIR", "files, run", "bare", ACTIVE_MS),
    ]
    if importlib.util.find_spec("rlship.facade") is not None:
        subjects["import, bare"] = partial(_start, bare, "import wandb", {"PYTHONPATH": packages})
        path = os.pathsep.join((SITE, packages))
        subjects["import"] = partial(_start, bare, "import wandb", {"PYTHONPATH": path, **run})
        wanted.append(("PYTHONPATH, with RLSHIP_DIR and an import of wandb", "import", "import, bare", ACTIVE_MS))
    for subject in subjects.values():
        subject()
    found = in_turn(subjects, rounds)
    findings = []
    for figure, name, beside, limit in wanted:
        ours, theirs = column(found[name], "cpu_ms"), column(found[beside], "cpu_ms")
        added = max(0.0, median([one - other for one, other in zip(ours, theirs)]))
        findings.append(Finding(figure, median(ours), "ms", "bare", median(theirs), ratio(ours, theirs)))
        findings.append(Finding(f"{figure}: added", added, "ms", aim=f"< {limit:g} ms", reached=added < limit))
    return Result("The start of a job's processes", METHOD.format(rounds=rounds, library=LIBRARY), findings)


def _python(home: Path) -> Path:
    """The Python of a new environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=clean_environment())
    return home / "bin" / "python"


def _start(python: Path, code: str, variables: dict[str, str]) -> Figures:
    """The CPU time of one process."""
    kept = {name: value for name, value in clean_environment().items() if not name.startswith("PYTHON")}
    pid = os.posix_spawn(python, [str(python), "-c", code], {**kept, **variables})
    _, status, used = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{python} -c {code!r} ended with {os.waitstatus_to_exitcode(status)}")
    return {"cpu_ms": (used.ru_utime + used.ru_stime) * 1000}
