"""Which runs a store has made on a server, remembered in the state directory.

Two things follow from it that neither the server nor an offline folder could tell. The id of a run that was deleted on
the server cannot be used again, so its rows go to a successor, `<run_id>-2`. And an offline run must not have the id of
an online one: `wandb sync` would append all its rows to that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rlship_sidecar.plainfiles import make_plain

FILE = "wandb-runs.json"


class Runs:
    """The runs of one `run_id` at one place, such as server, entity and project in one text."""

    def __init__(self, state_dir: Path, place: str, run_id: str) -> None:
        self._path = state_dir / FILE
        self._key = f"{place}/{run_id}"
        self._base = run_id
        try:
            self._all: dict[str, Any] = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):  # what a crash or a full disk left is as good as nothing
            self._all = {}
        known = self._all.get(self._key, {})
        self.made: list[str] = list(known.get("made", ()))
        """Ids of runs that were opened on the server, in the order of their making."""
        self.current: str = known.get("next") or (self.made[-1] if self.made else run_id)
        """The id of the run to open."""

    def making(self) -> None:
        """Remember durably that the current run may exist on the server from now on."""
        if self.current not in self.made:
            self.made.append(self.current)
            self._save(None)

    def replace(self) -> str:
        """Choose the id of the current run's successor, remember it durably and return it."""
        self.current = free_id(self._base, self.made)
        self._save(self.current)
        return self.current

    def _save(self, following: str | None) -> None:
        self._all[self._key] = {"made": self.made, "next": following}
        scratch = self._path.with_suffix(".tmp")
        with open(make_plain(scratch), "wb") as file:
            file.write(json.dumps(self._all).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, self._path)


def free_id(run_id: str, taken: Collection[str]) -> str:
    """The first of `run_id`, `<run_id>-2`, `<run_id>-3`, … that is not `taken`."""
    number, name = 1, run_id
    while name in taken:
        number += 1
        name = f"{run_id}-{number}"
    return name
