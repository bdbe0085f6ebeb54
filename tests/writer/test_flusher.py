"""How often a disk that fails is tried."""

from __future__ import annotations

import errno
import json
import os
import time
import types
from pathlib import Path

import pytest

from rlship import threads
from rlship.file import Disk
from rlship.flusher import Timing
from tests.kit.waiting import wait_until
from tests.writer.reading import files, kinds, logger_at, metrics, records, soon, whole


def test_lines_logged_while_the_disk_is_full_do_not_hurry_it(tmp_path: Path) -> None:
    """Wakes are ignored while the disk fails: the attempts keep their growing distance, however much is logged."""

    class Full(Disk):
        full = False
        attempts = 0

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.full:
                self.attempts += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(fd, data)

    disk = Full()
    logger = logger_at(tmp_path, disk=disk, timing=Timing(flush=0.02, backoff=0.05, backoff_most=0.2))
    logger.log({"a": 1.0})
    assert logger.flush()
    disk.full = True
    end = time.monotonic() + 0.8
    i = 0
    while time.monotonic() < end:
        logger.barrier(i)  # each wakes the thread
        i += 1
        time.sleep(0.002)
    assert 2 <= disk.attempts <= 8
    disk.full = False
    assert logger.close() is True
    assert kinds(records(tmp_path)).count("barrier") == i


def test_a_sync_that_fails_from_the_start_makes_few_files(tmp_path: Path) -> None:
    """Where not even a header can be synced, each attempt costs a file, so the wait grows beyond the usual."""

    class Quota(Disk):
        full = True
        syncs = 0

        def sync(self, fd: int) -> None:
            self.syncs += 1
            if self.full:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    disk = Quota()
    timing = Timing(flush=0.01, sync=0.01, backoff=0.02, backoff_most=0.04)
    logger = logger_at(tmp_path, disk=disk, timing=timing, network=lambda path: True)
    end = time.monotonic() + 0.8
    i = 0
    while time.monotonic() < end:
        logger.log({"a": i}, step=i)
        i += 1
        time.sleep(0.005)
    assert 3 <= disk.syncs <= 8  # 0.02 + 0.04 + 0.08 + 0.16 + 0.32 + 0.48 s
    assert len(files(tmp_path)) <= disk.syncs + 1
    disk.full = False
    assert logger.close() is True
    written = {record["step"] for path in files(tmp_path) for record in metrics([*map(json.loads, whole(path))])}
    assert i - 1 in written


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_filesystem_without_sync_is_taken_as_it_is(tmp_path: Path, number: int) -> None:
    """What cannot be synced is not in doubt for ever: nothing is reported, and nothing is kept to be reported later."""

    class NoSync(Disk):
        def sync(self, fd: int) -> None:
            raise OSError(number, os.strerror(number))

    logger = logger_at(tmp_path, disk=NoSync(), network=lambda path: True)
    for i in range(20):
        logger.log({"a": i}, step=i)
        assert logger.flush()
    assert logger.stream._flusher.file._doubt.unsynced == []
    logger.close()
    assert logger.errors == 0
    assert kinds(records(tmp_path)) == ["open", *["metrics"] * 20, "close"]


def test_a_thread_that_cannot_be_had_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the system gives no thread just now, calls are dropped, it is said once, and later calls try again."""

    def none(target: object) -> None:
        raise RuntimeError("can't start new thread")

    logger = logger_at(tmp_path)
    monkeypatch.setattr(threads, "start", none)
    monkeypatch.setattr("rlship.stream._AGAIN_S", 0.05)
    logger.log({"a": 1})
    logger.log({"a": 2})
    assert (logger.closed, logger.errors) == (False, 0)
    monkeypatch.undo()
    time.sleep(0.06)
    logger.log({"a": 3})
    logger.close()
    assert metrics(records(tmp_path)) == [{"m": {"a": 3}}]
    assert capsys.readouterr().err.count("cannot start the writing thread") == 1


class Counting(Disk):
    """A disk that counts writes."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.writes += 1
        return super().write(fd, data)


def test_barriers_that_follow_each_other_closely_are_written_together(tmp_path: Path) -> None:
    """The first two are written at once, later ones together at the end of a lull, without a wake for each."""
    disk = Counting()
    logger = logger_at(tmp_path, disk=disk, timing=Timing(flush=60, lull=0.3))
    end = time.monotonic() + 1.0
    step = 0
    while time.monotonic() < end:
        logger.log({"a": step}, step=step)
        logger.barrier(step)
        step += 1
        time.sleep(0.002)
    assert disk.writes <= 10
    # Without `flush` and long before the usual interval: nothing but the lull's end writes the last ones.
    found = soon(tmp_path, lambda found: kinds(found).count("barrier") == step)
    assert len(metrics(found)) == step
    logger.close()


def test_a_barrier_after_a_pause_is_written_at_once(tmp_path: Path) -> None:
    """A lull in which no barrier came is over, and the next barrier begins none."""
    disk = Counting()
    logger = logger_at(tmp_path, disk=disk, timing=Timing(flush=60, lull=0.1))
    for step in range(10):  # the thread is in a lull then
        logger.barrier(step)
        time.sleep(0.005)
    soon(tmp_path, lambda found: kinds(found).count("barrier") == 10)
    flusher = logger.stream._flusher
    wait_until(lambda: not flusher._lulling, "the lull is over")
    writes = disk.writes
    logger.barrier(10)
    soon(tmp_path, lambda found: kinds(found).count("barrier") == 11)
    assert (disk.writes, flusher._lulling) == (writes + 1, False)
    logger.close()


def test_a_round_that_takes_long_delays_the_next_one_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is logged while a disk is slow to make the file is written right after, and not once the usual time passed
    again.
    """
    passed = 0.0

    class SlowToMake(Disk):
        def open(self, path: str, flags: int) -> int:
            nonlocal passed
            passed += 3600.0
            logger.log({"meanwhile": 1.0})
            return super().open(path, flags)

    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + passed, sleep=time.sleep)
    monkeypatch.setattr("rlship.flusher.time", clock)
    logger = logger_at(tmp_path, disk=SlowToMake(), timing=Timing(flush=3600))
    logger.log({"first": 1.0})
    assert len(soon(tmp_path, lambda found: len(metrics(found)) == 2)) >= 2
    logger.close()


def test_flush_does_not_wait_for_the_end_of_a_lull(tmp_path: Path) -> None:
    """Nor does close."""
    logger = logger_at(tmp_path, timing=Timing(flush=60, lull=30))
    for step in range(20):
        logger.barrier(step)
        time.sleep(0.005)
    began = time.monotonic()
    assert logger.flush()
    assert kinds(records(tmp_path)).count("barrier") == 20
    logger.barrier(20)
    assert logger.close() is True
    assert time.monotonic() - began < 20
    assert kinds(records(tmp_path)).count("barrier") == 21
