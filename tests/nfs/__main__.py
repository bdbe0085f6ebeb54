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
VERSIONS = ("3", "4.2")
LIMIT_S = 900.0


def main() -> int:
    """Run the scenario on each protocol version and print what was found. Exit code 2: this machine cannot run it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--versions", nargs="+", choices=VERSIONS, default=list(VERSIONS))
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
    words = [str(word) for word in (tree, REPOSITORY, python, results, *options.versions)]
    program = shlex.join(["exec", "/bin/sh", str(Path(__file__).with_name("guest.sh")), *words]) + "\n"
    try:
        said = machine.run(tree, kind, machine.needed(tree, REPOSITORY), results, program, LIMIT_S)
    except subprocess.TimeoutExpired:
        said = f"the machine did not end within {LIMIT_S:g} s\n"
    failed = [version for version in options.versions if not show(results, version)]
    if failed:
        print(f"{said}\nfailed: NFS {', '.join(failed)}; everything that was said is in {results}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s in all, on {os.cpu_count()} cores")
    return 1 if failed else 0


def show(results: Path, version: str) -> bool:
    """Print the table of one version. Returns whether all was as it has to be."""
    print(f"\nNFS {version}")
    try:
        told = json.loads((results / f"found-{version}.json").read_text())
    except FileNotFoundError:
        print("  no result")
        return False
    width = max((len(fact) for fact, _ in told["found"]), default=0)
    for fact, figure in told["found"]:
        print(f"  {fact:{width}}  {figure}")
    if told["failure"]:
        print(told["failure"])
    return not told["failure"]


if __name__ == "__main__":
    sys.exit(main())
