"""Rows of streams at the sinks: under which keys they stand and over which axis."""

from __future__ import annotations

from rlship_sidecar.rows import Coverage, Row, Unit, flatten
from rlship_sidecar.sinks.console import line
from rlship_sidecar.sinks.wandb.sink import point

T = 1763600000.0
WHOLE = Coverage(("0.0",), 2, ("0.1",))


def test_a_window_of_time_stands_over_time() -> None:
    """All keys begin with `clock/<actor>/`, also what is said of its ranks, and their axis is `clock/elapsed_s`."""
    row = Row(Unit("generator", "clock", 3), T, {"clock/elapsed_s": 30.0}, {"clock/generator/x": 0.5}, WHOLE)
    assert flatten(row) == {
        "clock/elapsed_s": 30.0,
        "clock/generator/x": 0.5,
        "clock/generator/ranks/in": 1,
        "clock/generator/ranks/expected": 2,
        "clock/generator/ranks/missing": 1,
        "clock/generator/missing_ranks": "0.1",
    }
    assert (point(row).actor, point(row).axis) == ("clock/generator", "clock/elapsed_s")
    assert line(row) == "generator clock/elapsed_s=30  [1 of 2 ranks, missing 0.1]  x=0.5"


def test_what_stands_beside_a_step() -> None:
    """Figures go by the actor's keys, what is said of the ranks does not mix with the actor's own steps."""
    row = Row(Unit("generator", "aligned", 7), T, {"global_step": 7}, {"generator/x": 0.5}, WHOLE)
    assert flatten(row) == {
        "global_step": 7,
        "generator/x": 0.5,
        "generator/aligned/ranks/in": 1,
        "generator/aligned/ranks/expected": 2,
        "generator/aligned/ranks/missing": 1,
        "generator/aligned/missing_ranks": "0.1",
    }
    assert (point(row).actor, point(row).axis) == ("generator", "global_step")


def test_a_point_is_its_figures() -> None:
    """A single line says nothing of ranks."""
    unit, covered = Unit("generator", "point", 812, "9f"), Coverage(("0.0",), 1)
    row = Row(unit, T, {"clock/elapsed_s": 4.5}, {"point/generator/x": 0.5}, covered)
    assert flatten(row) == {"clock/elapsed_s": 4.5, "point/generator/x": 0.5}
    assert (point(row).actor, point(row).axis) == ("point/generator", "clock/elapsed_s")
