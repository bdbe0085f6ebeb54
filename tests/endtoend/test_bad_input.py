"""Files as bad as they get, beside good ones."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import msgspec

from rlship_sidecar.report.status import Status
from tests.endtoend.evidence import check_rows, files_of, newest, shipped
from tests.endtoend.hostile import FILES, UNKNOWN, Written, put_odd_entries
from tests.endtoend.job import crew
from tests.endtoend.sidecar import rlship, watching
from tests.reference.reduction import dead_letters


def check_dead(told: Status, experiment: Path, written: dict[str, Written]) -> None:
    """Every bad line is reported with file, first offset and reason, and nothing else is."""
    expected = dead_letters(files_of(experiment))
    lines = [(name, offset, reason) for name, offset, reason, metric in expected if metric is None]
    assert sorted(lines) == sorted((name, *dead) for name, file in written.items() for dead in file.dead)

    first: dict[tuple[str, str], int] = {}
    for name, offset, reason, _ in expected:
        first.setdefault((name, reason), offset)
    counted = Counter((name, reason) for name, _, reason, _ in expected)
    assert {(d.file, d.reason): (d.count, d.offset) for d in told.dead_letters} == {
        key: (counted[key], first[key]) for key in first
    }
    assert (told.dead_letter_count, told.dead_value_count) == (len(lines), len(expected) - len(lines))
    assert all(d.excerpt.isprintable() and len(d.excerpt) < 1000 for d in told.dead_letters)


def closed_steps(told: Status) -> dict[str, int | None]:
    return {actor.actor: actor.step for actor in told.actors}


def test_a_live_daemon_uses_every_good_line_and_tells_of_every_bad_one(tmp_path: Path) -> None:
    """Bad files that grow in pieces beside a running job: the daemon lives on, the rows are those of the good lines,
    and `status --json` and `watch --once` say what is wrong, with exit code 3.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    folder = experiment / "rlship"
    folder.mkdir(parents=True)
    written = {name: make() for name, make in FILES.items()}
    with watching(experiment, home=home) as sidecar, crew(experiment, "trainer", 2) as workers:
        odd = put_odd_entries(folder)
        for piece in range(4):
            for rank, worker in enumerate(workers):
                for step in range(5 * piece, 5 * piece + 5):
                    worker.log({"loss": step + rank / 2, "broken": "x" if step % 2 else 1}, step)
                    worker.barrier(step)
                worker.flush()
            for name, file in written.items():
                with open(folder / name, "ab") as out:
                    size = len(file.data)
                    out.write(file.data[size * piece // 4 : size * (piece + 1) // 4])
            done = 5 * piece + 4
            sidecar.until(
                lambda done=done: any(r.unit.actor == "trainer" and r.unit.index == done for r in shipped(experiment))
            )
        for worker in workers:
            worker.end()

        steps = {"keys": 9, "reward": 57, "trainer": 19}
        unread = {name: len(file.data) - file.data.rfind(b"\n") - 1 for name, file in written.items()}
        told = sidecar.until_status(
            lambda status: (
                closed_steps(status) == steps
                and all(w.unread == unread.get(w.file, 0) for w in status.writers)
                and len(status.writers) == 8
            )
        )
        # Each of the two workers was told that the text "x" is no metric.
        wrong_use = "reported to the job by 2 processes"
        assert [note.partition(":")[0] for note in told.notes] == [*sorted(odd), wrong_use]
        assert all("not a regular file" in note for note in told.notes[:-1])
        assert {w.file for w in told.writers if w.note == "empty"} == {"empty.jsonl"}
        said = rlship(home, "status", experiment, "--json")
        assert said.returncode == 3 and json.loads(said.stdout)["running"] is True
        assert sidecar.stop() == 0
    rows = shipped(experiment)
    check_rows(experiment, rows)
    assert "outside" not in {row.unit.actor for row in rows}

    said = rlship(home, "status", experiment, "--json")
    assert said.returncode == 3
    told = msgspec.json.decode(said.stdout, type=Status)
    check_dead(told, experiment, written)
    assert told.counts["unknown kinds"] == sum(
        written["reward-0-r0.jsonl"].data.count(text + b"\n") for text in UNKNOWN
    )
    assert told.running is False and not told.complete

    again = tmp_path / "again"
    shutil.copytree(folder, again / "rlship", ignore=lambda *_: ["state", *odd], symlinks=True)
    os.mkfifo(again / "rlship" / "pipe.jsonl")
    once = rlship(home, "watch", again, "--once", "--sink", "jsonl")
    assert once.returncode == 3, once.stderr
    assert "Traceback" not in once.stderr
    assert newest(shipped(again)) == newest(rows)
