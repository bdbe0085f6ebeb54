"""`python -m benchmarks [NAME…]`: measure, and print each result beside what it is compared with.

A benchmark with parts runs some of them as NAME:PART,PART: `shapes:plain,spans`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from benchmarks import (
    experiments,
    idle,
    ingest,
    latency,
    live,
    memory,
    network,
    query,
    replay,
    restart,
    shapes,
    streams,
    sysmon,
    tracing,
    writer,
)
from benchmarks.report import Result, load, machine, table

BENCHMARKS: dict[str, Callable[..., Result]] = {
    "writer": writer.measure,
    "tracing": tracing.measure,
    "ingest": ingest.measure,
    "latency": latency.measure,
    "idle": idle.measure,
    "experiments": experiments.measure,
    "streams": streams.measure,
    "memory": memory.measure,
    "restart": restart.measure,
    "replay": replay.measure,
    "sysmon": sysmon.measure,
    "query": query.measure,
    "shapes": shapes.measure,
    "live": live.measure,
    "network": network.measure,
}
PARTS = {
    "writer": writer.PARTS,
    "restart": restart.PARTS,
    "shapes": shapes.PARTS,
    "live": live.PARTS,
    "network": network.PARTS,
}


def main() -> None:
    """Run the benchmarks named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; default all: {' '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="a few seconds each, results without meaning")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where files go (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE as well")
    options = parser.parse_args()
    chosen: dict[str, list[str]] = {}
    for word in options.names or BENCHMARKS:
        name, _, parts = word.partition(":")
        chosen[name] = parts.split(",") if parts else []
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}: choose from {' '.join(BENCHMARKS)}")
        for part in chosen[name]:
            if part not in PARTS.get(name, ()):
                parser.error(f"{name} has no part {part!r}: choose from {' '.join(PARTS.get(name, ())) or 'none'}")

    print("\n".join(machine(options.dir)), end="\n\n")
    found: dict[str, object] = {"machine": machine(options.dir), "quick": options.quick}
    for name, parts in chosen.items():
        before = load()
        scratch = Path(tempfile.mkdtemp(prefix=f"rlship-bench-{name}-", dir=options.dir))
        try:
            measure = partial(BENCHMARKS[name], parts=parts) if parts else BENCHMARKS[name]
            result = measure(scratch, options.quick)
            if options.quick:
                # Results without meaning reach or miss no aim.
                result = replace(result, findings=[replace(one, reached=None) for one in result.findings])
        finally:
            shutil.rmtree(scratch)
        # The files must not burden the disk while the next benchmark measures.
        os.sync()
        print(f"== {name}: {result.title}")
        print(textwrap.fill(result.method, 118, initial_indent="   ", subsequent_indent="   "))
        print(f"   {before} before, {load()} after", end="\n\n")
        print(table(result.findings), end="\n\n", flush=True)
        found[name] = asdict(result) | {"before": before, "after": load()}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
