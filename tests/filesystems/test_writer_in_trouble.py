"""A job logs on a filesystem that becomes full, read-only or unreachable, and recovers.

Each trouble is tried with a `Disk` that fails ("faulty"), and with real filesystems where this machine lets the tests
mount some: the names of the tests that ran say which.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.evidence import check_rows, shipped
from tests.endtoend.job import CLEAN, ROOT
from tests.endtoend.sidecar import rlship
from tests.filesystems.job import AFTER
from tests.filesystems.shares import SHARES, unshare_for
from tests.writer.reading import files, kinds, metrics, whole

POSSIBLE = [
    (share, trouble)
    for share, (_, troubles) in SHARES.items()
    if unshare_for(share) is not None
    for trouble in troubles
]
LATER = {("tmpfs", "full"), ("ext4", "full"), ("ext4", "readonly")}  # the same troubles as those made up


@dataclass(frozen=True)
class Course:
    """What a job said, and what it left in `experiment`: of each file its records."""

    told: dict[str, Any]
    said: str
    experiment: Path
    parts: list[list[dict[str, Any]]]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for part in self.parts for record in part]

    @property
    def gaps(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record.get("kind") == "gap"]

    @property
    def kept(self) -> list[int]:
        """Steps of the regular lines that are in the files."""
        return [record["step"] for record in metrics(self.records) if "loss" in record["m"]]


def course_of(share: str, trouble: str, folder: Path) -> Course:
    """Run the job."""
    before = unshare_for(share)
    assert before is not None
    (folder / "place").mkdir()
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.filesystems.job", share, trouble, folder / "place", folder],
        cwd=ROOT,
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    experiment = folder / "job"
    parts = [[json.loads(line) for line in whole(path) if line] for path in files(experiment)]
    return Course(json.loads(done.stdout), done.stderr, experiment, parts)


@pytest.mark.parametrize(
    ("share", "trouble"), [pytest.param(*one, marks=pytest.mark.long if one in LATER else ()) for one in POSSIBLE]
)
def test_a_job_is_not_disturbed_and_its_losses_are_told(tmp_path: Path, share: str, trouble: str) -> None:
    """No call raises or waits, what did not fit is counted and told by gap records with its steps, lines flow again
    afterwards, the files are well formed, and the sidecar's rows say what is missing.
    """
    course = course_of(share, trouble, tmp_path)
    told = course.told
    assert told["slowest_s"] < 1.0
    assert told["dropped_while_struck"] >= 100
    assert not told["flushed_while_struck"]
    assert told["errors"] > 0
    assert "keeping lines in memory and trying again" in course.said
    assert "again" in course.said.splitlines()[-1]

    assert len(course.kept) == len(set(course.kept))
    logged = set(told["logged"])
    assert set(course.kept) <= logged
    assert set(told["logged"][-AFTER:]) <= set(course.kept)
    lost = logged - set(course.kept)
    assert lost
    stepped = [gap for gap in course.gaps if "from" in gap]
    assert {step for gap in stepped for step in range(gap["from"], gap["to"] + 1)} >= lost_untold_by_nature(
        course, lost
    )
    assert sum(gap["n"] for gap in course.gaps) >= told["dropped"]
    assert [kinds(part)[0] for part in course.parts] == ["open"] * len(course.parts)
    assert kinds(course.parts[-1])[-1] == "close"

    done = rlship(tmp_path / "home", "watch", course.experiment, "--once", "--sink", "jsonl")
    assert done.returncode in (0, 3), done.stderr
    rows = shipped(course.experiment)
    check_rows(course.experiment, rows)
    by_step = {row.unit.index: row for row in rows}
    assert by_step[told["mended"] - 1].coverage.gap > 0
    assert by_step[max(logged)].coverage.gap == 0


def lost_untold_by_nature(course: Course, lost: set[int]) -> set[int]:
    """The lost steps that have to be told: not those that stood safe in a filesystem that is no more."""
    first = min(course.kept)
    return {step for step in lost if step >= course.told["struck"]} if first > 0 else lost
