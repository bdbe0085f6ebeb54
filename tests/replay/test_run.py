"""One replay: its folder, its runs, its going on after an interruption, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.replay.run import ReplayRequest, replay
from rlship_sidecar.rows import ALERT, Unit
from rlship_sidecar.steps import Steps
from tests.endtoend.sidecar import environment, rlship
from tests.reference.building import CLOSE, T0, barrier, file, log, stream
from tests.reference.reduction import exactly
from tests.replay.replaying import again, make, newest_rows, rows_in, watched
from tests.sinks.readback import offline_folders, offline_rows, tensorboard_events

STEPS = 400


def lines(rank: int, steps: int = STEPS) -> bytes:
    """A rank of three that logs 20 metrics in each step; the last one stops half-way, without a word."""
    records = []
    for step in range(steps if rank < 2 else steps // 2):
        values = {f"m{number}": (step + 1) / (rank + number + 1) for number in range(20)}
        records += [{"t": T0 + step, "step": step, "m": values}, barrier(step, step + 0.5)]
    return file(*records, *([CLOSE] if rank < 2 else []), id=f"w{rank}", rank=rank, world=3)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """An experiment of three ranks."""
    return make(tmp_path / "grpo", {f"r{rank}.jsonl": lines(rank) for rank in range(3)})


def test_rows_of_other_steps_are_not_reported(tmp_path: Path) -> None:
    """A replay of some steps names the ranks that left out a metric at these steps, not at those it has no row of."""
    ranks = {}
    for rank in range(2):
        kept = [(step, {"x": 1.0} | ({"kl": 1.0} if not (rank and step in (11, 17, 18)) else {})) for step in range(20)]
        records = [record for step, values in kept for record in (log(step, **values), barrier(step))]
        ranks[f"r{rank}.jsonl"] = file(*records, CLOSE, id=f"r{rank}", rank=rank, world=2)
    job = make(tmp_path / "job", ranks)
    found = {}
    for steps in (None, Steps(10, 12), Steps(12, 14)):
        done = replay(ReplayRequest(job, Config(), steps, dry_run=True))
        found[steps] = [(one.rows, one.first, one.last) for one in done.short]
    assert found == {None: [(3, 11, 18)], Steps(10, 12): [(1, 11, 11)], Steps(12, 14): []}


def test_a_rank_that_died_holds_up_no_row(job: Path, tmp_path: Path) -> None:
    """All rows are made while the files are read, no row waits for the end, and no row is revised. That a rank is
    missing for so long fires an alert.
    """
    again(job, tmp_path / "out")
    alerts = [row for row in rows_in(tmp_path / "out") if row.unit.kind == ALERT]
    assert [[*row.values] for row in alerts] == [["zz_rlship/alert/lost_or_slow_place"]]
    rows = [row for row in rows_in(tmp_path / "out") if row.unit.kind != ALERT]
    assert [row.unit.index for row in rows] == list(range(STEPS))
    assert [row.coverage.missing for row in rows] == [()] * (STEPS // 2) + [("0.2",)] * (STEPS // 2)


class _After(threading.Event):
    """Set once it was asked so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def is_set(self) -> bool:
        self._times -= 1
        return self._times < 0


@pytest.mark.parametrize("looks", [0, 1, 3, 7])
def test_a_stopped_replay_goes_on(job: Path, looks: int) -> None:
    """Stopped after some looks it is not finished; the next one goes on in its folder and ends with the rows of one
    that was never stopped.
    """
    first = replay(ReplayRequest(job, Config(sinks=["jsonl"])), stop=_After(looks))
    assert not first.finished and first.rows < STEPS
    told: list[str] = []
    second = replay(ReplayRequest(job, Config(sinks=["jsonl"])), say=told.append)
    assert second.finished and second.state_dir == first.state_dir
    assert told == [f"continuing the replay in {first.state_dir}"]
    whole = again(job, None)
    assert whole.state_dir != second.state_dir
    assert exactly(newest_rows(Path(second.state_dir))) == exactly(newest_rows(Path(whole.state_dir)))
    written = (Path(second.state_dir) / "rows.jsonl").read_bytes().splitlines()
    assert written == [row.to_json() for row in rows_in(Path(second.state_dir))]


