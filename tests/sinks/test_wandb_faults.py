"""The server misbehaves while rows are on their way: in the end it has each row once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_sidecar.sinks.wandb.sink import Limits, WandbSink
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import FILE_STREAM, GRAPHQL, LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.rows import make_row, make_rows, make_run
from tests.sinks.wandb_shipping import check_whole, gone, shipping

FAULTS: dict[str, Callable[[LoopbackBackend], None]] = {
    "503 three times": lambda backend: backend.fail(503, 3),
    "500 twice": lambda backend: backend.fail(500, 2),
    "408 twice": lambda backend: backend.fail(408, 2),
    "429 with Retry-After": lambda backend: backend.fail(429, 2, retry_after_s=2),
    "hang, then cut": lambda backend: backend.hang(1.5),
    "taken, but the reply cut, three times": lambda backend: backend.cut_reply(3),
    "queries fail as well": lambda backend: (backend.fail(502, 2), backend.fail(502, 2, endpoint=GRAPHQL))[0],
}


@pytest.mark.long
def test_faults_that_the_client_waits_out(tmp_path: Path, backend: LoopbackBackend) -> None:
    """Server errors, rate limits, hangs, cut replies: the same child goes on, and each row is there once."""
    with shipping(tmp_path, backend, project="passing") as ship:
        ship.deliver(10)
        child = ship.child
        for number, (name, strike) in enumerate(FAULTS.items(), 2):
            before = len(backend.sent(FILE_STREAM))
            strike(backend)
            ship.deliver(10 * number)
            answers = [request.status for request in backend.sent(FILE_STREAM)[before:]]
            assert any(status != 200 for status in answers), f"{name} did not strike"
            assert ship.child == child, name
    check_whole(backend.run("passing", "store1"), 10 * (len(FAULTS) + 1))


@pytest.mark.parametrize("status", [401, *long(403)])
def test_a_key_that_is_revoked_in_the_middle(tmp_path: Path, backend: LoopbackBackend, status: int) -> None:
    """While the server rejects us everywhere, the status names the way out and nothing is given up; once the rights are
    back, so are the rows.
    """
    project = f"revoked{status}"
    with shipping(tmp_path, backend, project=project) as ship:
        ship.deliver(5)
        for endpoint in (FILE_STREAM, GRAPHQL):
            backend.fail(status, None, endpoint=endpoint)
        ship.add(10)
        wait_until(lambda: "Check the API key" in ship.shipper.status().error)
        assert ship.shipper.refused is None and ship.shipper.status().next_row == 5
        backend.heal()
        ship.deliver(15)
    check_whole(backend.run(project, "store1"), 15)


@pytest.mark.long
def test_a_deleted_run_is_written_again_under_another_id(
    tmp_path: Path, backend: LoopbackBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A server does not give the id of a deleted run again. All rows go to a run of the next id, from row 0, which is
    said; later starts go on there.
    """
    with shipping(tmp_path, backend, project="deleted", limits=Limits(init_s=4.0)) as ship:
        ship.deliver(5)
        backend.delete_run("deleted", "store1")
        ship.deliver(10)
        assert "the run deleted/store1 was deleted on the server" in caplog.text
    with shipping(tmp_path, backend, project="deleted") as ship:
        ship.deliver(12)
    check_whole(backend.run("deleted", "store1-2"), 12)
    assert ("loopback/deleted", "store1") not in backend.runs


