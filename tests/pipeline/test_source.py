"""A file's block index and saved state: reading some steps again, and going on after a restart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.align import actor as align
from rlship_sidecar.decode import bundles, schemas
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Dense, Sparse
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.pipeline import source as sourcing
from rlship_sidecar.pipeline.rereading import read_again, read_from_floor
from rlship_sidecar.pipeline.source import Source, load_source
from tests.kit.cases import statistical
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_against_reference import EACH
from tests.reference.building import CLOSE, T0, barrier, define, file, log, rollback
from tests.reference.experiments import arrivals, configurations, experiments
from tests.reference.reduction import differing, final_rows

CASES = statistical(120, suppress_health_check=list(HealthCheck))
ALL = 1 << 62


@pytest.fixture(scope="module", autouse=True)
def few_lines_are_laid_together() -> Iterator[None]:
    """Two are enough, so that small examples have bundles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "FEWEST", 2)
        patch.setattr(schemas, "OFTEN", 1)
        yield


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as made:
        yield made


def plain(line: Dense | Sparse) -> tuple[Any, ...]:
    """A line without the identity of its schema."""
    if isinstance(line, Dense):
        return (*line[:4], line.schema.names, line.schema.asks, line.schema.shapes, line.data)
    return tuple(line)


@cache
def all_lines(data: bytes) -> list[tuple[Any, ...]]:
    """The metrics lines of a whole file, decoded in one go."""
    lines, offsets, at = [], [], 0
    for line in data.split(b"\n")[:-1]:
        if len(line) <= MAX_LINE_BYTES:
            lines.append(line)
            offsets.append(at)
        at += len(line) + 1
    batch = Decoder(Schemas()).decode(lines, offsets, max_steps=ALL, last_step=ALL)
    if batch.adoption is not None:
        batch.adopt(batch.adoption)
    return [plain(line) for line in batch.lines]


def again(sim: Simulation, name: str, steps: list[int]) -> list[tuple[Any, ...]]:
    source = sim.experiment.sources[name]
    return [plain(line) for batch in read_again(source, sim.store, Schemas(), steps) for line in batch.lines]


@CASES
@given(data=st.data())
def test_the_block_index_changes_nothing(data: st.DataObject) -> None:
    """With blocks of a line or two and one open step kept, everything is read again all the time: rows are the same."""
    files, overrides = data.draw(experiments()), data.draw(configurations())
    with pytest.MonkeyPatch.context() as patch, simulation(overrides=overrides) as sim:
        patch.setattr(sourcing, "BLOCK_BYTES", data.draw(st.sampled_from((1, 150, 400))))
        patch.setattr(align, "MAX_KEPT", data.draw(st.sampled_from((1, 2))))
        visible = dict.fromkeys(files, 0)
        for lengths in data.draw(arrivals(files)):
            for name, length in lengths.items():
                if length > visible[name]:
                    sim.write(name, files[name][visible[name] : length])
                    visible[name] = length
            sim.wait(data.draw(st.sampled_from((0.02, 3.0, 40.0))))
            sim.tick()
            if data.draw(st.booleans()):
                sim.restart()
        sim.finish()
        assert not differing(final_rows(files, overrides, EACH), sim.final())


@CASES
@given(data=st.data(), steps=st.sets(st.integers(0, 12), min_size=1, max_size=10))
def test_reading_steps_again_gives_their_lines(data: st.DataObject, steps: set[int]) -> None:
    """Whatever the blocks, exactly the lines of the steps asked for come again, in file order and as at first."""
    files = data.draw(experiments())
    with pytest.MonkeyPatch.context() as patch, simulation() as sim:
        patch.setattr(sourcing, "BLOCK_BYTES", data.draw(st.sampled_from((1, 150, 400, 1 << 18))))
        for name, content in files.items():
            sim.write(name, content)
        sim.tick()
        for name, content in files.items():
            if sim.experiment.sources[name].writer is not None:
                expected = [line for line in all_lines(content) if line[0] in steps]
                assert again(sim, name, sorted(steps)) == expected


@cache
def big_file() -> bytes:
    """More than a megabyte: 4000 steps of two lines, a definition and a rollback far apart, times left out."""
    records: list[dict[str, Any]] = []
    for step in range(4000):
        if step == 700:
            records.append(define(loss="max"))
        if step == 2500:
            records.append(rollback(2400))
        timed = {"t": T0 + step} if step % 3 == 0 else {}
        records += [{**timed, **log(step, loss=float(step), pad=[0] * 60)}, log(step, loss=0.5), barrier(step)]
    return file(*records)


@pytest.fixture(scope="module")
def big() -> Iterator[Simulation]:
    """An experiment of the big file, read to its end, for tests that only read it again."""
    with simulation() as made:
        made.write("a.jsonl", big_file())
        made.tick()
        made.wait(5)
        made.tick()
        yield made


