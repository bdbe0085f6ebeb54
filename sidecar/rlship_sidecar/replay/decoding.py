"""Decodes chunks of files for another process, with the intake's own reading."""

from __future__ import annotations

import math
import os

from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.pipeline.intake import Access, Intake
from rlship_sidecar.pipeline.source import Source, new_source
from rlship_sidecar.replay.packed import DecodedChunk, Packing, Task
from rlship_sidecar.tail.tail import Tail


class Decoding:
    """The decoder of one process; between tasks it keeps only caches."""

    def __init__(self) -> None:
        self._intakes: dict[str, Intake] = {}
        self._packing = Packing()
        self._chunks: list[DecodedChunk] = []

    def answer(self, task: Task) -> bytes:
        """The lines of a task, as a message; without chunks if the file cannot be read on now."""
        return self._packing.pack(task.name, self.chunks(task))

    def chunks(self, task: Task) -> list[DecodedChunk]:
        """The same chunks, unpacked."""
        intake = self._intake(os.path.dirname(task.path))
        source = new_source(task.name, Tail(task.path, intake.files), intake.schemas)
        source.position, source.piece_bytes = task.position, task.piece_bytes
        source.decoder.restore(task.opened, task.t, task.barrier_t, task.governing)
        intake.sources, intake.room = {task.name: source}, lambda actor: task.most_steps
        found = self._chunks = []
        while source.read < task.position.offset + task.size:
            before = source.read
            more = intake.read(-math.inf, [task.name], self._take, end=True)
            if source.read == before:
                break
            found[-1] = found[-1]._replace(more=more)
        return found

    def _take(self, source: Source, batch: Batch, now: float) -> None:
        decoder = source.decoder
        self._chunks.append(DecodedChunk(batch, source.position, decoder.t, decoder.barrier_t, False))

    def _intake(self, folder: str) -> Intake:
        found = self._intakes.get(folder)
        if found is None:
            # NUL bytes may still turn into lines: the other process waits for that.
            filesystem = filesystem_of(os.path.realpath(folder))
            found = self._intakes[folder] = Intake(os.path.dirname(folder), filesystem, Access(64))
        return found
