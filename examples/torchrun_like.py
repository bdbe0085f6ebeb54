"""Four ranks as torchrun starts them: RANK and WORLD_SIZE in the environment, one process each.

    python examples/torchrun_like.py outputs/four-ranks
    rlship watch outputs/four-ranks --once --sink console

Each rank logs its own loss, weighted by its tokens; a row then holds the mean over the tokens of all ranks.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import rlship

WORLD = 4
STEPS = 20


def worker(directory: str) -> None:
    """One rank. Nothing here says which: rlship finds out from the launcher's variables."""
    rng = random.Random(os.environ["RANK"])
    rlship.init(directory, actor="trainer")
    for step in range(STEPS):
        tokens = rng.randrange(100, 1000)
        rlship.set_step(step)
        rlship.log({"loss": 1.0 / (step + 1) + rng.gauss(0.0, 0.01)}, weight=tokens)
        rlship.record_metric("tokens", tokens, rlship.Reduce.SUM)
        rlship.barrier(step)
    rlship.close()


def launch(directory: str) -> int:
    """Start the ranks, wait for all of them; the first exit code that is not 0, else 0."""
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, directory, "--worker"],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD)},
        )
        for rank in range(WORLD)
    ]
    return next((code for code in [process.wait() for process in ranks] if code), 0)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "outputs/four-ranks"
    if "--worker" in sys.argv:
        worker(target)
    else:
        sys.exit(launch(target))
