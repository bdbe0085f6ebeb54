"""The ledger of one experiment: its entries, the verdicts on its groups, and the rows of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.align.units import Patience
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.ledger.entries import TRAINED, WEIGHTS, EntryPlace, LedgerEntry, packed, unpacked
from rlship_sidecar.ledger.judging import Verdict, judge, judge_weights
from rlship_sidecar.ledger.rows import ledger_row
from rlship_sidecar.ledger.rows import packed as packed_verdict
from rlship_sidecar.rows import LEDGER, Arrival, Row, Unit
from rlship_sidecar.store.ledger_entries import LedgerEntries, SavedEntry, SavedGroup, is_weights, key_of
from rlship_sidecar.store.store import Store

_NO_TIME = float("inf")


class LedgerBook:
    """The store holds all of it, so that a restart goes on where a kill came, and memory holds none.

    `writer_of` gives the writer of a file. What a look finds is judged in the same look, so that entries and verdicts
    become durable together.
    """

    def __init__(
        self, store: Store, writer_of: Callable[[str], Writer | None], wait_s: float, patience: Patience
    ) -> None:
        self.revisions = Revisions(patience.revise_s)
        self._store = store
        self._tables = LedgerEntries(store)
        self._writer_of = writer_of
        self._wait_s = wait_s
        self._grace_s = patience.grace_s
        self._touched: set[str] = set()
        self._trained = (_NO_TIME, -_NO_TIME)  # the least and the greatest time of new entries of the trainer
        self._places: dict[str, tuple[EntryPlace, ...]] = {}  # of the files with entries, as verdicts have them
        self._over = False
        self._moved = False  # whether writers may count otherwise than they did

    def load(self, units: Iterable[Unit], now: float, *, again: bool) -> None:
        """Go on where the store left off, with these dirty units. `again`: every row is made again."""
        for unit in units:
            self.revisions.restore(unit, now)
        for file in self._tables.files():
            self._places[file] = self._places_of(file)
        if again:
            self._touched.update(group.key for group in self._tables.unplaced())

    def make_again(self, unit: Unit) -> None:
        """A sweep has come to this unit: its groups are judged again."""
        self._touched.update(self._tables.keys_at(unit.index))

    def take(self, file: str, batch: Batch) -> None:
        """Take in the entries of a batch of a file's lines, which its actor has applied."""
        self._moved = self._moved or self._may_move(file, batch)
        if not batch.ledger:
            return
        entries = []
        for line in batch.ledger:
            record = line.record
            key = key_of(record.hop, record.key, WEIGHTS)
            self._touched.add(key)
            entries.append(
                (
                    key,
                    SavedEntry(
                        file, line.offset, line.segment, record.hop[:200], record.t, record.step, packed(record)
                    ),
                )
            )
            if record.hop == TRAINED and record.step is not None:
                self._trained = min(self._trained[0], record.t), max(self._trained[1], record.t)
        self._tables.add(entries)
        if file not in self._places:
            self._places[file], self._moved = (), True

    def _may_move(self, file: str, batch: Batch) -> bool:
        """Whether a batch may change the places of writers: each is a look at all of them."""
        if batch.opened is not None or any(note.kind == "rollback" for note in batch.notes):
            return True
        places = self._places.get(file)
        return bool(places) and batch.begins is not None and places[0].begins is None  # type: ignore[index]

    # Verdicts ------------------------------------------------------------------------------------------------------

    def settle(self, now: float, *, over: bool) -> None:
        """Judge what has changed since the last look. `over`: nothing more is to come, so what is open has its row."""
        if not self._places:
            return
        if self._moved:
            self._notice_places()
        if not (self._touched or self._trained[1] > -_NO_TIME or over != self._over):
            return
        for key in sorted(self._touched):
            self._judge(key, now)
        self._touched.clear()
        self._place_again(now)
        if over:
            self._place_open(now)
        self._over = over

    def _notice_places(self) -> None:
        """Judge groups of files again whose writers count otherwise than they did."""
        self._moved = False
        moved = []
        for file, before in self._places.items():
            places = self._places_of(file)
            if places != before:
                self._places[file] = places
                if before[: len(places)] != places[: len(before)]:
                    moved.append(file)
        if moved:
            self._touched.update(self._tables.keys_of_files(moved))

    def _places_of(self, file: str) -> tuple[EntryPlace, ...]:
        writer = self._writer_of(file)
        if writer is None:
            return ()
        root = writer.root
        opened = root.open
        return tuple(
            EntryPlace(
                opened.actor,
                opened.replica,
                opened.rank,
                writer.open.id,
                (root.submission, opened.attempt, segment.number),
                segment.begins,
            )
            for segment in writer.segments
        )

    def _judge(self, key: str, now: float) -> None:
        entries = [
            LedgerEntry(one.file, one.offset, one.hop, one.t, one.step, places[one.segment], unpacked(one.body))
            for one in self._tables.of(key)
            if one.segment < len(places := self._places.get(one.file) or self._places_of(one.file))
        ]
        if not entries:
            return
        verdict = judge_weights(entries) if is_weights(key) else judge(entries, self._wait_s)
        before = self._tables.group(key)
        after = self._placed(key, verdict)
        if before != after:
            self._tables.put(after)
            self._mark(before, after, now)

    def _placed(self, key: str, verdict: Verdict) -> SavedGroup:
        data = packed_verdict(verdict)
        if verdict.step is not None or verdict.tau is None:
            return SavedGroup(key, verdict.step, None, None, data)
        found = self._tables.first_trained(verdict.tau)
        if found is None:
            return SavedGroup(key, None, verdict.tau, None, data)
        return SavedGroup(key, found.step, verdict.tau, found.t, data)

    def _place_again(self, now: float) -> None:
        """New entries of the trainer give groups a place, or an earlier one."""
        least, greatest = self._trained
        self._trained = (_NO_TIME, -_NO_TIME)
        if greatest == -_NO_TIME:
            return
        for group in [*self._tables.due_by(greatest), *self._tables.placed_behind(least, greatest)]:
            assert group.tau is not None
            found = self._tables.first_trained(group.tau)
            if found is not None and (found.step, found.t) != (group.step, group.placed_t):
                self._move(group, found.step, found.t, now)

    def _place_open(self, now: float) -> None:
        """Groups that are still open have their row at the trainer's last step."""
        last = self._tables.last_trained()
        if last is not None:
            for group in self._tables.unplaced():
                if group.step != last.step:
                    self._move(group, last.step, None, now)

    def _move(self, group: SavedGroup, step: int, placed_t: float | None, now: float) -> None:
        after = group._replace(step=step, placed_t=placed_t)
        self._tables.put(after)
        self._mark(group, after, now)

    def _mark(self, before: SavedGroup | None, after: SavedGroup, now: float) -> None:
        for step in {after.step, None if before is None else before.step}:
            if step is not None:
                self.revisions.mark_dirty(Unit("", LEDGER, step), now)

    # Rows ----------------------------------------------------------------------------------------------------------

    def rows(self, now: float, first_no: int, *, end: bool) -> tuple[list[Row], list[Unit]]:
        """Rows that are due, numbered from `first_no`, and the units that are not dirty any more."""
        rows: list[Row] = []
        done: list[Unit] = []
        if not self.revisions.dirty:
            return rows, done
        seen_to = self._seen_to()
        dirty = dict(self.revisions.dirty)
        for unit in self.revisions.due(now, end=end, complete=lambda unit: self._is_seen(unit, seen_to)):
            before = self._store.newest(unit)
            is_early = now - dirty[unit].since < self._grace_s and not self._is_seen(unit, seen_to)
            if is_early and before is None and not end:
                continue
            self.revisions.done(unit, now)
            done.append(unit)
            row = self._row(unit, before, first_no + len(rows), end=end)
            if row is not None:
                rows.append(row)
        return rows, done

    def _row(self, unit: Unit, before: Row | None, no: int, *, end: bool) -> Row | None:
        trained, groups = self._tables.trained_at(unit.index), self._tables.at(unit.index)
        if trained is None or (before is None and not groups):
            return None
        writer = self._writer_of(trained.file)
        axis = "global_step" if writer is None else writer.open.axis
        row = ledger_row(unit.index, trained.t, axis, groups)
        if before is None:
            return replace(row, arrival=Arrival(no, 0, row.keys(), "end" if end else "complete"))
        changed = row.differing(before)
        if row == before and not changed:
            return None
        return replace(row, arrival=Arrival(no, before.arrival.revision + 1, changed, "revision"))

    def _seen_to(self) -> float:
        """The time up to which every living writer with entries has been read."""
        writers = (self._writer_of(file) for file in self._places)
        return min((one.newest_t for one in writers if one is not None and not one.done), default=_NO_TIME)

    def _is_seen(self, unit: Unit, seen_to: float) -> bool:
        return seen_to >= self._tables.newest_of(unit.index)
