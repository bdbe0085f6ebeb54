"""Streams as one sees them live: slow steps, writers that die, clocks apart, a lead that goes back, much to hold."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from rlship_sidecar.align.units import Patience, StreamConfig
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.pipeline import recall, rereading
from rlship_sidecar.pipeline.source import Source
from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.store.store import Store
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, file
from tests.reference.reduction import Settings, differing, final_rows


def stream(t: float, **m: object) -> dict[str, object]:
    return {"t": T0 + t, "m": m}


def step(number: int, t: float, **m: object) -> tuple[dict[str, object], dict[str, object]]:
    """A step of the lead that ends at `t`."""
    return {"t": T0 + t, "step": number, "m": m}, {"kind": "barrier", "step": number, "t": T0 + t}


def lines(*records: dict[str, object]) -> bytes:
    return file(*records).split(b"\n", 1)[1]


def rows(sim: Simulation, kind: str) -> dict[int, Row]:
    return {unit.index: row for unit, row in sim.final().items() if unit.kind == kind}


def check(sim: Simulation, files: dict[str, bytes], settings: Settings | None = None) -> None:
    """At the end every row is as the reference says."""
    sim.finish()
    assert not differing(final_rows(files, settings=settings or Settings()), sim.final())


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as running:
        yield running


class Files:
    """What was written to a simulation, file by file."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.whole: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        self.sim.write(name, data)
        self.whole[name] = self.whole.get(name, b"") + data


