"""Full disks, missing folders and files that vanish: the program goes on, and losses are reported."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until
from tests.writer.reading import merged
from tests.writers.commands import command, init
from tests.writers.driver import Driver, all_records, drive, files, is_there, of_kind, records
from tests.writers.languages import NAMES, language_of

pytestmark = pytest.mark.toolchain

ROOM = 100_000
RETRIED_S = 12.0  # pauses between attempts are at most 5 s


class LimitedFiles:
    """No file of the process may be longer than ROOM: `write` fails as on a full disk, the last one in its midst."""

    def prepare(self) -> None:
        # Else the kernel would kill the process, as any program that writes too long a file.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))

    def mend(self, driver: Driver) -> None:
        resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("language", NAMES)
def test_a_full_disk_is_survived_and_told(language: str, tmp_path: Path) -> None:
    """While nothing can be written every call returns at once, lines flow again afterwards, no line is there twice,
    what is missing is within a gap, and standard error has one line of it.
    """
    disk = LimitedFiles()
    many = 4000
    with Driver(language_of(language), tmp_path, prepare=disk.prepare) as driver:
        driver.tell(init("job", "gen"), command("burst", many))
        wait_until(lambda: _size(tmp_path / "job") == ROOM, "the disk is full")
        time.sleep(0.5)
        assert driver.process.poll() is None
        disk.mend(driver)
        driver.tell(*(command("log", many + step, "", "x", many + step) for step in range(10)))
        time.sleep(2.0)
        driver.tell(command("log", 2 * many, "", "x", 2 * many), command("barrier", 2 * many))
        wait_until(is_there(tmp_path / "job", b'"step":%d' % (2 * many)), "lines after it was mended")
        ended = driver.end(command("close"))
    assert ended.code == 0
    assert 1 <= len(ended.said.splitlines()) <= 3, ended.said
    found = all_records(tmp_path / "job")
    steps = [record["step"] for record in of_kind(found, None)]
    assert len(steps) == len(set(steps))
    told = {step for gap in of_kind(found, "gap") for step in range(gap.get("from", 0), gap.get("to", -1) + 1)}
    assert set(range(many)) - set(steps) <= told
    assert 2 * many in steps
    assert found[-1]["kind"] == "close"


def _size(experiment: Path) -> int:
    return sum(path.stat().st_size for path in (experiment / "rlship").glob("*.jsonl"))


@pytest.mark.parametrize("language", NAMES)
def test_a_folder_that_cannot_be_made_is_waited_for(language: str, tmp_path: Path) -> None:
    """Where a file stands in the place of the folder the program goes on and is reported once; when the folder can be
    made lines are written, and what was lost is reported.
    """
    blocked = tmp_path / "outputs"
    blocked.write_text("not a folder")
    with Driver(language_of(language), tmp_path) as driver:
        driver.tell(init(blocked / "job", "gen"), *(command("log", step, "", "x", step) for step in range(5)))
        time.sleep(1.0)
        assert driver.process.poll() is None
        blocked.unlink()
        time.sleep(2.5)
        driver.tell(command("log", 5, "", "x", 5), command("barrier", 5))
        wait_until(is_there(blocked / "job", b'"barrier"'), "the barrier")
        ended = driver.end(command("close"))
    assert ended.code == 0
    assert 1 <= len(ended.said.splitlines()) <= 2, ended.said
    found = all_records(blocked / "job")
    steps = {record["step"] for record in of_kind(found, None)}
    gaps = sum(gap["n"] for gap in of_kind(found, "gap"))
    assert 5 in steps
    assert len(steps) + gaps >= 6


@pytest.mark.parametrize("language", NAMES)
def test_a_place_that_is_never_there_does_no_harm(language: str, tmp_path: Path) -> None:
    """The program ends in order, soon, and with one line on standard error, if nothing could ever be written."""
    blocked = tmp_path / "outputs"
    blocked.write_text("not a folder")
    began = time.monotonic()
    ended = drive(
        language_of(language),
        tmp_path,
        init(blocked / "job", "gen"),
        *(command("log", step, "", "x", step) for step in range(5)),
        command("exit"),
    )
    assert ended.code == 0
    assert 1 <= len(ended.said.splitlines()) <= 2, ended.said
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize("language", NAMES)
def test_a_file_that_is_gone_is_followed_by_another(language: str, tmp_path: Path) -> None:
    """Someone removes the file: the writer opens a new one, with another id, its definitions and what it said of the
    run, and goes on.
    """
    with Driver(language_of(language), tmp_path) as driver:
        driver.tell(init("job", "gen"), command("define", "x", "max", "", "", ""), command("log", 1, "", "x", 1))
        driver.tell(
            command("run", "config", "lr", "n:1", "a", "s:b"), command("run", "config", "lr", "n:2", "a", "s:c")
        )
        driver.tell(command("run", "config", "lr", "n:3"), command("run", "members", "name", "s:n"))
        driver.tell(command("flush"))
        wait_until(is_there(tmp_path / "job", b'"x":1'), "the first line")
        (first,) = files(tmp_path / "job")
        before = records(first)[0]["id"]
        first.unlink()
        step = 1
        while not files(tmp_path / "job"):
            step += 1
            assert step < 60
            driver.tell(command("log", step, "", "x", step), command("flush"))
            time.sleep(0.25)
        assert driver.end(command("log", 99, "", "x", 99), command("close")).code == 0
    (second,) = files(tmp_path / "job")
    found = records(second)
    assert found[0]["kind"] == "open"
    assert found[0]["id"] != before
    assert of_kind(found, "define")[0]["m"] == {"x": {"reduce": "max"}}
    assert merged(found) == {"config": {"lr": 3, "a": "c"}, "name": "n"}
    assert of_kind(found, None)[-1]["step"] == 99
    assert len(of_kind(found, "gap")) >= 1


@pytest.mark.parametrize("language", NAMES)
def test_names_cannot_move_the_cursor(language: str, tmp_path: Path) -> None:
    """What is said of a folder, or of a metric, has no control characters of its name."""
    (tmp_path / "file").touch()
    ended = drive(
        language_of(language),
        tmp_path,
        init(f"{tmp_path}/file/\x1b]0;x\x07\x7f", "gen"),
        command("log", 0, "", "a\x1b[2J", 1),
        command("log", -1, "", "a\x1b[2J", 1),
        command("close"),
    )
    assert ended.said
    assert [line for line in ended.said.splitlines() if not line.isprintable()] == []
