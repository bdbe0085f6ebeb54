"""Programs of a job in a folder of their own, with a stand-in for wandb, and rlship's own facade."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.guards.tree import ROOT

# Says on stdout whether the facade has taken over the wandb that this process imported.
ASK = "import wandb; print('rlship' if hasattr(wandb, '_rlship') else 'no')"
# The package of a job: nothing but what the facade asks for.
WANDB = """
from wandb import sdk
history = []
def log(x): history.append(x)
def init(**options): return None
"""
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "RLSHIP_", "WANDB_", "RANK", "WORLD_SIZE"))
}


class Place:
    """A folder with a package `wandb`, and a copy of rlship. `facade` replaces its facade.

    The copy stands for the environment of rlship: the job's Python knows nothing of it.
    """

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.packages = folder / "packages"
        self.rlship = folder / "tool" / "rlship"
        self.write("packages/wandb/__init__.py", WANDB)
        self.write("packages/wandb/sdk.py", "value = 1\n")
        self.write("tool/rlship_sidecar/__init__.py", "")
        _copy(ROOT / "rlship", self.rlship)

    @property
    def site(self) -> Path:
        """The folder that `rlship run` puts first on PYTHONPATH."""
        return self.rlship / "hook" / "site"

    def facade(self, text: str) -> None:
        """Make this the module that is called after an import of wandb."""
        (self.rlship / "facade" / "wandb.py").unlink()  # a link to the module itself
        self.write("tool/rlship/facade/wandb.py", text)

    def write(self, name: str, text: str) -> Path:
        """Make a file below the folder, with the folders on its way."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def environment(self, **changes: str) -> dict[str, str]:
        """The variables of a process below `rlship run`; a job's own packages are behind the hook."""
        path = os.pathsep.join((str(self.site), str(self.packages)))
        return CLEAN | {"PYTHONPATH": path, "RLSHIP_DIR": str(self.folder / "run")} | changes

    def run(
        self, *arguments: str, environ: Mapping[str, str] | None = None, program: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python program to its end."""
        return subprocess.run(
            [*(program or [self.python]), *arguments],
            cwd=self.folder,
            env=self.environment() if environ is None else environ,
            capture_output=True,
            text=True,
            timeout=60,
        )


def _copy(source: Path, target: Path) -> None:
    """A package by links to its modules, with the hook's own files as copies: they look where they lie."""
    for file in source.rglob("*.py"):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source / "hook" in file.parents:
            copy.write_bytes(file.read_bytes())
        else:
            copy.symlink_to(file)
