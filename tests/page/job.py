"""A rank of a small job that does one step for each line of its standard input, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rlship

WORLD = 4
SLOW = 2  # the rank that works longest
NEVER = 10**9
SAMPLES = 24  # of a step, of which a row shows some
RLSHIP = (sys.executable, "-m", "rlship")


def metrics(step: int, rank: int, parts: int) -> dict[str, float]:
    """What a rank logs at a step; its KL is another one from step `parts` on."""
    return {
        "reward/total": 1 - 1 / (step + 2),
        "train/grad_norm": 1.0 + (9.0 if step == 7 else 0.01 * step),
        "train/kl_ref": 0.001 * step + (0.5 if step >= parts else 0.0),
        "bal/rank_tokens": 1000.0 + 100 * rank,
        "bal/rank_active_s": 2.0 if rank == SLOW else 1.0,
        "mem/allocated": 2.0**34 + 2.0**30 * rank,
        "mem/reserved": 2.0**35,
        "mem/capacity": 2.0**36,
    }


def main() -> None:
    directory, rank, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = {"lr": 1e-6 if parts == NEVER else 2e-6, "note": "<b>bold</b>"} if rank == 0 else None
    rlship.init(directory, actor="trainer", rank=rank, world=WORLD, config=config)
    for line in sys.stdin:
        step = int(line)
        rlship.set_step(step)
        for stage in ("rollout", "reward", "update"):
            with rlship.span(stage):
                pass
        rlship.log(metrics(step, rank, parts))
        if rank == 0:
            for n in range(SAMPLES):
                row = {"prompt": f"{n // 6} + {step}", "response": f"it is {n}", "tokens": ["it", "is"], "mask": [0, 1]}
                rlship.sample("rollouts", {**row, "logp_diff": [0.0, -0.5]}, score=float(n))
            rlship.event("saved", path=f"step-{step}")
        rlship.barrier(step)
        rlship.flush()
        print(step, flush=True)
    rlship.close()


class Job:
    """The ranks of the job, each a process."""

    def __init__(self, folder: Path, parts: int) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.page.job", os.fspath(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.ranks = [subprocess.Popen([*command, str(rank), str(parts)], **pipes) for rank in range(WORLD)]

    def steps(self, first: int, last: int) -> None:
        """Have all living ranks do these steps."""
        living = [rank for rank in self.ranks if rank.poll() is None]
        for step in range(first, last + 1):
            for rank in living:
                assert rank.stdin is not None
                rank.stdin.write(f"{step}\n")
                rank.stdin.flush()
            for rank in living:
                assert rank.stdout is not None and rank.stdout.readline() == f"{step}\n"

    def kill(self, rank: int) -> None:
        """Kill a rank, as the kernel does."""
        self.ranks[rank].kill()
        self.ranks[rank].wait()

    def end(self) -> None:
        """Let the ranks end, and wait for them."""
        for rank in self.ranks:
            rank.communicate()


@contextmanager
def job(folder: Path, parts: int = NEVER) -> Iterator[Job]:
    """A job that ends with the block."""
    started = Job(folder, parts)
    try:
        yield started
    finally:
        started.end()


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command of rlship that goes on until the end of the block."""
    process = subprocess.Popen([*RLSHIP, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def viewing(folder: Path) -> Iterator[str]:
    """The link of a server of `rlship view`."""
    with command("view", "--no-open", "--port", "0", os.fspath(folder)) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


if __name__ == "__main__":
    main()