def test_a_few_steps_of_a_big_file_are_read_cheaply(big: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far steps come with the definitions, segments and times that hold there, out of a block or two of the file."""
    content = big_file()
    assert len(content) > 4 * sourcing.BLOCK_BYTES
    read: list[int] = []
    real = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        data = real(fd, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    for steps in ([3], [1501], [3998, 3999], list(range(3000, 3020))):
        read.clear()
        assert again(big, "a.jsonl", steps) == [line for line in all_lines(content) if line[0] in steps]
        assert sum(read) < 2.5 * (sourcing.BLOCK_BYTES + sourcing.PIECE_BYTES)
    assert again(big, "a.jsonl", [9999]) == []


def test_a_block_with_an_endless_line_is_read_in_bounds(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading again a block that holds a line of 60 MiB never takes more than 16 MiB at a time into memory."""
    content = file(log(1, a=1.0)) + b"x" * (60 << 20) + b"\n" + json.dumps(log(1, a=2.0)).encode() + b"\n"
    sim.write("a.jsonl", content)
    sim.tick()
    longest = 0
    real = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        nonlocal longest
        longest = max(longest, length)
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert again(sim, "a.jsonl", [1]) == all_lines(content)
    assert longest <= 16 << 20


def test_a_file_that_shrank_is_an_error(sim: Simulation) -> None:
    """Reading again what a file no longer has raises instead of giving a part."""
    sim.write("a.jsonl", file(*(log(step, a=1.0) for step in range(50))))
    sim.tick()
    os.truncate(sim.directory / "rlship" / "a.jsonl", 500)
    with pytest.raises(OSError, match="shorter than it was"):
        again(sim, "a.jsonl", [1])


@pytest.mark.parametrize("floor_step", [0, 1, 1500, 3999])
def test_everything_from_the_floor_on_is_read(big: Simulation, floor_step: int) -> None:
    """After a restart the lines from the first one of any open step on are read, and none before."""
    lines = all_lines(big_file())
    floor = next(line[2] for line in lines if line[0] == floor_step)
    source = big.experiment.sources["a.jsonl"]
    found = [plain(line) for batch in read_from_floor(source, big.store, Schemas(), floor) for line in batch.lines]
    assert found == [line for line in lines if line[2] >= floor]


def test_the_floor_is_the_first_line_of_an_open_step(sim: Simulation) -> None:
    """While a step is open its first line is the floor; once all are closed it is where reading goes on."""
    first = file(world=2, id="a", beat=10)
    sim.write("a.jsonl", first + b"".join(json.dumps(log(step, x=1.0)).encode() + b"\n" for step in (0, 1)))
    sim.write("b.jsonl", file(world=2, id="b", rank=1, beat=10))
    sim.tick()
    source = sim.experiment.sources["a.jsonl"]
    assert source.floor == len(first)
    sim.write("a.jsonl", json.dumps(CLOSE).encode() + b"\n")
    sim.write("b.jsonl", json.dumps(CLOSE).encode() + b"\n")
    sim.tick()
    assert len(sim.rows()) == 2
    assert source.floor == source.read == (sim.directory / "rlship" / "a.jsonl").stat().st_size


STATE = (
    b'[{"id":"a","actor":"trainer","replica":"0","rank":3,"world":8,"attempt":1,"axis":"global_step","t":1763600000.0,'
    b'"beat":10.0,"parent":null,"job":null,"host":"n07","pid":4121,"writer":"python/0.1.0","agent":"",'
    b'"source":"","pid_space":"b7c2 pid:[1]"},'
    b"[[0,2,2,1763600000.0],[2,1,-1,1763600000.0]],"
    b'[{"n":5,"first":0,"last":1},{"n":1,"first":null,"last":null}],0,false,true,1763600009.0,1763600009.0,null,'
    b'[0,0.0,0,2,null,null,null],0,false,"eyJraW5kIjogIm9wZW4iLCAicmxzaGlwIjogMSwgImlkIjogImEiLCAiYWN0b3IiOiAidHJhaW5lciIsICJ0Ig==",'
    b'"ICJiZWF0IiwgInQiOiAxNzYzNjAwMDA5LjB9Cnsia2luZCI6ICJjbG9zZSIsICJyZWFzb24iOiAiZXhpdCJ9Cg==",false,null,1763600009.0,null,null,""]'
)


def state_file() -> bytes:
    return file(
        *(record for step in (0, 1, 2) for record in (log(step, x=1.0), barrier(step))),
        {"kind": "gap", "n": 5, "from": 0, "to": 1},
        {"kind": "gap", "n": 1},
        rollback(2),
        {"kind": "beat", "t": T0 + 9},
        CLOSE,
        rank=3,
        world=8,
        attempt=1,
        beat=10,
        host="n07",
        pid=4121,
        pid_space="b7c2 pid:[1]",
        writer="python/0.1.0",
        labels={"gpu": "3"},
    )


def test_the_saved_state_is_pinned(sim: Simulation) -> None:
    """The store's record of a file is this very text, and from it the writer comes back as it was."""
    sim.write("a.jsonl", state_file())
    sim.tick()
    sim.wait(6)
    sim.tick()
    source = sim.experiment.sources["a.jsonl"]
    saved = source.saved()
    assert saved.state == STATE
    loaded = load_source(saved, source.tail.twin(), Schemas(), sim.store, now=77.0)
    assert loaded.saved() == saved
    added = b',"agent":"","source":"","pid_space":"b7c2 pid:[1]"'
    older = saved._replace(state=STATE.replace(added, b""))  # from before there were any
    unknown = saved._replace(state=STATE.replace(b"b7c2 pid:[1]", b""))
    assert load_source(older, source.tail.twin(), Schemas(), sim.store, now=77.0).saved() == unknown
    writer = loaded.writer
    assert writer is not None
    assert (writer.seen_at, writer.line_at, loaded.at_step) == (77.0, 77.0, 2)
    assert (loaded.decoder.segment, loaded.decoder.t, loaded.decoder.opened) == (1, T0 + 9, writer.open)


@pytest.mark.parametrize(
    ("content", "foreign"),
    [(b"", False), (b"rubbish\n", False), (b'{"kind":"open","rlship":2,"id":"a","actor":"x"}\n', True)],
)
def test_a_file_without_an_open_survives_too(sim: Simulation, content: bytes, foreign: bool) -> None:
    """What was read before any open is not read twice, and a file of another version stays one."""
    sim.write("a.jsonl", content)
    sim.tick()
    source = sim.experiment.sources["a.jsonl"]
    loaded = load_source(source.saved(), source.tail.twin(), Schemas(), sim.store, now=0.0)
    assert (loaded.read, loaded.writer, loaded.decoder.reader.unsupported) == (len(content), None, foreign)
    sim.restart()
    sim.write("a.jsonl", file(log(1, x=1.0)))
    sim.finish()
    assert len(sim.rows()) == (0 if foreign else 1)


def test_saved_blocks_cover_a_file_without_gaps(big: Simulation) -> None:
    """Blocks follow each other from the beginning of the file, of 256 KiB or more, and say which steps they hold."""
    blocks = big.store.blocks("a.jsonl", -1, ALL)
    source: Source = big.experiment.sources["a.jsonl"]
    assert blocks[0].start == 0
    assert [block.start for block in blocks[1:]] + [source.index.start] == [block.stop for block in blocks]
    assert all(block.stop - block.start >= sourcing.BLOCK_BYTES for block in blocks)
    lines = all_lines(big_file())
    for block in blocks:
        steps = [line[0] for line in lines if block.start <= line[2] < block.stop]
        assert (block.lowest, block.highest) == (min(steps), max(steps))


STATES = {
    "w.jsonl": (
        file(
            define(loss=["mean"]),
            log(3, loss=1.5),
            barrier(3),
            log(4, loss=2.0),
            rollback(4),
            log(4, loss=2.5),
            {"t": T0 + 7.5, "m": {"ping": 1.0}},
            {"kind": "gap", "n": 2, "first": 3, "last": 4},
            id="w",
            rank=1,
            world=2,
            attempt=3,
            host="n1",
        ),
        '[{"id":"w","actor":"trainer","replica":"0","rank":1,"world":2,"attempt":3,"axis":"global_step",'
        '"t":1763600000.0,"beat":null,"parent":null,"host":"n1","pid":0,"writer":"","agent":""},'
        "[[3,3,4,1763600000.0],[4,3,4,1763600000.0]],"
        '[{"n":2,"first":null,"last":null}],3,false,false,1763600007.5,1763600007.5,null,'
        "[0,0.0,3,4,null,1763600007.5,1763600007.5],0,false,"
        '"eyJraW5kIjogIm9wZW4iLCAicmxzaGlwIjogMSwgImlkIjogInciLCAiYWN0b3IiOiAidHJhaW5lciIsICJ0Ig==",'
        '"OiB7InBpbmciOiAxLjB9fQp7ImtpbmQiOiAiZ2FwIiwgIm4iOiAyLCAiZmlyc3QiOiAzLCAibGFzdCI6IDR9Cg==",'
        "false,1763600007.5,null,null]",
    ),
    "x.jsonl": (
        b"rubbish\n",
        '[null,[],[],-1,true,false,0.0,0.0,null,[0,0.0,-1,-1,null,null,null],0,false,"cnViYmlzaAo=","cnViYmlzaAo=",'
        "false,null,null,null]",
    ),
}


def test_a_state_is_written_as_former_releases_did(sim: Simulation) -> None:
    """The array in the store has its fields in the order that they always had, and comes back as it was."""
    for name, (data, _) in STATES.items():
        sim.write(name, data)
    sim.experiment.tick(sim.now, 0.0)
    for name, (_, state) in STATES.items():
        source = sim.experiment.sources[name]
        saved = source.saved()
        # `job`, `source` and `pid_space` came later, and `adoption` and `failure`, at the end.
        named = state.replace('"parent":null', '"parent":null,"job":null').replace(
            '"agent":""', '"agent":"","source":"","pid_space":""'
        )
        assert saved.state.decode() == f'{named[:-1]},null,""]'
        for known in (saved, saved._replace(state=state.encode())):
            again = load_source(known, source.tail, Schemas(), sim.store, sim.now)
            again.unrestored = None  # `floor` is where it was
            assert again.saved().state == saved.state
