"""The `clock` records of a writer on a network filesystem."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rlship import clock as probe
from rlship.file import Disk
from rlship.flusher import Timing
from tests.writer.reading import QUICK, kinds, lines, logger_at, records, soon

OFTEN = Timing(**{**QUICK, "sync": 0.02})


class Server(Disk):
    """A disk whose files are stamped by a server with a clock of its own, when they are synced."""

    def __init__(self, behind: float, resolution_ns: int = 1) -> None:
        self.behind = behind
        self.resolution_ns = resolution_ns
        self.stamp = 0
        self.looks = 0
        self.failing = False

    def sync(self, fd: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        time.sleep(0.002)
        now = time.time_ns() - round(self.behind * 1e9)
        self.stamp = now - now % self.resolution_ns
        time.sleep(0.002)

    def fstat(self, fd: int) -> os.stat_result:
        self.looks += 1
        return stamped(super().fstat(fd), self.stamp)


def stamped(status: os.stat_result, mtime_ns: int) -> os.stat_result:
    """The same status with another time."""
    return os.stat_result([*status], {"st_mtime_ns": mtime_ns})


def clocks(folder: Path) -> list[dict[str, Any]]:
    """The clock records of the only file there. A line may be empty, where a sync failed."""
    found = [json.loads(line) for line in lines(folder) if line]
    return [record for record in found if record.get("kind") == "clock"]


def busy(logger: Any, seconds: float) -> None:
    """Log for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        logger.log({"a": 1.0}, step=1)
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("behind", "resolution_ns"), [(0.0, 1), (0.031, 1), (-97.5, 100), (120.0, 10**6), (3.0, 10**9)]
)
def test_the_offset_is_written_with_its_bound(tmp_path: Path, behind: float, resolution_ns: int) -> None:
    """This host's clock minus the server's, right to within `err`, which a quick server makes small."""
    logger = logger_at(
        tmp_path, disk=Server(behind, resolution_ns), clock=time.time, network=lambda path: True, timing=OFTEN
    )
    soon_enough = time.monotonic() + 10
    while not any(kind == "clock" for kind in kinds(records_so_far(tmp_path))):
        assert time.monotonic() < soon_enough
        busy(logger, 0.1)
    logger.close()
    (found,) = clocks(tmp_path)
    assert set(found) == {"kind", "t", "offset", "err"}
    assert abs(found["offset"] - behind) <= found["err"]
    assert found["err"] < (0.5 if resolution_ns < 10**9 else 2.0)
    assert abs(found["t"] - time.time()) < 60


def records_so_far(folder: Path) -> list[dict[str, Any]]:
    """What is in the file by now."""
    return soon(folder, lambda found: True)


def test_a_host_whose_clock_is_off_says_so_on_a_real_filesystem(tmp_path: Path) -> None:
    """The times of real files, against a Logger whose clock is a minute fast."""
    logger = logger_at(tmp_path, clock=lambda: time.time() + 60, network=lambda path: True, timing=OFTEN)
    busy(logger, 0.5)
    logger.close()
    (found,) = clocks(tmp_path)
    assert abs(found["offset"] - 60) <= found["err"] < 0.5
    assert "client_time" not in found


class Client(Disk):
    """A disk whose files are stamped by the kernel that writes, at every other write with more than its last tick."""

    def __init__(self, finer: bool, resolution_ns: int) -> None:
        self.finer = finer
        self.resolution_ns = resolution_ns
        self.stamp = 0
        self.writes = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.writes += 1
        now = time.time_ns() if self.finer and self.writes % 2 else probe._tick_ns()
        self.stamp = now - now % self.resolution_ns
        return super().write(fd, data)

    def fstat(self, fd: int) -> os.stat_result:
        return stamped(super().fstat(fd), self.stamp)


