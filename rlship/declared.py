"""What this process has declared of its metrics so far, by `define` and by `record_metric(reduce=…)`."""

from __future__ import annotations

from . import definitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .definitions import Entries
    from .gathering import Gathering
    from .misuse import Misuse


class Declared:
    """The definitions of one Stream. `control(line)` puts a record into the buffer and says whether it fitted.

    Attributes: `entries`, those whose records are in the buffer or the file; `asked`, with which `reduce` each metric
    was recorded last: the same again has nothing new to say.
    """

    def __init__(self, entries: Entries, gathering: Gathering, misuse: Misuse, control: Callable[[str], bool]) -> None:
        self.entries = dict(entries)
        self.asked: dict[str, object] = {}
        self._gathering = gathering
        self._misuse = misuse
        self._control = control

    def declare(self, entries: Entries, by: str = "define") -> None:
        """Write `define` records, which govern what is logged after them. `by` is the call that asks for it."""
        with self._gathering.lock:
            self._misuse.compare(self.entries, entries, by)
            self.asked.clear()
            if any(self._gathering.batches.holds(name) for name in entries):
                self._gathering.move()  # a definition governs the lines after it, so what came before goes first
            kept = [self._control(line) for line in definitions.lines(entries)]
            if all(kept):  # else the next call says it again
                self.entries.update(entries)

    def ask(self, name: str, reduce: str | Iterable[str]) -> None:
        """Add to the reductions of a metric: two places in a program may ask for different ones of the same metric."""
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

    def lines(self) -> list[str]:
        """The records that say all of it."""
        return definitions.lines(dict(self.entries))
