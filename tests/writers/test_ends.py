"""Programs that die at any moment, run beside each other, have threads and fork: what is in their files then."""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.writers.commands import command, init
from tests.writers.driver import Driver, Record, drive, files, is_there, lines, of_kind, only_file, records
from tests.writers.languages import LANGUAGES, NAMES, language_of

pytestmark = pytest.mark.toolchain

THREADED = [language.name for language in LANGUAGES if language.threads]
FORKING = [language.name for language in LANGUAGES if language.forks]
BEYOND = 10**9  # more than any driver logs before it is killed


def logged(found: list[Record]) -> list[int]:
    """The steps of the lines with `x`, which is the step."""
    metrics = of_kind(found, None)
    assert all(record["m"] == {"x": record["step"]} for record in metrics)
    return [record["step"] for record in metrics]


def untold(found: list[Record]) -> set[int]:
    """Steps below the last that are neither there nor within a gap."""
    steps = logged(found)
    told = {step for gap in of_kind(found, "gap") for step in range(gap.get("from", 0), gap.get("to", -1) + 1)}
    return set(range(max(steps, default=0))) - set(steps) - told


@pytest.mark.parametrize("language", NAMES)
def test_a_killed_program_leaves_at_most_a_torn_last_line(language: str, tmp_path: Path) -> None:
    """Killed at random moments while it logs as fast as it can, a program leaves whole lines in their order, none
    missing that no gap tells, each once.
    """
    chance = random.Random(language)
    for turn in range(4):
        experiment = tmp_path / f"job{turn}"
        with Driver(language_of(language), tmp_path) as driver:
            driver.tell(init(experiment, "gen"), command("burst", BEYOND))
            wait_until(is_there(experiment, b'"barrier"'), "the first barrier")
            time.sleep(chance.uniform(0.0, 0.4))
            driver.process.kill()
            driver.process.communicate()
        found = records(only_file(experiment))
        steps = logged(found)
        assert found[0]["kind"] == "open"
        assert steps == sorted(set(steps))
        assert untold(found) == set()


@pytest.mark.parametrize("language", NAMES)
def test_what_was_flushed_survives_a_kill(language: str, tmp_path: Path) -> None:
    """After `flush` has returned, every line before it is in the file, whatever becomes of the process."""
    ended = drive(
        language_of(language),
        tmp_path,
        init("job", "gen"),
        *(command("log", step, "", "x", step) for step in range(1000)),
        command("flush"),
        command("abort"),
    )
    assert ended.code == -9
    assert logged(records(only_file(tmp_path / "job"))) == list(range(1000))


@pytest.mark.parametrize("language", NAMES)
def test_lines_are_seen_within_a_second_while_the_program_is_busy_elsewhere(language: str, tmp_path: Path) -> None:
    """A line that no flush and no barrier follows is in the file half a second later."""
    with Driver(language_of(language), tmp_path) as driver:
        driver.tell(init("job", "gen"), command("flush"))
        wait_until(is_there(tmp_path / "job", b'"open"'), "the first line")
        driver.tell(command("log", 1, "", "x", 1))
        wait_until(is_there(tmp_path / "job", b'"x"'), "the line")
        assert driver.process.poll() is None
        assert driver.end().code == 0


@pytest.mark.parametrize("language", NAMES)
def test_eight_processes_write_at_once(language: str, tmp_path: Path) -> None:
    """Eight processes log into one experiment as fast as they can: eight files, every line whole and in its place."""
    row = language_of(language)
    half = row.lines // 2
    with ExitStack() as stack:
        drivers = [stack.enter_context(Driver(row, tmp_path)) for _ in range(8)]
        for rank, driver in enumerate(drivers):
            driver.tell(init("job", "gen", rank=rank, world=8), command("burst", half), command("close"))
        assert [(driver.end().code) for driver in drivers] == [0] * 8
    found = {path: records(path) for path in files(tmp_path / "job")}
    assert sorted(one[0]["rank"] for one in found.values()) == list(range(8))
    assert len({one[0]["id"] for one in found.values()}) == 8
    for one in found.values():
        assert (one[0]["kind"], one[-1]["kind"]) == ("open", "close")
        assert untold(one) == set()
        if not of_kind(one, "gap"):
            assert logged(one) == [record["step"] for record in of_kind(one, "barrier")] == list(range(half))


@pytest.mark.parametrize("language", THREADED)
def test_all_threads_may_log(language: str, tmp_path: Path) -> None:
    """Lines of eight threads are whole, each there once, those of one thread in their order."""
    ended = drive(language_of(language), tmp_path, init("job", "gen"), command("threads", 8, 1000), command("close"))
    assert (ended.code, ended.said) == (0, "")
    steps = logged(records(only_file(tmp_path / "job")))
    assert sorted(steps) == sorted(list(range(1000)) * 8)


@pytest.mark.parametrize("language", FORKING)
def test_a_forked_child_opens_a_file_of_its_own(language: str, tmp_path: Path) -> None:
    """The child writes nothing of what its parent had in memory, names its parent, and the parent goes on."""
    ended = drive(
        language_of(language),
        tmp_path,
        init("job", "gen", rank=3),
        command("define", "x", "max", "", "", ""),
        command("log", 1, "", "x", 1),
        command("fork", 2, 2),
        command("log", 3, "", "x", 3),
        command("close"),
    )
    assert (ended.code, ended.said) == (0, "")
    by_parent: dict[bool, list[dict[str, Any]]] = {}
    for path in files(tmp_path / "job"):
        by_parent["parent" in records(path)[0]] = records(path)
    parent, child = by_parent[False], by_parent[True]
    assert child[0]["parent"] == parent[0]["id"]
    assert child[0]["pid"] != parent[0]["pid"] == ended.pid
    assert child[0]["rank"] == 3
    assert of_kind(child, "define")[0]["m"] == {"x": {"reduce": "max"}}
    assert (logged(parent), logged(child)) == ([1, 3], [2])


@pytest.mark.parametrize("language", NAMES)
def test_lines_are_written_whole(language: str, tmp_path: Path) -> None:
    """A reader that looks at any moment finds whole lines up to the last LF."""
    with Driver(language_of(language), tmp_path) as driver:
        driver.tell(init("job", "gen"), command("burst", 3000))
        looks = 0
        while looks < 20:
            for path in (tmp_path / "job" / "rlship").glob("*.jsonl"):
                looks += len([json.loads(line) for line in lines(path)[-200:]]) > 0
            time.sleep(0.02)
        assert driver.end(command("close")).code == 0
