"""Files that other processes decode ahead, for the process that aligns, reduces and commits.

The next chunk of each file is under way before it is needed, and never more than MAX_AHEAD_BYTES altogether, however
large the files are. This process continues a file itself where the others cannot: at the end of the file, after an
error, or if an answer does not come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rlship_sidecar.align.units import MAX_KEPT
from rlship_sidecar.pipeline.intake import Intake, Taken
from rlship_sidecar.pipeline.source import Source
from rlship_sidecar.replay.packed import Arrived, Task, Unpacking
from rlship_sidecar.store.store import Store
from rlship_sidecar.tail.tail import Position, Tail

MAX_AHEAD_BYTES = 32 << 20
# Of a task: sending less costs too much, and more makes the other processes wait.
MIN_TASK_BYTES, MAX_TASK_BYTES = 64 << 10, 1 << 20


class EngineLost(Exception):
    """The processes are gone; this process decodes their tasks itself."""


class Engine(Protocol):
    """Processes that decode tasks."""

    @property
    def room(self) -> int:
        """How many more tasks it can use.

        That is enough that none of its processes has to wait for the next task. More would be waste: this process can
        do the tasks that no other one has begun. Asked only if there is work.
        """

    def submit(self, task: Task) -> None:
        """Submit a task; raises EngineLost."""

    def receive(self, *, wait: bool) -> list[bytes]:
        """The answers so far, at least one with `wait`; raises EngineLost."""

    def close(self) -> None:
        """End the processes."""


@dataclass(slots=True)
class _File:
    """A file that is decoded elsewhere.

    `ready` are chunks not taken yet, of `size` bytes together. The next task begins where the last chunk ends.
    `under_way` are the bytes of the submitted task, 0 without one.
    """

    source: Source
    governing: list[bytes]
    position: Position
    t: float
    barrier_t: float | None
    ready: deque[tuple[Arrived, int]] = field(default_factory=deque)
    size: int = 0
    under_way: int = 0
    over: bool = False

    def wants(self, size: int) -> bool:
        """Whether more of the file should be decoded, in tasks of `size` bytes."""
        return not (self.under_way or self.over) and self.size < size


class DecodedAhead:
    """Gives an `Intake` the chunks that other processes decoded; see `Ahead` there."""

    def __init__(
        self, engine: Engine, intake: Intake, store: Store, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._engine: Engine | None = engine
        self._intake = intake
        self._store = store
        self._say = say
        self._unpacking = Unpacking(intake.schemas)
        self._files: dict[str, _File] = {}
        self._bytes = 0
        self._group: Sequence[Source] = ()
        self._left = False

    def want(self, group: Sequence[Source]) -> None:
        """See `Ahead`."""
        self._group = group
        self._collect(wait=False)
        self._submit_more()

    def _submit_more(self) -> None:
        """Submit as many tasks as the others have room for.

        Files with chunks left come first, those with the fewest bytes first, so that none runs out. Then come the
        others, the last needed one first, because this process starts with the first itself. So all processes have work
        and short waits.
        """
        self._left = False
        size = max(MIN_TASK_BYTES, min(MAX_TASK_BYTES, MAX_AHEAD_BYTES // (2 * len(self._group))))
        found = [file for file in map(self._file, reversed(self._group)) if file is not None and file.wants(size)]
        room = self._engine.room if found and self._engine is not None else 0
        found.sort(key=lambda file: file.size or MAX_TASK_BYTES + 1)
        for file in found[:room]:
            if self._bytes + size > MAX_AHEAD_BYTES:
                break
            self._submit(file, size)

    def take(self, source: Source, limit: int) -> Taken | None:
        """See `Ahead`."""
        self._collect(wait=False)
        if self._left:
            self._submit_more()
        file = self._files.get(source.name)
        if file is None or file.source is not source:
            return None
        while not file.ready:
            if not file.under_way:
                del self._files[source.name]  # no process decodes it, so this one reads on
                return None
            self._collect(wait=True)
        chunk, size = file.ready[0]
        # A chunk is taken whole. If it went beyond the limit, not all of its units could keep their observations.
        if chunk.lowest > limit or chunk.highest > limit + MAX_KEPT - self._intake.most_steps:
            return Taken(None, chunk.position, True)
        file.ready.popleft()
        file.size -= size
        self._bytes -= size
        batch = chunk.batch()
        source.decoder.follow(batch, chunk.t, chunk.barrier_t)
        return Taken(batch, chunk.position, chunk.more or bool(file.ready))

    def _file(self, source: Source) -> _File | None:
        """The file, if another process may decode it: native, opened, and with enough left to read."""
        file = self._files.get(source.name)
        if file is not None and file.source is source:
            return file
        fit = type(source.tail) is Tail and source.writer is not None and not (source.problem or source.moved)
        if self._engine is None or not fit or source.size - source.read < MIN_TASK_BYTES:
            return None
        governing = [line for _, line in (*self._store.governing_lines(source.name), *source.fresh_governing)]
        decoder = source.decoder
        file = _File(source, governing, source.position, decoder.t, decoder.barrier_t)
        self._files[source.name] = file
        return file

    def _submit(self, file: _File, size: int) -> None:
        opened = file.source.decoder.opened
        assert opened is not None
        path, name = file.source.tail.path, file.source.name
        steps, piece_bytes = self._intake.most_steps, file.source.piece_bytes
        governing = tuple(file.governing)
        task = Task(name, path, file.position, size, steps, piece_bytes, opened, file.t, file.barrier_t, governing)
        try:
            if self._engine is not None:
                self._engine.submit(task)
                file.under_way = size
                self._bytes += size
            else:
                file.over = True
        except EngineLost:
            self._lost()

    def _collect(self, *, wait: bool) -> None:
        try:
            answers = self._engine.receive(wait=wait) if self._engine is not None else []
        except EngineLost:
            self._lost()
            return
        self._left = self._left or bool(answers)
        for answer in answers:
            name, chunks = self._unpacking.unpack(answer)
            self._arrived(self._files[name], chunks)

    def _arrived(self, file: _File, chunks: Sequence[Arrived]) -> None:
        self._bytes -= file.under_way
        file.under_way = 0
        sizes = []
        for chunk in chunks:
            size = chunk.position.offset - file.position.offset
            sizes.append(size)
            file.ready.append((chunk, size))
            file.size += size
            self._bytes += size
            file.governing += [line for _, line in chunk.governing]
            file.position, file.t, file.barrier_t = chunk.position, chunk.t, chunk.barrier_t
        if sizes:
            file.source.wants(max(sizes))
        file.over = not chunks or not chunks[-1].more

    def _lost(self) -> None:
        self._engine = None
        self._say("the processes that decoded files are gone; the rest is decoded by this one")
        for file in self._files.values():
            self._bytes -= file.under_way
            file.under_way, file.over = 0, True