@pytest.mark.parametrize(("finer", "resolution_ns"), [(False, 1), (True, 1), (False, 100), (False, 10**9)])
def test_a_filesystem_that_stamps_the_writers_time_is_known(tmp_path: Path, finer: bool, resolution_ns: int) -> None:
    """Where stamps are the local kernel's own, tick for tick, the record says that they prove nothing."""
    disk = Client(finer, resolution_ns)
    logger = logger_at(tmp_path, disk=disk, clock=time.time, network=lambda path: True, timing=OFTEN)
    deadline = time.monotonic() + 20
    while "clock" not in kinds(records_so_far(tmp_path)):
        assert time.monotonic() < deadline
        busy(logger, 0.1)
    logger.close()
    assert [found.get("client_time") for found in clocks(tmp_path)] == [True]


def test_a_change_is_written_and_sameness_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the offset stays there is one record; once it has left its bound there is another."""
    monkeypatch.setattr(probe, "_SOONEST_S", 0.0)
    disk = Server(1.0)
    logger = logger_at(tmp_path, disk=disk, clock=time.time, network=lambda path: True, timing=OFTEN)
    busy(logger, 0.6)
    disk.behind = 50.0
    busy(logger, 0.4)
    logger.close()
    found = clocks(tmp_path)
    # Where this machine is slow the first answer is a bad one, and a later one may differ by more than its bound.
    assert [round(record["offset"]) for record in found if record["err"] < 0.5] == [1, 50]


def test_what_failed_to_sync_is_no_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When the data of a failed sync arrived is unknown."""
    disk = Server(7.0)
    logger = logger_at(tmp_path, disk=disk, clock=time.time, network=lambda path: True, timing=OFTEN)
    busy(logger, 0.4)
    disk.failing = True
    busy(logger, 0.2)
    disk.failing = False
    busy(logger, 0.2)
    assert logger.close()
    assert all(abs(found["offset"] - 7.0) <= found["err"] for found in clocks(tmp_path))
    assert clocks(tmp_path)


class Counting(Server):
    def __init__(self) -> None:
        super().__init__(0.0)
        self.calls: list[str] = []

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.calls.append("write")
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.calls.append("sync")
        super().sync(fd)

    def fstat(self, fd: int) -> os.stat_result:
        self.calls.append("fstat")
        return super().fstat(fd)


def test_it_costs_no_call_of_the_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look before each write is enough: no look is added after a sync, and on a local filesystem nothing is
    measured, not even the time.
    """
    disk = Counting()
    logger = logger_at(tmp_path / "network", disk=disk, clock=time.time, network=lambda path: True, timing=OFTEN)
    busy(logger, 0.3)
    logger.close()
    assert disk.calls.count("sync") > 3
    assert not [
        1 for a, b, c in zip(disk.calls, disk.calls[1:], disk.calls[2:]) if (a, b, c) == ("sync", "fstat", "fstat")
    ]
    for name in ("begin", "wrote", "synced", "stamped"):
        monkeypatch.delattr(probe.Probe, name)  # any use would be an error
    logger = logger_at(tmp_path / "local", clock=time.time)
    busy(logger, 0.1)
    logger.close()
    assert logger.errors == 0
    assert clocks(tmp_path / "local") == []


@pytest.mark.parametrize("local_rank", [None, 0, 1])
@pytest.mark.parametrize("parent", [None, "abc"])
def test_one_writer_of_a_host_measures(tmp_path: Path, local_rank: int | None, parent: str | None) -> None:
    """Local rank 0, or any where the launcher does not say; never a child, which is where its parent is."""
    logger = logger_at(
        tmp_path,
        disk=Server(2.0),
        clock=time.time,
        network=lambda path: True,
        timing=OFTEN,
        local_rank=local_rank,
        parent=parent,
    )
    busy(logger, 0.3)
    logger.close()
    assert bool(clocks(tmp_path)) == (parent is None and local_rank != 1)


def test_close_is_the_last_line(tmp_path: Path) -> None:
    """No clock record comes after it, whenever it is called."""
    for i in range(1, 20):
        folder = tmp_path / str(i)
        logger = logger_at(folder, disk=Server(2.0), clock=time.time, network=lambda path: True, timing=OFTEN)
        busy(logger, i * 0.01)
        logger.close()
        assert kinds(records(folder))[-1] == "close"
