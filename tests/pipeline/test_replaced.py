"""Files that do not keep what was read of them, or keep it back for a while: what becomes of rows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlship_sidecar.rows import Row
from rlship_sidecar.store.store import Store
from tests.kit.cases import some
from tests.pipeline.simulated import LOCAL, REMOTE, Simulation, simulation
from tests.pipeline.test_crash_points import FUSE, Fragile, Killed
from tests.reference.building import CLOSE, barrier, file, log
from tests.reference.reduction import exactly, final_rows

ASIDE = "a.jsonl (replaced 1)"


@pytest.fixture(params=[LOCAL, REMOTE], ids=["local", "network"])
def sim(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    with simulation(filesystem=request.param) as made:
        yield made


def steps(first: int, last: int, value: float) -> list[dict[str, object]]:
    return [record for step in range(first, last + 1) for record in (log(step, x=value), barrier(step))]


def path(sim: Simulation, name: str = "a.jsonl") -> Path:
    return sim.directory / "rlship" / name


def replace(sim: Simulation, data: bytes, name: str = "a.jsonl") -> None:
    """Rename another file over it."""
    other = sim.directory / "other"
    other.write_bytes(data)
    os.replace(other, path(sim, name))


def settle(sim: Simulation) -> None:
    """Time enough for a listing of the folder, and for revisions."""
    for _ in range(3):
        sim.wait(11.0)
        sim.tick()


def values(sim: Simulation) -> dict[int, float]:
    """Newest x by step."""
    return {unit.index: row.values["trainer/x"] for unit, row in sim.final().items()}


def test_a_file_that_another_takes_the_place_of(sim: Simulation) -> None:
    """The other one is read from its beginning; rows that exist stay; both are reported, before and after a restart."""
    sim.write("a.jsonl", file(*steps(0, 3, 1.0)))
    sim.tick()
    replace(sim, file(*steps(4, 9, 2.0), id="other", attempt=1))
    settle(sim)
    for _ in range(2):
        assert values(sim) == dict.fromkeys(range(4), 1.0) | dict.fromkeys(range(4, 10), 2.0)
        assert sorted(sim.experiment.sources) == ["a.jsonl", ASIDE]
        assert "took its place" in sim.experiment.sources[ASIDE].problem
        sim.restart()
        sim.tick()


def test_a_file_that_another_takes_the_place_of_while_nobody_watches(sim: Simulation) -> None:
    """A restart finds out by the file's own bytes, whatever its inode and size."""
    first, second = file(*steps(0, 3, 1.0)), file(*steps(4, 7, 2.0), id="b", attempt=1)
    sim.write("a.jsonl", first)
    sim.tick()
    sim.stop()
    path(sim).write_bytes(second)
    sim._start()
    sim.tick()
    assert values(sim) == dict.fromkeys(range(4), 1.0) | dict.fromkeys(range(4, 8), 2.0)


def test_the_same_file_written_anew_is_the_same(sim: Simulation) -> None:
    """A copy back from a backup has another inode and the same bytes: reading goes on where it was."""
    data = file(*steps(0, 5, 1.0))
    sim.write("a.jsonl", data[:300])
    settle(sim)
    replace(sim, data)
    settle(sim)
    sim.restart()
    sim.tick()
    assert exactly(sim.final()) == exactly(final_rows({"a.jsonl": data}))
    assert list(sim.experiment.sources) == ["a.jsonl"]
    assert sim.dead() == []


def test_a_file_that_was_cut_and_is_written_on(sim: Simulation) -> None:
    """What the writer adds after a cut counts, once; rows made of what was cut off stay."""
    data = file(*steps(0, 3, 1.0), beat=10)
    sim.write("a.jsonl", data)
    sim.tick()
    kept = data[: data.index(b'{"step": 2')]
    os.truncate(path(sim), len(kept))
    settle(sim)
    assert "shorter than what was read of it" in sim.experiment.sources["a.jsonl"].problem
    assert values(sim) == dict.fromkeys(range(4), 1.0)
    for step in range(4, 8):
        sim.write("a.jsonl", b"".join(file(*steps(step, step, 5.0)).splitlines(keepends=True)[1:]))
        settle(sim)
    assert values(sim) == dict.fromkeys(range(4), 1.0) | dict.fromkeys(range(4, 8), 5.0)
    assert {row.coverage.ranks for row in sim.rows()} == {("0.0",)}
    assert [row.arrival.revision for row in sim.rows()] == [0] * 8


