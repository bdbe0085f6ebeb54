"""The examples run as they stand, and their files hold what they promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
LAUNCHER = ("RLSHIP_", "RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "JOB_COMPLETION_INDEX")


def run_example(name: str, directory: Path) -> dict[int, list[dict[str, Any]]]:
    """Run an example and return the records of its files, by rank."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER)}
    subprocess.run([sys.executable, str(EXAMPLES / name), str(directory)], env=environment, check=True, timeout=60)
    records = [
        [json.loads(line) for line in path.read_bytes().splitlines()] for path in (directory / "rlship").glob("*.jsonl")
    ]
    return {lines[0]["rank"]: lines for lines in records}


def of_kind(records: list[dict[str, Any]], kind: str | None) -> list[dict[str, Any]]:
    """The records of a kind; None for metrics."""
    return [record for record in records if record.get("kind") == kind]


def test_three_lines(tmp_path: Path) -> None:
    """Fifty steps are logged and closed by a barrier each, and the loss falls."""
    files = run_example("three_lines.py", tmp_path)

    assert list(files) == [0]
    metrics = of_kind(files[0], None)
    assert [record["step"] for record in metrics] == list(range(50))
    assert [record["step"] for record in of_kind(files[0], "barrier")] == list(range(50))
    assert metrics[-1]["m"]["loss"] < metrics[0]["m"]["loss"]
    assert abs(metrics[-1]["m"]["guess"] - 3.0) < 0.3


def test_torchrun_like(tmp_path: Path) -> None:
    """Four ranks find their rank and world in the environment, and log every step with their tokens as weight."""
    files = run_example("torchrun_like.py", tmp_path)

    assert sorted(files) == [0, 1, 2, 3]
    for records in files.values():
        assert records[0]["world"] == 4
        assert [record["step"] for record in of_kind(records, "barrier")] == list(range(20))
        logged = [(record["step"], key) for record in of_kind(records, None) for key in record["m"]]
        assert sorted(logged) == sorted((step, key) for step in range(20) for key in ("loss", "tokens"))
        weighted = [record["m"]["loss"] for record in of_kind(records, None) if "loss" in record["m"]]
        assert all(value["w"][0] >= 100 for value in weighted)
