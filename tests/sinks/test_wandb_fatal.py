"""The client falls silent: some answers of the server make it give up history for good, and it does not say so."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from rlship_sidecar.sinks.contract import SinkUnavailable
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import FILE_STREAM, LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.rows import make_rows, make_run
from tests.sinks.wandb_shipping import check_whole, gone, shipping

FATAL = long(400, 401, 403, 404, 409, 410, 413, 422, 501)


@pytest.mark.parametrize("status", FATAL)
def test_a_status_that_silences_the_client_for_good(tmp_path: Path, backend: LoopbackBackend, status: int) -> None:
    """The client gives up history for good, without an error, after one answer with this status. It is replaced within
    seconds, not after the minute that a stall may last, and the server ends up with each row once.
    """
    with shipping(tmp_path, backend, project=f"fatal{status}") as ship:
        ship.deliver(20)
        child = ship.child
        backend.fail(status)
        seconds = ship.deliver(40)

        assert status in [request.status for request in backend.sent(FILE_STREAM)]
        assert ship.child != child and seconds < 20.0
    check_whole(backend.run(f"fatal{status}", "store1"), 40)


def test_a_silenced_client_is_noticed_though_nobody_waits_for_it(tmp_path: Path, backend: LoopbackBackend) -> None:
    """The child ends within two seconds of a fatal status even if no flush waits for the row and none follows."""
    env = client_env(backend.environment(tmp_path / "home"))
    sink = WandbSink(env=env)
    sink.open(make_run(tmp_path, rows=1, project="idle"))
    assert sink.child_pid is not None
    processes = [psutil.Process(sink.child_pid)]
    backend.fail(404)
    sink.write(make_rows(0, 1))
    wait_until(lambda: 404 in [request.status for request in backend.sent(FILE_STREAM)])
    assert wait_until(lambda: gone(processes)) < 2.5
    with pytest.raises(SinkUnavailable, match=r"gave up sending history: .*404"):
        sink.flush()
    sink.close()