KILLED = """
import os, signal, sys
from rlship_sidecar.store.store import Store
commit, left = Store.commit, [int(sys.argv.pop(1))]
def once_more(self, changes):
    commit(self, changes)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Store.commit = once_more
from rlship_sidecar.cli import main
main()
"""


def test_a_killed_replay_goes_on(job: Path, tmp_path: Path) -> None:
    """After kill -9 at a commit the same command goes on in the same folder, and every row is there once."""
    home = tmp_path / "home"
    home.mkdir()
    for commits in (1, 2):
        command = [sys.executable, "-c", KILLED, str(commits), "replay", str(job), "--sink", "jsonl"]
        killed = subprocess.run(command, env=environment(home, {}), capture_output=True, timeout=60)
        assert killed.returncode == -signal.SIGKILL
    ended = rlship(home, "replay", job, "--sink", "jsonl")
    assert ended.returncode == 3, ended.stderr
    out = job / "rlship" / "state" / "replay-1"
    rows = rows_in(out)
    assert len(rows) == STEPS and "continuing the replay" in ended.stderr
    assert (out / "rows.jsonl").read_bytes().splitlines() == [row.to_json() for row in rows]


def test_an_interrupt_stops_it_and_tells_how_to_go_on(job: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it with 1, and with a command that goes on from there."""
    home = tmp_path / "home"
    home.mkdir()
    code = KILLED.replace("SIGKILL", "SIGINT")
    command = [sys.executable, "-c", code, "1", "replay", str(job), "--sink", "jsonl"]
    ended = subprocess.run(command, env=environment(home, {}), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.endswith(f"stopped: `rlship replay {job} --sink jsonl` goes on from there\n")


def test_wall_clock_times_are_those_of_the_records(job: Path, tmp_path: Path) -> None:
    """W&B's `_timestamp` and TensorBoard's wall time are the rows', of years ago; the run is a new one, named for the
    experiment.
    """
    home = tmp_path / "home"
    home.mkdir()
    watch = rlship(home, "watch", job, "--once")
    assert watch.returncode == 3, watch.stderr
    done = rlship(home, "replay", job)
    assert done.returncode == 3, done.stderr
    state = job / "rlship" / "state"
    times = [row.t for row in rows_in(state / "replay-1")]
    assert times == [T0 + step for step in range(STEPS)]
    assert [point["_timestamp"] for point in offline_rows(state / "replay-1")] == times
    assert [event.wall_time for event in tensorboard_events(state / "replay-1" / "tensorboard")] == times
    live, replayed = (offline_folders(folder)[0].name.split("-")[-1] for folder in (state, state / "replay-1"))
    assert live != replayed
    assert exactly(newest_rows(state / "replay-1")) == exactly(watched(job))


def listed(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_dry_run_leaves_nothing(job: Path) -> None:
    """It counts what a replay would ship, and no file is there afterwards that was not before."""
    before = listed(job)
    found = replay(ReplayRequest(job, Config(sinks=["jsonl"]), dry_run=True))
    assert listed(job) == before and os.listdir(job / "rlship") == [Path(path).name for path in before]
    assert (found.rows, found.finished, found.complete, found.state_dir) == (STEPS + 1, True, False, "")
    units = [(unit.actor, unit.kind, unit.first, unit.last) for unit in found.units]
    assert units == [("", "alert", 201, 201), ("trainer", "step", 0, 399)]
    assert found.keys["trainer"][-1] == "trainer/m9" and found.bytes == sum(map(len, before.values()))
    assert found.lines == sum(data.count(b"\n") for data in before.values())


def test_a_damaged_store_is_no_obstacle(job: Path, tmp_path: Path) -> None:
    """The sidecar's store is neither needed nor looked at: a replay is the way out where it is damaged."""
    home = tmp_path / "home"
    home.mkdir()
    state = job / "rlship" / "state"
    assert rlship(home, "watch", job, "--once", "--sink", "jsonl").returncode == 3
    (store,) = state.glob("store.*.db")
    store.write_bytes(b"not a database" * 1000)
    refused = rlship(home, "watch", job, "--once", "--sink", "jsonl")
    assert refused.returncode == 1
    done = rlship(home, "replay", job, "--sink", "jsonl")
    assert done.returncode == 3, done.stderr
    assert (state / "replay-1" / "rows.jsonl").read_bytes() == (state / "rows.jsonl").read_bytes()


def test_folders(job: Path) -> None:
    """A finished replay is not gone on with, an unfinished one only by the same settings."""
    state = job / "rlship" / "state"
    assert again(job, None).state_dir == str(state / "replay-1")
    assert again(job, None, Steps(3, 5)).state_dir == str(state / "replay-2")
    replay(ReplayRequest(job, Config(sinks=[])), stop=_After(0))
    assert again(job, None, reductions={"m0": ["max"]}).state_dir == str(state / "replay-4")
    assert again(job, None).state_dir == str(state / "replay-3")


def test_a_folder_that_was_named(job: Path, tmp_path: Path) -> None:
    """It is gone on with by the same range of steps; another range, or other files in it, are refused."""
    out = tmp_path / "out"
    assert again(job, out, Steps(3, 5)).rows == 3
    assert again(job, out, Steps(3, 5)).rows == 3
    with pytest.raises(UsageProblem, match="holds a replay of steps 3:5, not of all steps"):
        again(job, out)
    with pytest.raises(UsageProblem, match="is an experiment, and a replay keeps its rows in a folder of its own"):
        again(job, job)


def test_a_folder_that_does_not_say_what_it_holds(job: Path) -> None:
    """Rows are not looked for in the store of a replay of who knows which steps: another folder is begun."""
    state = job / "rlship" / "state"
    again(job, None)
    (state / "replay-1" / "replay.json").write_text("{")
    found = again(job, None, Steps(3, 5))
    assert (found.state_dir, found.rows) == (str(state / "replay-2"), 3)


def test_the_folder_of_the_sidecar(job: Path, tmp_path: Path) -> None:
    """--out is never where the sidecar has its state, also before there is any, by whatever name."""
    (tmp_path / "link").symlink_to(job)
    for out in (job / "rlship" / "state", tmp_path / "link" / "rlship" / "state"):
        with pytest.raises(UsageProblem, match="is for the state of the sidecar"):
            again(job, out)
    assert not (job / "rlship" / "state").exists()


def test_other_reductions(job: Path, tmp_path: Path) -> None:
    """With other reductions the figures are those of the same lines, under the keys of these."""
    again(job, tmp_path / "out", Steps(0, 0), reductions={"m0": ["max", "sum"]})
    (row,) = rows_in(tmp_path / "out")
    assert (row.values["trainer/m0"], row.values["trainer/m0/sum"]) == (1.0, 1.0 + 1 / 2 + 1 / 3)


def test_all_kinds_of_rows(tmp_path: Path) -> None:
    """Streams become rows beside the steps and over time, also those of a writer that never closed."""
    steps = file(*(record for step in range(40) for record in (log(step, x=1.0), barrier(step, step + 1.0))), world=1)
    streams = file(*(stream(number / 2, y=number) for number in range(60)), actor="generator", id="g", world=1)
    again(make(tmp_path / "job", {"s.jsonl": steps, "g.jsonl": streams}), tmp_path / "out")
    rows = newest_rows(tmp_path / "out")
    assert sum(unit.kind == "clock" for unit in rows) == 3
    assert rows[Unit("generator", "aligned", 3)].values["generator/y"] == 7.5
    assert all(row.arrival.revision == 0 for row in rows.values())
