"""Which keys of single ranks a sink shows: as many as the run may come to have, so that a thousand ranks are not ten
thousand charts.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlship_sidecar.plainfiles import write_plain
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.flat import rank_keys
from rlship_sidecar.sinks.options import WrongOption

GLOBAL_REDUCE, PER_RANK_REDUCE = MODES = ("global_reduce", "per_rank_reduce")
PER_RANK_NO_REDUCE = "per_rank_no_reduce"
OPTIONS = ("ranks", "max_keys")
MAX_KEYS = 2000


class KeyBudget:
    """Keys are counted in the order of their appearance, those of figures and histograms too, which are always shown;
    keys of single ranks only if they were among the first `most`.

    What was counted is kept in `path`, so that a row that is shipped again has the same keys.
    """

    def __init__(self, sink: str, path: Path, most: int) -> None:
        self.note = ""
        """What a person should know: that keys are left out."""
        self._sink = sink
        self._path = path
        self._most = most
        try:
            self._known = dict.fromkeys(json.loads(path.read_bytes()))
        except (FileNotFoundError, ValueError):  # a crash can leave it empty: keys come back with their next rows
            self._known = {}
        self._saved = len(self._known)

    def admit(self, row: Row) -> dict[str, float]:
        """The values of single ranks that are shown with this row, by key."""
        known, most = self._known, self._most
        for key in (*row.shipped, *row.shipped_hists):
            if key not in known and len(known) < most:
                known[key] = None
        shown = {}
        for key, value in rank_keys(row):
            if key not in known:
                if len(known) >= most:
                    self._leave_out(key)
                    continue
                known[key] = None
            shown[key] = value
        return shown

    def save(self) -> None:
        """Make what was counted survive this process; before any of it is shown."""
        if len(self._known) == self._saved:
            return
        scratch = self._path.with_suffix(".tmp")
        write_plain(scratch, json.dumps(list(self._known)).encode() + b"\n")
        os.replace(scratch, self._path)
        self._saved = len(self._known)

    def _leave_out(self, key: str) -> None:
        if not self.note:
            self.note = (
                f"the run has {self._most} keys: {key} and all further keys of single ranks are left out; declare "
                f"fewer metrics per_rank, or raise [sink.{self._sink}] max_keys"
            )
            logging.getLogger(f"rlship.sinks.{self._sink}").warning("sink %s: %s", self._sink, self.note)


def budget(sink: str, state_dir: Path, options: Mapping[str, Any]) -> KeyBudget | None:
    """The budget that a sink's options ask for; None: no keys of single ranks are shown."""
    if (options.get("ranks") or GLOBAL_REDUCE) == GLOBAL_REDUCE:
        return None
    most = options.get("max_keys")
    return KeyBudget(sink, state_dir / f"{sink}-keys.json", MAX_KEYS if most is None else most)


def check_budget(sink: str, options: Mapping[str, Any], modes: tuple[str, ...] = MODES) -> None:
    """Raise WrongOption for options of `OPTIONS` that cannot be used; `modes` are those that the sink has."""
    ranks, most = options.get("ranks"), options.get("max_keys")
    if ranks is not None and ranks not in modes:
        raise WrongOption(sink, "ranks", f"is {ranks!r}", ", ".join(modes), str(ranks), modes)
    if most is not None and (type(most) is not int or most < 0):
        raise WrongOption(sink, "max_keys", f"is {most!r}", "how many keys, an integer >= 0")
