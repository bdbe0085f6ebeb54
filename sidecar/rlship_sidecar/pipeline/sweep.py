"""Makes every row again, a piece at a time, after the configuration's reductions or the row function changed.

A piece marks the next units dirty, and the ordinary revision does the rest: rows that come out equal are no revision.
The store keeps how far the sweep has got, in the transaction that keeps the dirty marks, so that a kill repeats nothing
and skips nothing.
"""

from __future__ import annotations

from rlship_sidecar.reduce import rules
from rlship_sidecar.rows import Unit
from rlship_sidecar.store.made_with import MadeWith
from rlship_sidecar.store.store import Store

PIECE = 64  # units that one look makes dirty at most


class Sweep:
    """The sweep of one experiment. `pending`: rows were made by another row function than this sidecar's, and no sweep
    has begun, as in a finished experiment. `news` is what a person should know, each line once.
    """

    def __init__(self, store: Store, settings: str) -> None:
        self._made_with = MadeWith(store)
        self._function = rules.ROW_FUNCTION
        self._made_with.adopt(settings, self._function)
        self.active = self._made_with.sweep() is not None
        self.pending = not self.active and self._made_with.row_function() != self._function
        self.news: list[str] = []

    def begin(self) -> None:
        """Begin with the first unit. `news` says what a person should know of it."""
        before = self._made_with.row_function()
        self._made_with.begin_sweep(self._function)
        self.active, self.pending = True, False
        self.news.append(
            f"its rows were made with row function {before}, this rlship has {self._function}: those that come out "
            "otherwise are revised, behind new rows"
        )

    def next_piece(self, dirty: int) -> list[tuple[Unit, bool]]:
        """The units to mark dirty now, and whether their rows lack ranks. `dirty`: how many units are dirty already.

        It is few at a time, so that revisions of new steps do not wait behind a long history.
        """
        if not self.active or dirty >= PIECE:
            return []
        piece = self._made_with.advance_sweep(PIECE - dirty)
        self.active = len(piece) == PIECE - dirty
        return piece
