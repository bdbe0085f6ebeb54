"""`python -m tests.steady --minutes 120`: a steady job, outages of the server, and whether memory, files and lag stay.

Prints a table for docs/campaigns.md. Ends with 1 where memory grew by over 5 %, open files by any, a row is missing,
or the p99 of the lag is not under a second to the store, and under two to the server outside outages: the client sends
once a second.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.steady.course import quantile, table
from tests.steady.run import Plan, run

MOST_GROWTH, STORE_LAG_S, SERVER_LAG_S = 1.05, 1.0, 2.0


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rate", type=float, default=5.0, help="steps a second (default: 5)")
    parser.add_argument("--dir", default=None, help="where to work (default: the temporary folder)")
    asked = parser.parse_args()
    plan = Plan(asked.minutes * 60, asked.ranks, asked.rate)
    with tempfile.TemporaryDirectory(prefix="rlship-steady-", dir=asked.dir) as folder:
        course = run(plan, Path(folder))
    print(table(course))
    kept = {
        "memory": course.growth("memory_mb").ratio <= MOST_GROWTH,
        "open files": course.growth("files").ratio <= 1.0,
        "rows": not course.missing(),
        "lag to the store": quantile(course.stored_lags(), 0.99) < STORE_LAG_S,
        "lag to the server": quantile(course.arrival_lags(), 0.99) < SERVER_LAG_S,
    }
    print("\nNot kept: " + (", ".join(name for name, ok in kept.items() if not ok) or "nothing"))
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
