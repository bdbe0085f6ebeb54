"""More files than may be open at once."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.endtoend.evidence import shipped
from tests.endtoend.hostile import line, metrics, opened
from tests.endtoend.sidecar import watching

RANKS = 10_000
STEPS = 3
DESCRIPTORS = 256


@pytest.mark.long
def test_ten_thousand_files_with_few_descriptors(tmp_path: Path) -> None:
    """10,000 ranks that grow while a daemon with 256 descriptors looks on: every row has every rank's value, and no
    descriptor is left behind from one step to the next.
    """
    experiment = tmp_path / "job"
    folder = experiment / "rlship"
    folder.mkdir(parents=True)
    names = [f"trainer-0-r{rank}.jsonl" for rank in range(RANKS)]
    for rank, name in enumerate(names):
        (folder / name).write_bytes(opened("trainer", id=f"w{rank}", rank=rank, world=RANKS) + b"\n")
    with watching(experiment, home=tmp_path / "home", nofile=DESCRIPTORS) as sidecar:
        open_files = []
        for step in range(STEPS):
            for rank, name in enumerate(names):
                with open(folder / name, "ab") as file:
                    file.write(metrics(step, loss=rank, seen=1) + b"\n" + line(kind="barrier", step=step) + b"\n")
            sidecar.until(lambda step=step: len(shipped(experiment)) == step + 1)
            open_files.append(len(os.listdir(f"/proc/{sidecar.process.pid}/fd")))
        assert resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE) == (DESCRIPTORS, DESCRIPTORS)
        assert max(open_files) <= open_files[0] + 2 < DESCRIPTORS
        assert sidecar.stop() == 0, sidecar.said()
        assert "Too many open files" not in sidecar.said()
    for step, row in enumerate(shipped(experiment)):
        assert (row.unit.index, row.coverage.ranks, row.coverage.expected) == (step, (f"0.0-{RANKS - 1}",), RANKS)
        assert (row.values["trainer/loss"], row.values["trainer/seen"]) == ((RANKS - 1) / 2, 1.0)
        assert row.arrival.closed == "complete"