@pytest.mark.parametrize("closed", [False, True])
def test_a_rank_whose_file_was_cut_within_its_open_is_missing(sim: Simulation, closed: bool) -> None:
    """Nothing tells whose the lines after the cut are, so the rank lacks, though no step waits for it. Had it closed
    before, it is done.
    """
    end = [CLOSE] if closed else []
    sim.write("a.jsonl", file(*steps(0, 2, 1.0), *end, world=2))
    sim.write("b.jsonl", file(*steps(0, 2, 1.0), world=2, rank=1, id="b"))
    sim.tick()
    os.truncate(path(sim), 20)
    settle(sim)
    sim.write("a.jsonl", b"".join(file(*steps(3, 5, 1.0)).splitlines(keepends=True)[1:]))
    settle(sim)
    for step in range(3, 6):
        sim.write("b.jsonl", b"".join(file(*steps(step, step, 1.0)).splitlines(keepends=True)[1:]))
        settle(sim)
    missing = {unit.index: row.coverage.missing for unit, row in sim.final().items()}
    assert missing == dict.fromkeys(range(3), ()) | dict.fromkeys(range(3, 6), () if closed else ("0.0",))
    sim.restart()
    sim.write("b.jsonl", b"".join(file(*steps(6, 6, 1.0), CLOSE).splitlines(keepends=True)[1:]))
    settle(sim)
    assert {unit.index: row.coverage.missing for unit, row in sim.final().items()}[6] == (() if closed else ("0.0",))


def test_a_file_that_is_cut_for_a_moment(sim: Simulation) -> None:
    """A file that shows its end late, as a network filesystem's can, is no other one."""
    data = file(*steps(0, 5, 1.0))
    sim.write("a.jsonl", data)
    sim.tick()
    os.truncate(path(sim), 200)
    settle(sim)
    path(sim).write_bytes(data + file(*steps(6, 7, 2.0)).split(b"\n", 1)[1])
    settle(sim)
    assert values(sim) == dict.fromkeys(range(6), 1.0) | dict.fromkeys(range(6, 8), 2.0)
    assert list(sim.experiment.sources) == ["a.jsonl"]


def test_a_file_that_is_cut_for_a_moment_twice(sim: Simulation) -> None:
    """Whole again in between, and without a new line, it is no other one either, however short it gets."""
    data = file(*steps(0, 5, 1.0))
    sim.write("a.jsonl", data)
    settle(sim)
    for length in (0, 200, 300):
        os.truncate(path(sim), length)
        settle(sim)
        assert "shorter than what was read of it" in sim.experiment.sources["a.jsonl"].problem
        path(sim).write_bytes(data)
        settle(sim)
    assert list(sim.experiment.sources) == ["a.jsonl"]


def test_open_steps_are_made_of_what_is_there(sim: Simulation) -> None:
    """A step that was still open is made of the file as it is now, and what it lost is reported."""
    sim.write("a.jsonl", file(*steps(0, 0, 1.0), log(1, x=1.0), world=2, beat=10))
    sim.write("b.jsonl", file(*steps(0, 0, 3.0), log(1, x=3.0), id="b", rank=1, world=2, beat=10))
    sim.tick()
    replace(sim, file(log(1, x=7.0), barrier(1), id="c", attempt=1, world=2, beat=10))
    sim.write("b.jsonl", b"".join(file(barrier(1)).splitlines(keepends=True)[1:]))
    settle(sim)
    assert values(sim) == {0: 2.0, 1: 5.0}
    assert [(name, reason) for name, _, reason, _ in sim.dead()] == [(ASIDE, "file gone before its row")]
    settle(sim)
    sim.restart()
    sim.tick()
    assert len(sim.dead()) == 1


def test_a_late_line_does_not_take_what_is_gone_out_of_a_row(sim: Simulation) -> None:
    """A revision that would have to do without a file that was replaced is not made: the row stays, and it is
    reported.
    """
    sim.write("a.jsonl", file(*steps(0, 3, 1.0), world=2))
    sim.write("b.jsonl", file(*steps(0, 3, 3.0), id="b", rank=1, world=2))
    sim.tick()
    replace(sim, file(*steps(4, 5, 7.0), id="c", attempt=1, world=2))
    sim.write("b.jsonl", b"".join(file(log(2, y=1.0), *steps(4, 5, 3.0)).splitlines(keepends=True)[1:]))
    settle(sim)
    assert values(sim) == dict.fromkeys(range(4), 2.0) | dict.fromkeys(range(4, 6), 5.0)
    assert [(name, reason) for name, _, reason, _ in sim.dead()] == [(ASIDE, "file gone before a revision")]


