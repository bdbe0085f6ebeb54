"""The folder to watch may be named relative to where one stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rlship_sidecar.sinks.wandb.file import HeldRows
from tests.loopback.backend import isolated
from tests.reference.building import barrier, file, log


def test_a_relative_folder_holds_the_offline_run(tmp_path: Path) -> None:
    """`rlship watch out/x` leaves the offline W&B run below out/x, whole: what is reported as delivered is there."""
    writers = tmp_path / "out" / "x" / "rlship"
    writers.mkdir(parents=True)
    (writers / "a.jsonl").write_bytes(file(*(r for s in range(5) for r in (log(s, loss=1.0), barrier(s)))))
    command = [sys.executable, "-m", "rlship", "watch", "out/x", "--once", "--sink", "wandb"]
    env = {**os.environ, **isolated(tmp_path / "home"), "WANDB_MODE": "offline"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = writers.glob("state/wandb/offline-run-*/run-*.wandb")
    assert HeldRows(run).update().rows == 5
