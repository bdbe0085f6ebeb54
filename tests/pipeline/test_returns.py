"""Ranks that come back as a new attempt: rows of steps and of streams say it, also once lines come late."""

from __future__ import annotations

from rlship_sidecar.reduce.returns import RECOVERY, RESTARTS
from rlship_sidecar.rows import ALIGNED, CLOCK, STEP, Unit
from tests.kit.files import CLOSE, T0, barrier, file, lines, log, stream
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import Settings


def absence(sim: Simulation, unit: Unit, prefix: str = "") -> tuple[float | None, float | None]:
    values = sim.final()[unit].values
    return values.get(f"{prefix}{unit.actor}/{RESTARTS}"), values.get(f"{prefix}{unit.actor}/{RECOVERY}")


def test_a_late_line_of_the_former_life_shortens_the_absence() -> None:
    """The row of the step at which a rank came back, and those of a stream, are revised."""
    files = {
        "t.jsonl": file({"t": T0 + 8, **log(1, loss=1)}, barrier(1, 10), world=1),
        "u.jsonl": file({"t": T0 + 58, **log(2, loss=2)}, barrier(2, 60), CLOSE, attempt=1, id="u", t=T0 + 40, world=1),
        "g.jsonl": file(stream(3, v=1), actor="generator", id="g", world=1),
        "h.jsonl": file(
            stream(49, v=1), stream(55, v=1), CLOSE, actor="generator", id="h", attempt=1, t=T0 + 40, world=1
        ),
    }
    settings = Settings(samples_every=1)
    with simulation() as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.tick()
        sim.wait(700.0)
        sim.tick()
        back, beside = Unit("trainer", STEP, 2), Unit("generator", ALIGNED, 2)
        window = Unit("generator", CLOCK, int(T0 + 49) // 10)
        assert absence(sim, back) == (1.0, 48.0)
        assert absence(sim, beside) == absence(sim, window, "clock/") == (1.0, 46.0)
        for name in ("t.jsonl", "g.jsonl"):
            more = lines({"kind": "beat", "t": T0 + 20.5})
            sim.write(name, more)
            files[name] += more
        sim.finish()
        assert absence(sim, back) == (1.0, 37.5)
        assert absence(sim, beside) == absence(sim, window, "clock/") == (1.0, 28.5)
        assert not differing(final_rows(files, {}, settings), sim.final())


def test_a_former_life_that_is_found_late() -> None:
    """A file of which only the first line was written shows itself after the row: then the rank came back."""
    later = file({"t": T0 + 58, **log(2, loss=2)}, barrier(2, 60), CLOSE, attempt=1, id="u", t=T0 + 40, world=1)
    with simulation() as sim:
        sim.write("u.jsonl", later)
        sim.tick()
        back = Unit("trainer", STEP, 2)
        assert absence(sim, back) == (None, None)
        sim.write("t.jsonl", file(world=1))
        sim.finish()
        assert absence(sim, back) == (1.0, 58.0)
