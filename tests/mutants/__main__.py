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
COPIED = ("rlship", "formats", "sidecar", "tests", "pyproject.toml", "README.md", "docs")


class Mutant(NamedTuple):
    """`old` must stand exactly once in `file`."""

    what: str
    file: str
    old: str
    new: str
    tests: str


PIPELINE = "tests/pipeline/test_against_reference.py"
MUTANTS = (
    Mutant(
        "a rank's contribution is dropped from a plain sum",
        "sidecar/rlship_sidecar/reduce.py",
        "np.add.accumulate(matrix, axis=0)[-1]",
        "np.add.accumulate(matrix, axis=0)[-2 if len(matrix) > 1 else -1]",
        PIPELINE,
    ),
    Mutant(
        "a rank's contribution is dropped in the general path",
        "sidecar/rlship_sidecar/reduce.py",
        "    for partial in partials[1:]:",
        "    for partial in partials[2:]:",
        PIPELINE,
    ),
    Mutant(
        "a mean is not weighted",
        "formats/rlship_formats/values.py",
        "None if partial.sum is None else partial.sum / partial.w",
        "None if partial.sum is None else partial.sum / partial.n",
        PIPELINE,
    ),
    Mutant(
        "a torn line is taken",
        "sidecar/rlship_sidecar/tail.py",
        "        lines = data[lead:cut].split(b",
        "        cut = len(data) - 1 if data[-1:] == b'}' else cut\n"
        "        lines = data[lead : cut + 1].rstrip(b'\\n').split(b",
        PIPELINE,
    ),
    Mutant(
        "a late record is lost",
        "sidecar/rlship_sidecar/align.py",
        "                    else:\n                        self.soil(step, partial, now)",
        "                    else:\n                        pass",
        PIPELINE,
    ),
    Mutant(
        "a superseded attempt counts again",
        "sidecar/rlship_sidecar/lineage.py",
        "other_age > age and not side_by_side",
        "other_age < age and not side_by_side",
        PIPELINE,
    ),
    Mutant(
        "a restart forgets what was open",
        "sidecar/rlship_sidecar/experiment.py",
        "                    actor.restore(source.writer, batch, now, late=source.missed)",
        "                    pass",
        PIPELINE,
    ),
    Mutant(
        "a step closes before its last rank is done",
        "sidecar/rlship_sidecar/roster.py",
        "if s.waits_to < step and not s.writer.closed",
        "if s.waits_to < step - 1 and not s.writer.closed",
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
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
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
