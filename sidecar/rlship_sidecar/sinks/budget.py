"""Limits how many keys of single ranks a sink shows, so that a thousand ranks do not make ten thousand charts."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlship_sidecar import state_file
from rlship_sidecar.rows import POINT, Row, split_rank
from rlship_sidecar.sinks.names import rank_keys
from rlship_sidecar.sinks.options import WrongOption

GLOBAL_REDUCE, PER_RANK_REDUCE = MODES = ("global_reduce", "per_rank_reduce")
PER_RANK_NO_REDUCE = "per_rank_no_reduce"
OPTIONS = ("ranks", "max_keys")
MAX_KEYS = 2000
LOOKED_AT_ROWS = 10


class RankValues:
    """Notices that a sink is to show values of single ranks, but that rows have none."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._rows = 0
        self._found = self._told = False

    def look(self, row: Row) -> str:
        """Look at one more row that is shipped; the notice for people, "" as long as there is nothing to say."""
        self._found = self._found or bool(row.per_rank)
        # Points never have such values, and a row of coverage alone proves nothing.
        self._rows += row.unit.kind != POINT and bool(row.values)
        return self._notice() if self._rows >= LOOKED_AT_ROWS else ""

    def end(self) -> None:
        """The sink closes: say it after fewer rows, too."""
        if self._rows:
            self._notice()

    def _notice(self) -> str:
        if self._found:
            return ""
        note = (
            f'ranks = "{PER_RANK_REDUCE}" shows nothing more, because no row has values of single ranks: declare '
            "metrics with define(…, per_rank=True), or set per_rank = true in rlship.toml"
        )
        if not self._told:
            self._told = True
            logging.getLogger(f"rlship.sinks.{self._sink}").warning("sink %s: %s", self._sink, note)
        return note


def _ranked(key: str) -> str:
    """The key of whose ranks one has this key; "" for one that is no rank's, such as a metric's `rate`."""
    base, _, rank = key.rpartition("/r")
    return "" if split_rank(rank) is None else base


class KeyBudget:
    """Counts keys in the order of their appearance, and limits those of single ranks.

    Keys of values and histograms count too, but are always shown. A key of a single rank is shown only if it was among
    the first `max_keys`. The count is kept in `path`, so that a row that is shipped again has the same keys.
    """

    def __init__(self, sink: str, path: Path, max_keys: int) -> None:
        self.note = ""
        """A notice for people that keys are left out, or that no row has values of single ranks."""
        self._left_out = ""
        self._ranks = RankValues(sink)
        self._sink = sink
        self._path = path
        self._max_keys = max_keys
        try:
            self._known = dict.fromkeys(json.loads(path.read_bytes()))
        except (FileNotFoundError, ValueError):  # keys come back with their next rows
            self._known = {}
        self._saved = len(self._known)

    def admit(self, row: Row) -> dict[str, float]:
        """The values of single ranks to show with this row, by key."""
        known, limit = self._known, self._max_keys
        for key in (*row.shipped, *row.shipped_hists):
            if key not in known and len(known) < limit:
                known[key] = None
        shown = {}
        for key, value in rank_keys(row):
            if key not in known:
                if len(known) >= limit:
                    self._leave_out(key)
                    continue
                known[key] = None
            shown[key] = value
        self.note = self._left_out or self._ranks.look(row)
        return shown

    def known(self, row: Row) -> dict[str, float]:
        """Those values of single ranks whose keys were admitted before, by key."""
        return {key: value for key, value in rank_keys(row) if key in self._known}

    def withdrawn(self, row: Row) -> list[str]:
        """Those keys of single ranks that were admitted before, of metrics that this revision changed, and that it
        lacks.
        """
        if row.arrival.revision == 0:
            return []
        changed, there = {*row.arrival.changed}, {key for key, _ in rank_keys(row)}
        there.update(row.values, row.hists)
        return [key for key in self._known if _ranked(key) in changed and key not in there]

    def save(self) -> None:
        """Save the count durably, before any of the new keys is shown."""
        if len(self._known) == self._saved:
            return
        state_file.replace(self._path, json.dumps(list(self._known)).encode() + b"\n")
        self._saved = len(self._known)

    def end(self) -> None:
        """The sink closes."""
        self._ranks.end()

    def _leave_out(self, key: str) -> None:
        if not self._left_out:
            self._left_out = (
                f"the run has {self._max_keys} keys: {key} and all further keys of single ranks are left out; declare "
                f"fewer metrics per_rank, or raise [sink.{self._sink}] max_keys"
            )
            logging.getLogger(f"rlship.sinks.{self._sink}").warning("sink %s: %s", self._sink, self._left_out)


def budget(sink: str, state_dir: Path, options: Mapping[str, Any]) -> KeyBudget | None:
    """The budget that a sink's options ask for; None if the sink shows no keys of single ranks."""
    if (options.get("ranks") or GLOBAL_REDUCE) == GLOBAL_REDUCE:
        return None
    max_keys = options.get("max_keys")
    return KeyBudget(sink, state_dir / f"{sink}-keys.json", MAX_KEYS if max_keys is None else max_keys)


def check_budget(sink: str, options: Mapping[str, Any], modes: tuple[str, ...] = MODES) -> None:
    """Raise WrongOption for options of `OPTIONS` that cannot be used; `modes` are those of the sink."""
    ranks, max_keys = options.get("ranks"), options.get("max_keys")
    if ranks is not None and ranks not in modes:
        raise WrongOption(sink, "ranks", f"is {ranks!r}", ", ".join(modes), str(ranks), modes)
    if max_keys is not None and (type(max_keys) is not int or max_keys < 0):
        raise WrongOption(sink, "max_keys", f"is {max_keys!r}", "how many keys, an integer >= 0")
