"""The offline run: one folder that holds every row, whatever happened on the way."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlship_formats.values import Histogram
from rlship_sidecar.sinks.contract import SinkRefused
from rlship_sidecar.sinks.ship import Pace, Shipper
from rlship_sidecar.sinks.wandb.offline import Whole, discard, prepare
from rlship_sidecar.sinks.wandb.sink import WandbSink
from tests.kit.cases import long
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend, isolated
from tests.sinks.kinds import client_env, kill_child
from tests.sinks.readback import offline_folders, offline_rows
from tests.sinks.rows import MemorySource, make_rows, make_run
from tests.sinks.wandb_log import encode, exit_record, history_record, run_record
from tests.sinks.wandb_shipping import check_whole, frozen, shipping


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


def test_an_offline_run_never_has_the_id_of_an_online_one(tmp_path: Path) -> None:
    """`wandb sync` would append it to the run on the server: it gets the next id, and a folder of the old id goes."""
    put_folder(tmp_path, range(5))
    assert prepare(tmp_path, "r", "s", 5, ["r"]) == "r-2"
    assert offline_folders(tmp_path) == []

    folder = put_folder(tmp_path, range(5), run_id="r-2", t=1)
    assert prepare(tmp_path, "r", "s", 5, ["r"]) == Whole(folder, 5)
    assert prepare(tmp_path, "r", "s", 6, ["r", "r-2"]) == "r-3"


def test_what_was_synced_before_the_run_went_online_stays(tmp_path: Path) -> None:
    """A synced folder that holds every row is the run on the server: nothing has to be written."""
    folder = put_folder(tmp_path, range(5), synced=True)
    assert prepare(tmp_path, "r", "s", 5, ["r"]) == Whole(folder, 5)


def test_offline_folders_go_once_the_run_is_online(tmp_path: Path) -> None:
    """Only this store's, and only those that were not synced: the others are a person's business."""
    mine = [put_folder(tmp_path, range(5)), put_folder(tmp_path, range(2), run_id="r-2")]
    synced = put_folder(tmp_path, range(3), t=1, synced=True)
    other = put_folder(tmp_path, range(3), run_id="r-3", store_id="t")
    empty = put_folder(tmp_path, [], run_id="q")

    assert discard(tmp_path, "r", "s") == mine
    assert offline_folders(tmp_path) == sorted([synced, other, empty])


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
    """No key: an offline run, and a message with the command that ships it. It delivers every row once after a kill."""
    caplog.set_level(logging.WARNING, "rlship.sinks.wandb")
    env = client_env(isolated(tmp_path / "home"))
    sink = WandbSink(env=env)
    assert sink.open(make_run(tmp_path, rows=5)) == 0
    sink.write(make_rows(0, 5))
    sink.flush()
    kill_child(sink)
    sink.close()
    (folder,) = offline_folders(tmp_path / "rlship" / "state")

    assert sink.where == f"wandb sync {folder.parent}"
    assert sink.advice.startswith("no W&B API key: runs are written offline.") and caplog.text == ""
    with LoopbackBackend() as backend:
        env = client_env(backend.environment(tmp_path / "home"))
        printed_sync(sink.where, env)
        run = backend.run("rlship", "store1")
        assert run.steps() == [0, 1, 2, 3, 4]
        assert run.display_name == "grpo" and run.value("store_id") == "store1" and run.finished
        assert [row["_timestamp"] for row in run.rows()] == [1763600000.0 + no for no in range(5)]


@pytest.mark.long
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
    assert source.cursors["wandb"] == 5


def printed_sync(where: str, env: dict[str, str]) -> None:
    """Run a printed command as a shell does, with the client of the tests."""
    command = where.replace("wandb", f"{shlex.quote(sys.executable)} -m wandb", 1)
    subprocess.run(["/bin/sh", "-c", command], env=env, cwd=env["HOME"], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("options", long({}, {"dir": "off line"}))
def test_the_command_of_the_first_start_uploads_every_row_after_each_later_one(
    tmp_path: Path, backend: LoopbackBackend, options: dict[str, str]
) -> None:
    """Each start with news writes a folder of another name, and removes the one that nothing uploaded. Rows that come
    after an upload are in a run of their own, with all rows: the first run has each row once.
    """
    env = client_env(isolated(tmp_path / "home"))
    source = MemorySource()
    wheres = []

    def start(count: int) -> None:
        source.append(make_rows(len(source.rows), count))
        sinks: list[WandbSink] = []

        def make() -> WandbSink:
            sinks.append(WandbSink(env=env))
            return sinks[-1]

        run = make_run(tmp_path, project=project, **options)
        shipper = Shipper("wandb", make, run, source, pace=Pace(backoff_min_s=0.01))
        shipper.start()
        assert shipper.drain(30.0)
        assert shipper.stop()
        wheres.append(sinks[-1].where)

    project = "again-in-dir" if options else "again"
    root = tmp_path / "off line" if options else tmp_path / "rlship" / "state"
    start(3)
    (first,) = offline_folders(root)
    first = first.rename(first.with_name(first.name.replace("-20", "-19", 1)))  # two starts within one second
    start(5)
    (second,) = offline_folders(root)
    assert second != first
    there = client_env(backend.environment(tmp_path / "home"))
    printed_sync(wheres[0], there)
    check_whole(backend.run(project, "store1"), 5)
    start(8)
    printed_sync(wheres[2], there)
    printed_sync(wheres[2], there)
    check_whole(backend.run(project, "store1"), 5)
    check_whole(backend.run(project, "store1-2"), 8)
    assert wheres[1] == wheres[0] and (options or wheres[2] == wheres[0])


def sync(folder: Path, home: Path, backend: LoopbackBackend) -> None:
    """`wandb sync`, as a person would do it."""
    command = [sys.executable, "-m", "wandb", "sync", str(folder)]
    env = client_env(backend.environment(home))
    subprocess.run(command, env=env, cwd=home, check=True, capture_output=True, timeout=60)


@pytest.mark.long
def test_an_offline_run_that_is_killed_frozen_and_torn_is_one_whole_folder(
    tmp_path: Path, backend: LoopbackBackend
) -> None:
    """Child and core die and freeze in the middle, the file loses its tail: in the end one folder holds every row, and
    `wandb sync` of it delivers each once.
    """
    state = tmp_path / "rlship" / "state"
    with shipping(tmp_path, project="offline") as ship:
        ship.deliver(100)
        ship.child.kill()
        ship.deliver(200)
        ship.core.kill()
        ship.deliver(300)
        frozen(ship.core)
        ship.deliver(400)
        assert len(offline_folders(state)) == 1
        ship.add(500)
        wait_until(lambda: ship.sinks[-1]._next == 500)
        ship.child.kill()
    with shipping(tmp_path, project="offline") as ship:
        ship.deliver(500)
    (folder,) = offline_folders(state)
    (file,) = folder.glob("run-*.wandb")
    os.truncate(file, file.stat().st_size - 3000)
    with shipping(tmp_path, project="offline") as ship:
        ship.deliver(500)
        assert [row["_step"] for row in offline_rows(state)] == list(range(500))

    (folder,) = offline_folders(state)
    sync(folder, tmp_path / "home", backend)
    check_whole(backend.run("offline", "store1"), 500)


@pytest.mark.long
def test_offline_first_and_online_later(
    tmp_path: Path, backend: LoopbackBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """With a key the whole run goes to the server from row 0, and the folder, whose sync would double it, is gone.
    Offline again, the rows go to a run of another id, so that its sync doubles nothing either.
    """
    state, options = tmp_path / "rlship" / "state", {"project": "later", "base_url": backend.url}
    with shipping(tmp_path, **options) as ship:
        ship.deliver(5)
        (first,) = offline_folders(state)
    with shipping(tmp_path, backend, **options) as ship:
        ship.deliver(8)
        assert offline_folders(state) == []
        assert f"removed the offline run in {first}: its rows go to the run on the server now" in caplog.text
    check_whole(backend.run("later", "store1"), 8)

    with shipping(tmp_path, **options) as ship:
        ship.deliver(10)
    (folder,) = offline_folders(state)
    sync(folder, tmp_path / "home", backend)
    check_whole(backend.run("later", "store1"), 8)
    check_whole(backend.run("later", "store1-2"), 10)
    with shipping(tmp_path, backend, **options) as ship:
        ship.deliver(12)
    check_whole(backend.run("later", "store1"), 12)


@pytest.mark.long
def test_histograms_of_an_offline_run(tmp_path: Path, backend: LoopbackBackend) -> None:
    """In the `.wandb` file a histogram is in parts, as the client stores whatever has parts; `wandb sync` delivers it
    whole, in the line of its row.
    """
    state = tmp_path / "rlship" / "state"
    hists = {"trainer/len": Histogram((0.0, 1.0, 2.5), (3, 4))}
    sink = WandbSink(env=client_env(isolated(tmp_path / "home")))
    sink.open(make_run(tmp_path, rows=2, project="offline-hists"))
    sink.write([replace(row, hists=hists) for row in make_rows(0, 2)])
    sink.flush()
    sink.close()
    for row in offline_rows(state):
        parts = {key: value for key, value in row.items() if key.startswith("trainer/len")}
        assert parts == {
            "trainer/len._type": "histogram",
            "trainer/len.values": [3, 4],
            "trainer/len.bins": [0, 1, 2.5],
        }
    (folder,) = offline_folders(state)
    sync(folder, tmp_path / "home", backend)

    run = backend.run("offline-hists", "store1")
    assert run.steps() == [0, 1]
    assert [row["trainer/len"] for row in run.rows()] == [
        {"_type": "histogram", "values": [3, 4], "bins": [0, 1, 2.5]}
    ] * 2
