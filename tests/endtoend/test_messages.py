"""What the daemon says and how it ends where it cannot or must not work; folders of experiments."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest

from rlship_sidecar.rows import Unit
from tests.endtoend.evidence import check_rows, newest, remove, shipped, state_of
from tests.endtoend.hostile import closed, metrics, opened
from tests.endtoend.job import Worker, crew
from tests.endtoend.sidecar import Sidecar, rlship, watching

RULE = (("high", 3), ("higher", 7))


def an_experiment(folder: Path, steps: int = 3) -> Path:
    """One trainer that is done."""
    (folder / "rlship").mkdir(parents=True)
    lines = [opened("trainer"), *(metrics(step, loss=step / 2) for step in range(steps)), *closed(steps)]
    (folder / "rlship" / "trainer-0-r0.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def has_step(experiment: Path, step: int, actor: str = "trainer") -> bool:
    return Unit(actor, "step", step) in newest(shipped(experiment))


def says(sidecar: Sidecar, words: str) -> bool:
    return words in sidecar.said()


def log(worker: Worker, step: int) -> None:
    worker.log({"loss": float(step)}, step)
    worker.barrier(step)
    worker.flush()


def test_a_second_daemon_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    """Exit code 5, with the process that owns the experiment named, for a live one and for --once; the first ships the
    next step as if nothing had been.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with crew(experiment, "trainer", 1) as (worker,), watching(experiment, home=home) as first:
        log(worker, 0)
        first.until(lambda: has_step(experiment, 0))
        before = {path.name for path in state_of(experiment).iterdir()}
        for more in ((), ("--once",)):
            second = rlship(home, "watch", experiment, "--sink", "jsonl", *more)
            assert second.returncode == 5, second.stderr
            assert f"owned by another sidecar: process {first.process.pid} " in second.stderr
            assert "Traceback" not in second.stderr
        assert {path.name for path in state_of(experiment).iterdir()} == before

        log(worker, 1)
        first.until(lambda: has_step(experiment, 1))
        worker.end()
        assert first.stop() == 0, first.said()
    check_rows(experiment, shipped(experiment))


def test_a_second_daemon_with_its_state_elsewhere_says_that_both_ship(tmp_path: Path) -> None:
    """It has a run of its own, which may be meant, so it goes on; where the first has ended it says nothing."""
    experiment, home, words = tmp_path / "job", tmp_path / "home", ("--sink", "jsonl", "--once", "--state-dir", "st")
    with crew(experiment, "trainer", 1) as (worker,), watching(experiment, home=home) as first:
        log(worker, 0)
        first.until(lambda: has_step(experiment, 0))
        worker.end()
        second = rlship(home, "watch", experiment, *words)
        assert second.returncode == 0, second.stderr
        assert f"another sidecar (process {first.process.pid} on " in second.stderr
        assert "each makes a run of its own" in second.stderr
        assert first.stop() == 0, first.said()
    assert "another sidecar" not in rlship(home, "watch", experiment, *words).stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Exit code 1, and the folder of nearly the same name."""
    (tmp_path / "outputs").mkdir()
    done = rlship(tmp_path / "home", "watch", tmp_path / "output", "--sink", "jsonl")
    assert done.returncode == 1
    assert f"there is no folder {tmp_path / 'output'}" in done.stderr
    assert f"did you mean {tmp_path / 'outputs'}?" in done.stderr


def test_an_empty_folder_is_waited_in(tmp_path: Path) -> None:
    """--once ends with code 1 and a way out; a live daemon says that it waits, and ships the first experiment made
    there.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    outputs.mkdir()
    done = rlship(home, "watch", outputs, "--once", "--sink", "jsonl")
    assert done.returncode == 1
    assert "no experiment in" in done.stderr and "rlship.init" in done.stderr

    with watching(outputs, home=home) as sidecar:
        sidecar.until(lambda: "waiting for a writer" in sidecar.said())
        an_experiment(outputs / "first")
        sidecar.until(lambda: has_step(outputs / "first", 2))
        assert sidecar.stop() == 0, sidecar.said()
    check_rows(outputs / "first", shipped(outputs / "first"))


