"""Fuzz each target with so many inputs, coverage-guided: `make fuzz`, or `python -m tests.fuzz [--runs N] [TARGET…]`.

Prints a table for docs/campaigns.md. Ends with 1 where an input made a target fail, took over 10 s or over 1 GiB;
that input is then kept, and named.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.targets import Target, targets

INPUT_S, MEMORY_MB, INPUT_BYTES = 10, 1024, 1 << 15


class Found(NamedTuple):
    """What came of a target: inputs, inputs a second, the most memory in MiB, how many branches and comparisons were
    reached, and what the fuzzer said of an input that failed ("": none did).
    """

    inputs: int
    speed: int
    memory_mb: int
    reached: int
    failed: str


def fuzz(target: Target, runs: int, seed: int, kept: Path) -> Found:
    """Fuzz a target in a process of its own, beginning with its seeds. Inputs that fail are kept in a folder."""
    with tempfile.TemporaryDirectory(prefix="rlship-fuzz-") as corpus:
        for number, text in enumerate(target.seeds):
            (Path(corpus) / f"seed-{number:03}").write_bytes(text)
        limits = (f"-timeout={INPUT_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={INPUT_BYTES}")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.fuzz.one", target.name, corpus),
                *(f"-runs={runs}", f"-seed={seed}", *limits, "-print_final_stats=1"),
                f"-artifact_prefix={kept}/{target.name}-",
            ],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    said = done.stderr
    ended = said if done.returncode else ""
    return Found(
        _stat(said, r"stat::number_of_executed_units: +(\d+)"),
        _stat(said, r"stat::average_exec_per_sec: +(\d+)"),
        _stat(said, r"stat::peak_rss_mb: +(\d+)"),
        _stat(said, r"\bcov: (\d+)"),
        ended[-4000:],
    )


def _stat(said: str, pattern: str) -> int:
    found = re.findall(pattern, said)
    return int(found[-1]) if found else 0


def main() -> int:
    """Fuzz them all, or those that are named."""
    known = list(targets())
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000, help="inputs of each target (default: 200000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=Path("build/fuzz"), help="where inputs that fail are kept")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=", ".join(target.name for target in known))
    asked = parser.parse_args()
    asked.kept.mkdir(parents=True, exist_ok=True)
    failed = 0
    print("| target | inputs | a second | peak memory | reached | failed |\n|---|---|---|---|---|---|", flush=True)
    for target in known:
        if asked.names and target.name not in asked.names:
            continue
        found = fuzz(target, asked.runs, asked.seed, asked.kept)
        failed += bool(found.failed)
        sizes = f"{found.inputs:,} | {found.speed:,} | {found.memory_mb} MiB | {found.reached}"
        print(f"| {target.name} | {sizes} | {'yes' if found.failed else 'none'} |", flush=True)
        if found.failed:
            print(found.failed, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
