"""What this process has declared so far: definitions, by `define` and `record_metric(reduce=…)`, and its run data."""

from __future__ import annotations

from . import definitions
from .rundata import RunData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .definitions import Entries
    from .gathering import Gathering
    from .misuse import Misuse
    from .settings import Path, Settings


class Declared:
    """The declarations of one Stream. `control(line)` puts a record into the buffer and returns whether it fitted.

    Attributes: `entries`, the definitions whose records are in the buffer or the file; `asked`, the `reduce` with which
    each metric was recorded last, so that repeating it costs nothing; `finds_facts`, whether the writing thread adds
    facts about the process to the run data.
    """

    def __init__(self, entries: Entries, gathering: Gathering, misuse: Misuse, control: Callable[[str], bool]) -> None:
        self.entries = dict(entries)
        self.asked: dict[str, object] = {}
        self.finds_facts = False
        self._run = RunData()
        self._gathering = gathering
        self._misuse = misuse
        self._control = control

    def declare(self, entries: Entries, by: str = "define") -> None:
        """Write `define` records, which govern what is logged after them. `by` is the call that declares them; "" may
        declare a metric otherwise than before.
        """
        with self._gathering.lock:
            if by:
                self._misuse.compare(self.entries, entries, by)
            self.asked.clear()
            if any(self._gathering.batches.holds(name) for name in entries):
                self._gathering.move()  # a definition governs the lines after it, so earlier observations go first
            kept = [self._control(line) for line in definitions.lines(entries)]
            if all(kept):  # else the next call writes it again
                self.entries.update(entries)

    def ask(self, name: str, reduce: str | Iterable[str]) -> None:
        """Add to a metric's reductions: two places in a program may request different ones for the same metric."""
        known = self.entries.get(name, {}).get("reduce", ())
        if isinstance(reduce, str) and reduce in known:
            self.asked[name] = reduce
            return
        with self._gathering.lock:
            try:
                entry = definitions.with_more(self.entries.get(name, {}), reduce)
            except ValueError as error:
                self._misuse.tell(
                    "record_metric", f"reduce {name}", f"record_metric({name[:200]!r}): {error}{definitions.INSTEAD}"
                )
                return
            if entry is not None:
                self.declare({name: entry}, "record_metric")
            self.asked[name] = reduce

    def note(self, found: Settings, t: float) -> list[Path]:
        """Note run data at time `t`, which the writing thread takes. Returns the paths that are too much."""
        with self._gathering.lock:
            return self._run.put(found, t)

    def among(self, lines: list[str], *, last: bool) -> tuple[list[str], int]:
        """The records of the run data that no record has said yet, and their place among the `lines` of a round.

        What the run is comes before the file's first lines: a reader of these alone would take another project for it.
        Later records come at the end, before the `last` line if the file closes with it.
        """
        run = self._run
        leads = run.leads
        if not run.waits:  # as in nearly every round
            if lines and leads:
                run.leads = False
            return [], 0
        with self._gathering.lock:
            run.leads = leads and not lines
            return run.take(), 0 if leads else len(lines) - (last and bool(lines))

    def lines(self) -> list[str]:
        """The records of all definitions, and of all run data."""
        with self._gathering.lock:
            return [*definitions.lines(self.entries), *self._run.all()]
