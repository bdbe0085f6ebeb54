"""Jobs that call the real W&B package, each in a process of its own, and what they wrote."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import files_of
from tests.endtoend.sidecar import environment
from tests.kit.forked import Forked
from tests.reference.reduction import final_rows

# What the import hook does, right after the process imported the package.
PATCHED = "import wandb, rlship.facade.wandb\nrlship.facade.wandb.patch(wandb)\n"
ROOT = Path(__file__).resolve().parents[2]
# No server: whatever tried to reach one would fail at once.
NOWHERE = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
LIMIT_S = 100.0

Record = dict[str, Any]


@dataclass
class Job:
    """A job that ended: its exit code and output, and the experiment that it wrote."""

    code: int
    out: str
    err: str
    experiment: Path

    def values(self) -> Any:
        """What it printed last, as JSON."""
        return json.loads(self.out.splitlines()[-1])

    def files(self) -> list[list[Record]]:
        """The records of each file, in the order in which the files were opened."""
        return sorted(records(self.experiment), key=lambda found: found[0]["t"])

    def file(self, actor: str = "trainer") -> list[Record]:
        """The records of an actor's only file."""
        (found,) = [one for one in self.files() if one[0]["actor"] == actor]
        return found

    def rows(self, kind: str = "step", actor: str = "trainer") -> dict[int, dict[str, float]]:
        """The values of an actor's rows by step, under the names that the job used."""
        found = rows_of(self.experiment)
        return {
            unit.index: {key.removeprefix(f"{actor}/"): value for key, value in row.values.items()}
            for unit, row in found.items()
            if (unit.actor, unit.kind) == (actor, kind)
        }


def records(experiment: Path) -> Iterator[list[Record]]:
    for _, data in sorted(files_of(experiment).items()):
        if data:
            yield [json.loads(line) for line in data.splitlines()]


def rows_of(experiment: Path) -> dict[Unit, Row]:
    """The rows that the files give, by the reference."""
    return final_rows(files_of(experiment))


def settings(home: Path, experiment: Path, more: Mapping[str, str]) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {**environment(home, NOWHERE), "RLSHIP_DIR": str(experiment), "PYTHONPATH": str(ROOT), **more}


def run(folder: Path, code: str, *, patched: bool = True, check: bool = True, **more: str) -> Job:
    """Run a program that has `wandb` already, taken over unless not `patched`."""
    experiment = folder / "run"
    program = (PATCHED if patched else "import wandb\n") + textwrap.dedent(code)
    # A file, because processes that the job spawns import it.
    path = folder / "job.py"
    path.write_text(program)
    env = settings(folder / "home", experiment, more)
    if "PYTHONPATH" in more:  # of another version of the package
        command = [sys.executable, str(path)]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    else:
        done = run_file(path, env)
    assert not check or done.returncode == 0, done.stderr
    assert not check or "cannot be recorded" not in done.stderr, done.stderr
    return Job(done.returncode, done.stdout, done.stderr, experiment)


def run_file(path: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program, in its folder, in a process that has imported `wandb`: the half second that this takes is spent
    once for all programs.
    """
    return _imported().run(path, path.parent, env, LIMIT_S)


@cache
def _imported() -> Forked:
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home)
    renew = "from wandb.sdk.data_types._private import MEDIA_TMP; MEDIA_TMP.__init__('wandb-media')"
    return Forked("wandb", {**environment(home, NOWHERE), "PYTHONPATH": str(ROOT)}, renew)


def metrics(found: list[Record]) -> list[tuple[int | None, Any]]:
    """Steps and values of the metrics records."""
    return [(record.get("step"), record["m"]) for record in found if "kind" not in record]


def barriers(found: list[Record]) -> list[int]:
    return [record["step"] for record in found if record.get("kind") == "barrier"]


def events(found: list[Record], name: str) -> list[Record]:
    return [record for record in found if record.get("kind") == "event" and record["name"] == name]


def samples(found: list[Record], table: str) -> list[Record]:
    return [record for record in found if record.get("kind") == "sample" and record["table"] == table]


def said(found: list[Record]) -> Record:
    """What all records `run` of a file say together, by top-level key."""
    whole: Record = {}
    for record in found:
        if record.get("kind") == "run":
            for name, value in record.items():
                whole[name] = {**whole.get(name, {}), **value} if isinstance(value, dict) else value
    return whole