@pytest.mark.long
def test_a_deleted_project_is_made_again(
    tmp_path: Path, backend: LoopbackBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is made again with all rows, from row 0, and that is said."""
    with shipping(tmp_path, backend, project="lost") as ship:
        ship.deliver(5)
        backend.delete_project("lost")
        ship.deliver(10)
        assert "the run lost/store1 is gone from the server: all rows are sent again, from row 0" in caplog.text
    check_whole(backend.run("lost", "store1"), 10)


def test_a_run_that_another_store_takes_over_is_left_to_it(tmp_path: Path, backend: LoopbackBackend) -> None:
    """Once the run has another store's mark no further row is sent there, and the refusal names the way out."""
    with shipping(tmp_path, backend, project="taken") as ship:
        ship.deliver(5)
        backend.run("taken", "store1").config["store_id"]["value"] = "other"
        ship.add(6)
        wait_until(lambda: ship.shipper.refused is not None)
        assert "another store (other) has taken the run" in str(ship.shipper.refused)
        assert "set [sink.wandb] run_id to a new name" in str(ship.shipper.refused)


@pytest.mark.long
def test_a_store_that_is_older_than_its_run_is_refused(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A run with more rows than the store has stays as it is: these rows would become other ones. The refusal says so
    and names the way out.
    """
    with shipping(tmp_path, backend, project="older") as ship:
        ship.deliver(5)
    with shipping(tmp_path, backend, project="older") as ship:
        ship.add(4)
        wait_until(lambda: ship.shipper.refused is not None)
        assert "older/store1 holds 5 rows, but the store has only 4" in str(ship.shipper.refused)
        assert "set [sink.wandb] run_id to a new name, or delete that run" in str(ship.shipper.refused)
    check_whole(backend.run("older", "store1"), 5)


@pytest.mark.parametrize("name", ["\\", *long("*", "a.b")])
def test_names_that_the_client_cannot_chart_over(tmp_path: Path, backend: LoopbackBackend, name: str) -> None:
    """An axis or an actor of any name keeps no row from the server."""
    project = f"name{ord(name[0])}"
    with shipping(tmp_path, backend, project=project) as ship:
        ship.source.append([make_row(0), make_row(1, axis=name), make_row(2, actor=name), make_row(3)])
        ship.deliver(5, 15.0)
        assert len(ship.sinks) == 1
    assert backend.run(project, "store1").steps() == [0, 1, 2, 3, 4]


def test_what_is_abandoned_does_not_arrive(tmp_path: Path, backend: LoopbackBackend) -> None:
    """Once ownership is lost, rows under way are not sent any more, and no process is left that could."""
    sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
    sink.open(make_run(tmp_path, rows=9, project="abandoned"))
    assert sink.child_pid is not None
    child = psutil.Process(sink.child_pid)
    processes = [child, *child.children(recursive=True)]
    backend.fail(503, None)
    sink.write(make_rows(0, 9))
    wait_until(lambda: backend.sent(FILE_STREAM)[-1].status == 503)
    sink.abandon()
    wait_until(lambda: gone(processes))
    backend.heal()
    assert backend.run("abandoned", "store1").history == []


@pytest.mark.long
def test_an_old_state_is_waited_out(tmp_path: Path, backend: LoopbackBackend) -> None:
    """While the server tells of fewer lines than it has, nothing is sent; once both figures agree the rest follows, and
    no line was overwritten.
    """
    with shipping(tmp_path, backend, project="stale") as ship:
        ship.deliver(10)
        backend.stale_lines = 4
        ship.child.kill()
        ship.add(20)
        try:
            wait_until(lambda: "6 as the number of rows it has, and 10 as the step" in ship.shipper.status().error)
            assert len(backend.run("stale", "store1").history) == 10
        finally:
            backend.stale_lines = 0
        ship.deliver(21)
    run = backend.run("stale", "store1")
    check_whole(run, 21)
    assert run.rewritten == [] and run.resent == 0


@pytest.mark.long
def test_two_sidecars_of_one_store_do_no_harm(tmp_path: Path, backend: LoopbackBackend) -> None:
    """Where two ship the same store at the same time, each row lands on its own line, whichever sends it."""
    with (
        shipping(tmp_path / "a", backend, project="twice") as one,
        shipping(tmp_path / "b", backend, project="twice") as other,
    ):
        one.deliver(5)
        other.deliver(8)
        one.deliver(8)
        threads = [threading.Thread(target=ship.deliver, args=(400,)) for ship in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = backend.run("twice", "store1")
    check_whole(run, 400)
    assert run.resent + len(run.rewritten) > 0, "they never sent the same row"


@pytest.mark.long
def test_the_clients_own_file_does_not_grow_for_ever(tmp_path: Path, backend: LoopbackBackend) -> None:
    """The client keeps every row of its life in a file: once that is large a new client begins a new one, and the old
    file is gone.
    """
    with shipping(tmp_path, backend, project="large", limits=Limits(max_file_bytes=40_000)) as ship:
        ship.deliver(20)
        folder = ship.sinks[0]._scratch
        assert folder is not None
        # The client writes its file in blocks, at the latest every five seconds.
        for _ in range(100):
            if len(ship.sinks) > 1:
                break
            ship.add(ship.source.row_count() + 20)
            time.sleep(0.2)
        ship.deliver(ship.source.row_count() + 1)
        assert len(ship.sinks) > 1 and not folder.exists()
    check_whole(backend.run("large", "store1"), ship.source.row_count())
