"""A filesystem on which the kernel tells nothing of what other hosts write.

Tried for real with a FUSE filesystem where this machine lets the tests mount one ("mirror"), and everywhere with a
local folder that is said to be such a filesystem ("pretended"): the names of the tests that ran say which.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import watched
from rlship_sidecar.daemon.loop import OK, watch
from rlship_sidecar.daemon.wake import Wake
from rlship_sidecar.daemon.watched import NETWORK_POLL_S
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.tail.tail import Descriptors
from tests.endtoend.evidence import check_rows, shipped
from tests.endtoend.hostile import line, metrics, opened
from tests.endtoend.job import CLEAN, ROOT
from tests.filesystems.mirror import REMEMBERED_S, TYPE
from tests.filesystems.shares import unshare_for
from tests.kit.waiting import wait_until

SLOW_MACHINE_S = 2.0
STEPS = 5


def pretended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon in this process that takes the folder for a network filesystem."""
    looks: list[bool] = []

    def look(files: Descriptors, path: str, do: Callable[[int, int | None], object], *, known: bool = False) -> object:
        looks.append(files.kept(path) is not None)
        return real_look(files, path, do, known=known)

    def no_events(wake: Wake, folder: str) -> bool:
        raise AssertionError("events were asked for where none come")

    real_look = Descriptors.look
    monkeypatch.setattr(Descriptors, "look", look)
    monkeypatch.setattr(Wake, "watch", no_events)
    monkeypatch.setattr(watched, "filesystem_of", lambda path: Filesystem("nfs4", False, "/"))
    experiment = folder / "job"
    writers = experiment / "rlship"
    writers.mkdir(parents=True)
    stop = threading.Event()
    codes: list[int] = []
    daemon = threading.Thread(
        target=lambda: codes.append(watch(experiment, Config(sinks=["jsonl"]), once=False, stop=stop))
    )
    daemon.start()
    try:
        for step in range(STEPS):
            file = writers / f"trainer-{step}.jsonl"
            text = [opened("trainer", id=f"w{step}", replica=str(step)), metrics(step, loss=1)]
            text += [line(kind="barrier", step=step), line(kind="close", reason="exit")]
            file.write_bytes(b"".join(one + b"\n" for one in text))
            wait_until(
                lambda step=step: len(shipped(experiment)) > step, "its row", timeout_s=NETWORK_POLL_S + SLOW_MACHINE_S
            )
        before = len(looks)
        wait_until(
            lambda: len(looks) >= before + 2 * STEPS, "more looks", timeout_s=3 * NETWORK_POLL_S + SLOW_MACHINE_S
        )
        assert not any(looks)
    finally:
        stop.set()
        daemon.join()
    assert codes == [OK]
    check_rows(experiment, shipped(experiment))


def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a FUSE filesystem, whose server dies and comes back."""
    before = unshare_for("mirror")
    assert before is not None
    command = [*before, sys.executable, "-m", "tests.filesystems.unwatched", folder]
    done = subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["events_here"], found["events_there"]) == (1, 0)
    assert found["filesystem"] == f"{TYPE} (polled)"
    assert max(found["delays_s"][1:]) < NETWORK_POLL_S + REMEMBERED_S + SLOW_MACHINE_S  # the first has the start
    assert found["new_file_s"] < NETWORK_POLL_S + REMEMBERED_S + SLOW_MACHINE_S
    assert found["files"] == len(found["looks_while_quiet"]) == 3
    assert min(found["looks_while_quiet"].values()) >= 2
    # At most the look that is just going on.
    assert max(found["kept_open"].values()) <= 1
    assert found["after_the_mount_failed_s"] < 20
    assert "Transport endpoint is not connected" in found["said"]
    assert found["exit_code"] == 0
    assert found["numbers"] == list(range(len(found["numbers"])))
    assert found["right"]


ARRANGEMENTS = [pretended, *([mirror] if unshare_for("mirror") is not None else [])]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=lambda arrangement: arrangement.__name__)
def test_rows_come_without_change_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrangement: object) -> None:
    """Rows come within a poll interval, files are found by listing and opened for every look and not kept open, and
    no events are asked for where they do not come.
    """
    assert callable(arrangement)
    arrangement(tmp_path, monkeypatch)
