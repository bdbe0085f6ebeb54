"""Break one thing at a time in a copy of the tree and see that the tests fail.

Each mutant names what is broken, the text that is replaced, and the tests that have to notice. Ends with 1 if one
survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

TREE = Path(__file__).resolve().parents[2]
COPIED = ("rlship", "formats", "sidecar", "tests", "examples", "pyproject.toml", "README.md", "docs")


class Mutant(NamedTuple):
    """`old` must stand exactly once in `file`."""

    what: str
    file: str
    old: str
    new: str
    tests: str


PIPELINE = "tests/pipeline/test_against_reference.py"
STREAMS = "tests/pipeline/test_streams_against_reference.py"
READER = "tests/pipeline/test_decoder_equals_reader.py"
MUTANTS = (
    Mutant(
        "a metrics line hands no time on",
        "sidecar/rlship_sidecar/decode/decoder.py",
        "        reader.t = t\n        if t > batch.newest_t:",
        "        if t > batch.newest_t:",
        READER,
    ),
    Mutant(
        "the quick way keeps to a schema that a define has changed",
        "sidecar/rlship_sidecar/decode/decoder.py",
        "            self._forget()\n            batch.governing",
        "            batch.governing",
        READER,
    ),
    Mutant(
        "the quick way takes a line of a bad step",
        "sidecar/rlship_sidecar/decode/decoder.py",
        "not 0 <= step <= MAX_STEP):",
        "not -2 <= step <= MAX_STEP):",
        READER,
    ),
    Mutant(
        "a clock record that proves nothing counts",
        "sidecar/rlship_sidecar/streams/clocks.py",
        "if not host or record.client_time:",
        "if not host:",
        "tests/spec/test_rows.py",
    ),
    Mutant(
        "a late barrier revises no aligned row",
        "sidecar/rlship_sidecar/streams/affected.py",
        "            if place is None or place <= self.frontier.place:",
        "            if place is None:",
        STREAMS,
    ),
    Mutant(
        "the time of steps that are done again goes to a later step",
        "sidecar/rlship_sidecar/streams/timeline.py",
        "before.until if follows else max(before.until, found.since)",
        "before.until",
        "tests/spec/test_rows.py",
    ),
    Mutant(
        "a late word about a clock moves no line",
        "sidecar/rlship_sidecar/streams/streaming.py",
        "                if shift.concerns(line.t):",
        "                if shift.concerns(line.t) and shift.low > line.t:",
        STREAMS,
    ),
    Mutant(
        "a rank that comes back is still missing",
        "sidecar/rlship_sidecar/streams/actor.py",
        "        if min(before, after) > self._closed_to() and not self.frontier.ahead:",
        "        if before <= after:",
        STREAMS,
    ),
    Mutant(
        "a line before the frontier is forgotten",
        "sidecar/rlship_sidecar/streams/actor.py",
        "        closed = self.affected.window(index, now)\n",
        "        closed = self.frontier.covers(index)\n",
        STREAMS,
    ),
    Mutant(
        "waiting lines are lost over a restart",
        "sidecar/rlship_sidecar/streams/streaming.py",
        "        streams.recover(writer, self._files.lines(writer, [(beyond + least - 1.0, math.inf)]), now)",
        "        streams.recover(writer, [], now)",
        STREAMS,
    ),
    Mutant(
        "a rank's contribution is dropped from a plain sum",
        "sidecar/rlship_sidecar/reduce/unit.py",
        "np.add.accumulate(matrix, axis=0)[-1]",
        "np.add.accumulate(matrix, axis=0)[-2 if len(matrix) > 1 else -1]",
        "tests/pipeline/test_reduce.py",
    ),
    Mutant(
        "a rank's contribution is dropped in the general path",
        "sidecar/rlship_sidecar/reduce/general.py",
        "        for part in self.parts[1:]:",
        "        for part in self.parts[2:]:",
        PIPELINE,
    ),
    Mutant(
        "a mean is not weighted",
        "formats/rlship_formats/values.py",
        "None if moments.sum is None else moments.sum / moments.w",
        "None if moments.sum is None else moments.sum / moments.n",
        PIPELINE,
    ),
    Mutant(
        "a quantile is the observation below it",
        "formats/rlship_formats/quantiles.py",
        "        found = low + f * step",
        "        found = low + 0.0 * step",
        "tests/pipeline/test_quantiles.py",
    ),
    Mutant(
        "merging sketches forgets the negative side",
        "formats/rlship_formats/sketch.py",
        "((self.positive, other.positive), (self.negative, other.negative))",
        "((self.positive, other.positive),)",
        "tests/pipeline/test_quantiles.py",
    ),
    Mutant(
        "whole columns are put in order by ranks rather than by value",
        "sidecar/rlship_sidecar/reduce/unit.py",
        "np.sort(clean.T[wanted], axis=1)",
        "clean.T[wanted]",
        "tests/pipeline/test_reduce.py",
    ),
    Mutant(
        "a rate is over the time of another rank",
        "sidecar/rlship_sidecar/reduce/rates.py",
        "found = newest.get(segment.writer.root)",
        "found = next(iter(newest.values()), None)",
        "tests/pipeline/test_rates.py",
    ),
    Mutant(
        "the greatest rank is the last of equal ones",
        "sidecar/rlship_sidecar/reduce/per_rank.py",
        "most = values.index(max(values))",
        "most = len(values) - 1 - list(values)[::-1].index(max(values))",
        "tests/pipeline/test_per_rank.py",
    ),
    Mutant(
        "keys of single ranks have no limit",
        "sidecar/rlship_sidecar/sinks/budget.py",
        "                if len(known) >= limit:",
        "                if False:",
        "tests/sinks/test_budget.py",
    ),
    Mutant(
        "a torn line is taken",
        "sidecar/rlship_sidecar/tail/tail.py",
        '[data.count(b"\\n", 0, lead) : -1]\n',
        "[data.count(b\"\\n\", 0, lead) : None if data[-1:] == b'}' else -1]\n"
        "        cut = len(data) - 1 if data[-1:] == b'}' else cut\n",
        PIPELINE,
    ),
    Mutant(
        "a late record is lost",
        "sidecar/rlship_sidecar/align/actor.py",
        "                self.mark_dirty(step, now, partial=partial)\n                return None",
        "                return None",
        PIPELINE,
    ),
    Mutant(
        "ranks that a smaller attempt has not count again",
        "sidecar/rlship_sidecar/align/lineage.py",
        "world <= rank and its == submission and highest > attempt",
        "world < rank and its == submission and highest > attempt",
        "tests/pipeline/test_roster.py",
    ),
    Mutant(
        "a superseded attempt counts again",
        "sidecar/rlship_sidecar/align/lineage.py",
        "        latest = max(latest, t)\n",
        "        latest = min(latest, t)\n",
        PIPELINE,
    ),
    Mutant(
        "a restart forgets what was open",
        "sidecar/rlship_sidecar/pipeline/experiment.py",
        "                    actor.restore(source.writer, batch, now, late=source.missed, but=taken_in)",
        "                    pass",
        PIPELINE,
    ),
    Mutant(
        "a step closes before its last rank is done",
        "sidecar/rlship_sidecar/align/roster.py",
        "and s.waits_to < step and not s.writer.closed",
        "and s.waits_to < step - 1 and not s.writer.closed",
        "tests/pipeline",
    ),
    Mutant(
        "the writer imports something outside the standard library",
        "rlship/buffer.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport numpy\n",
        "tests/guards/test_imports.py tests/guards/test_wheel.py",
    ),
    Mutant(
        "a sink skips a row",
        "sidecar/rlship_sidecar/sinks/jsonl.py",
        "for row in rows",
        "for row in rows[1:]",
        "tests/sinks/test_jsonl.py",
    ),
)


def survives(mutant: Mutant) -> bool:
    """Whether the tests pass on a tree with this fault."""
    with tempfile.TemporaryDirectory(prefix="rlship-mutant-") as folder:
        tree = Path(folder)
        for name in COPIED:
            source = TREE / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tree / name)
        file = tree / mutant.file
        text = file.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(
                f"{mutant.what}: the text to replace stands {text.count(mutant.old)} times in {mutant.file}"
            )
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        paths = os.pathsep.join(str(tree / part) for part in ("", "sidecar", "formats"))
        hasty = ("-p", "no:cacheprovider", "-p", "tests.mutants.hasty")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--all-cases", *hasty, *mutant.tests.split()]
        done = subprocess.run(
            command, cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False
        )
        return done.returncode == 0


def main() -> int:
    """Try them all."""
    wanted = sys.argv[1:]
    survivors = 0
    for mutant in MUTANTS:
        if wanted and not any(word in mutant.what for word in wanted):
            continue
        alive = survives(mutant)
        survivors += alive
        print(f"{'SURVIVED' if alive else 'noticed '}  {mutant.what}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
