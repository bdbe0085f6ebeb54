"""The smallest instrumented loop. Run it, then drain what it wrote into rows:

python examples/three_lines.py outputs/three-lines
rlship watch outputs/three-lines --once --sink console
"""

from __future__ import annotations

import random
import sys

import rlship


def main(directory: str, steps: int = 50) -> None:
    """Fit one number by gradient descent on noisy squares, and log it."""
    rng = random.Random(0)
    guess = 0.0
    rlship.init(directory, actor="trainer")  # line 1: once, in every process
    for step in range(steps):
        error = guess - 3.0 + rng.gauss(0.0, 0.1)
        guess -= 0.1 * error
        rlship.log({"loss": error * error, "guess": guess}, step=step)  # line 2: the familiar call
        rlship.barrier(step)  # line 3: nothing more will be logged for this step
    rlship.close()  # also done at exit


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "outputs/three-lines")
