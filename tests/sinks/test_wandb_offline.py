"""The offline run: one folder that holds every row, whatever happened on the way."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlship_sidecar.ship import Pace, Shipper
from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.wandb import WandbSink
from rlship_sidecar.sinks.wandb_offline import Whole, prepare
from tests.loopback.backend import LoopbackBackend, isolated
from tests.sinks.kinds import client_env, kill_child
from tests.sinks.readback import offline_folders, offline_rows
from tests.sinks.rows import MemorySource, make_rows, make_run
from tests.sinks.wandb_log import encode, exit_record, history_record, run_record


def put_folder(
    root: Path, steps: range | list[int], *, store_id: str = "s", run_id: str = "r", t: int = 0, synced: bool = False
) -> Path:
    """An offline run's folder with rows of these `_step`s."""
    folder = root / "wandb" / f"offline-run-20260101_{t:06}-{run_id}"
    folder.mkdir(parents=True)
    file = folder / f"run-{run_id}.wandb"
    file.write_bytes(encode([run_record(store_id), *(history_record(_step=step) for step in steps), exit_record()]))
    if synced:
        file.with_name(file.name + ".synced").touch()
    return folder


def test_no_folder_means_a_new_run(tmp_path: Path) -> None:
    """The first offline run has the run id itself; folders of other runs are not looked at."""
    other = put_folder(tmp_path, range(3), run_id="r-x")

    assert prepare(tmp_path, "r", "s", 5) == "r"
    assert other.exists()


def test_a_whole_folder_is_kept(tmp_path: Path) -> None:
    """A folder with every row needs nothing done."""
    folder = put_folder(tmp_path, range(5))

    assert prepare(tmp_path, "r", "s", 5) == Whole(folder, 5)


@pytest.mark.parametrize("steps", [range(4), [0, 1, 3, 4, 5], [0, 1, 1, 2, 3], []])
def test_a_folder_that_lacks_rows_is_removed(tmp_path: Path, steps: range | list[int]) -> None:
    """Too few rows, a gap or a repetition: the run is written anew, and nothing else is left to sync."""
    put_folder(tmp_path, steps)

    assert prepare(tmp_path, "r", "s", 5) == "r"
    assert offline_folders(tmp_path) == []


def test_one_folder_is_left_of_several(tmp_path: Path) -> None:
    """Of two whole folders one stays; a torn one goes."""
    put_folder(tmp_path, range(2), t=1)
    put_folder(tmp_path, range(5), t=2)
    newest = put_folder(tmp_path, range(5), t=3)

    assert prepare(tmp_path, "r", "s", 5) == Whole(newest, 5)
    assert offline_folders(tmp_path) == [newest]


def test_a_synced_folder_is_followed_by_a_run_of_its_own(tmp_path: Path) -> None:
    """`wandb sync` would append a second folder of one id to the first, every row twice: so the next has another id."""
    first = put_folder(tmp_path, range(3), synced=True)
    assert prepare(tmp_path, "r", "s", 3) == Whole(first, 3)
    assert prepare(tmp_path, "r", "s", 5) == "r-2"

    second = put_folder(tmp_path, range(5), run_id="r-2", t=1, synced=True)
    assert prepare(tmp_path, "r", "s", 5) == Whole(second, 5)
    assert prepare(tmp_path, "r", "s", 6) == "r-3"
    assert offline_folders(tmp_path) == [first, second]


def test_rows_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    """Another store's folder, and more rows than the store has, stay as they are; the error says what to do."""
    folder = put_folder(tmp_path, range(3), store_id="other")
    with pytest.raises(SinkRefused, match=r"rows of another store \(other\).*move the folder away"):
        prepare(tmp_path, "r", "s", 5)
    with pytest.raises(SinkRefused, match=r"3 rows, but the store has only 2: move the folder away"):
        prepare(tmp_path, "r", "other", 2)

    assert folder.exists()


def test_without_a_key_the_run_is_offline_and_can_be_synced_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No key: an offline run, and the command that ships it is told. It delivers every row once after a kill."""
    caplog.set_level(logging.WARNING, "rlship.sinks.wandb")
    env = client_env(isolated(tmp_path / "home"))
    sink = WandbSink(env=env)
    assert sink.open(make_run(tmp_path, rows=5)) == 0
    sink.write(make_rows(0, 5))
    sink.flush()
    kill_child(sink)
    sink.close()
    (folder,) = offline_folders(tmp_path / "rlship" / "state")

    assert sink.where == f"wandb sync {folder}"
    assert f"no W&B API key: the run is written offline; ship it later with: wandb sync {folder}" in caplog.text
    with LoopbackBackend() as backend:
        env = client_env(backend.environment(tmp_path / "home"))
        command = [sys.executable, "-m", "wandb", "sync", str(folder)]
        subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        run = backend.run("rlship", "store1")
        assert run.steps() == [0, 1, 2, 3, 4]
        assert run.display_name == "grpo" and run.value("store_id") == "store1" and run.finished
        assert [row["_timestamp"] for row in run.rows()] == [1763600000.0 + no for no in range(5)]


def test_a_restart_without_news_leaves_the_folder_and_one_with_news_writes_it_anew(tmp_path: Path) -> None:
    """The client cannot continue an offline run: news after a restart make one new folder with all rows."""
    state = tmp_path / "rlship" / "state"
    source = MemorySource(make_rows(0, 3))
    env = client_env(isolated(tmp_path / "home"))

    def start() -> Shipper:
        shipper = Shipper(
            "wandb", lambda: WandbSink(env=env), make_run(tmp_path), source, pace=Pace(backoff_min_s=0.01)
        )
        shipper.start()
        assert shipper.drain(30.0)
        return shipper

    assert start().stop()
    (folder,) = offline_folders(state)
    before = os.stat(folder)

    shipper = start()
    assert offline_folders(state) == [folder] and os.stat(folder) == before
    source.append(make_rows(3, 5))
    shipper.wake()
    assert shipper.drain(30.0)
    assert shipper.stop()

    assert [row["_step"] for row in offline_rows(state)] == [0, 1, 2, 3, 4]
    assert source.cursors == {"wandb": 5}
