"""A sidecar of many experiments within the limits of the system: what it holds, what waits, and that all get rows."""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import loop as daemon
from rlship_sidecar.daemon import resting
from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.daemon.watched import open_watched
from rlship_sidecar.report.status import Status, read_status
from tests.endtoend.evidence import check_rows, shipped, state_of, stored
from tests.endtoend.sidecar import DEADLINE_S, RLSHIP, Sidecar, environment, rlship, watching
from tests.kit.waiting import wait_until
from tests.reference.building import barrier, file, log

STEPS = 3
FEW_DESCRIPTORS = 80


def an_experiment(folder: Path, steps: int = STEPS, *, done: bool = True) -> Path:
    """One trainer that logged `steps` steps, long ago if it is done."""
    (folder / "rlship").mkdir(parents=True)
    records = [record for step in range(steps) for record in (log(step, loss=step / 7), barrier(step))]
    records += [{"kind": "close", "reason": "exit"}] if done else []
    path = folder / "rlship" / "a.jsonl"
    path.write_bytes(file(*records, world=1))
    if done:
        os.utime(path, (time.time() - 1e5, time.time() - 1e5))
    return folder


def grow(folder: Path, step: int) -> None:
    """The trainer logs one more step."""
    data = file(log(step, loss=step / 7), barrier(step), world=1)
    with open(folder / "rlship" / "a.jsonl", "ab") as there:
        there.write(data.split(b"\n", 1)[1])


def held(sidecar: Sidecar) -> tuple[int, int]:
    """Descriptors and threads of a sidecar."""
    process = Path(f"/proc/{sidecar.process.pid}")
    return len(os.listdir(process / "fd")), len(os.listdir(process / "task"))


def released(experiment: Path) -> bool:
    """Whether the lease is free of an experiment that has rows."""
    leases = sorted(state_of(experiment).glob("lease.*"))
    return bool(leases) and b'"released":true' in leases[-1].read_bytes()


def delivered(experiments: list[Path], rows: int = STEPS) -> Callable[[], bool]:
    def check() -> bool:
        return all(len(shipped(one)) == rows for one in experiments if (state_of(one) / "rows.jsonl").exists()) and all(
            (state_of(one) / "rows.jsonl").exists() for one in experiments
        )

    return check


def test_an_experiment_keeps_its_place_until_it_is_read(tmp_path: Path) -> None:
    """Between two pieces of its files all that was read may be delivered, and a line may come after the last look. An
    experiment that gave up its place then would be looked at again only once its files change.
    """
    folder = an_experiment(tmp_path / "done", steps=2_000)
    wake = Wake()
    one = open_watched(folder, Config(sinks=()), alone=True)
    try:

        def look() -> tuple[bool, bool]:
            more = one.look(time.monotonic(), {}, wake)
            if not more:
                one.look_at = math.inf  # no look is due before the next question, however slow this machine is
            return more, one.yields(time.monotonic(), time.time(), turn_s=-1.0) is not None

        seen = [look()]
        while seen[-1][0]:
            seen.append(look())
        assert len(seen) > 2 and [gave_up for _, gave_up in seen] == [False] * (len(seen) - 1) + [True]
        grow(folder, 2_000)
        assert one.yields(time.monotonic(), time.time(), turn_s=-1.0) is None
        while look()[0]:
            pass
        assert one.store.row_count() == 2_001
    finally:
        one.close()
        wake.close()


def test_a_finished_experiment_holds_nothing(tmp_path: Path) -> None:
    """However many finished experiments there are, they cost no descriptor and no thread; their statuses stay as they
    were, and one that grows again gets its rows within 10 s.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    home.mkdir()
    finished = [an_experiment(outputs / f"done{number:02}") for number in range(15)]
    running = an_experiment(outputs / "running", done=False)
    with watching(outputs, "jsonl", "tensorboard", home=home) as sidecar:
        sidecar.until(delivered([*finished, running]))
        sidecar.until(lambda: all(map(released, finished)))
        sidecar.until(lambda: held(sidecar)[1] <= 8)
        assert held(sidecar)[0] <= 40
        assert not released(running)
        status = read_status(state_of(finished[0]))
        assert status is not None
        assert [(sink.state, sink.next_row) for sink in status.sinks] == [("idle", STEPS)] * 2
        assert "finished" in rlship(home, "status", finished[0]).stdout
        grow(finished[7], STEPS)
        assert sidecar.until(lambda: len(shipped(finished[7])) == STEPS + 1) < 10.0
        grow(running, STEPS)
        sidecar.until(lambda: len(shipped(running)) == STEPS + 1)
        assert sidecar.stop() == 0
    for experiment in finished:
        check_rows(experiment, stored(experiment))


@pytest.mark.long
def test_few_descriptors_are_enough_for_many_experiments(tmp_path: Path) -> None:
    """Under a limit that a tenth of the experiments would reach, all get their rows, the running ones first; nothing
    harmful is said.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    home.mkdir()
    finished = [an_experiment(outputs / f"a{number:02}") for number in range(40)]
    running = [an_experiment(outputs / f"z{number}", done=False) for number in range(2)]
    with watching(outputs, "jsonl", "tensorboard", home=home, nofile=FEW_DESCRIPTORS) as sidecar:
        sidecar.until(delivered(running))
        assert not delivered(finished)()
        sidecar.until(delivered(finished))
        assert held(sidecar)[0] < FEW_DESCRIPTORS
        assert sidecar.stop() == 0
        assert "new W&B run" not in sidecar.said() and "Traceback" not in sidecar.said()
    for experiment in (*finished, *running):
        check_rows(experiment, stored(experiment))


