"""One experiment that the page shows: its rows, its files, and the answers about it.

Everything here may take a while and is called by worker threads, never by the server's own loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlship_formats.clocks import HostClocks
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership import last_status
from rlship_sidecar.ownership.lease import Owner
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Row
from rlship_sidecar.store.changes import SavedBlock
from rlship_sidecar.tabular.snapshot import StoreReader
from rlship_sidecar.view import charts
from rlship_sidecar.view.charts import KeyPlace, Span
from rlship_sidecar.view.contract import MetricEntry
from rlship_sidecar.view.entries import hosts_by_rank
from rlship_sidecar.view.folder import ViewedFolder
from rlship_sidecar.view.following import Followed, News
from rlship_sidecar.view.lean import STEPPED, ChartedRow
from rlship_sidecar.view.records import RecordFiles, SoughtRecords
from rlship_sidecar.view.rollup import Family, FamilyName, Rollup, X

NEAR_ROWS, NEAR_BYTES = 2_000, 32 << 20  # of a narrow span whose rows are read one by one
STATUS_S = 0.5
FIND_S = 2.0  # between looks whether the state is still where it was, and whose it is


Found = TypeVar("Found")


class State(NamedTuple):
    """A status with what follows from it."""

    status: Status
    owner: Owner | None


class StoredBlocks(NamedTuple):
    """The blocks that a store knows."""

    shown: Shown

    def blocks(self, sought: SoughtRecords) -> dict[str, list[SavedBlock]]:
        """See `RecordPlaces`. Raises RlshipError."""
        return self.shown.from_store(lambda store: store.blocks(sought.first, sought.last), {})

    def rollbacks(self) -> dict[str, list[int]]:
        """See `RecordPlaces`. Raises RlshipError."""
        return self.shown.from_store(lambda store: store.rollbacks(), {})


class Shown:
    """An experiment whose store is followed. `state_dir` is None as long as it has no rows."""

    def __init__(self, viewed: ViewedFolder, identity: str, path: Path) -> None:
        self.viewed = viewed
        self.id = identity
        self.path = path
        self.files = RecordFiles(path)
        self.followed: Followed | None = None
        self.lead = "trainer"
        self._found_at = -FIND_S
        self._index: tuple[object, dict[str, KeyPlace], dict[str, list[str]]] = ((), {}, {})
        self._status: tuple[float, State | None] = (-STATUS_S, None)
        self._lock = threading.Lock()

    def find_store(self) -> Followed:
        """The store that is followed; has rows made if there is no store. Raises RlshipError."""
        followed, now = self.followed, time.monotonic()
        if followed is not None and followed.store_id and now - self._found_at < FIND_S:
            return followed
        if not self.path.is_dir():
            raise RlshipError(f"the folder {self.path} is gone", "it was renamed or removed: open the list again")
        state = self.viewed.state_dir(self.path)
        if state is None:
            try:
                self.viewed.making.begin(self.viewed.directory, self.path)
            except OSError as problem:
                raise RlshipError(
                    f"rows of {self.path} cannot be made: {problem}", f"make them: rlship watch {self.path}"
                ) from problem
            state = self.viewed.making.state_dir(self.path)
        with self._lock:
            if self.followed is None or self.followed.state_dir != state:
                self.close()
                self.followed = Followed(state)
                self.lead = self.viewed.settings_of(self.path).lead
            self._found_at = now
            return self.followed

    def look(self) -> News:
        """Take in what is new. Raises RlshipError."""
        return self.find_store().look()

    @property
    def doing(self) -> str:
        """What is still under way, in words."""
        followed = self.followed
        if followed is None or not followed.store_id:
            return "rows are made from the files" if self.viewed.making.has_begun(self.path) else ""
        if followed.progress is not None:
            return "the history is read"
        return ""

    @property
    def progress(self) -> float | None:
        """How far that is; None if nothing is under way, 0 if that is unknown."""
        followed = self.followed
        if followed is not None and followed.progress is not None:
            return round(followed.progress, 3)
        return 0.0 if self.doing else None

    def version(self) -> tuple[str, int]:
        """The store and how many of its rows are taken in."""
        followed = self.followed
        return ("", 0) if followed is None else (followed.store_id, followed.count)

    def head(self) -> dict[str, Any]:
        """What all answers begin with."""
        store, row = self.version()
        return {"store": store, "row": row}

    def state(self) -> State | None:
        """The last status, at most half a second old. Raises RlshipError."""
        now = time.monotonic()
        if now - self._status[0] >= STATUS_S:
            found = self.viewed.status(self.path)
            self._status = now, None if found is None else State(*found)
        return self._status[1]

    def sidecar_words(self, state: State) -> str:
        """Whether a sidecar runs, and what to do."""
        return last_status.sidecar(state.status, state.owner, last_status.ended(state.status)).text

    def hosts(self, actor: str) -> Mapping[str, str]:
        """The hosts of an actor's ranks, as far as a status says."""
        try:
            state = self.state()
        except RlshipError:
            return {}
        return hosts_by_rank(None if state is None else state.status).get(actor, {})

    # Metrics ----------------------------------------------------------------------------------------------------------

    def rollup(self) -> Rollup:
        """The rollup; to be read while `reading` is held."""
        return self.find_store().rollup

    @property
    def reading(self) -> threading.Lock:
        """The lock under which a rollup is read."""
        return self.find_store().lock

    def index(self) -> dict[str, KeyPlace]:
        """Every metric by id; to be called while `reading` is held."""
        return self._indexed()[1]

    def panels(self) -> dict[str, list[str]]:
        """The metrics of each panel; to be called while `reading` is held."""
        return self._indexed()[2]

    def _indexed(self) -> tuple[object, dict[str, KeyPlace], dict[str, list[str]]]:
        rollup = self.rollup()
        families = rollup.families.values()
        size = rollup.store_id, *((len(one.keys), len(one.last), len(one.ranks)) for one in families)
        if self._index[0] != size:
            self._index = size, charts.places(rollup), charts.panels(rollup, self.lead)
        return self._index

    def metric(self, one: str) -> MetricEntry | None:
        """A metric by id; to be called while `reading` is held."""
        place = self.index().get(one)
        return None if place is None else charts.metric_entry(place, self.rollup().families[place.family], None)

    def near(self, name: FamilyName, span: Span) -> Family | None:
        """The rows of a narrow span one by one; None where the rollup is as fine, or these are too many."""
        followed = self.find_store()
        with followed.lock:
            family = followed.rollup.families.get(name)
            if family is None or family.widest == 1 or (span.low is None and span.high is None):
                return None
            table = family.table
            a, b = charts.slots_of(family, name[1], span)
            low, high = (a + table.first) * table.stride, (b + table.first) * table.stride - 1
            there = int(table.columns(a, b)[3][X].sum())
        if name[1] not in STEPPED and name[1] != "clock":
            return None
        if there > NEAR_ROWS:
            return None
        rows: list[ChartedRow] = []
        for row, size in followed.sized_rows_of(*name, low, high, NEAR_ROWS):
            rows.append(row)
            if size > NEAR_BYTES:
                return None
        found = Rollup()
        found.take(rows, first_seen=True)
        return found.families.get(name)

    # Rows and records -------------------------------------------------------------------------------------------------

    def from_store(self, ask: Callable[[StoreReader], Found], otherwise: Found) -> Found:
        """What the store says; `otherwise` as long as its first rows are still made. Raises RlshipError."""
        followed = self.find_store()
        if not followed.store_id:
            return otherwise
        with followed.open() as store:
            return ask(store)

    def newest_rows(self, kind: str) -> list[Row]:
        """The newest rows of a kind. Raises RlshipError."""
        return self.from_store(lambda store: list(store.rows_by_unit((kind,))), [])

    def row_of(self, actor: str, kind: str, index: int) -> Row | None:
        """The newest row of a unit. Raises RlshipError."""
        return self.from_store(lambda store: next(store.rows_at(actor, kind, index), None), None)

    def where(self) -> tuple[StoredBlocks, HostClocks]:
        """What knows where in the files records are, and how far clocks were off. Raises RlshipError."""
        return StoredBlocks(self), self.from_store(lambda store: store.clocks(), HostClocks())

    def steps_with_samples(self) -> list[int]:
        """The steps whose rows show samples."""
        followed = self.find_store()
        with followed.lock:
            found = {
                at
                for (_, kind), family in followed.rollup.families.items()
                if kind in STEPPED and kind != "alert"
                for at in family.shown
            }
        return sorted(found)

    def shows_of(self, step: int) -> Iterator[Row]:
        """The rows of a step that show samples."""
        followed = self.find_store()
        with followed.lock:
            names = [name for name, family in followed.rollup.families.items() if step in family.shown]
        for actor, kind in names:
            if kind in STEPPED and kind != "alert" and (row := self.row_of(actor, kind, step)) is not None:
                yield row

    def close(self) -> None:
        """Keep the rollup for the next start."""
        if self.followed is not None:
            self.followed.close()
