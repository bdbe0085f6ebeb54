"""What the stages that keep their memory in the store ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class StoreTables(Protocol):
    """Tables that outlive the process. Changes are seen at once by who made them, and become durable together with
    everything else that a tick of the experiment comes to.
    """

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Change a table."""

    def change_many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Change a table with each of these values, which costs less than one by one."""
