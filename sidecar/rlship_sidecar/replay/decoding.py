"""Decodes chunks of files for another process, through the intake's own reading."""

from __future__ import annotations

import math
import os

from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.pipeline.intake import Intake
from rlship_sidecar.pipeline.source import Source, new_source
from rlship_sidecar.replay.packed import DecodedChunk, Packing, Task
from rlship_sidecar.tail.tail import Tail


class Decoding:
    """Of one process; keeps nothing from task to task but what is quicker the second time."""

    def __init__(self) -> None:
        self._intakes: dict[str, Intake] = {}
        self._packing = Packing()
        self._chunks: list[DecodedChunk] = []

    def answer(self, task: Task) -> bytes:
        """What a task's lines say, as a message; without chunks where the file cannot be read on just now."""
        return self._packing.pack(task.name, self.chunks(task))

    def chunks(self, task: Task) -> list[DecodedChunk]:
        """The same, unpacked."""
        intake = self._intake(os.path.dirname(task.path))
        source = new_source(task.name, Tail(task.path, intake.files), intake.schemas)
        source.mark, source.piece_bytes = task.mark, task.piece_bytes
        source.decoder.restore(task.opened, task.t, task.barrier_t, task.marks)
        intake.sources, intake.room = {task.name: source}, lambda actor: task.most_steps
        found = self._chunks = []
        while source.read < task.mark.offset + task.size:
            before = source.read
            more = intake.read(-math.inf, [task.name], self._take, end=True)
            if source.read == before:
                break
            found[-1] = found[-1]._replace(more=more)
        return found

    def _take(self, source: Source, batch: Batch, now: float) -> None:
        decoder = source.decoder
        self._chunks.append(DecodedChunk(batch, source.mark, decoder.t, decoder.barrier_t, False))

    def _intake(self, folder: str) -> Intake:
        found = self._intakes.get(folder)
        if found is None:
            # NUL bytes that may still arrive are for the other process to wait for.
            found = self._intakes[folder] = Intake(os.path.dirname(folder), filesystem_of(os.path.realpath(folder)), 64)
        return found
