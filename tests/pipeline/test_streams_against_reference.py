"""Aligned, clock and point units against the slow reference, however their lines arrive."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.align.units import Patience
from rlship_sidecar.rows import Unit
from rlship_sidecar.streams.actor import FAR_S
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.streamed import streamed_experiments
from tests.pipeline.test_against_reference import CASES, EACH, arrive, check_numbering
from tests.reference.building import T0, barrier, file, log, rollback, stream
from tests.reference.reduction import differing, final_rows

IMPATIENT = Patience(join_s=2.0, grace_s=2.0, max_wait_s=10.0, implicit_s=2.0, revise_s=1.0)


class Arrives(Protocol):
    """Lets files grow."""

    def __call__(self, data: st.DataObject, sim: Simulation, files: dict[str, bytes], *, restarts: bool) -> None: ...


def of_streams(unit: Unit) -> bool:
    """Whether it is no step."""
    return unit.kind != "step"


def trickle(data: st.DataObject, sim: Simulation, files: Mapping[str, bytes], *, restarts: bool) -> None:
    """Let the files grow one at a time, a few lines each, while writers that pause count as gone."""
    lines = {name: whole.splitlines(keepends=True) for name, whole in files.items()}
    while lines:
        name = data.draw(st.sampled_from(sorted(lines)))
        count = data.draw(st.integers(1, 4))
        sim.write(name, b"".join(lines[name][:count]))
        lines[name] = lines[name][count:]
        if not lines[name]:
            del lines[name]
        sim.wait(data.draw(st.sampled_from((0.0, 0.4, 3.0, 8.0))))
        if data.draw(st.integers(0, 3)):
            sim.tick()
        if restarts and data.draw(st.integers(0, 5)) == 0:
            sim.restart()


@pytest.mark.parametrize("restarts", [False, True], ids=["one sidecar", "restarts"])
@pytest.mark.parametrize("comes", [arrive, trickle], ids=["at once", "line by line"])
@CASES
@given(data=st.data())
def test_live_streams_equal_reference(comes: Arrives, restarts: bool, data: st.DataObject) -> None:
    """However stream lines, barriers and clock records arrive, and whatever of it is the far future by the sidecar's
    clock, the final rows are those of the files.
    """
    files = data.draw(streamed_experiments())
    wall = T0 - FAR_S - 1000.0 + data.draw(st.sampled_from((math.inf, 0.0, 20.0, 60.0)))
    with simulation(patience=IMPATIENT, wall=wall, hinted=data.draw(st.booleans())) as sim:
        comes(data, sim, files, restarts=restarts)
        sim.finish()
        found = {unit: row for unit, row in sim.final().items() if of_streams(unit)}
        assert not differing(final_rows(files, settings=EACH).where(of_streams), found)
        check_numbering(sim.rows())


def test_a_parent_that_begins_with_a_rollback() -> None:
    """The file of a lead's parent comes after its child's, a rollback among its first lines: its barriers count."""
    files = {
        "child.jsonl": file(log(1, x=1), barrier(1, 5.0), id="c", parent="p"),
        "parent.jsonl": file(log(1, x=2), barrier(1, 6.0), rollback(1), log(1, x=3), barrier(1, 9.0), id="p"),
        "streams.jsonl": file(stream(8.0, y=1), actor="generator", id="g"),
    }
    with simulation() as sim:
        for name in ("streams.jsonl", "child.jsonl", "parent.jsonl"):
            sim.write(name, files[name])
            sim.tick()
        sim.finish()
        assert not differing(final_rows(files, settings=EACH), sim.final())


def test_a_parent_that_comes_late_leaves_a_rank_unheard() -> None:
    """A child counted for the rank that its `open` names, which is heard of no more once its parent is known."""
    files = {
        "other.jsonl": file(stream(1.0, y=1), actor="generator", rank=1, id="o"),
        "child.jsonl": file(stream(45.0, y=1), actor="generator", rank=1, id="c", parent="p"),
        "parent.jsonl": file(stream(50.0, y=1), actor="generator", id="p"),
    }
    with simulation(patience=IMPATIENT) as sim:
        sim.write("first.jsonl", file(stream(15.0, y=1), stream(50.0, y=1), actor="generator", id="f"))
        for name, data in files.items():
            sim.write(name, data)
            sim.wait(70.0)
            sim.tick()
        sim.finish()
        files["first.jsonl"] = (sim.directory / "rlship" / "first.jsonl").read_bytes()
        assert not differing(final_rows(files, settings=EACH), sim.final())


def test_a_childs_adopted_lines_count_for_no_rate() -> None:
    """All stream lines of a child turn out to be of a step, once rows were made in which its streams filled a window
    that its parent's did not: the rate goes.
    """
    rate = {"kind": "define", "m": {"tokens": {"reduce": ["sum", "rate"]}}}
    with simulation(patience=IMPATIENT) as sim:
        parent = file(rate, stream(35.0, tokens=5), actor="generator", id="p", t=T0 + 35.0)
        child = file(stream(0.0, tokens=5), stream(99_000.0, tokens=5), actor="generator", id="c", parent="p")
        sim.write("parent.jsonl", parent)
        sim.write("child.jsonl", child)
        sim.tick()
        sim.wait(3.0)
        sim.tick()
        adopting = barrier(0, 1.0) | {"adopts": True}
        sim.write("child.jsonl", line := json.dumps(adopting).encode() + b"\n")
        sim.finish()
        files = {"parent.jsonl": parent, "child.jsonl": child + line}
        assert not differing(final_rows(files, settings=EACH), sim.final())


def test_lines_that_an_adoption_leaves_may_stand_before_it() -> None:
    """A clock jumped back by half an hour between the line that a barrier adopts and the first that it leaves: the
    rank is expected from then on, in a row that was made before.
    """
    clocks = [{"kind": "clock", "t": T0 + t, "offset": offset, "err": 0} for t, offset in ((0.0, 0.0), (2e3, 1960.0))]
    first = file(stream(65.0, y=1), actor="generator", id="f", host="f")
    before = file(
        *clocks, stream(100.0, y=1), stream(2000.0, y=1) | {"stream": True}, rank=1, id="s", host="s", actor="generator"
    )
    with simulation(patience=IMPATIENT) as sim:
        sim.write("first.jsonl", first)
        sim.write("second.jsonl", before)
        sim.tick()
        sim.wait(70.0)
        sim.tick()
        row = sim.final()[Unit("generator", "clock", int((T0 + 60.0) // 10))]
        assert (row.coverage.expected, row.coverage.missing) == (1, ())
        sim.write("second.jsonl", line := json.dumps(barrier(0, 2000.5) | {"adopts": True}).encode() + b"\n")
        sim.finish()
        row = sim.final()[Unit("generator", "clock", int((T0 + 60.0) // 10))]
        assert (row.coverage.expected, row.coverage.missing) == (2, ("0.1",))
        assert not differing(
            final_rows({"first.jsonl": first, "second.jsonl": before + line}, settings=EACH), sim.final()
        )