def test_a_slow_step_is_visible_while_it_lasts(sim: Simulation) -> None:
    """With steps of five minutes and a line a second, each window of ten seconds is a row a moment after it is over,
    and the whole step is one soon after its barrier, of the same lines.
    """
    files = Files(sim)
    files.write("t.jsonl", file({"kind": "beat", "t": T0}, beat=10))
    files.write("g.jsonl", file(id="g", actor="generator", beat=10))
    first = math.floor(T0 / 10)
    for second in range(1, 621):
        files.write("g.jsonl", lines(stream(second, tokens=second)))
        if second % 10 == 0:
            files.write("t.jsonl", lines({"kind": "beat", "t": T0 + second}))
        if second % 300 == 0:
            files.write("t.jsonl", lines(*step(second // 300, second, loss=0.5)))
        sim.wait(1.0)
        sim.tick()
        over = [index for index in range(first, first + second // 10) if (index + 1) * 10 < T0 + second]
        assert sorted(rows(sim, "clock")) == over
        assert sorted(rows(sim, "aligned")) == [n for n in (1, 2) if n * 300 < second]
    found = sim.final()[Unit("generator", "aligned", 1)]
    assert found.values == {"generator/tokens": sum(range(1, 301)) / 300} and found.x == {"global_step": 1}
    assert found.coverage.expected == 1 and found.coverage.missing == ()
    assert rows(sim, "clock")[first + 3].x == {"clock/elapsed_s": 30.0}
    assert not [row for row in sim.rows() if row.arrival.revision]
    check(sim, files.whole)


def test_a_dead_writer_is_named_and_welcome_back(sim: Simulation) -> None:
    """Rows wait for a silent writer for `grace_s`, then name its rank; when it is back, rows are whole again."""
    files = Files(sim)
    for rank in range(2):
        files.write(f"g{rank}.jsonl", file(stream(1, x=rank), id=f"g{rank}", actor="generator", rank=rank, beat=10))
    first = math.floor(T0 / 10)
    for second in range(2, 60):
        files.write("g0.jsonl", lines(stream(second, x=0)))
        sim.wait(1.0)
        sim.tick()
        if second < 30:
            assert not sim.rows()
    assert rows(sim, "clock")[first].coverage.missing == ()
    assert rows(sim, "clock")[first + 1].coverage.missing == ("0.1",)
    assert rows(sim, "clock")[first + 2].coverage.missing == ("0.1",)
    files.write("g1.jsonl", lines(stream(25, x=4), stream(59, x=8)))
    for _ in range(8):
        sim.wait(1.0)
        sim.tick()
    assert rows(sim, "clock")[first + 1].coverage.missing == ()
    assert rows(sim, "clock")[first + 2].values == {"clock/generator/x": 4 / 11}
    check(sim, files.whole)


@pytest.mark.parametrize("apart", [0.0, 7.25, 120.0])
def test_clocks_apart_and_drifting(sim: Simulation, apart: float) -> None:
    """Lines of a host whose clock is wrong and drifts stand at the steps and windows in which they were written."""
    files = Files(sim)
    drift = 1.001
    ahead = [apart + second * (drift - 1) for second in range(200)]
    files.write("t.jsonl", file(beat=10, host="n1"))
    opened = {"id": "g", "actor": "generator", "beat": 10, "host": "n2", "t": T0 + apart}
    files.write("g.jsonl", file({"kind": "clock", "t": T0 + apart, "offset": apart, "err": 0.01}, **opened))
    for second in range(1, 200):
        t = second + ahead[second]
        files.write("g.jsonl", lines(stream(t, at=second)))
        if second % 20 == 0:
            clock = {"kind": "clock", "t": T0 + t, "offset": ahead[second], "err": 0.01}
            files.write("g.jsonl", lines(clock))
        files.write(
            "t.jsonl", lines(*step(second // 10, second) if second % 10 == 0 else ({"kind": "beat", "t": T0 + second},))
        )
        sim.wait(1.0)
        sim.tick()
    sim.finish()
    for number, row in rows(sim, "aligned").items():
        assert abs(row.values["generator/at"] - (number * 10 - 4.5)) < 0.6
    check(sim, files.whole)


def test_a_lead_that_goes_back(sim: Simulation) -> None:
    """After a rollback the steps stand where they were done anew, and what went on in between at none of them."""
    files = Files(sim)
    files.write("t.jsonl", file(*(r for n in range(4) for r in step(n, 10 * n + 10, loss=n)), beat=10))
    files.write("g.jsonl", file(*(stream(s, at=s) for s in range(1, 45)), id="g", actor="generator", beat=10))
    sim.tick()
    assert {n: row.values["generator/at"] for n, row in rows(sim, "aligned").items()} == {
        0: 5.5, 1: 15.5, 2: 25.5, 3: 35.5,
    }  # fmt: skip
    files.write(
        "t.jsonl", lines({"kind": "rollback", "step": 2, "t": T0 + 44}, *step(2, 50, loss=9), *step(3, 60, loss=9))
    )
    files.write("g.jsonl", lines(*(stream(s, at=s) for s in range(45, 70))))
    for _ in range(10):
        sim.wait(1.0)
        sim.tick()
    assert {n: row.values["generator/at"] for n, row in rows(sim, "aligned").items()} == {
        0: 5.5, 1: 15.5, 2: 47.5, 3: 55.5,
    }  # fmt: skip
    check(sim, files.whole)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lead_that_does_a_part_again(sim: Simulation, restarts: bool) -> None:
    """A new attempt that does some steps again leaves the aligned rows of the later ones as they are."""
    files = Files(sim)
    files.write("t0.jsonl", file(*(r for n in range(8) for r in step(n, 10 * n + 10, loss=n)), beat=10))
    files.write("g.jsonl", file(*(stream(s, at=s) for s in range(1, 85)), id="g", actor="generator", beat=10))
    sim.tick()
    before = rows(sim, "aligned")
    again = [record for n in range(3) for record in step(n + 3, 10 * n + 100, loss=9)]
    for record in [None, *again, CLOSE]:
        files.write("t1.jsonl", lines(record) if record else file(id="t1", attempt=1, t=T0 + 90, beat=10))
        if restarts:
            sim.restart()
        sim.wait(1.0)
        sim.tick()
        found = rows(sim, "aligned")
        assert [found[n] for n in (0, 1, 2, 6, 7)] == [before[n] for n in (0, 1, 2, 6, 7)]
    files.write("g.jsonl", lines(*(stream(s, at=s) for s in range(85, 130))))
    check(sim, files.whole)
    assert rows(sim, "aligned")[6].coverage == before[6].coverage


def test_another_lead_and_other_windows(sim: Simulation) -> None:
    """With another lead or window length in the configuration, rows are made anew, and end as if it had always been."""
    files = Files(sim)
    files.write("t.jsonl", file(*(r for n in range(4) for r in step(n, 10 * n + 10, loss=n)), CLOSE))
    other = [record for n in range(2) for record in step(n, 25 * n + 25, loss=n)]
    files.write("r.jsonl", file(*other, CLOSE, id="r", actor="reward"))
    files.write("g.jsonl", file(*(stream(s, at=s) for s in range(1, 60)), CLOSE, id="g", actor="generator"))
    check(sim, files.whole)
    for lead, window in (("reward", 10.0), ("reward", 7.5), ("absent", 7.5), ("trainer", 10.0)):
        sim.streams = StreamConfig(lead, window)
        sim.restart()
        sim.tick()
        check(sim, files.whole, Settings(lead=lead, window=window))


def test_memory_does_not_grow_with_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """After very many lines no more of them are held, and no more is kept open, than after a few."""
    monkeypatch.setattr("rlship_sidecar.streams.recent.MAX_LINES", 500)
    with simulation() as sim:
        sim.write("t.jsonl", file(beat=10))
        sim.write("g.jsonl", file(id="g", actor="generator", beat=10))
        for second in range(1, 800):
            sim.write("g.jsonl", lines(*(stream(second + i / 10, x=i) for i in range(10))))
            sim.write("t.jsonl", lines(*step(second, second, loss=1)))
            sim.wait(1.0)
            sim.tick()
        streams = sim.experiment.streaming.streams["generator"]
        assert streams.recent.count <= 1000 and len(streams.pending) <= 2 and not streams.revisions.dirty
        assert len(rows(sim, "aligned")) >= 790


def test_a_restart_with_lines_that_wait() -> None:
    """Lines beyond the last closed window are found again after a restart, and lead to their rows once."""
    with simulation(patience=Patience(grace_s=1000.0)) as sim:
        files = Files(sim)
        files.write("g0.jsonl", file(*(stream(s, at=s) for s in range(1, 45)), id="g0", actor="generator", beat=10))
        files.write("g1.jsonl", file(stream(12, at=1), id="g1", actor="generator", rank=1, beat=10))
        sim.tick()
        assert len(rows(sim, "clock")) == 1
        sim.restart()
        sim.tick()
        files.write("g1.jsonl", lines(stream(41, at=1)))
        sim.tick()
        assert len(rows(sim, "clock")) == 4
        assert not [row for row in sim.rows() if row.arrival.revision]
        check(sim, files.whole)


def test_many_submissions_read_the_leads_files_once(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many files that come in any order may renumber all lives of a rank; the timeline is made anew only once
    they are read.
    """
    read: list[str] = []

    def counted(source: Source, store: Store, schemas: Schemas) -> Iterator[Batch]:
        read.append(source.name)
        return rereading.read_barriers(source, store, schemas)

    monkeypatch.setattr(recall, "read_barriers", counted)
    files, count = {}, 30
    for life in range(count):
        lines = [{"step": life, "m": {"loss": 1}}, {"kind": "barrier", "step": life, "t": T0 + 100 * life + 5}, CLOSE]
        name = f"{count - life:02}.jsonl"
        files[name] = file(*lines, id=f"w{life:02}", world=1, attempt=count - life, t=T0 + 100 * life)
        sim.write(name, files[name])
    files["g.jsonl"] = file({"t": T0 + 1003, "m": {"x": 1}}, CLOSE, actor="generator", id="g", t=T0)
    sim.write("g.jsonl", files["g.jsonl"])
    sim.finish()
    assert len(read) <= 2 * count
    assert not differing(final_rows(files), sim.final())


@pytest.mark.parametrize("restarts", [False, True])
def test_a_window_that_turns_out_to_be_filled(sim: Simulation, restarts: bool) -> None:
    """A silent writer is given up, so its last window counts as a part; once it goes on the rate is of the whole."""
    opening = {"kind": "define", "m": {"tokens": {"reduce": ["rate", "sum"]}}}
    whole = file(opening, {"t": T0 + 17.5, "m": {"tokens": 6}}, actor="generator", id="g")
    window = Unit("generator", "clock", math.floor((T0 + 10) / 10))
    sim.write("g.jsonl", whole)
    sim.tick()
    sim.wait(31)
    sim.tick()
    assert sim.final()[window].values["clock/generator/tokens"] == 6 / 7.5
    if restarts:
        sim.restart()
    late = b'{"kind":"beat","t":%.1f}\n{"kind":"close"}\n' % (T0 + 60)
    sim.write("g.jsonl", late)
    sim.finish()
    assert sim.final()[window].values["clock/generator/tokens"] == 0.6
    assert not differing(final_rows({"g.jsonl": whole + late}), sim.final())


def test_points_come_at_once_but_not_too_many(sim: Simulation) -> None:
    """A line of a metric declared as a stream is a row at once, at most one a second of a file, by its own clock."""
    files = Files(sim)
    define = {"kind": "define", "m": {"gpu": {"stream": True, "reduce": ["max", "mean"]}}}
    files.write("g.jsonl", file(define, id="g", actor="generator", beat=10))
    for tenth in range(30):
        files.write("g.jsonl", lines(stream(tenth / 10, gpu=[tenth, 0], other=1)))
        sim.tick()
    found = [row for row in sim.rows() if row.unit.writer == "g"]
    assert [row.values for row in found] == [{"point/generator/gpu": tenth} for tenth in (0.0, 10.0, 20.0)]
    assert [row.x["clock/elapsed_s"] for row in found] == [0.0, 1.0, 2.0]
    check(sim, files.whole)


def test_points_go_on_when_a_clock_is_set_back(sim: Simulation) -> None:
    """A host's clock may begin years ahead, or one line be from there: that ends no file's points."""
    files = Files(sim)
    define = {"kind": "define", "m": {"gpu": {"stream": True}}}
    files.write("g.jsonl", file(define, id="g", actor="generator", beat=10))
    for seconds in (0, 3600, 1, 1.5, 2, 1e9, 3):
        files.write("g.jsonl", lines(stream(seconds, gpu=seconds)))
        sim.tick()
    found = [row.values["point/generator/gpu"] for row in sim.rows() if row.unit.writer == "g"]
    assert found == [0, 3600, 1, 2, 1e9, 3]
    check(sim, files.whole)


def test_policy_lag_in_every_kind_of_row(sim: Simulation) -> None:
    """How far a policy is behind the lead is shown beside steps, over time, and in the steps of other actors, with a
    `define` of its version or, as its name is known, without.
    """
    files = Files(sim)
    define = {"kind": "define", "m": {"policy_version": {"unit": "global_step", "reduce": "min"}}}
    files.write("t.jsonl", file(*(r for n in range(4) for r in step(n, 10 * n + 10, loss=n)), CLOSE))
    streamed = [stream(s, policy_version=s // 20) for s in range(1, 40)]
    files.write("g.jsonl", file(define, *streamed, CLOSE, id="g", actor="generator"))
    files.write("r.jsonl", file(define, *step(3, 12, policy_version=1), CLOSE, id="r", actor="reward"))
    files.write("e.jsonl", file(*step(3, 12, policy_version=[2, 1]), CLOSE, id="e", actor="env"))
    counting = {"kind": "define", "m": {"policy_version": {"unit": "versions"}}}
    files.write("b.jsonl", file(counting, *step(3, 12, policy_version=1), CLOSE, id="b", actor="buffer"))
    sim.finish()
    assert rows(sim, "aligned")[3].values["generator/policy_lag"] == 2.0
    assert rows(sim, "clock")[math.floor(T0 / 10) + 3].values["clock/generator/policy_lag"] == 2.0
    assert sim.final()[Unit("reward", "step", 3)].values["reward/policy_lag"] == 2.0
    known = {"env/policy_version": 1.0, "env/policy_version/max": 2.0, "env/policy_lag": 2.0}
    assert sim.final()[Unit("env", "step", 3)].values == known
    assert sim.final()[Unit("buffer", "step", 3)].values == {
        "buffer/policy_version": 1.0,
        "buffer/policy_version/max": 1.0,
    }
    check(sim, files.whole)


FAR = 4_070_908_800.0 - T0  # the year 2099


@pytest.mark.parametrize("generators", [1, 2])
@pytest.mark.parametrize("ahead_s", [(FAR,), (FAR, FAR + 45.0)], ids=["once", "for a while"])
def test_a_line_of_the_far_future_disturbs_no_other_window(generators: int, ahead_s: tuple[float, ...]) -> None:
    """A clock that is wrong for a moment makes its own windows rows, once it is waited for no more; the windows of the
    present still become rows when they are over, once each, also after restarts, and lines too late revise both kinds.
    """
    with simulation(patience=Patience(max_wait_s=60.0), wall=T0 - 1000.0) as sim:
        files = Files(sim)
        for number in range(generators):
            opened = {"id": f"g{number}", "actor": "generator", "rank": number, "beat": 10}
            files.write(f"g{number}.jsonl", file(**opened))
        for second in range(1, 301):
            for number in range(generators):
                files.write(f"g{number}.jsonl", lines(stream(second, x=number)))
            if 22 <= second < 22 + len(ahead_s):
                files.write("g0.jsonl", lines(stream(ahead_s[second - 22], x=7)))
            sim.wait(1.0)
            sim.tick()
            if second in (120, 200):
                sim.restart()
        first, far = math.floor(T0 / 10), math.floor((T0 + FAR) / 10)
        made = [row.unit.index for row in sim.rows() if row.unit.kind == "clock"]
        present = [index for index in made if index < far]
        assert sorted(set(present)) == list(range(first, first + 29))
        assert len(present) <= len(set(present)) + 2
        assert sorted(set(made) - set(present)) == [far + math.floor(t - FAR) // 10 for t in ahead_s]
        files.write("g0.jsonl", lines(stream(FAR + 1.0, x=8), stream(101.0, x=9), stream(301.0, x=0)))
        sim.wait(6.0)
        sim.tick()
        sim.wait(6.0)
        sim.tick()
        found = rows(sim, "clock")
        assert found[far].arrival.revision == 1
        assert found[first + 10].arrival.revision >= 1
        check(sim, files.whole)


def test_an_earlier_line_may_stand_at_a_later_time(sim: Simulation) -> None:
    """Where the host's clock was set in between, a file's first line by its own clock is not the first one: a rank is
    expected from the former on, in rows that were made before it came as well.
    """
    files = Files(sim)
    clocks = (
        {"kind": "clock", "t": T0 + t, "offset": offset, "err": 0.0} for t, offset in ((0.0, -90.0), (37.0, 40.0))
    )
    files.write("g.jsonl", file(*clocks, stream(40.5, x=1), id="g", actor="generator", host="n1"))
    sim.tick()
    sim.wait(60.0)
    sim.tick()
    assert [row.coverage.expected for row in rows(sim, "clock").values()] == [1]
    files.write("g.jsonl", lines(stream(28.5, x=2)))
    check(sim, files.whole)
    assert rows(sim, "clock")[math.floor(T0 / 10)].coverage.expected == 0


def test_a_level_of_two_writers_that_turn_out_to_run_side_by_side(sim: Simulation) -> None:
    """Two processes without a rank of their own look like two lives of one: until the older one is heard of a minute
    after the younger began, a level is the younger's. Then rows that have both are revised.
    """
    files = Files(sim)
    level = {"kind": "define", "m": {"waiting": {"reduce": "sum_last"}}}
    files.write("a.jsonl", file(level, stream(1, waiting=10), stream(12, waiting=20), actor="generator", beat=10))
    files.write(
        "b.jsonl", file(level, stream(5, waiting=7), stream(13, waiting=8), id="b", actor="generator", t=T0 + 4)
    )
    for name in ("a.jsonl", "b.jsonl"):
        files.write(name, lines({"kind": "beat", "t": T0 + 21}))
    sim.tick()
    first = math.floor(T0 / 10)
    shown = {index - first: row.values["clock/generator/waiting"] for index, row in rows(sim, "clock").items()}
    assert shown == {0: 7, 1: 8}
    files.write("a.jsonl", lines({"kind": "beat", "t": T0 + 90}))
    sim.tick()
    sim.wait(60.0)
    sim.tick()
    shown = {index - first: row.values["clock/generator/waiting"] for index, row in rows(sim, "clock").items()}
    assert shown == {0: 17, 1: 28}
    check(sim, files.whole)


def test_a_clock_record_that_comes_with_later_lines(sim: Simulation) -> None:
    """A rank was not heard of since before a window, as its host's clock seemed to be ahead. A record that says
    otherwise comes together with the rank's next lines: it was heard of all the time, so no window lacks it.
    """
    files = Files(sim)
    files.write("a.jsonl", file(stream(1, x=1), stream(25, x=1), stream(75, x=1), id="a", actor="generator"))
    clocks = [{"kind": "clock", "t": T0 + t, "offset": offset, "err": 0.0} for t, offset in ((0.0, 30.0), (40.0, 0.0))]
    heard = [{"kind": "beat", "t": T0 + t} for t in (41.0, 80.0)]
    files.write("b.jsonl", file(clocks[0], stream(31, x=1), heard[0], id="b", actor="generator", rank=1, host="n1"))
    sim.tick()
    sim.wait(60.0)
    sim.tick()
    window = math.floor(T0 / 10) + 2
    assert rows(sim, "clock")[window].coverage.missing == ("0.1",)
    files.write("b.jsonl", lines(clocks[1], heard[1]))
    check(sim, files.whole)
    assert rows(sim, "clock")[window].coverage.missing == ()
