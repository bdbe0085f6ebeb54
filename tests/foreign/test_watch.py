"""Foreign files under a real `rlship watch`: while they grow, killed in the middle, and `--once`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from rlship_sidecar.rows import Row
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.sidecar import rlship, watching
from tests.foreign.test_trainer_state import history
from tests.foreign.titan import instant, put, scalar, span
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
