"""The tables of one experiment, from its store and its files, and the filter that selects their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rlship_sidecar.errors import NothingToWatch, RlshipError
from rlship_sidecar.export.reading import Unreadable, files_of, identify
from rlship_sidecar.rows import ALIGNED, OWN_KINDS, STEP, Row
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.store import StoreUnusable
from rlship_sidecar.tabular.columns import EVERY, TableSpec
from rlship_sidecar.tabular.condition import EVERYTHING, NOTHING, AllOf, Condition, given, one_of, possible
from rlship_sidecar.tabular.from_files import of_records
from rlship_sidecar.tabular.from_store import of_dead, of_rows, of_run_changes, of_run_data
from rlship_sidecar.tabular.snapshot import Snapshot

Record = tuple[Any, ...]
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The actors, kinds of rows ("point" covers all points) and steps to keep; an empty filter keeps everything."""

    actors: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    steps: Steps | None = None

    @property
    def condition(self) -> Condition:
        """What a record has to hold for certain, with which reading can pass over others."""
        return one_of("actor", self.actors) if self.actors else EVERYTHING

    def keeps(self, actor: str, kind: str | None, step: int | None) -> bool:
        """Whether a record of an actor is kept. `kind` is that of a row, None for a record of a file."""
        if self.actors and actor not in self.actors:
            return False
        if self.kinds and kind not in self.kinds:
            return False
        return self.steps is None or (step is not None and step in self.steps)


@dataclass(slots=True)
class ExperimentTables:
    """One experiment. `snapshot` and `state_dir` are None if no sidecar has watched it.

    If its store cannot be used, `broken` holds the reason. `unreadable` collects files and reasons. If a store turns
    out to be damaged and there are `others`, the error is kept in `broken` and the rows end there. Otherwise it is
    raised. `on_read` is called with the number of bytes read, or passed over, of the writers' files.
    """

    name: str
    path: Path
    snapshot: Snapshot | None
    others: bool = False
    broken: str = ""
    unreadable: dict[str, str] = field(default_factory=dict)
    on_read: Callable[[int], None] = lambda count: None
    state_dir: Path | None = None

    def file_bytes(self) -> int:
        """The size of the writers' files."""
        total = 0
        with files_of(self.path) as files:
            for file in files:
                with suppress(OSError):  # reading it will report that
                    total += file.tail.size()
        return total

    def look_at_files(self) -> None:
        """Note the writers' files that cannot be opened: rows may lack them, whatever the question reads."""
        with suppress(OSError), files_of(self.path) as files:
            for file in files:
                try:
                    file.tail.size()
                except OSError as problem:
                    self.unreadable.setdefault(file.name, problem.strerror or str(problem))

    def stored(self) -> Snapshot:
        """Its snapshot; raises NothingToWatch if it has no store, StoreUnusable if the store cannot be used."""
        if self.snapshot is not None:
            return self.snapshot
        if self.broken:
            raise StoreUnusable(self.broken, f"make the rows again from the files: rlship replay {self.path}")
        raise NothingToWatch(
            f"no sidecar has watched {self.path} yet, so there are no rows",
            f"make them: rlship watch --once {self.path}",
        )

    def units(self) -> list[tuple[str, str]]:
        """(actor, kind) of all units, see `Snapshot`."""
        return list(self._stored(lambda snapshot: snapshot.units()))

    def actors(self, *, of_files: bool) -> set[str]:
        """The actors that have rows, or that have files."""
        if not of_files:
            return {actor for actor, _ in self.units()}
        found = set()
        with files_of(self.path) as files:
            for file in files:
                with suppress(Unreadable):  # reading its records will report that
                    identify(file)
                    found |= {file.open.actor} if file.open is not None else set()
        return found

    def _stored(self, ask: Callable[[Snapshot], Iterable[Asked]]) -> Iterator[Asked]:
        """Records that its snapshot yields."""
        snapshot = self.stored()
        try:
            yield from ask(snapshot)
        except RlshipError as problem:
            if not self.others:
                raise
            self.broken = problem.message

    def rows(self, choice: RecordFilter, *, every: bool, condition: Condition = EVERYTHING) -> Iterator[Row]:
        """The chosen rows, by number: their last revisions, or all; without some that cannot hold the condition."""
        for row in self._stored(lambda snapshot: snapshot.rows(every=every)):
            unit = row.unit
            step = unit.index if unit.kind in (STEP, ALIGNED, *OWN_KINDS) else None
            known = {"actor": unit.actor, "kind": unit.kind_on_disk, "index": unit.index, "step": step}
            if choice.keeps(unit.actor, unit.kind, step) and possible(condition, known):
                yield row

    def records(self, table: TableSpec, choice: RecordFilter, condition: Condition = EVERYTHING) -> Iterator[Record]:
        """The records of a table for this experiment, in the order of rows, or of files and their lines; without some
        that cannot hold the condition.
        """
        condition = given(condition, {"experiment": self.name})
        if condition == NOTHING:
            return
        if table.of == "rows":
            name, every = table.name.removesuffix(EVERY), table.name.endswith(EVERY)
            yield from of_rows(name, self.name, self.rows(choice, every=every, condition=condition), condition)
        elif table.of == "dead letters":
            yield from self._stored(lambda snapshot: of_dead(table.name, self.name, snapshot))
        elif table.of == "run data":
            of_run = of_run_changes if table.name == "run_changes" else of_run_data
            for record in self._stored(lambda snapshot: of_run(self.name, snapshot)):
                if not choice.actors or record[2] in choice.actors:
                    yield record
        else:
            yield from self._of_files(table, choice, condition)

    def _of_files(self, table: TableSpec, choice: RecordFilter, condition: Condition) -> Iterator[Record]:
        names = [column.name for column in table.columns]
        actor, step = names.index("actor"), names.index("step") if "step" in names else None
        with files_of(self.path) as files:
            for file in files:
                file.on_read = self.on_read
                try:
                    for record in of_records(table.name, self.name, file, AllOf((choice.condition, condition))):
                        if choice.keeps(record[actor], None, None if step is None else record[step]):
                            yield record
                except Unreadable as problem:
                    self.unreadable[file.name] = str(problem)


def refusal(table: TableSpec, choice: RecordFilter) -> str:
    """The part of a filter for which a table has no column, as an option's name; "" if it has them all."""
    asked = {"actor": choice.actors, "kind": choice.kinds, "step": choice.steps}
    return next((f"--{name}" for name, given in asked.items() if given and not table.has(name)), "")