def test_more_running_experiments_than_descriptors(tmp_path: Path) -> None:
    """They take turns, and it is said what to raise; all get their rows, also those to come."""
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    home.mkdir()
    running = [an_experiment(outputs / f"z{number}", done=False) for number in range(8)]
    with watching(outputs, "jsonl", "tensorboard", home=home, nofile=FEW_DESCRIPTORS) as sidecar:
        sidecar.until(lambda: "raise ulimit -n" in sidecar.said())
        sidecar.until(delivered(running))
        for experiment in running:
            grow(experiment, STEPS)
        sidecar.until(delivered(running, STEPS + 1))
        assert sidecar.stop() == 0
        assert "W&B" not in sidecar.said() and "Traceback" not in sidecar.said()


def test_once_goes_through_all_with_few_descriptors(tmp_path: Path) -> None:
    """`--once` delivers in turns, too."""
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    home.mkdir()
    finished = [an_experiment(outputs / f"a{number:02}") for number in range(20)]
    few = ("/bin/sh", "-c", f'ulimit -n {FEW_DESCRIPTORS} && exec "$@"', "sh", *RLSHIP)
    command = [*few, "watch", str(outputs), "--once", "--sink", "jsonl"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(home, {}), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    assert delivered(finished)()


def test_without_threads_rows_wait_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no thread nothing is lost and nothing harmful is said: rows are committed, the status says
    what to raise, and they are delivered once there are threads again.
    """
    experiment = an_experiment(tmp_path / "outputs" / "job", done=False)
    start, stop = threading.Thread.start, threading.Event()
    limited, statuses, said = [True], list[list[Status]](), list[str]()

    def refuse(thread: threading.Thread) -> None:
        if limited[0] and thread.name.startswith("rlship"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    config = Config(sinks=["jsonl"], drain_s=20.0)
    watch = threading.Thread(
        target=daemon.watch,
        args=(tmp_path / "outputs", config),
        kwargs={"once": False, "stop": stop, "say": said.append, "on_status": statuses.append},
    )
    watch.start()
    try:
        wait_until(lambda: any(one.rows == STEPS and "raise ulimit -u" in one.sinks[0].error for one in last(statuses)))
        assert not (state_of(experiment) / "rows.jsonl").exists()
        limited[0] = False
        wait_until(lambda: delivered([experiment])())
    finally:
        stop.set()
        watch.join(30.0)
    assert said == []


def test_an_experiment_that_pauses_for_long_rests_without_a_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that was killed never closes: after a long silence its experiment holds nothing, until it grows."""
    monkeypatch.setattr(resting, "SILENT_S", 0.5)
    monkeypatch.setattr("rlship_sidecar.daemon.watched.SILENT_S", 0.5)
    monkeypatch.setattr("rlship_sidecar.daemon.watched.LINGER_S", 0.1)
    monkeypatch.setattr(daemon, "LINGER_S", 0.1)
    experiment = an_experiment(tmp_path / "outputs" / "job", done=False)
    stop = threading.Event()
    watch = threading.Thread(
        target=daemon.watch,
        args=(tmp_path / "outputs", Config(sinks=["jsonl"])),
        kwargs={"once": False, "stop": stop},
    )
    watch.start()
    try:
        wait_until(lambda: released(experiment))
        grow(experiment, STEPS)
        wait_until(lambda: delivered([experiment], STEPS + 1)())
    finally:
        stop.set()
        watch.join(30.0)


def test_an_idle_experiment_is_looked_at_for_rest_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that opens every file to see for how long an idle job was silent is not made again before it can have been
    silent for long enough.
    """
    monkeypatch.setattr("rlship_sidecar.daemon.watched.LINGER_S", 0.1)
    monkeypatch.setattr(daemon, "LINGER_S", 0.1)
    looks: list[float] = []

    class Counted(resting.Sighting):
        def __init__(self, *given: Any) -> None:
            looks.append(time.monotonic())
            super().__init__(*given)

    monkeypatch.setattr("rlship_sidecar.daemon.watched.Sighting", Counted)
    experiment = an_experiment(tmp_path / "outputs" / "job", done=False)
    stop, told = threading.Event(), list[list[Status]]()
    watch = threading.Thread(
        target=daemon.watch,
        args=(tmp_path / "outputs", Config(sinks=["jsonl"])),
        kwargs={"once": False, "stop": stop, "on_status": told.append},
    )
    watch.start()
    try:
        wait_until(lambda: looks)
        rounds = len(told)
        wait_until(lambda: len(told) > rounds + 2)
        assert len(looks) == 1
        with open(experiment / "rlship" / "a.jsonl", "ab") as there:
            there.write(b'{"kind":"close","reason":"exit"}\n')
        wait_until(lambda: released(experiment))
        assert len(looks) == 2
    finally:
        stop.set()
        watch.join(30.0)


def last(statuses: list[list[Status]]) -> list[Status]:
    return statuses[-1] if statuses else []
