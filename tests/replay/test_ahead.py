"""Files decoded ahead, elsewhere: the rows are those of one process."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.reading import read_open
from rlship_formats.records import Definition
from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.units import Closing
from rlship_sidecar.config import Config
from rlship_sidecar.decode.lines import Batch, Schema
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.pipeline.intake import ROUND_STEPS
from rlship_sidecar.pipeline.source import Source, new_source
from rlship_sidecar.replay import ahead, run
from rlship_sidecar.replay.ahead import DecodedAhead, Engine, EngineLost
from rlship_sidecar.replay.decoding import Decoding
from rlship_sidecar.replay.found import Replayed
from rlship_sidecar.replay.local import LocalEngine
from rlship_sidecar.replay.packed import DecodedChunk, Packing, Task, Unpacking
from rlship_sidecar.replay.run import ReplayRequest, replay
from rlship_sidecar.rows import STEP
from rlship_sidecar.tail.tail import Position
from tests.pipeline.simulated import scratch, simulation
from tests.pipeline.streamed import streamed_experiments
from tests.pipeline.test_against_reference import check_numbering
from tests.reference.building import CLOSE, T0, barrier, file
from tests.reference.experiments import configurations, experiments
from tests.reference.reduction import exactly
from tests.replay.replaying import again, make, newest_rows, rows_in, without_empty
from tests.replay.test_equal import CASES

RANKS, STEPS = 4, 700
Alone = tuple[Replayed, dict[str, str]]


class Here:
    """Answers in this process, in any order, until it is lost."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._decoding = Decoding()
        self._tasks: list[Task] = []
        self._lost_after = data.draw(st.sampled_from((0, 1, 3, 1000, 1000, 1000)))
        self.answered = 0

    @property
    def room(self) -> int:
        return self._data.draw(st.sampled_from((0, 1, 2, 100)))

    def submit(self, task: Task) -> None:
        if self.answered >= self._lost_after:
            raise EngineLost
        self._tasks.append(task)

    def receive(self, *, wait: bool) -> list[bytes]:
        if self.answered >= self._lost_after:
            raise EngineLost
        if not self._tasks or not (wait or self._data.draw(st.booleans())):
            return []
        self.answered += 1
        return [self._decoding.answer(self._tasks.pop(self._data.draw(st.integers(0, len(self._tasks) - 1))))]

    def close(self) -> None:
        pass


@CASES
@given(data=st.data(), files=st.one_of(experiments(), streamed_experiments()))
def test_rows_are_those_of_one_process(data: st.DataObject, files: dict[str, bytes]) -> None:
    """Whatever the lines are, in whatever pieces and order they come back, and wherever the processes are lost: the
    final rows and the dead letters are the same, and every line is counted once.
    """
    overrides = data.draw(configurations())
    with simulation(overrides=overrides) as alone, simulation(overrides=overrides) as sim:
        for name, content in files.items():
            alone.write(name, content)
            sim.write(name, content)
        intake = sim.experiment.intake
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ahead, "MIN_TASK_BYTES", 1)
            patch.setattr(ahead, "MAX_TASK_BYTES", data.draw(st.sampled_from((1, 200, 1000))))
            patch.setattr(ahead, "MAX_AHEAD_BYTES", data.draw(st.sampled_from((1, 2000, 1 << 20))))
            pieces = data.draw(st.sampled_from((100, 400)))
            patch.setattr("rlship_sidecar.pipeline.intake.new_source", _in_pieces(pieces))
            patch.setattr("rlship_sidecar.replay.decoding.new_source", _in_pieces(pieces))
            intake.ahead = DecodedAhead(Here(data), intake, sim.store)
            sim.finish()
        alone.finish()
        packed, plain = sim.final(), alone.final()
        assert exactly(without_empty(packed, plain)) == exactly(without_empty(plain, packed))
        assert sorted(sim.dead(), key=str) == sorted(alone.dead(), key=str)
        assert intake.lines == alone.experiment.intake.lines
        assert sim.store.counts() == alone.store.counts()
        check_numbering(sim.rows())


