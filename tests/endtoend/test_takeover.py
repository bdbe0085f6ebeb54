"""A sidecar that stands still, is followed by another, and wakes up: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.tensorboard.sink import event
from tests.endtoend.evidence import check_rows, newest, shipped, state_of, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import RLSHIP, rlship, watching
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.sinks.readback import tensorboard_events

TTL_S = 1.5
SETTINGS = {"RLSHIP_LEASE_TTL_S": str(TTL_S), "RLSHIP_REVISE_S": "0.2", "RLSHIP_GRACE_S": "5"}
FILES = ("jsonl", "tensorboard")
ROUNDS = 2
LAST_STEP = 400


# As another host: there, its own names, processes and /proc. Killed with the process that made it.
SPACES = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
RENAMED = """
import socket
socket.gethostname = lambda: "another-host"
from rlship_sidecar.cli import main
main()
"""


def elsewhere() -> Sequence[str]:
    """How to start rlship as if on another host: in namespaces of its own, or where that is not permitted under
    another host's name.
    """
    permitted = subprocess.run([*SPACES, "true"], capture_output=True, check=False).returncode == 0
    return (
        (*SPACES, "sh", "-c", 'hostname another-host; exec "$@"', "sh", *RLSHIP)
        if permitted
        else (sys.executable, "-c", RENAMED)
    )


def home_of(folder: Path, number: int) -> Path:
    """A home for the sidecar of that number."""
    return folder / f"home{number}"


def generation(experiment: Path) -> int:
    """The highest generation."""
    return max(int(path.suffix[1:]) for path in state_of(experiment).glob("lease.*"))


def check_files(experiment: Path) -> list[Row]:
    """Every row of the store is in each file sink, once, in order, with its values, and the newest are what the
    writers' files say. Returns the rows.
    """
    rows = stored(experiment)
    check_rows(experiment, rows)
    assert [row.to_json() for row in shipped(experiment)] == [row.to_json() for row in rows]
    assert tensorboard_events(state_of(experiment) / "tensorboard") == [event(row) for row in rows]
    return rows


@pytest.mark.parametrize("online", [False, *long(True)], ids=["files", "files and W&B"])
def test_a_frozen_owner_is_followed_and_harms_nothing_when_it_wakes_up(tmp_path: Path, online: bool) -> None:
    """Again and again the owner is stopped in the midst of its work, another one takes over after the ttl, and the
    first is woken up: it ends with exit code 5, and every row is everywhere once.
    """
    experiment = tmp_path / "job"
    with ExitStack() as stack:
        settings = SETTINGS
        sinks = FILES
        if online:
            backend = stack.enter_context(LoopbackBackend())
            settings = {**SETTINGS, **backend.environment(tmp_path / "client")}
            sinks = (*FILES, "wandb")
        workers = stack.enter_context(crew(experiment, "trainer", 2))
        for rank, worker in enumerate(workers):
            worker.tell("run", 0, LAST_STEP, seed=rank, pause=0.03, late=rank == 1)
        owner = stack.enter_context(watching(experiment, *sinks, home=home_of(tmp_path, 0), settings=settings))
        for turn in range(1, ROUNDS + 1):
            seen = len(shipped(experiment))
            owner.until(lambda seen=seen: len(shipped(experiment)) > seen + 5)
            owner.process.send_signal(signal.SIGSTOP)
            rows, before = len(shipped(experiment)), generation(experiment)
            successor = stack.enter_context(
                watching(experiment, *sinks, home=home_of(tmp_path, turn), settings=settings)
            )
            successor.until(lambda rows=rows: len(shipped(experiment)) > rows + 5)
            assert generation(experiment) == before + 1
            owner.process.send_signal(signal.SIGCONT)
            assert owner.process.wait(30.0) == 5, owner.said()
            assert f"owned by another sidecar: process {successor.process.pid} " in owner.said()
            assert "Traceback" not in owner.said()
            owner = successor
        for worker in workers:
            worker.end()
        owner.until_status(lambda status: all(writer.closed and not writer.unread for writer in status.writers))
        assert owner.stop() == 0, owner.said()
        assert rlship(
            home_of(tmp_path, 0), "watch", experiment, "--once", *_flags(sinks), settings=settings
        ).returncode in (0, 3)
        rows = check_files(experiment)
        assert len(newest(rows)) == LAST_STEP + 1
        if online:
            (run,) = backend.runs.values()
            assert run.steps() == list(range(len(rows)))
            assert run.overwritten() == []
            assert [line["global_step"] for line in run.rows()] == [row.unit.index for row in rows]
            assert [line.get("trainer/loss") for line in run.rows()] == [row.values.get("trainer/loss") for row in rows]


def _flags(sinks: tuple[str, ...]) -> list[str]:
    return [word for sink in sinks for word in ("--sink", sink)]


def finished(experiment: Path, last_step: int) -> bool:
    """Whether the row of the last step is shipped."""
    return any(row.unit.index == last_step for row in shipped(experiment))


def test_an_owner_that_nobody_followed_goes_on(tmp_path: Path) -> None:
    """A sidecar that stood still for longer than the ttl, such as on a laptop that slept, takes its experiment up again
    when it wakes up, says so, and ships on.
    """
    experiment = tmp_path / "job"
    with (
        crew(experiment, "trainer", 1) as (worker,),
        watching(experiment, *FILES, home=home_of(tmp_path, 0), settings=SETTINGS) as sidecar,
    ):
        worker.tell("run", 0, 20, seed=1, pause=0.0)
        worker.flush()
        sidecar.until(lambda: finished(experiment, 19))
        sidecar.process.send_signal(signal.SIGSTOP)
        lease = state_of(experiment) / "lease.0"  # written at each beat, and it does not beat now
        wait_until(lambda: time.time() - lease.stat().st_mtime > TTL_S, "the lease runs out")
        worker.tell("run", 21, 40, seed=2, pause=0.0)
        worker.end()
        sidecar.process.send_signal(signal.SIGCONT)
        sidecar.until(lambda: finished(experiment, 40))
        assert "stood still" in sidecar.said() and "Traceback" not in sidecar.said()
        assert sidecar.stop() == 0, sidecar.said()
    assert generation(experiment) == 1
    assert len(newest(check_files(experiment))) == 41


def test_an_owner_that_is_frozen_is_followed_from_another_host(tmp_path: Path) -> None:
    """Another host cannot see the process: it watches the beats, takes over after the ttl, and is itself respected by
    the first, which ends with exit code 5 and names the host.
    """
    experiment = tmp_path / "job"
    with (
        crew(experiment, "trainer", 2) as workers,
        watching(experiment, *FILES, home=home_of(tmp_path, 0), settings=SETTINGS) as first,
    ):
        for rank, worker in enumerate(workers):
            worker.tell("run", 0, 200, seed=rank, pause=0.03)
        first.until(lambda: len(shipped(experiment)) > 5)
        first.process.send_signal(signal.SIGSTOP)
        rows = len(shipped(experiment))
        began = time.monotonic()
        with watching(experiment, *FILES, home=home_of(tmp_path, 1), settings=SETTINGS, launch=elsewhere()) as second:
            second.until(lambda: generation(experiment) == 1)
            assert time.monotonic() - began >= TTL_S
            second.until(lambda: len(shipped(experiment)) > rows + 5)
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(30.0) == 5, first.said()
            assert " on another-host" in first.said() and "Traceback" not in first.said()
            for worker in workers:
                worker.end()
            second.until(lambda: finished(experiment, 200))
            second.until_status(lambda status: all(sink.next_row == status.rows for sink in status.sinks))
            second.kill()
    done = rlship(home_of(tmp_path, 0), "watch", experiment, "--once", *_flags(FILES), settings=SETTINGS)
    assert done.returncode == 0, done.stderr
    assert len(newest(check_files(experiment))) == 201


def test_an_owner_that_was_killed_on_another_host_is_waited_for(tmp_path: Path) -> None:
    """After kill -9 over there the next one here cannot know: it watches for the whole ttl, then goes on, and every row
    is there once.
    """
    experiment = tmp_path / "job"
    with crew(experiment, "trainer", 2) as workers:
        with watching(experiment, *FILES, home=home_of(tmp_path, 0), settings=SETTINGS, launch=elsewhere()) as first:
            for rank, worker in enumerate(workers):
                worker.tell("run", 0, 200, seed=rank, pause=0.02)
            first.until(lambda: len(shipped(experiment)) > 5)
            first.kill()
        began = time.monotonic()
        with watching(experiment, *FILES, home=home_of(tmp_path, 1), settings=SETTINGS) as second:
            # Not by its rows: the one that was killed may have written some in its last moment.
            second.until(lambda: generation(experiment) == 1)
            assert time.monotonic() - began >= TTL_S
            for worker in workers:
                worker.end()
            second.until(lambda: finished(experiment, 200))
            assert second.stop() == 0, second.said()
    assert generation(experiment) == 1
    assert len(newest(check_files(experiment))) == 201


@pytest.mark.parametrize("times", [1, *long(10)])
def test_of_two_that_start_in_the_same_moment_one_owns(tmp_path: Path, times: int) -> None:
    """Each time one of them ships, the other one ends with exit code 5 and names it."""
    for number in range(times):
        experiment = tmp_path / f"job{number}"
        with crew(experiment, "trainer", 1) as (worker,):
            worker.tell("run", 0, 9, seed=number, pause=0.0)
            worker.end()
        with ExitStack() as stack:
            pair = [
                stack.enter_context(
                    watching(experiment, *FILES, home=home_of(tmp_path, 2 * number + place), settings=SETTINGS)
                )
                for place in range(2)
            ]
            wait_until(lambda pair=pair: any(one.process.poll() is not None for one in pair), "one gives way")
            (loser,) = [one for one in pair if one.process.poll() is not None]
            (owner,) = [one for one in pair if one is not loser]
            assert loser.process.returncode == 5, loser.said()
            assert f"owned by another sidecar: process {owner.process.pid} " in loser.said()
            owner.until(lambda experiment=experiment: finished(experiment, 9))
            assert owner.stop() == 0, owner.said()
        assert generation(experiment) == 0
        assert len(check_files(experiment)) == 10
