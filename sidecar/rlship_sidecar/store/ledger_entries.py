"""The ledger in the store: every entry, and the verdict on each group with the step where it has its row.

Groups without a step of their own have `tau`, the time from which they are decided; `placed_t` is the time of the
trainer's entry at or after it that gave them their step, null where the trainer has not gone on so far.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.store.tables import StoreTables

_GROUP, _WEIGHTS = "g", "w"  # before keys, so that a version is no group


class SavedEntry(NamedTuple):
    """A line of the table, but for its key."""

    file: str
    offset: int
    segment: int
    hop: str
    t: float
    step: int | None
    body: bytes


class SavedGroup(NamedTuple):
    """A group's place and verdict. `step` is None while it has no row."""

    key: str
    step: int | None
    tau: float | None
    placed_t: float | None
    verdict: bytes


class Trained(NamedTuple):
    """An entry of the trainer that has a step."""

    step: int
    t: float
    file: str


def key_of(hop: str, key: str, weights: str) -> str:
    """The key in the tables."""
    return (_WEIGHTS if hop == weights else _GROUP) + key


def is_weights(key: str) -> bool:
    """Whether a key in the tables is that of a version of the weights."""
    return key.startswith(_WEIGHTS)


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    """The tables `ledger` and `ledger_groups`."""

    ledger: StoreTables

    def add(self, entries: Sequence[tuple[str, SavedEntry]]) -> None:
        """Keep entries, each with its key."""
        self.ledger.change_many(
            "insert or replace into ledger values (?, ?, ?, ?, ?, ?, ?, ?)", [(key, *entry) for key, entry in entries]
        )

    def of(self, key: str) -> list[SavedEntry]:
        """All entries of a key."""
        found = self.ledger.ask("select file, offset, segment, hop, t, step, body from ledger where key = ?", (key,))
        return [SavedEntry(*one) for one in found]

    def keys_of_files(self, files: Collection[str]) -> list[str]:
        """The keys of which some files have entries."""
        marks = ",".join("?" * len(files))
        found = self.ledger.ask(f"select distinct key from ledger where file in ({marks})", tuple(files))
        return [key for (key,) in found]

    def files(self) -> list[str]:
        """The files that have entries."""
        return [file for (file,) in self.ledger.ask("select distinct file from ledger")]

    def any(self) -> bool:
        """Whether there is any entry."""
        return bool(self.ledger.ask("select 1 from ledger limit 1"))

    # The trainer's steps -------------------------------------------------------------------------------------------

    def first_trained(self, t: float) -> Trained | None:
        """The trainer's first entry at or after a time."""
        return self._trained("t >= ? order by t, step", t)

    def last_trained(self) -> Trained | None:
        """The trainer's last entry."""
        return self._trained("t > ? order by t desc, step desc", -1.0)

    def trained_at(self, step: int) -> Trained | None:
        """The trainer's first entry of a step."""
        return self._trained("step = ? order by t, file", step)

    def newest_of(self, step: int) -> float:
        """The greatest time of the trainer's entries of a step, 0 without any."""
        found = self.ledger.ask("select max(t) from ledger where hop = 'trained' and step = ?", (step,))
        return float(found[0][0] or 0.0)

    def _trained(self, condition: str, value: float) -> Trained | None:
        found = self.ledger.ask(
            f"select step, t, file from ledger where hop = 'trained' and step is not null and {condition} limit 1",
            (value,),
        )
        return Trained(*found[0]) if found else None

    # Groups --------------------------------------------------------------------------------------------------------

    def group(self, key: str) -> SavedGroup | None:
        """A group's place and verdict."""
        found = self.ledger.ask("select key, step, tau, placed_t, verdict from ledger_groups where key = ?", (key,))
        return SavedGroup(*found[0]) if found else None

    def put(self, group: SavedGroup) -> None:
        """Keep a group's place and verdict."""
        self.ledger.change("insert or replace into ledger_groups values (?, ?, ?, ?, ?)", group)

    def at(self, step: int) -> list[tuple[bytes, bool]]:
        """What the row of a step is made of: each verdict, and whether the trainer went on after the group's time."""
        found = self.ledger.ask("select verdict, placed_t is not null from ledger_groups where step = ?", (step,))
        return [(verdict, bool(passed)) for verdict, passed in found]

    def keys_at(self, step: int) -> list[str]:
        """The keys that have their row at a step."""
        return [key for (key,) in self.ledger.ask("select key from ledger_groups where step = ?", (step,))]

    def due_by(self, t: float) -> list[SavedGroup]:
        """Groups without a place that are decided by a time."""
        return self._groups("placed_t is null and tau <= ?", t)

    def placed_behind(self, t: float, newest: float) -> list[SavedGroup]:
        """Groups whose place is an entry after a time, and that are decided by `newest`."""
        return self._groups("placed_t > ? and tau <= ?", t, newest)

    def unplaced(self) -> list[SavedGroup]:
        """Groups without a place."""
        return self._groups("placed_t is null and tau is not null")

    def _groups(self, condition: str, *values: float) -> list[SavedGroup]:
        found = self.ledger.ask(
            f"select key, step, tau, placed_t, verdict from ledger_groups where {condition}", values
        )
        return [SavedGroup(*one) for one in found]
