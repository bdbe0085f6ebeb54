"""The table of metrics with observations that were not finite: a line for each key of a kind of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.store.tables import StoreTables


class NonFiniteMetric(NamedTuple):
    """A metric's key with the rows that count such observations: how many, the first and the last, and all ranks that
    made such an observation, by name. The fields are the table's columns after actor and kind.
    """

    key: str
    rows: int
    first: int
    last: int
    ranks: str  # JSON, a list


@dataclass(frozen=True, slots=True)
class NonFiniteMetrics:
    """The metrics of one actor's rows of one kind."""

    ledger: StoreTables
    actor: str
    kind: str

    def all(self) -> list[NonFiniteMetric]:
        """Every metric, in the order of keys."""
        found = self.ledger.ask(
            "select key, rows, first, last, ranks from nonfinite where actor = ? and kind = ? order by key",
            (self.actor, self.kind),
        )
        return [NonFiniteMetric(*one) for one in found]

    def put(self, metric: NonFiniteMetric) -> None:
        """Keep a metric, in place of the same one."""
        self.ledger.change(
            "insert or replace into nonfinite values (?, ?, ?, ?, ?, ?, ?)", (self.actor, self.kind, *metric)
        )

    def remove(self, key: str) -> None:
        """Forget a metric: no row counts such an observation any more."""
        self.ledger.change(
            "delete from nonfinite where actor = ? and kind = ? and key = ?", (self.actor, self.kind, key)
        )


def nonfinite_families(ledger: StoreTables) -> list[NonFiniteMetrics]:
    """The actors and kinds of rows that have such metrics."""
    found = ledger.ask("select distinct actor, kind from nonfinite order by actor, kind")
    return [NonFiniteMetrics(ledger, actor, kind) for actor, kind in found]
