"""`make nfs`: rlship on NFS, in a virtual machine with a file server and two clients of it. Nothing is installed."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.nfs import machine
from tests.nfs.packages import Missing, unpacked

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = ("3", "4.2", "4.2:0.5")  # protocol versions, or one with the delay of each answer in ms
LIMIT_S = 1800.0
MOST_OFF = 0.05  # of the guest's clock against this host's


def main() -> int:
    """Run the scenario in each case and print what was found. Exit code 2: this machine cannot run it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="VERSION or VERSION:DELAY_MS")
    arguments.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "nfs", help="packages and results")
    options = arguments.parse_args()
    folder: Path = options.folder.resolve()
    results = folder / "results"
    began = time.monotonic()
    try:
        tree = unpacked(folder)
        kind = machine.accelerator(tree)
    except Missing as error:
        print(f"make nfs cannot run here: {error}", file=sys.stderr)
        return 2
    for old in results.glob("*"):
        old.unlink()
    print(f"QEMU with {kind}, the kernel and the NFS server of Debian's packages in {tree}", flush=True)
    python = Path(sys.prefix).resolve() / "bin" / "python"
    words = [str(word) for word in (tree, REPOSITORY, python, results, *options.cases)]
    program = shlex.join(["exec", "/bin/sh", str(Path(__file__).with_name("guest.sh")), *words]) + "\n"
    try:
        said = machine.run(tree, kind, machine.needed(tree, REPOSITORY), results, program, LIMIT_S)
    except subprocess.TimeoutExpired:
        said = f"the machine did not end within {LIMIT_S:g} s\n"
    failed = [case for case in options.cases if not show(results, case)]
    if failed:
        print(f"{said}\nfailed: NFS {', '.join(failed)}; everything that was said is in {results}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s in all, on {os.cpu_count()} cores")
    return 1 if failed else 0


def show(results: Path, case: str) -> bool:
    """Print the table of one case. Returns whether all was as it has to be."""
    version, _, delay = case.partition(":")
    print(f"\nNFS {version}" + (f", each answer {delay} ms late" if delay else ""))
    try:
        told = json.loads((results / f"found-{case}.json").read_text())
    except FileNotFoundError:
        print("  no result")
        return False
    rate = clock_rate(results, case)
    told["found"].append(("seconds of the machine's clock in one of this host's", f"{rate:.3f}"))
    if abs(rate - 1) > MOST_OFF:
        told["failure"] += f"the machine's clock runs {rate:.2f} times as fast as this host's: its figures are void\n"
    width = max((len(fact) for fact, _ in told["found"]), default=0)
    for fact, figure in told["found"]:
        print(f"  {fact:{width}}  {figure}")
    if told["failure"]:
        print(told["failure"])
    return not told["failure"]


def clock_rate(results: Path, case: str) -> float:
    """How many seconds the guest counted in one second of this host: it says its time in two files, whose own times are
    this host's.
    """
    began, ended = (results / f"clock-{case}-{when}" for when in ("began", "ended"))
    guest = float(ended.read_text()) - float(began.read_text())
    return guest / (ended.stat().st_mtime - began.stat().st_mtime)


if __name__ == "__main__":
    sys.exit(main())
