"""Rows of steps as earlier lineages had them, before they were done again: rules of alerts look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlship_sidecar.rows import Lineage
from rlship_sidecar.store.tables import StoreTables


@dataclass(frozen=True, slots=True)
class PastRowTable:
    """The table `past_rows`. `lacks`: ranks are missing in it, so it may change once their files go on."""

    ledger: StoreTables

    def at(self, actor: str, step: int) -> dict[Lineage, bytes]:
        """The rows of one step, as JSON, by lineage."""
        return {lineage: body for _, lineage, body in self.between(actor, step, step)}

    def between(self, actor: str, first: int, last: int) -> list[tuple[int, Lineage, bytes]]:
        """(step, lineage, row as JSON) of steps from `first` to `last`, in order."""
        found = self.ledger.ask(
            "select step, submission, attempt, rollbacks, body from past_rows "
            "where actor = ? and step between ? and ? order by step, submission, attempt, rollbacks",
            (actor, first, last),
        )
        return [(step, (submission, attempt, rollbacks), body) for step, submission, attempt, rollbacks, body in found]

    def put(self, actor: str, step: int, rows: Mapping[Lineage, tuple[bytes, bool]]) -> None:
        """The rows of a step, each with `lacks`, in place of those of before."""
        self.ledger.change("delete from past_rows where actor = ? and step = ?", (actor, step))
        self.ledger.change_many(
            "insert into past_rows values (?, ?, ?, ?, ?, ?, ?)",
            [(actor, step, *lineage, lacks, body) for lineage, (body, lacks) in rows.items()],
        )
