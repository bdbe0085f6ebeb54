"""Which axes an actor's metrics are charted over, remembered in the state directory.

The client forgets a run's metric definitions when it resumes it, and would send the server a run without them. So they
are made again at every `open`, also those of actors that log no more.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from rlship_sidecar.plainfiles import write_plain

FILE = "wandb-axes.json"


class Axes:
    """The pairs (actor, axis) seen so far, in the order of appearance."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        try:
            self.pairs = [(actor, axis) for actor, axis in json.loads(self._path.read_bytes())]
        except (FileNotFoundError, ValueError):  # a crash can leave it empty: axes come back with their next rows
            self.pairs = []
        self._known = set(self.pairs)

    def add(self, actor: str, axis: str) -> None:
        """Remember a pair; the file is replaced at once if it is new."""
        if (actor, axis) in self._known:
            return
        self._known.add((actor, axis))
        self.pairs.append((actor, axis))
        scratch = self._path.with_suffix(".tmp")
        write_plain(scratch, json.dumps(self.pairs).encode() + b"\n")
        os.replace(scratch, self._path)
