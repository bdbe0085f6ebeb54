"""Runs the subjects of a comparison in turn, each time in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 300.0

Figures = dict[str, float]


class SubjectFailed(RuntimeError):
    """A measured process ended with an error; the message is its output."""


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of rlship and wandb, which would change the measurement."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RLSHIP_", "WANDB_"))}


def in_child(module: str, subject: str, arguments: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Figures:
    """Call `module.subject(**arguments)` in a fresh interpreter; returns its results. Raises SubjectFailed."""
    command = [sys.executable, "-m", "benchmarks.child", module, subject, json.dumps(arguments)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment() | dict(env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    if done.returncode:
        raise SubjectFailed(f"{module}.{subject}({arguments}) ended with {done.returncode}:\n{done.stderr[-4000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def in_turn(subjects: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Run all subjects one after the other (A B C A B C …), so that disturbances of the machine affect them all."""
    found: dict[str, list[Figures]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            found[name].append(subject())
    return found


def column(runs: list[Figures], name: str) -> list[float]:
    """One result of every round."""
    return [run[name] for run in runs]