def test_one_name_may_change_hands_again_and_again(sim: Simulation) -> None:
    """Each file that had the name is kept apart."""
    for life in range(4):
        replace(sim, file(*steps(3 * life, 3 * life + 2, float(life)), id=f"life-{life}", attempt=life))
        settle(sim)
    assert values(sim) == {step: step // 3 for step in range(12)}
    assert sorted(sim.experiment.sources) == ["a.jsonl", *(f"a.jsonl (replaced {n})" for n in (1, 2, 3))]


def lives(sim: Simulation, act: Callable[[], None]) -> None:
    """A file, and then another one in its place."""
    sim.write("a.jsonl", file(*steps(0, 2, 1.0), log(3, x=1.0), log(3, x="bad")))
    act()
    replace(sim, file(*steps(3, 5, 2.0), CLOSE, id="b", attempt=1))
    for _ in range(3):
        sim.wait(11.0)
        act()


@pytest.mark.statistical
def test_a_kill_while_a_file_is_set_aside_changes_nothing() -> None:
    """Whatever the moment at which the sidecar is killed, the next one ends with the same rows and dead letters."""

    def surviving(sim: Simulation, act: Callable[[], None]) -> None:
        try:
            act()
        except Killed:
            sim.restart()
            act()

    def end(fatal: int) -> tuple[dict[str, str], list[object], int]:
        with pytest.MonkeyPatch.context() as patch, simulation() as sim:
            patch.setattr(Store, "connection_class", Fragile)
            sim.restart()
            FUSE.moments, FUSE.fatal, FUSE.last_words = 0, fatal, lambda: None
            lives(sim, lambda: surviving(sim, sim.tick))
            surviving(sim, sim.finish)
            moments, FUSE.fatal = FUSE.moments, -1
            return exactly(sim.final()), list(sim.dead()), moments

    *expected, moments = end(-1)
    assert moments > 40
    for fatal in some(range(1, moments + 1), share=8):
        assert [*end(fatal)][:2] == expected, fatal


def test_nul_bytes_on_a_network_filesystem_are_waited_for() -> None:
    """Bytes of another host that have not arrived read as NUL: the lines before them count, and later the rest does."""
    with simulation(filesystem=REMOTE) as sim:
        data = file(*steps(0, 9, 1.0))
        hole = slice(data.index(b'{"step": 3'), data.index(b'{"step": 6'))
        holed = data[: hole.start] + b"\0" * (hole.stop - hole.start) + data[hole.stop :]
        path(sim).write_bytes(holed)
        sim.tick()
        assert sorted(values(sim)) == [0, 1, 2]
        assert "NUL bytes from byte" in sim.experiment.sources["a.jsonl"].problem
        sim.wait(20.0)
        sim.tick()
        assert sim.dead() == []
        path(sim).write_bytes(data)
        sim.finish()
        assert exactly(sim.final()) == exactly(final_rows({"a.jsonl": data}))
        assert sim.dead() == []
        assert sim.experiment.sources["a.jsonl"].problem == ""


@pytest.mark.parametrize("at_once", [True, False], ids=["drained", "watched"])
def test_nul_bytes_that_stay_are_a_dead_letter(at_once: bool) -> None:
    """After half a minute they are taken for what a crash left: the lines after them count."""
    with simulation(filesystem=REMOTE) as sim:
        data = file(*steps(0, 3, 1.0)).replace(b'{"step": 2', b"\0" * 9)
        path(sim).write_bytes(data)
        began = sim.now
        if at_once:
            sim.finish()
            assert sim.now - began >= 30.0
        else:
            for _ in range(7):
                sim.tick()
                sim.wait(5.0)
            sim.tick()
        assert sorted(values(sim)) == [0, 1, 3]
        assert [reason for _, _, reason, _ in sim.dead()] == ["not JSON"]
        assert sim.experiment.sources["a.jsonl"].problem == ""


def test_on_a_local_filesystem_nul_bytes_are_no_news() -> None:
    """What the kernel of this host shows is what is there."""
    with simulation() as sim:
        path(sim).write_bytes(file(*steps(0, 3, 1.0)).replace(b'{"step": 2', b"\0" * 9))
        sim.tick()
        assert sorted(values(sim)) == [0, 1, 3]


def test_a_stale_handle_is_a_reason_to_open_again(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """ESTALE, which a server gives for a handle of a file that was moved about, costs one more open and no line."""
    data = file(*steps(0, 40, 1.0))
    sim.write("a.jsonl", data)
    real, seen = os.pread, []

    def stale(fd: int, length: int, offset: int) -> bytes:
        seen.append(offset)
        if len(seen) % 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", stale)
    sim.tick()
    monkeypatch.undo()
    assert len(seen) > 1
    assert exactly(sim.final()) == exactly(final_rows({"a.jsonl": data}))


def open_at_a_restart(sim: Simulation) -> dict[str, bytes]:
    """Two ranks: step 2 is open when the sidecar ends, with lines of both, and one of the files is out of reach."""
    ranks = [
        file(*steps(0, 1, 1.0 + rank), log(2, x=4.0 + rank), id=f"w{rank}", rank=rank, world=2, beat=10)
        for rank in range(2)
    ]
    files = {"a.jsonl": ranks[0], "b.jsonl": ranks[1]}
    for name, data in files.items():
        sim.write(name, data)
    sim.tick()
    sim.wait(6.0)
    sim.tick()
    sim.stop()
    return files


def test_a_file_that_cannot_be_read_at_a_restart_is_waited_for(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open steps cannot be rebuilt without it, so none closes rather than make a row that lacks lines."""
    files = open_at_a_restart(sim)
    real = os.open

    def broken(path: str, *arguments: int, **more: int) -> int:
        if str(path).endswith("b.jsonl"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", broken)
    sim._start()
    done = b"".join(file(barrier(2)).splitlines(keepends=True)[1:])
    sim.write("a.jsonl", done)
    settle(sim)
    assert sorted(values(sim)) == [0, 1]
    assert sim.experiment.sources["b.jsonl"].problem == "Input/output error"
    monkeypatch.undo()
    sim.write("b.jsonl", done)
    settle(sim)
    assert exactly(sim.final()) == exactly(final_rows({name: data + done for name, data in files.items()}))
    assert [row.arrival.revision for row in sim.rows()] == [0, 0, 0]


def test_a_file_that_is_not_there_at_a_restart_counts_when_it_is_back(sim: Simulation) -> None:
    """A share that is mounted late: what closed without its files is revised, also after one more restart."""
    files = open_at_a_restart(sim)
    aside = sim.directory / "aside"
    path(sim, "b.jsonl").rename(aside)
    sim._start()
    done = b"".join(file(barrier(2)).splitlines(keepends=True)[1:])
    sim.write("a.jsonl", done)
    for _ in range(4):
        settle(sim)
    sim.restart()
    settle(sim)
    assert values(sim)[2] == 4.0
    assert sim.dead() == []
    aside.rename(path(sim, "b.jsonl"))
    sim.write("b.jsonl", done)
    settle(sim)
    sim.finish()
    assert exactly(sim.final()) == exactly(final_rows({name: data + done for name, data in files.items()}))


def test_a_file_that_comes_back_while_nobody_watches_counts(sim: Simulation) -> None:
    """What closed without it is revised by the next sidecar, though that one never saw it missing."""
    files = open_at_a_restart(sim)
    aside = sim.directory / "aside"
    path(sim, "b.jsonl").rename(aside)
    sim._start()
    done = b"".join(file(barrier(2)).splitlines(keepends=True)[1:])
    sim.write("a.jsonl", done)
    for _ in range(4):
        settle(sim)
    assert values(sim)[2] == 4.0
    sim.stop()
    aside.rename(path(sim, "b.jsonl"))
    sim._start()
    sim.finish()
    files["a.jsonl"] += done
    assert exactly(sim.final()) == exactly(final_rows(files))


@pytest.mark.parametrize("end", [False, True], ids=["watched", "drained"])
def test_a_file_that_is_missing_for_long_counts_when_it_is_back(end: bool) -> None:
    """Rows whose values had to come from a file that was missing, and revisions that needed it, are made once it is
    back, whichever sidecar watches then; nothing counts twice.
    """
    slow = file(*steps(0, 0, 3.0), id="b", rank=1, world=3, beat=10)
    fast = [file(*steps(0, 149, 1.0 + rank), id=f"w{rank}", rank=rank, world=3, beat=10) for rank in (0, 2)]
    files = {"a.jsonl": fast[0], "b.jsonl": slow, "c.jsonl": fast[1]}
    with simulation(filesystem=REMOTE) as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.tick()
        path(sim).rename(sim.directory / "aside")
        late = b"".join(file(log(0, y=1.0), *steps(1, 149, 5.0)).splitlines(keepends=True)[1:])
        sim.write("b.jsonl", late)
        for _ in range(20):
            sim.wait(5.0)
            sim.tick()
        if end:
            sim.finish()
            sim.restart()
        assert ("a.jsonl", "file gone before its row") in {(name, reason) for name, _, reason, _ in sim.dead()}
        assert len(sim.final()) == 150
        (sim.directory / "aside").rename(path(sim))
        sim.tick()
        sim.finish()
        assert exactly(sim.final()) == exactly(final_rows({**files, "b.jsonl": slow + late}))


def test_rows_know_nothing_of_where_they_were_read(sim: Simulation) -> None:
    """A deleted file's rows stay; when it comes back with more, that counts."""
    data = file(*steps(0, 5, 1.0))
    sim.write("a.jsonl", data[:-200])
    settle(sim)
    before: list[Row] = sim.rows()
    aside = path(sim).read_bytes()
    path(sim).unlink()
    settle(sim)
    assert sim.rows() == before
    path(sim).write_bytes(aside + data[-200:])
    settle(sim)
    sim.finish()
    assert exactly(sim.final()) == exactly(final_rows({"a.jsonl": data}))
