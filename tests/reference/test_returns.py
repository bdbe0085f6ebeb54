"""Ranks that came back as a new attempt: the reference, worked out by hand."""

from __future__ import annotations

from typing import Any

from rlship_sidecar.rows import Unit
from tests.reference.building import T0, barrier, beat, file, log, rows, stream

RESTARTS, RECOVERY = "svc/replica_restarts", "svc/recovery_s"


def away(*files: bytes, step: int = 3, actor: str = "trainer") -> tuple[float | None, float | None]:
    """What the row of a step says of restarts and recovery."""
    found = rows(*files)[Unit(actor, "step", step)].values
    return found.get(f"{actor}/{RESTARTS}"), found.get(f"{actor}/{RECOVERY}")


def again(*lines: dict[str, Any], **identity: Any) -> bytes:
    """A file of attempt 1 that opens 40 s after T0."""
    return file(*lines, **({"attempt": 1, "id": "n", "t": T0 + 40} | identity))


OLD = file({"t": T0 + 5, **log(2, loss=1)}, barrier(2), beat(9.0))
BACK = {"t": T0 + 50.5, **log(3, loss=2)}


def test_a_rank_is_back_with_the_first_step_that_it_logs() -> None:
    """It is counted once, at that step, from the last line of its former life to its last line of the step."""
    new = again({"t": T0 + 48, **log(3, x=1)}, BACK, {"t": T0 + 52, **log(4, loss=1)})
    assert away(OLD, new) == (1.0, 50.5 - 9.0)
    assert away(OLD, new, step=4) == (None, None)
    assert away(OLD, new, step=2) == (None, None)


def test_ranks_of_a_replica_are_one_restart() -> None:
    """Two ranks of a replica and one of another: two replicas, and the longest absence."""
    old = [OLD, file(log(2, loss=1), beat(2.0), rank=1, id="b"), file(log(2, loss=1), beat(7.0), replica="1", id="c")]
    new = [again(BACK), again(BACK, rank=1, id="o"), again(BACK, replica="1", id="p")]
    assert away(*old, *new) == (2.0, 48.5)


def test_what_is_no_return() -> None:
    """An equal attempt (a file that rolled, a claim), a later submission, a rank that was not there, a child."""
    for identity in ({"attempt": 0}, {"rank": 1}, {"replica": "1"}, {"parent": "a"}):
        assert away(OLD, again(BACK, **identity)) == (None, None)
    high = file(log(2, loss=1), attempt=3)
    assert away(high, again(BACK, t=T0 + 100)) == (None, None)
    assert away(OLD, again({"t": T0 + 3, **log(3, loss=1)})) == (1.0, 0.0)  # its host's clock is behind


def test_all_earlier_attempts_count() -> None:
    """The second restart is measured from the last line of any of them."""
    first = again(beat(20.0), id="m", t=T0 + 15)
    assert away(OLD, first, again(BACK, attempt=2)) == (1.0, 30.5)


def test_a_figure_that_the_job_logs_comes_first() -> None:
    """What an agent says of the replica under the same name stays."""
    assert away(OLD, again({"t": T0 + 50, **log(3, **{RECOVERY: 4})})) == (1.0, 4.0)


def test_a_stream_is_back_with_its_first_line() -> None:
    """In the aligned row and in that of the window; not in aligned rows of an actor that has steps."""
    lead = file(*[{"t": T0 + at, **one} for at in (10, 60) for one in (log(at, x=1), barrier(at))], id="lead")
    old = file(stream(3, v=1), actor="generator", id="g")
    new = again(stream(49, v=2), stream(55, v=2), actor="generator")
    found = rows(lead, old, new)
    for kind, index, key in (("aligned", 60, "generator/"), ("clock", int(T0 + 49) // 10, "clock/generator/")):
        values = found[Unit("generator", kind, index)].values
        assert (values[f"{key}{RESTARTS}"], values[f"{key}{RECOVERY}"]) == (1.0, 46.0)
    stepped = file(log(10, w=1), actor="generator", id="h", rank=1)
    keys = rows(lead, old, new, stepped)[Unit("generator", "aligned", 60)].values
    assert not [key for key in keys if "/svc/" in key]