def _in_pieces(size: int) -> Callable[..., Source]:
    """`new_source` of files that are read in pieces of so many bytes, and a line at least, at first."""

    def made(*given: object) -> Source:
        source = new_source(*given)  # type: ignore[arg-type]
        source.piece_bytes = size
        return source

    return made


def lines(rank: int) -> bytes:
    """A rank that logs 20 metrics in each step, and now and then something else."""
    records = []
    for step in range(STEPS):
        values = {f"m{number}": (step + 1) / (rank + number + 1) for number in range(20)}
        records.append({"t": T0 + step, "step": step, "m": values})
        if step % 50 == rank:
            records.append({"kind": "define", "m": {"m1": {"reduce": ["max", "mean"] if step % 100 else "sum"}}})
            records.append({"t": T0 + step, "step": step, "m": {"other": [1, 2.5, "NaN"], "bad": {"v": 1}}})
            records.append({"kind": "event", "t": T0 + step, "name": "pushed"})
        records.append(barrier(step, step + 0.5))
        if step == 300:
            records.append({"kind": "rollback", "step": 290, "t": T0 + step + 1})
    return file(*records, CLOSE, id=f"w{rank}", rank=rank, world=RANKS)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of some ranks, with files of several tasks each. No replay changes it."""
    return make(tmp_path_factory.mktemp("ahead") / "grpo", {f"r{rank}.jsonl": lines(rank) for rank in range(RANKS)})


@pytest.fixture(scope="module")
def alone(job: Path) -> Alone:
    """What one process replays, and its rows."""
    found = again(job, job.with_name("one"))
    return found, exactly(newest_rows(job.with_name("one")))


class Up(LocalEngine):
    """All of its processes are up before there is work, which would else be done by then."""

    @property
    def room(self) -> int:
        """See `Engine`."""
        while len(self.pids) < self._most:
            self._start()
        while len(self._loads) < self._most:
            self.receive(wait=True)
        return super().room


def test_processes_of_this_machine(job: Path, alone: Alone, tmp_path: Path) -> None:
    """With processes beside this one the rows have equal bits; the processes did decode, and are gone afterwards."""
    engines: list[LocalEngine] = []
    whole, rows = alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_engine", _noted(engines, lambda: Up(2)))
        told: list[str] = []
        found = replay(ReplayRequest(job, Config(sinks=[]), out=tmp_path / "two"), say=told.append)
    assert found.finished and not told
    assert (found.lines, found.bytes, found.dead_value_count) == (whole.lines, whole.bytes, whole.dead_value_count)
    assert exactly(newest_rows(tmp_path / "two")) == rows
    (engine,) = engines
    assert all(not os.path.exists(f"/proc/{pid}") for pid in engine.pids) and len(engine.pids) == 2


def _noted(engines: list[LocalEngine], make_engine: Callable[[], LocalEngine]) -> Callable[[ReplayRequest], Engine]:
    def engine(order: ReplayRequest) -> Engine:
        engines.append(make_engine())
        return engines[-1]

    return engine


def test_a_process_that_dies(job: Path, alone: Alone, tmp_path: Path) -> None:
    """Killed in the middle, its work is done by the replay itself: it says so, and the rows are all there."""

    class Dying(Up):
        """Its first process is killed once it has answered."""

        def receive(self, *, wait: bool) -> list[bytes]:
            """See `LocalEngine`."""
            answers = super().receive(wait=wait)
            if answers:
                os.kill(self.pids[0], signal.SIGKILL)
            return answers

    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_engine", _noted([], lambda: Dying(1)))
        patch.setattr(ahead, "MAX_TASK_BYTES", 64 << 10)
        assert replay(ReplayRequest(job, Config(sinks=[]), out=tmp_path / "two"), say=told.append).finished
    assert told == ["the processes that decoded files are gone; the rest is decoded by this one"]
    assert exactly(newest_rows(tmp_path / "two")) == alone[1]


def test_nobody_is_waited_for_to_start(job: Path, alone: Alone, tmp_path: Path) -> None:
    """Processes get work once they are up; until then, and if that is never, all is done here."""

    class Never(LocalEngine):
        """Its processes take for ever to start."""

        def receive(self, *, wait: bool) -> list[bytes]:
            """See `Engine`."""
            assert not wait, "waited for a process that is not up"
            return []

    engines: list[LocalEngine] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_engine", _noted(engines, lambda: Never(2)))
        assert replay(ReplayRequest(job, Config(sinks=[]), out=tmp_path / "two")).finished
    assert len(engines[0].pids) == 2
    assert exactly(newest_rows(tmp_path / "two")) == alone[1]


def test_no_process_can_be_started(job: Path, alone: Alone, tmp_path: Path) -> None:
    """Where the system gives no more processes, all is done by this one."""

    def none(*given: object, **options: object) -> object:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlship_sidecar.replay.local.subprocess.Popen", none)
        found = replay(ReplayRequest(job, Config(sinks=[]), out=tmp_path / "two", jobs=2))
    assert found.finished
    assert exactly(newest_rows(tmp_path / "two")) == alone[1]


def test_a_schema_that_was_forgotten() -> None:
    """Lines of one schema that the other process met as two, as it knows only so many at a time, are all there."""
    batch, known = Batch(), Schemas()
    for step in range(4):
        schema = Schema(("a",), (Definition(),)) if step % 2 else known.of(("a",), (Definition(),))
        batch.run(0, schema).add(step, T0 + step, 10 * step, struct.pack("d", step))
    chunk = DecodedChunk(batch, Position(40), T0, None, False)
    _, (arrived,) = Unpacking(known).unpack(Packing().pack("a.jsonl", [chunk]))
    assert [(line.step, line[-1]) for line in arrived.batch().lines] == [
        (step, struct.pack("d", step)) for step in range(4)
    ]


def test_whoever_is_behind_is_helped(job: Path) -> None:
    """With one task at a time elsewhere and a slow answer, both this process and the others decode: a file of which
    nothing is left and that no worker has begun is read on here.
    """
    taken = {"here": 0, "elsewhere": 0}
    take = DecodedAhead.take

    def noted(self: DecodedAhead, *given: object) -> object:
        found = take(self, *given)  # type: ignore[arg-type]
        taken["elsewhere" if found is not None else "here"] += 1
        return found

    class Slow(Here):
        """One task at a time, whose answer comes when it is waited for or at the fifth look."""

        def __init__(self) -> None:
            self._decoding, self._tasks, self._looks = Decoding(), list[Task](), 0

        @property
        def room(self) -> int:
            return 1 - len(self._tasks)

        def submit(self, task: Task) -> None:
            self._tasks.append(task)

        def receive(self, *, wait: bool) -> list[bytes]:
            self._looks += 1
            if not self._tasks or not (wait or self._looks % 5 == 0):
                return []
            return [self._decoding.answer(self._tasks.pop())]

    with pytest.MonkeyPatch.context() as patch, scratch() as folder:
        patch.setattr(DecodedAhead, "take", noted)
        patch.setattr(run, "_engine", lambda order: Slow())
        patch.setattr(ahead, "MAX_TASK_BYTES", 64 << 10)
        assert again(job, folder / "out").finished
    assert min(taken.values()) > 10


class Greedy(Here):
    """Answers everything at once."""

    room = 1000

    def __init__(self) -> None:
        self._decoding, self._answers = Decoding(), list[bytes]()

    def submit(self, task: Task) -> None:
        self._answers.append(self._decoding.answer(task))

    def receive(self, *, wait: bool) -> list[bytes]:
        answers, self._answers = self._answers, []
        return answers


def stride(rank: int, every: int, last: int) -> bytes:
    """A rank that logs every so many steps."""
    records: list[object] = []
    for step in range(0, last, every):
        records += [{"t": T0 + step, "step": step, "m": {"loss": step / 7}}, barrier(step, step + 0.5)]
    return file(*records, CLOSE, id=f"w{rank}", rank=rank, world=4)


@pytest.mark.parametrize("engine", [None, Greedy])
@pytest.mark.parametrize("every", [(1, 1, 1, 1), (1, 2, 1, 1), (1, 1, 30, 1), (1, 1, 100, 1), (9, 9, 9, 9)])
def test_values_stay_at_hand(every: tuple[int, ...], engine: Callable[[], Engine] | None, tmp_path: Path) -> None:
    """Whether all ranks log the same steps or some log fewer: files are taken in so evenly that the values of few steps
    have to be read again; and where they go alike, nearly as many steps at a time as may keep their values.
    """
    last = 1000 * min(every)
    job = make(tmp_path / "job", {f"r{rank}.jsonl": stride(rank, n, last) for rank, n in enumerate(every)})
    closed: list[int] = []
    read_again: list[int] = []
    unfilled = Actor.unfilled

    def noted(self: Actor, closings: list[Closing]) -> list[int]:
        steps = unfilled(self, closings)
        closed.append(len(closings))
        read_again.extend(steps)
        return steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Actor, "unfilled", noted)
        patch.setattr(ahead, "MIN_TASK_BYTES", 1000)
        patch.setattr(ahead, "MAX_TASK_BYTES", 8000)
        patch.setattr(run, "_engine", lambda order: engine() if engine is not None else None)
        assert again(job, tmp_path / "out").finished
    assert len(read_again) <= (ROUND_STEPS if len(set(every)) > 1 else 0)
    steps = [unit for unit in newest_rows(tmp_path / "out") if unit.kind == STEP]
    assert sum(closed) == len(steps) == 1000
    assert max(closed) > (50 if len(set(every)) == 1 else 10)


def test_memory_does_not_grow_with_the_files(job: Path) -> None:
    """However slowly lines are taken, at most MAX_AHEAD_BYTES are decoded ahead, plus a task for the next file."""

    with pytest.MonkeyPatch.context() as patch, scratch() as folder:
        patch.setattr(ahead, "MAX_AHEAD_BYTES", 300 << 10)
        seen: list[int] = []
        take = DecodedAhead.take

        def noted(self: DecodedAhead, *given: object) -> object:
            seen.append(self._bytes)
            return take(self, *given)  # type: ignore[arg-type]

        patch.setattr(DecodedAhead, "take", noted)
        patch.setattr(run, "_engine", lambda order: Greedy())
        assert again(job, folder / "out").finished
        assert max(seen) > 200 << 10 and max(seen) <= (300 + 64 + 64) << 10
        assert len(rows_in(folder / "out")) >= STEPS


def test_messages_keep_every_bit(job: Path) -> None:
    """A chunk unpacked is the chunk packed, with schemas that are the same objects for equal metrics."""
    path = job / "rlship" / "r0.jsonl"
    data = path.read_bytes()
    head = data.index(b"\n") + 1
    mark = Position(head, data[:64], data[head - 64 : head])
    task = Task("r0.jsonl", str(path), mark, 1 << 20, 30, 1 << 16, read_open(orjson.loads(data[:head])), T0, None, ())
    decoding = Decoding()
    chunks = decoding.chunks(task)
    schemas = Schemas()
    unpacking = Unpacking(schemas)
    name, found = unpacking.unpack(Packing().pack("r0.jsonl", chunks))
    assert name == "r0.jsonl" and len(found) == len(chunks)
    batches = [one.batch() for one in found]
    for one, batch, other in zip(found, batches, chunks):
        assert (one.position, one.t, one.barrier_t, one.more) == other[1:]
        assert (one.lowest, one.highest, list(one.governing)) == (batch.lowest, batch.highest, batch.governing)
        assert [line[:4] for line in batch.lines] == [line[:4] for line in other.batch.lines]
        assert [line[-1] for line in batch.lines] == [line[-1] for line in other.batch.lines]
        assert batch.barriers == other.batch.barriers and batch.governing == other.batch.governing
        assert batch.counts == other.batch.counts and batch.dead == other.batch.dead
    assert {id(line.schema) for batch in batches for line in batch.lines if hasattr(line, "schema")} <= {
        id(schema) for schema in schemas._known.values()
    }
