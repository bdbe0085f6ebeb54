"""The hook and W&B's own package."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from tests.hook.jobs import Place

# What frameworks look at: the package, modules deep inside of it, and what is installed.
LOOK = """
import importlib.metadata, importlib.util, inspect, json, pickle
before = importlib.util.find_spec("wandb").origin
import wandb
import wandb.sdk.lib.runid, wandb.errors
from wandb.sdk.wandb_run import Run
print(json.dumps({
    "names": sorted(name for name in dir(wandb) if name != "_rlship"),
    "version": [wandb.__version__, importlib.metadata.version("wandb")],
    "files": [before, wandb.__file__, wandb.__spec__.origin, inspect.getfile(Run)],
    "loader": [type(wandb.__loader__).__name__, type(wandb.__spec__.loader).__name__],
    "settings": wandb.Settings(mode="disabled").mode,
    "pickled": pickle.loads(pickle.dumps(wandb.Table)) is wandb.Table,
}))
print("rlship" if hasattr(wandb, "_rlship") else "no")
"""


def test_the_package_is_the_one_that_is_installed(place: Place, tmp_path: Path) -> None:
    """Names, version, files and loaders are those that a process has without the hook, and rlship has the package."""
    spec = importlib.util.find_spec("wandb")
    assert spec is not None and spec.origin is not None
    installed = str(Path(spec.origin).parents[1])
    found: list[tuple[dict[str, Any], str]] = []
    for path in ([installed], [str(place.site), installed]):
        environ = place.environment(PYTHONPATH=os.pathsep.join(path), HOME=str(tmp_path), WANDB_ERROR_REPORTING="false")
        done = place.run("-c", LOOK, environ=environ)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        facts, patched = done.stdout.splitlines()
        found.append((json.loads(facts), patched))
    (plain, before), (hooked, after) = found
    assert plain == hooked
    assert (before, after) == ("no", "rlship")
