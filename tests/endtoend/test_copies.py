"""State that came from elsewhere: copies are distinguished, moves go on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.endtoend.sidecar import RLSHIP
from tests.kit.verbs import run_here
from tests.reference.building import barrier, file, log


def once(folder: Path, *flags: str, sink: str = "jsonl") -> subprocess.CompletedProcess[str]:
    """`rlship watch --once` with one sink."""
    return rlship("watch", folder, "--once", "--sink", sink, *flags)


def rlship(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    return run_here(*arguments, cwd=Path.cwd(), env=dict(os.environ))


def experiment(folder: Path, steps: int) -> Path:
    (folder / "rlship").mkdir(parents=True)
    records = (record for step in range(steps) for record in (log(step, loss=1.0), barrier(step)))
    (folder / "rlship" / "a.jsonl").write_bytes(file(*records, world=1))
    return folder


def test_a_copy_does_not_write_into_the_originals_run(tmp_path: Path) -> None:
    """A copy with its state is refused with the way out; without the state it is an experiment of its own."""
    original = experiment(tmp_path / "one", 5)
    assert once(original).returncode == 0
    copy = shutil.copytree(original, tmp_path / "two")
    refused = once(copy)
    assert refused.returncode == 1
    assert str(original) in refused.stderr and "remove" in refused.stderr
    shown = rlship("status", copy)
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, "", refused.stderr)
    before = sorted((original / "rlship" / "state").iterdir())
    both = rlship("status", tmp_path)
    assert sorted((original / "rlship" / "state").iterdir()) == before
    assert both.returncode == 1 and f"belongs to the experiment {original}, not to {copy}" in both.stderr
    assert both.stdout.startswith(f"{original}\n") and str(copy) not in both.stdout
    shutil.rmtree(copy / "rlship" / "state")
    assert once(copy).returncode == 0


def test_a_moved_experiment_goes_on(tmp_path: Path) -> None:
    """Where the original is gone, the state is the moved one's: no row is made twice."""
    original = experiment(tmp_path / "one", 5)
    assert once(original).returncode == 0
    moved = original.rename(tmp_path / "three")
    # In a process of its own: one that ended in this process would still run to `status`.
    command = [*RLSHIP, "watch", moved, "--once", "--sink", "jsonl"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    assert len((moved / "rlship" / "state" / "rows.jsonl").read_text().splitlines()) == 5
    assert rlship("status", moved).returncode == 0


def test_a_store_that_was_lost_is_told(tmp_path: Path) -> None:
    """Where the state has all but its store, a new one is begun, which is said once; where there was no state, there is
    nothing to say.
    """
    folder = experiment(tmp_path / "one", 5)
    state = folder / "rlship" / "state"
    assert "lost its store" not in once(folder, sink="console").stderr
    for store in state.glob("store.*"):
        store.unlink()
    told = f"rlship: {state} has lost its store: a new one is begun, all rows are made again from the files"
    assert once(folder, sink="console").stderr.count(told) == 1
    assert "lost its store" not in once(folder, sink="console").stderr


def test_a_rotated_experiment_goes_on_beside_its_successor(tmp_path: Path) -> None:
    """Renamed, and with a new experiment in its old place, the old one is still itself: its inode says so."""
    first = experiment(tmp_path / "run", 5)
    assert once(first).returncode == 0
    old = first.rename(tmp_path / "run.old")
    assert once(experiment(tmp_path / "run", 3)).returncode == 0
    assert once(old).returncode == 0


def test_a_link_is_followed_once(tmp_path: Path) -> None:
    """A link such as `latest` stands for the experiment that it led to when the sidecar started."""
    experiment(tmp_path / "run1", 5)
    (tmp_path / "latest").symlink_to("run1")
    assert once(tmp_path / "latest", "--state-dir", str(tmp_path / "state")).returncode == 0
    assert (tmp_path / "state" / "run1" / "rows.jsonl").exists()


def test_two_experiments_of_one_name_do_not_share_a_state(tmp_path: Path) -> None:
    """With one --state-dir for two folders of the same name the second is refused, and neither loses a row."""
    first, second = experiment(tmp_path / "a" / "run", 5), experiment(tmp_path / "b" / "run", 8)
    assert once(first, "--state-dir", str(tmp_path / "state")).returncode == 0
    refused = once(second, "--state-dir", str(tmp_path / "state"))
    assert refused.returncode == 1
    assert "--state-dir" in refused.stderr
    assert len((tmp_path / "state" / "run" / "rows.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize("sink", ["jsonl", "tensorboard"])
def test_a_store_from_a_backup_is_refused_however_often_it_is_tried(tmp_path: Path, sink: str) -> None:
    """A store older than what was shipped out of it makes the rows since then anew, numbered otherwise. It is refused,
    also once it has as many of them.
    """
    folder = experiment(tmp_path / "one", 5)
    assert once(folder, sink=sink).returncode == 0
    store = folder / "rlship" / "state" / "store.0.db"
    backup = store.read_bytes()

    def more(*records: dict[str, object]) -> None:
        with open(folder / "rlship" / "a.jsonl", "ab") as lines:
            lines.writelines(file(*records).splitlines(keepends=True)[1:])

    more(log(3, late=1.0), log(5, loss=1.0), barrier(5))
    assert once(folder, sink=sink).returncode == 0
    store.with_name("store.1.db").write_bytes(backup)
    more(*(record for step in range(6, 9) for record in (log(step, loss=1.0), barrier(step))), log(4, late=1.0))
    for _ in range(2):
        refused = once(folder, sink=sink)
        assert refused.returncode == 4, refused.stderr
        assert "not this store's rows" in refused.stderr.replace("\n", " ")