def test_a_folder_of_experiments_is_one_daemon(tmp_path: Path) -> None:
    """Experiments that are there and one that appears later are shipped, each on its own; other folders are left
    alone.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    for name in ("a", "b"):
        an_experiment(outputs / name)
    (outputs / "checkpoints").mkdir()
    (outputs / "notes.txt").write_text("none of ours\n")
    with watching(outputs, home=home) as sidecar:
        sidecar.until(lambda: has_step(outputs / "a", 2) and has_step(outputs / "b", 2))
        with crew(outputs / "later", "generator", 2) as workers:
            for worker in workers:
                log(worker, 0)
            sidecar.until(lambda: has_step(outputs / "later", 0, "generator"))
            for worker in workers:
                worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    for name in ("a", "b", "later"):
        check_rows(outputs / name, shipped(outputs / name))
    assert sorted(path.name for path in (outputs / "checkpoints").iterdir()) == []


def beside_a_good_one(outputs: Path, sidecar: Sidecar, step: int, worker: Worker) -> None:
    """The good experiment's next step is shipped."""
    log(worker, step)
    sidecar.until(lambda: has_step(outputs / "good", step), 20.0)


def test_a_folder_whose_name_is_no_text_does_not_stop_the_others(tmp_path: Path) -> None:
    """A folder beside experiments whose name is not UTF-8 stops no experiment; it is reported once, so that
    a terminal can show it, and no other verb fails over it.
    """
    top, home = tmp_path / "outputs", tmp_path / "home"
    job = an_experiment(top / "job")
    an_experiment(top / os.fsdecode(b"a\xff\x1b[2J"))
    home.mkdir()
    done = rlship(home, "watch", top, "--once", "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("/a\\udcff\\x1b[2J cannot be looked into: its name is not UTF-8") == 1
    check_rows(job, shipped(job))
    told = rlship(home, "status", top)
    assert told.returncode == 0, told.stderr


def test_an_experiment_that_is_deleted_does_not_stop_the_others(tmp_path: Path) -> None:
    """`rm -r` of one experiment under a daemon of several: it says so and goes on with the others; a new one of that
    name is taken up.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    an_experiment(outputs / "old")
    with crew(outputs / "good", "trainer", 1) as (worker,), watching(outputs, home=home) as sidecar:
        sidecar.until(lambda: has_step(outputs / "old", 2))
        beside_a_good_one(outputs, sidecar, 0, worker)
        remove(outputs / "old")
        sidecar.until(lambda: "old" in sidecar.said() and "gone" in sidecar.said())
        beside_a_good_one(outputs, sidecar, 1, worker)
        an_experiment(outputs / "old", steps=5)
        sidecar.until(lambda: has_step(outputs / "old", 4))
        worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    for name in ("good", "old"):
        check_rows(outputs / name, shipped(outputs / name))


def damage(experiment: Path, how: str, home: Path) -> Path:
    """Make the experiment's state unusable; returns the file that does it."""
    state = state_of(experiment)
    culprit = state
    if how == "a damaged store":
        assert rlship(home, "watch", experiment, "--once", "--sink", "console").returncode == 0
        culprit = state / "store.0.db"
    culprit.write_bytes(b"neither a database nor a folder\n" * 1000)
    return culprit


DAMAGES = ("a damaged store", "a file in place of the folder")


@pytest.mark.parametrize("how", DAMAGES)
def test_an_experiment_that_cannot_be_opened_does_not_stop_the_others(tmp_path: Path, how: str) -> None:
    """Where one experiment's state cannot be used, the daemon says which and why, ships the others, and takes it up
    once what is in the way was removed.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    bad = an_experiment(outputs / "bad")
    culprit = damage(bad, how, home)
    with crew(outputs / "good", "trainer", 1) as (worker,), watching(outputs, home=home) as sidecar:
        for step in range(2):
            beside_a_good_one(outputs, sidecar, step, worker)
        assert str(state_of(bad)) in sidecar.said() and "Traceback" not in sidecar.said()
        culprit.unlink()
        sidecar.until(lambda: has_step(bad, 2))
        worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    check_rows(bad, shipped(bad))


@pytest.mark.parametrize("how", DAMAGES)
def test_the_one_experiment_that_cannot_be_opened_is_an_error(tmp_path: Path, how: str) -> None:
    """A daemon with nothing else to do ends with code 1 and a message that names the place, live and with --once."""
    experiment, home = an_experiment(tmp_path / "job"), tmp_path / "home"
    damage(experiment, how, home)
    for more in ((), ("--once",)):
        done = rlship(home, "watch", experiment, "--sink", "jsonl", *more)
        assert done.returncode == 1, done.stderr
        assert str(state_of(experiment)) in done.stderr and "Traceback" not in done.stderr


def test_a_lease_from_another_host_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """An experiment that another host's sidecar left without a word is watched for a whole `lease_ttl_s` before it is
    taken over; the others are shipped meanwhile, and a SIGTERM is obeyed.
    """
    outputs, home = tmp_path / "outputs", tmp_path / "home"
    ttl_s = 3.0
    foreign = {"host": "n99", "boot": "b", "pid_space": "p", "pid": 1, "started": 1, "beats": 7, "released": False}
    settings = {"RLSHIP_LEASE_TTL_S": str(ttl_s)}
    with (
        crew(outputs / "good", "trainer", 1) as (worker,),
        watching(outputs, home=home, settings=settings) as sidecar,
    ):
        beside_a_good_one(outputs, sidecar, 0, worker)
        for name in ("left", "left-too"):
            moved = an_experiment(tmp_path / name)
            state_of(moved).mkdir()
            (state_of(moved) / "lease.0").write_text(json.dumps(foreign))
        moved = (tmp_path / "left").rename(outputs / "left")
        came = time.monotonic()
        step = 0
        while not has_step(moved, 2):
            step += 1
            beside_a_good_one(outputs, sidecar, step, worker)
        assert time.monotonic() - came >= ttl_s and step >= 3

        (tmp_path / "left-too").rename(outputs / "left-too")
        # One look finds both, and opens them by name: the first has rows, so the second is being waited for.
        an_experiment(tmp_path / "free").rename(outputs / "free")
        sidecar.until(lambda: has_step(outputs / "free", 2))
        worker.end()
        began = time.monotonic()
        assert sidecar.stop() == 0, sidecar.said()
        assert time.monotonic() - began < ttl_s
    check_rows(moved, shipped(moved))
    check_rows(outputs / "good", shipped(outputs / "good"))


def test_an_alert_that_becomes_critical_is_said_once(tmp_path: Path) -> None:
    """The lines of `watch` say that it fires, that it is critical now, and that it is over."""
    experiment, home = tmp_path / "job", tmp_path / "home"
    kinds = "".join(f'{name} = {{ kind = "above", metric = "trainer/loss", high = {high} }}\n' for name, high in RULE)
    experiment.mkdir()
    (experiment / "rlship.toml").write_text(
        f'[alert.high]\nwarning = "high"\ncritical = "higher"\nclear = 2\n[alert.high.signals]\n{kinds}'
    )
    values = [1, 1, 5, 5, 9, 9, 1, 1, 1]
    words = {3: "alert: warning high since step 2: high 5", 5: "worse: critical high since step 2: high 5"}
    with (
        crew(experiment, "trainer", 1) as (worker,),
        watching(experiment, home=home, settings={"RLSHIP_ALERTS": "true"}) as sidecar,
    ):
        for step, value in enumerate(values):
            worker.log({"loss": float(value)}, step)
            worker.barrier(step)
            worker.flush()
            if step in words:
                sidecar.until(partial(says, sidecar, words[step]))
        sidecar.until(partial(says, sidecar, "over: critical high"))
        worker.end()
        assert sidecar.stop() == 0, sidecar.said()
        said = [line.split(" ", 2)[2] for line in sidecar.said().splitlines() if "high since step 2" in line]
    assert [line.partition(":")[0] for line in said] == ["alert", "worse", "over"]
