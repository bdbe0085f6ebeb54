"""W&B is away, or says no, while a real job is watched by a real sidecar."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rlship_sidecar.report.status import SinkStatus, Status
from rlship_sidecar.rows import Row
from tests.endtoend.evidence import shipped, state_of, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import Sidecar, rlship, watching
from tests.kit.cases import long
from tests.loopback.backend import FILE_STREAM, LoopbackBackend
from tests.loopback.runs import Run
from tests.sinks.readback import tensorboard_points


def sink_of(status: Status, name: str) -> SinkStatus:
    (found,) = [sink for sink in status.sinks if sink.name == name]
    return found


def the_run(backend: LoopbackBackend) -> Run:
    (run,) = backend.runs.values()
    return run


def check_history(run: Run, rows: list[Row]) -> None:
    """The run's history is the rows of the store: each once, in order, with its values; no line was ever another."""
    assert [(line["_step"], line["_timestamp"], line["global_step"], line["trainer/loss"]) for line in run.rows()] == [
        (row.arrival.row_number, row.t, row.unit.index, row.values["trainer/loss"]) for row in rows
    ]
    assert run.overwritten() == []


def log_steps(experiment: Path, first: int, last: int) -> None:
    """A trainer of one rank that logs these steps and ends."""
    with crew(experiment, "trainer", 1) as (worker,):
        for step in range(first, last + 1):
            worker.log({"loss": step / 7}, step)
            worker.barrier(step)
            if step % 1000 == 0:
                worker.answer()  # or its answers fill the pipe
        worker.end()


@pytest.mark.parametrize("count", [300, *long(10_000)])
def test_away_for_the_whole_run_then_back(tmp_path: Path, count: int) -> None:
    """Many rows while nothing answers at W&B's address: TensorBoard and jsonl have them all by then. Once it is back
    they arrive there within a minute, in order, each once.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    experiment.mkdir()
    with LoopbackBackend() as backend:
        backend.down()
        settings = backend.environment(home)
        with watching(experiment, "wandb", "tensorboard", "jsonl", home=home, settings=settings) as sidecar:
            log_steps(experiment, 0, count - 1)
            status = sidecar.until_status(
                lambda status: min(sink_of(status, name).next_row for name in ("tensorboard", "jsonl")) == count
            )
            away = sink_of(status, "wandb")
            assert away.next_row == 0 and away.state != "refused" and backend.runs == {}
            backend.up()
            began = time.monotonic()
            sidecar.until(lambda: bool(backend.runs) and len(the_run(backend).history) == count)
            assert time.monotonic() - began < 60.0
            assert sidecar.stop() == 0, sidecar.said()
        rows = stored(experiment)
        assert [(row.unit.index, row.values["trainer/loss"]) for row in rows] == [(n, n / 7) for n in range(count)]
        check_history(the_run(backend), rows)
        arrived = the_run(backend).arrived
        assert arrived == sorted(arrived)
        assert [row.to_json() for row in shipped(experiment)] == [row.to_json() for row in rows]
        points = tensorboard_points(state_of(experiment) / "tensorboard", "aa_headline/trainer/loss")
        assert [step for step, _ in points] == [row.unit.index for row in rows]


@pytest.mark.long
def test_sigterm_while_rows_are_on_their_way(tmp_path: Path) -> None:
    """What is read is at the server when the sidecar has ended, with exit code 0, though it takes a rate limit and a
    server error on the way.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    experiment.mkdir()
    with LoopbackBackend() as backend:
        with watching(experiment, "wandb", home=home, settings=backend.environment(home)) as sidecar:
            log_steps(experiment, 0, 1999)
            sidecar.until(lambda: bool(backend.runs) and len(the_run(backend).history) > 0)
            backend.fail(429, 1, retry_after_s=1)
            backend.fail(500, 1)
            assert sidecar.stop() == 0, sidecar.said()
        rows = stored(experiment)
        assert len(rows) == 2000 and the_run(backend).finished
        check_history(the_run(backend), rows)


