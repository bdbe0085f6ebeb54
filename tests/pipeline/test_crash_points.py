"""A kill between any two statements of the store, or any two rows of a statement: the final rows stay the same.

The state is copied as it lies on disk at that moment, journal and all, and the next sidecar starts from the copy.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rlship_sidecar.align.units import Patience
from rlship_sidecar.store.store import Store
from tests.kit.cases import some
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_against_reference import check_numbering
from tests.reference.building import T0, barrier, define, file, log
from tests.reference.reduction import differing, final_rows

CLOSE = {"kind": "close", "reason": "exit"}
CLOCK = {"kind": "clock", "t": T0 + 5.0, "offset": 2.0, "err": 0.1}
STREAMED = {"kind": "define", "m": {"ping": {"stream": True}}}
ROLLBACK = {"kind": "rollback", "step": 2, "t": 1763600004.0}
QUICK = Patience(grace_s=5.0, revise_s=1.0)


class Killed(BaseException):
    """The process ends here."""


class Fuse:
    """Counts the moments between which a kill can fall, and kills at one of them."""

    def __init__(self) -> None:
        self.moments = 0
        self.fatal = -1
        self.last_words: Callable[[], None] = lambda: None

    def pass_by(self) -> None:
        self.moments += 1
        if self.moments == self.fatal:
            self.last_words()
            raise Killed


FUSE = Fuse()


class Fragile(sqlite3.Connection):
    """A connection that passes the fuse before every statement and every row of one."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        FUSE.pass_by()
        return super().execute(*arguments)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        FUSE.pass_by()
        return super().executemany(sql, _counted(rows))


def _counted(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:
        FUSE.pass_by()
        yield row


def ended(step: int) -> dict[str, Any]:
    return barrier(step) | {"t": T0 + 4.0 * step + 4.0}


def streamed(*ts: float) -> list[dict[str, Any]]:
    return [{"t": T0 + t, "m": {"ping": t, "loss": 1.0}} for t in ts]


def pieces() -> list[dict[str, bytes]]:
    """What the writers append, in five pieces: three ranks, dead lines, late lines, a rollback, a new attempt,
    and a stream with points, late lines and a late word about its clock.
    """
    ranks = [
        file(
            define(loss=["mean", "max"]),
            *(record for step in range(4) for record in (log(step, loss=rank + step / 7), ended(step))),
            id=f"w{rank}",
            rank=rank,
            world=3,
            beat=10,
        )
        for rank in range(3)
    ]
    cut = [len(data) // 2 for data in ranks]
    again = file(
        log(3, loss=9.0), barrier(3), log(4, loss=8.0), barrier(4), CLOSE, id="w0b", attempt=1, world=3, beat=10
    )
    return [
        {f"r{rank}": data[: cut[rank]] for rank, data in enumerate(ranks)}
        | {"g": file(STREAMED, *streamed(1, 3, 6, 9), id="g", actor="generator", host="n1", beat=10)},
        {"r0": ranks[0][cut[0] :] + b"torn and \xff rubbish\n", "r1": ranks[1][cut[1] :]},
        {"r2": ranks[2][cut[2] :], "g": _lines(*streamed(11, 14, 18, 25))},
        {"r1": _lines(log(1, late=1.0), log(2, loss="x"), ROLLBACK, log(2, loss=5.0), barrier(4)), "r0b": again},
        {
            "r2": _lines(log(4, loss=7.0), barrier(4), CLOSE),
            "g": _lines(CLOCK, *streamed(2, 34), {"kind": "gap", "n": 2}),
        },
    ]


def _lines(*records: dict[str, Any]) -> bytes:
    return file(*records).split(b"\n", 1)[1]


def live(sim: Simulation) -> None:
    """The whole run: pieces appear, time passes, the sidecar ticks; whenever it is killed it starts again."""
    for piece in pieces():
        for name, data in piece.items():
            sim.write(f"{name}.jsonl", data)
        for _ in range(3):
            surviving(sim, sim.tick)
            sim.wait(3.0)
    surviving(sim, sim.finish)


def surviving(sim: Simulation, act: Callable[[], None]) -> None:
    """Do something; if the sidecar is killed meanwhile, start it on what lay on disk then, and do it again."""
    try:
        act()
    except Killed:
        sim.stop()
        state = sim.directory / "rlship" / "state"
        shutil.rmtree(state)
        shutil.move(sim.directory / "snapshot", state)
        sim._start()
        act()


@contextmanager
def fragile(fatal: int, *, wal: bool) -> Iterator[Simulation]:
    """A simulation that is killed at the given moment after it started (-1: never)."""
    with pytest.MonkeyPatch.context() as patch, simulation(patience=QUICK, wal=wal) as sim:
        patch.setattr(Store, "connection_class", Fragile)
        sim.restart()
        FUSE.moments, FUSE.fatal = 0, fatal
        FUSE.last_words = lambda: shutil.copytree(sim.directory / "rlship" / "state", sim.directory / "snapshot")
        yield sim


def whole() -> dict[str, bytes]:
    """The files as they are at the end."""
    files: dict[str, bytes] = {}
    for piece in pieces():
        for name, data in piece.items():
            files[f"{name}.jsonl"] = files.get(f"{name}.jsonl", b"") + data
    return files


@pytest.mark.statistical
@pytest.mark.parametrize("wal", [True, False], ids=["write-ahead log", "rollback journal"])
def test_a_kill_at_any_moment_changes_no_final_row(wal: bool) -> None:
    """Every moment between two statements or rows is one to be killed at; dead letters and numbering hold too."""
    expected = final_rows(whole())
    with fragile(-1, wal=wal) as sim:
        live(sim)
        moments, dead = FUSE.moments, sorted(sim.dead(), key=str)
        assert not differing(expected, sim.final())
        assert len(sim.rows()) > len(expected)
    assert moments > 150
    for fatal in some(range(1, moments + 1)):
        with fragile(fatal, wal=wal) as sim:
            live(sim)
            assert not differing(expected, sim.final()), fatal
            assert sorted(sim.dead(), key=str) == dead, fatal
            check_numbering(sim.rows())
