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
    alerts,
    documents,
    experiments,
    hook,
    idle,
    ingest,
    latency,
    ledger,
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
    view,
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
    "hook": hook.measure,
    "ledger": ledger.measure,
    "alerts": alerts.measure,
    "view": view.measure,
}
PARTS = {
    "writer": writer.PARTS,
    "restart": restart.PARTS,
    "shapes": shapes.PARTS,
    "live": live.PARTS,
    "network": network.PARTS,
    "view": view.PARTS,
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
    parser.add_argument(
        "--docs",
        type=Path,
        metavar="FILE",
        help="renew the tables of these benchmarks in FILE, as docs/benchmarks.md has",
    )
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

    documented = _documented(parser, options)

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
        word = ":".join([name, *([",".join(parts)] if parts else [])])
        if word in documented:
            table_ = documents.block(word, result, machine(options.dir)[0], f"{before} before, {load()} after")
            text = documents.renewed(options.docs.read_text(encoding="utf-8"), word, table_)
            options.docs.write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _documented(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """The benchmarks whose tables are to be renewed; ends the program if one has no table."""
    if options.docs is None:
        return []
    if options.quick:
        parser.error("--quick measures nothing that belongs in a document: leave out --docs or --quick")
    known = documents.tables_in(options.docs.read_text(encoding="utf-8"))
    for word in options.names:
        if word not in known:
            parser.error(f"{options.docs} has no table of {word}: choose from {' '.join(known)}")
    return known


if __name__ == "__main__":
    main()