@pytest.mark.long
def test_sigterm_while_the_server_is_down(tmp_path: Path) -> None:
    """Exit code 1 soon after the time for draining, and words that say which rows are lacking, why, and that nothing is
    lost. The next start delivers each row once.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    experiment.mkdir()
    with LoopbackBackend() as backend:
        settings = backend.environment(home)
        with watching(experiment, "wandb", home=home, settings={**settings, "RLSHIP_DRAIN_S": "2"}) as sidecar:
            log_steps(experiment, 0, 9)
            sidecar.until(lambda: bool(backend.runs) and len(the_run(backend).history) == 10)
            sidecar.until_status(lambda status: sink_of(status, "wandb").next_row == 10)
            backend.down()
            log_steps(experiment, 10, 29)
            # On a busy machine the client may complain before it has taken the last row.
            sidecar.until_status(lambda status: sink_of(status, "wandb").sent == 30 or sink_of(status, "wandb").error)
            began = time.monotonic()
            assert sidecar.stop() == 1, sidecar.said()
            assert time.monotonic() - began < 25.0
            assert f"sink wandb lacks rows 10 to 29 of {experiment}" in sidecar.said()
            assert "the next `rlship watch` delivers them" in sidecar.said()
        backend.up()
        done = rlship(home, "watch", experiment, "--once", "--sink", "wandb", settings=settings)
        assert done.returncode == 0, done.stderr
        rows = stored(experiment)
        assert len(rows) == 30
        check_history(the_run(backend), rows)


@pytest.mark.long
def test_a_wrong_key_and_then_the_right_one(tmp_path: Path) -> None:
    """A rejected key ends the sidecar with exit code 4 and the way out; with the right one each row is delivered."""
    experiment, home = tmp_path / "job", tmp_path / "home"
    log_steps(experiment, 0, 4)
    with LoopbackBackend() as backend:
        settings = backend.environment(home)
        for key, words in (("f" * 40, "Check the API key (WANDB_API_KEY or netrc)"), ("short", "40+ characters")):
            wrong = {**settings, "WANDB_API_KEY": key}
            done = rlship(home, "watch", experiment, "--once", "--sink", "wandb", settings=wrong)
            assert done.returncode == 4 and words in " ".join(done.stderr.split()), done.stderr
        done = rlship(home, "watch", experiment, "--once", "--sink", "wandb", settings=settings)
        assert done.returncode == 0, done.stderr
        check_history(the_run(backend), stored(experiment))


def kill_offline_in_the_middle(sidecar: Sidecar) -> None:
    sidecar.until_status(lambda status: sink_of(status, "wandb").sent > 0)
    sidecar.kill()


@pytest.mark.long
def test_offline_killed_and_online_later(tmp_path: Path) -> None:
    """Without a key the run is written offline, and the command that uploads it is printed. The sidecar is killed with
    rows on their way, and the next one leaves one whole folder; with a key the rows go to the server from row 0.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    offline = state_of(experiment) / "wandb"
    with crew(experiment, "trainer", 1) as (worker,):
        worker.tell("run", 0, 999, seed=3, pause=0.003)
        for _ in range(2):
            with watching(experiment, "wandb", home=home) as sidecar:
                kill_offline_in_the_middle(sidecar)
        worker.end()
    done = rlship(home, "watch", experiment, "--once", "--sink", "wandb")
    assert done.returncode == 0, done.stderr
    assert len(list(offline.glob("offline-run-*"))) == 1
    assert f"wandb sync {offline}" in done.stderr
    with LoopbackBackend() as backend:
        settings = backend.environment(home)
        done = rlship(home, "watch", experiment, "--once", "--sink", "wandb", settings=settings)
        assert done.returncode == 0, done.stderr
        rows = stored(experiment)
        assert len(rows) == 1000
        check_history(the_run(backend), rows)
        assert backend.sent(FILE_STREAM)[0].lines[0] == 0
        assert list(offline.glob("offline-run-*")) == []
