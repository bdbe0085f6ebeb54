"""Foreign files under a real `rlship watch`: while they grow, killed in the middle, and `--once`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from rlship_sidecar.rows import Row
from rlship_sidecar.tail.discover import Directory
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.sidecar import RLSHIP, environment, rlship, watching
from tests.foreign.test_trainer_state import history
from tests.foreign.titan import instant, put, scalar, span
from tests.kit.verbs import run_here
from tests.reference.reduction import exactly

NAMES = ("training.global_rank_0.20260101-000000-AAAAAA.jsonl", "training.global_rank_1.20260101-000000-BBBBBB.jsonl")


def step(experiment: Path, number: int) -> None:
    """Both ranks log one step; every third one leaves a checkpoint."""
    for rank, name in enumerate(NAMES):
        lines = [span("step", float(number), 100.0 + rank, number, rank=rank)]
        put(experiment, name, *lines, scalar("loss", number + rank, number + 0.1, number, rank=rank))
    if number % 3 == 0:
        folder = experiment / f"checkpoint-{number}"
        folder.mkdir()
        state = json.dumps({"global_step": number, "log_history": history(number)}, indent=2)
        (folder / "new").write_text(state)
        os.rename(folder / "new", folder / "trainer_state.json")


def test_a_torn_document_alone_is_said_by_once(tmp_path: Path) -> None:
    """Where half of a trainer's state is all that there is, `watch --once` names it and ends with 3."""
    watched, home = tmp_path / "run", tmp_path / "home"
    watched.mkdir()
    home.mkdir()
    (watched / "trainer_state.json").write_bytes(b'{"global_step": 3, "log_hist')
    done = rlship(home, "watch", watched, "--once", "--sink", "jsonl")
    assert (done.returncode, "./trainer_state.json: not read, as it is being written or" in done.stderr) == (3, True)


def test_rows_come_while_files_grow_and_are_those_of_once(tmp_path: Path) -> None:
    """The sidecar finds the folder, follows the files, is killed and goes on; `--once` over the same files, with a
    state elsewhere, makes the same rows and no folder.
    """
    watched, home = tmp_path / "run", tmp_path / "home"
    watched.mkdir()
    home.mkdir()
    (watched / "structured_logs").mkdir()
    with watching(tmp_path, home=home) as sidecar:
        put(watched, NAMES[0], instant("training_start", 0.0))
        for number in range(1, 6):
            step(watched, number)
        sidecar.until_status(lambda status: any(actor.step == 4 for actor in status.actors), watched)
        sidecar.kill()
    for number in range(6, 9):
        step(watched, number)
    put(watched, "strange.jsonl", b'{"what":"is this"}\n')
    with watching(tmp_path, home=home) as sidecar:
        step(watched, 9)
        sidecar.until_status(lambda status: any(actor.step == 9 for actor in status.actors), watched)
        sidecar.until(lambda: "strange.jsonl: not recognised" in sidecar.said())
        assert sidecar.stop() == 0
    live = newest(shipped(watched))
    state, bare = tmp_path / "state", tmp_path / "bare"
    shutil.copytree(watched, bare, ignore=shutil.ignore_patterns("rlship"))
    done = rlship(home, "watch", bare, "--once", "--sink", "jsonl", "--state-dir", state)
    assert done.returncode == 0, done.stderr
    said = f"rlship: {bare}: structured_logs/strange.jsonl: not recognised"
    assert sum(line.startswith(said) for line in done.stderr.splitlines()) == 1
    assert not (bare / "rlship").exists()
    rows = [Row.from_json(line) for line in (state / "bare" / "rows.jsonl").read_bytes().splitlines()]
    assert exactly(newest(rows)) == exactly(live)
    assert len(live) == 10
    told = rlship(home, "status", watched, "--writers")
    assert "(torchtitan)" in told.stdout and "(trainer_state)" in told.stdout


