"""One round of the fault campaign, and three with a fixed seed. `make soak` runs a longer one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.job import ROOT
from tests.soak.isolation import command
from tests.soak.plan import SIGKILLS

SEED = 5
SHORT_SEED = 1384  # in a dozen seconds 18 of the 21 kinds of faults
MINUTES = 2.25
DEADLINE_S = 1200  # of a machine that has much else to do


def campaign(folder: Path, *options: object) -> dict[str, Any]:
    """The report of a campaign in `folder`, which is clean."""
    arguments = ["--lanes", 1, "--dir", folder, "--out", folder / "out", *options]
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    assert report["clean"]
    assert report["places"].keys() == {"store", "alerts", "wandb", "tensorboard", "jsonl", "writers' word"}
    for counts in report["places"].values():
        assert (counts["lost"], counts["duplicated"], counts["wrong"]) == (0, 0, 0)
    return report


def fewest(report: dict[str, Any]) -> int:
    """How many rows the place of the fewest had to hold; of alerts there are far fewer episodes."""
    return int(min(counts["expected"] for place, counts in report["places"].items() if place != "alerts"))


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S + 20)
def test_a_round_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """In a dozen seconds processes of every kind are struck in many ways; then each sink holds every row once."""
    report = campaign(tmp_path, "--seed", SHORT_SEED, "--round", 0, "--seconds", 12)
    assert report["rounds"] == 1
    assert report["sigkills"] >= 3, report["signals"]
    assert len(report["struck"]) >= 6, report["struck"]
    assert fewest(report) >= 100 and report["places"]["alerts"]["expected"] >= 1


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S + 20)
def test_a_campaign_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Processes of every kind die by SIGKILL, others stand still, the server fails in many ways, files are torn and
    disks are full; then each sink holds every row that the files give, once and with the right figures. Each episode of
    an alert is in one row.
    """
    report = campaign(tmp_path, "--seed", SEED, "--minutes", MINUTES)
    assert report["rounds"] == 3
    # Half of what is planned, or once: a busy machine has fewer processes that could be struck.
    planned = Counter(report["planned"])
    assert report["sigkills"] >= sum(planned[kind] for kind in SIGKILLS) / 2, report["signals"]
    assert report["signals"]["SIGKILL writer"] >= planned["kill writer"] / 2, report["signals"]
    for process in ("sidecar", "wandb child", "wandb-core"):
        assert report["signals"].get(f"SIGKILL {process}", 0) >= 1, report["signals"]
    assert report["server_faults"] >= 1, report["struck"]
    assert sum(count for name, count in report["signals"].items() if name.startswith("SIGSTOP")) >= 2
    struck = Counter(report["struck"])
    assert struck["sidecar upgraded"] == 3
    assert struck["host dies"] >= 1 and struck["rubbish behind a dead writer's last line"] >= 1
    assert struck["jsonl file torn"] + struck["tensorboard file torn"] >= 1
    if command() is not None:  # else the report says why not
        assert struck["state disk full"] + struck["writers' disk full"] >= 1
    else:
        assert "state disk full" in report["not_struck"] or "writers' disk full" in report["not_struck"]

    assert min(report["kinds"][kind] for kind in ("step", "aligned", "clock", "point")) >= 20, report["kinds"]
    assert report["samples"] >= 100 and report["tables"] >= 20

    assert fewest(report) >= 500 and report["places"]["alerts"]["expected"] >= 3
