"""What the evaluation of rules keeps in the store: lineages, states between pieces of steps, episodes, what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.rows import ALERT, ALIGNED, LEDGER, STEP, Lineage, Unit
from rlship_sidecar.store.tables import StoreTables

_TABLES = ("alert_steps", "alert_states", "alert_episodes", "alert_dirty", "alert_frames")
_OF = "submission = ? and attempt = ? and rollbacks = ?"


class RulePiece(NamedTuple):
    """A rule's evaluation of a piece of a lineage's steps."""

    lineage: Lineage
    rule: str
    piece: int


@dataclass(frozen=True, slots=True)
class AlertTables:
    """The tables whose names begin with `alert_`, and the keys of `meta` that do."""

    ledger: StoreTables

    # What was evaluated --------------------------------------------------------------------------------------------

    def noted(self, name: str) -> str:
        """What is noted under a name, or ""."""
        found = self.ledger.ask("select value from meta where key = ?", (f"alert_{name}",))
        return str(found[0][0]) if found else ""

    def note(self, name: str, value: str) -> None:
        """Note something under a name."""
        self.ledger.change("insert or replace into meta values (?, ?)", (f"alert_{name}", value))

    def clear(self) -> list[Unit]:
        """Forget all verdicts. Returns the units that have rows of them."""
        for table in _TABLES:
            self.ledger.change(f"delete from {table}")
        found = self.ledger.ask("select actor, kind, number from units where actor = '' and kind = ?", (ALERT,))
        return [Unit.from_disk(*one) for one in found]

    # The lead's steps ----------------------------------------------------------------------------------------------

    def steps(self) -> Iterable[tuple[Lineage, int]]:
        """Each step at which a lineage has a row of its own."""
        found = self.ledger.ask("select submission, attempt, rollbacks, step from alert_steps order by 1, 2, 3, 4")
        return (((submission, attempt, rollbacks), step) for submission, attempt, rollbacks, step in found)

    def add_step(self, lineage: Lineage, step: int) -> None:
        """A lineage has a row of its own at a step."""
        self.ledger.change("insert or replace into alert_steps values (?, ?, ?, ?)", (*lineage, step))

    def remove_step(self, lineage: Lineage, step: int) -> None:
        """It has none any more."""
        self.ledger.change(f"delete from alert_steps where {_OF} and step = ?", (*lineage, step))

    def places(self, kinds: Sequence[str] = (STEP, ALIGNED, LEDGER)) -> list[tuple[str, str]]:
        """(actor, kind) of the units of some kinds that have rows."""
        marks = ",".join("?" * len(kinds))
        found = self.ledger.ask(f"select distinct actor, kind from units where kind in ({marks})", tuple(kinds))
        return [(actor, kind) for actor, kind in found]

    def bodies(self, actor: str, kind: str, first: int, last: int) -> list[bytes]:
        """The newest rows, as JSON, of the units of an actor from one index to another."""
        found = self.ledger.ask(
            "select body from units join rows using (no) where actor = ? and kind = ? and number between ? and ?",
            (actor, kind, first, last),
        )
        return [body for (body,) in found]

    # What rules ask for --------------------------------------------------------------------------------------------

    def frames(self, piece: int) -> bytes | None:
        """What rules ask for of the steps of a piece; None where only the rows have it."""
        found = self.ledger.ask("select steps from alert_frames where piece = ?", (piece,))
        return found[0][0] if found else None

    def keep_frames(self, piece: int, steps: bytes | None) -> None:
        """Keep it, or forget it, as rows of the piece change."""
        if steps is None:
            self.ledger.change("delete from alert_frames where piece = ?", (piece,))
        else:
            self.ledger.change("insert or replace into alert_frames values (?, ?)", (piece, steps))

    def forget_frames(self) -> None:
        """Forget that of all pieces."""
        self.ledger.change("delete from alert_frames")

    # States and episodes -------------------------------------------------------------------------------------------

    def states(self, lineage: Lineage, piece: int, rules: Collection[str]) -> dict[str, bytes]:
        """The states of rules after a piece that are kept."""
        # The key has the rule before the piece: without their names SQLite would look at all pieces.
        named = ",".join("?" * len(rules))
        found = self.ledger.ask(
            f"select rule, state from alert_states where {_OF} and rule in ({named}) and piece = ?",
            (*lineage, *rules, piece),
        )
        return dict(found)

    def keep_states(self, states: Mapping[RulePiece, bytes | None]) -> None:
        """Keep states after pieces; None forgets one."""
        if gone := [_fields(key) for key, state in states.items() if state is None]:
            self.ledger.change_many(f"delete from alert_states where {_OF} and rule = ? and piece = ?", gone)
        if kept := [(*_fields(key), state) for key, state in states.items() if state is not None]:
            self.ledger.change_many("insert or replace into alert_states values (?, ?, ?, ?, ?, ?)", kept)

    def episodes(self) -> list[tuple[RulePiece, bytes]]:
        """The episodes of each piece that has any."""
        found = self.ledger.ask("select submission, attempt, rollbacks, rule, piece, episodes from alert_episodes")
        return [(RulePiece((one[0], one[1], one[2]), one[3], one[4]), one[5]) for one in found]

    def keep_episodes(self, key: RulePiece, episodes: bytes | None) -> None:
        """Keep the episodes of a piece, or none."""
        if episodes is None:
            self.ledger.change(f"delete from alert_episodes where {_OF} and rule = ? and piece = ?", _fields(key))
        else:
            self.ledger.change(
                "insert or replace into alert_episodes values (?, ?, ?, ?, ?, ?)", (*_fields(key), episodes)
            )

    # What is to do -------------------------------------------------------------------------------------------------

    def dirty(self) -> list[tuple[Lineage, int]]:
        """The pieces that were left to evaluate."""
        found = self.ledger.ask("select submission, attempt, rollbacks, piece from alert_dirty")
        return [((one[0], one[1], one[2]), one[3]) for one in found]

    def keep_dirty(self, more: Iterable[tuple[Lineage, int]], done: Iterable[tuple[Lineage, int]]) -> None:
        """Keep that there are more pieces to evaluate, and that some are done."""
        self.ledger.change_many(
            "insert or replace into alert_dirty values (?, ?, ?, ?)", [(*lineage, piece) for lineage, piece in more]
        )
        self.ledger.change_many(
            f"delete from alert_dirty where {_OF} and piece = ?", [(*lineage, piece) for lineage, piece in done]
        )


def _fields(key: RulePiece) -> tuple[int, int, int, str, int]:
    return *key.lineage, key.rule, key.piece
