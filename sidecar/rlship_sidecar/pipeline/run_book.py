"""What the writers of one experiment said of the run, kept up to date and merged as they say more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.run_data.merging import FAILED, FINISHED, OPEN, Voice, changes, counted, in_order, merge
from rlship_sidecar.run_data.said import PARTS, Said
from rlship_sidecar.store.changes import MergedRun
from rlship_sidecar.store.run_said import ABOUT, changes_of, data_of, parts_of, said_by_file
from rlship_sidecar.store.store import Store
from rlship_sidecar.tally import observes

EVERY_S = 1.0
SHARE = 0.02  # share of a core that merging may take: it looks at every writer

_NOTHING = Said()


class RunBook:
    """What each file said, and the run's data: `data` is what was merged last, with so many `changes` of keys, and
    `pending` says that more was said since.
    """

    def __init__(self, store: Store, lead: str, *, cpu_time: Callable[[], float] = time.thread_time) -> None:
        self.said = said_by_file(store)
        self.merged = store.merged_run()
        self.data = data_of(self.merged)
        self.changes = counted(changes_of(self.merged))
        self.pending = bool(self.said)  # the configuration may name another lead now
        self._lead = lead
        self._cpu_time = cpu_time
        self._unsaved: dict[str, set[str]] = {}
        self._saved = self.merged
        self._merge_at = 0.0
        self._shared: dict[bytes, bytes] = {}

    def take(self, file: str, batch: Batch) -> None:
        """Take in what a batch of a file's lines says of the run."""
        labels = {} if batch.open_line is None else batch.open_line.labels
        if labels or batch.said:
            said = self.said.setdefault(file, Said())
            before = [getattr(said, part) for part in PARTS]
            said.about.labels = labels or said.about.labels
            for record in batch.said:
                said.take(record)
            parts = {part for part, known in zip(PARTS, before) if getattr(said, part) is not known}
            for part in parts:
                setattr(said, part, self._share(getattr(said, part)))
            self._unsaved.setdefault(file, set()).update(parts | {ABOUT})
            self.pending = True
        elif self.said and (batch.opened is not None or any(note.kind in ("close", "failure") for note in batch.notes)):
            self.pending = True

    def _share(self, text: bytes) -> bytes:
        if len(self._shared) > len(self.said) + 1000:  # a summary that changes leaves a text behind each time
            self._shared.clear()
        return self._shared.setdefault(text, text)

    def settle(self, writers: Iterable[Writer], now: float, *, at_once: bool) -> None:
        """Merge what was said, if that is due or wanted `at_once`."""
        if not self.pending or (now < self._merge_at and not at_once):
            return
        self.pending, began = False, self._cpu_time()
        voices = (voice_of(writer, self.said.get(writer.file, _NOTHING)) for writer in writers if _has_a_say(writer))
        actors = in_order(voices, self._lead)
        data, found = merge(actors), changes(actors)
        self._merge_at = now + max(EVERY_S, (self._cpu_time() - began) / SHARE)
        text, changed = msgspec.json.encode(data), msgspec.json.encode(found)
        if data.is_nothing and not self.merged.version:
            return
        if (text, changed) != (self.merged.data, self.merged.changes):
            self.merged = MergedRun(self.merged.version + 1, text, changed)
            self.data, self.changes = data, counted(found)

    @property
    def is_unsaved(self) -> bool:
        """Whether the store lacks anything."""
        return bool(self._unsaved) or self.fresh is not None

    @property
    def unsaved(self) -> list[tuple[str, str, bytes]]:
        """What the store lacks of what files said: (file, part, value)."""
        return [row for file, parts in sorted(self._unsaved.items()) for row in parts_of(file, self.said[file], parts)]

    @property
    def fresh(self) -> MergedRun | None:
        """What was merged since the last commit; None if nothing has changed."""
        return None if self.merged is self._saved else self.merged

    def committed(self) -> None:
        """The store has it."""
        self._unsaved.clear()
        self._saved = self.merged


def _has_a_say(writer: Writer) -> bool:
    """Whether it is of the job: sysmon says nothing of it."""
    return not observes(writer.open.actor, writer.open.agent)


def voice_of(writer: Writer, said: Said) -> Voice:
    """A writer as merging has to know it."""
    root, opened = writer.root, writer.open
    return Voice(
        file=writer.file,
        actor=opened.actor,
        start=(root.submission, root.open.attempt),
        replica=root.open.replica,
        rank=root.open.rank,
        child=root is not writer,
        t=opened.t,
        id=opened.id,
        end=FAILED if writer.end.failure else OPEN if writer.end.close_t is None else FINISHED,
        gone=writer.replaced,
        said=said,
    )