def homemade(folder: Path, *names: str) -> None:
    """Logs of a script, at places where a reader looks, and in no format that it knows."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text('{"iter": 1, "loss": 0.5}\n{"iter": 2, "loss": 0.4}\n')


def test_logs_of_no_known_format_are_named_where_there_is_no_experiment(tmp_path: Path) -> None:
    """`watch` and `status` of a folder with such logs alone, or in a folder below it, name the first few of them and
    count the others, and refer to the list of formats. So does `doctor`, to which nothing is to mend. An empty file is
    not named.
    """
    homemade(tmp_path / "bad", "metrics.jsonl", "log.jsonl")
    homemade(tmp_path / "outputs" / "many", *(f"log{number}.jsonl" for number in range(9)))
    (tmp_path / "bad" / "empty.jsonl").touch()
    few = "rlship does not know the format of log.jsonl, metrics.jsonl"
    many = f"{', '.join(f'many/log{number}.jsonl' for number in range(5))} and 4 more"
    for verb in (("watch", "bad", "--once"), ("status", "bad")):
        done = run_here(*verb, cwd=tmp_path, env={"HOME": str(tmp_path)})
        assert done.returncode == 1 and f"bad: {few}\n  docs/foreign.md lists the formats" in done.stderr, done.stderr
    done = run_here("status", "outputs", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert f"outputs: rlship does not know the format of {many}\n" in done.stderr
    done = run_here("doctor", "bad", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert f"ok    experiments: none in bad yet; {few}: docs/foreign.md" in done.stdout
    assert done.returncode == 0


def test_a_waiting_watch_names_logs_of_no_known_format_after_a_while(tmp_path: Path) -> None:
    """Not at its first look, when a log may just begin; in an experiment's folder, never."""
    homemade(tmp_path / "bad", "metrics.jsonl")
    directory = Directory(tmp_path / "bad", None)
    looks = [directory.look(now, {}, force=True, wait_s=0.0) for now in (0.0, 20.0)]
    assert [look and look.excluded and list(look.excluded) for look in looks] == [{}, [f"{tmp_path}/bad/metrics.jsonl"]]
    (tmp_path / "bad" / "rlship").mkdir()
    last = directory.look(40.0, {}, force=True, wait_s=0.0)
    assert last is not None and not last.excluded


def test_a_finished_foreign_log_leaves_nothing_to_mend(tmp_path: Path) -> None:
    """After `watch --once` of a whole log, `doctor` finds nothing to mend, and names a file beside it that no reader
    knows. Once the log has grown, or a file came beside it, the sidecar is to be started again.
    """
    homemade(tmp_path / "run", "other.jsonl")
    log = tmp_path / "run" / "train.jsonl"
    log.write_text("".join(f'{{"step": {step}, "data": {{"critic/score/mean": 0.5}}}}\n' for step in range(3)))
    env = {"HOME": str(tmp_path)}
    command = [*RLSHIP, "watch", "run", "--once", "--sink", "jsonl"]  # a process that is gone afterwards
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path, {}), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = run_here("doctor", "run", cwd=tmp_path, env=env)
    assert told.returncode == 0, told.stdout
    assert "All rows are delivered; once the job goes on: rlship watch " in told.stdout
    assert "ok    experiments: rlship does not know the format of ./other.jsonl: docs/foreign.md" in told.stdout
    with open(log, "a") as more:
        more.write('{"step": 3, "data": {"critic/score/mean": 0.5}}\n')
    told = run_here("doctor", "run", cwd=tmp_path, env=env)
    assert told.returncode == 3 and "To go on: rlship watch " in told.stdout
    os.utime(log, (1.7e9, 1.7e9))
    assert run_here("doctor", "run", cwd=tmp_path, env=env).returncode == 0
    (tmp_path / "run" / "checkpoint-9").mkdir()
    assert run_here("doctor", "run", cwd=tmp_path, env=env).returncode == 3
