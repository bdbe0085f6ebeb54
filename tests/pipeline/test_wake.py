"""Change events of the kernel, and their end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.daemon.wake import Wake


@pytest.fixture
def wake() -> Iterator[Wake]:
    made = Wake()
    yield made
    made.close()


def names(wake: Wake, folder: Path, *wanted: str, within_s: float = 10.0) -> set[str]:
    """Wait until all the wanted names were told for a folder; returns all that were."""
    told: set[str] = set()
    deadline = time.monotonic() + within_s
    while not told.issuperset(wanted) and time.monotonic() < deadline:
        told |= wake.wait(deadline - time.monotonic()).get(str(folder), set())
    return told


def test_a_new_line_wakes(tmp_path: Path, wake: Wake) -> None:
    """A file that is made, and every line appended to it, ends a wait well within a second."""
    assert wake.watch(str(tmp_path))
    with open(tmp_path / "a.jsonl", "ab", buffering=0) as file:
        assert names(wake, tmp_path, "a.jsonl") == {"a.jsonl"}
        times = []
        for _ in range(5):
            time.sleep(0.05)
            wake.wait(0.0)
            began = time.monotonic()
            file.write(b'{"kind":"beat"}\n')
            assert names(wake, tmp_path, "a.jsonl") == {"a.jsonl"}
            times.append(time.monotonic() - began)
    assert sorted(times)[2] < 1.0


def test_other_files_do_not_wake(tmp_path: Path, wake: Wake) -> None:
    """Files of other endings, and reading, are no reason to look."""
    (tmp_path / "a.jsonl").write_bytes(b"x\n")
    assert wake.watch(str(tmp_path))
    (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "status.tmp").write_bytes(b"{}")
    os.replace(tmp_path / "status.tmp", tmp_path / "status2.tmp")
    (tmp_path / "z.jsonl").write_bytes(b"x\n")
    assert names(wake, tmp_path, "z.jsonl") == {"z.jsonl"}


def test_several_folders_are_told_apart(tmp_path: Path, wake: Wake) -> None:
    """Changed names come by folder, and a folder that is not watched any more tells nothing."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        assert wake.watch(str(folder))
        assert wake.watch(str(folder)), "asking twice is allowed"
    for folder in folders:
        (folder / "a.jsonl").write_bytes(b"x\n")
    told: dict[str, set[str]] = {}
    deadline = time.monotonic() + 10.0
    while len(told) < 2 and time.monotonic() < deadline:
        told.update(wake.wait(1.0))
    assert told == {str(folder): {"a.jsonl"} for folder in folders}
    wake.unwatch(str(folders[0]))
    wake.unwatch(str(folders[0]))
    wake.wait(0.1)
    (folders[0] / "b.jsonl").write_bytes(b"x\n")
    (folders[1] / "b.jsonl").write_bytes(b"x\n")
    assert names(wake, folders[1], "b.jsonl") == {"b.jsonl"}
    assert str(folders[0]) not in wake.wait(0.1)


def test_a_folder_that_is_not_there_is_to_be_polled(tmp_path: Path, wake: Wake) -> None:
    """Where the kernel gives no events the caller learns it, and other folders are watched all the same."""
    assert not wake.watch(str(tmp_path / "nowhere"))
    assert wake.watch(str(tmp_path))


def test_a_wait_ends_in_time(wake: Wake) -> None:
    """Without events a wait ends after its time with nothing; a nudge ends it at once, also one that came before."""
    began = time.monotonic()
    assert wake.wait(0.05) == {}
    assert time.monotonic() - began >= 0.05
    wake.nudge()
    began = time.monotonic()
    assert wake.wait(30.0) == {}
    threading.Timer(0.05, wake.nudge).start()
    assert wake.wait(30.0) == {}
    assert time.monotonic() - began < 20.0


def test_many_folders_take_no_thread_and_one_descriptor(tmp_path: Path) -> None:
    """However many folders are watched, there is no thread for them and one descriptor; closing twice is allowed."""
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    wake = Wake()
    wake.close()
    wake = Wake()
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        assert wake.watch(str(tmp_path / str(number)))
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert set(threading.enumerate()) <= threads
    wake.close()
    wake.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_made_again_can_be_watched_again(tmp_path: Path, wake: Wake) -> None:
    """The kernel ends the watch of a folder that is removed; the one that takes its place is watched anew."""
    folder = tmp_path / "job"
    folder.mkdir()
    assert wake.watch(str(folder))
    folder.rmdir()
    wake.wait(0.05)
    folder.mkdir()
    assert wake.watch(str(folder))
    (folder / "a.jsonl").write_bytes(b"x\n")
    assert names(wake, folder, "a.jsonl") == {"a.jsonl"}
