"""The records `run` of the writers of all languages, beyond what the scripts of calls show."""

from __future__ import annotations

import fcntl
import json
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.spec.schemas import faults
from tests.writer.reading import merged
from tests.writers.commands import command, init
from tests.writers.driver import Driver, all_records, drive, files, is_there, lines, of_kind, only_file, records
from tests.writers.languages import LANGUAGES, NAMES, language_of
from tests.writers.test_trouble import LimitedFiles

pytestmark = pytest.mark.toolchain

MANY = 31
LENGTH = 60_000
LENGTH_OF_SHELLS = 4_000  # they split sooner


@pytest.mark.parametrize("language", NAMES)
def test_a_configuration_longer_than_a_line_is_several_records(language: str, tmp_path: Path) -> None:
    """No line is too long, no value is cut, and a secret among them is left out."""
    length = LENGTH if "cut" in language_of(language).able else LENGTH_OF_SHELLS
    config = {f"k{i}": f"{i}" + "x" * length for i in range(MANY)}
    pairs = [part for name, text in config.items() for part in (name, f"s:{text}")]
    ended = drive(
        language_of(language),
        tmp_path,
        init("job", "gen"),
        command("run", "config", *pairs, "api_key", "s:geheim"),
        command("close"),
    )
    assert (ended.code, ended.said) == (0, "")
    path = only_file(tmp_path / "job")
    found = records(path)
    assert len(of_kind(found, "run")) > 1
    assert max(map(len, lines(path))) < 1 << 20
    assert merged(found) == {"config": config, "dropped": ["config.api_key"]}


@pytest.mark.parametrize("language", NAMES)
def test_secrets_in_objects_and_arrays_are_not_written(language: str, tmp_path: Path) -> None:
    """They alone are left out, by their paths; what is beside them stays."""
    given = {"model": {"name": "x", "hub": {"api_key": "geheim", "n": 1}}, "args": ["a", "hf_geheim"], "lr": [1]}
    pairs = [part for name, value in given.items() for part in (name, f"j:{json.dumps(value)}")]
    drive(language_of(language), tmp_path, init("job", "gen"), command("run", "config", *pairs), command("close"))
    path = only_file(tmp_path / "job")
    assert b"geheim" not in path.read_bytes()
    found = merged(records(path))
    assert found["config"] == {"model": {"name": "x", "hub": {"n": 1}}, "args": ["a", "***"], "lr": [1]}
    assert sorted(found["dropped"]) == ["config.args.1", "config.model.hub.api_key"]


@pytest.mark.parametrize("language", NAMES)
def test_members_of_another_type_are_left_out_and_said(language: str, tmp_path: Path) -> None:
    """The others of the call are written, and every record is valid."""
    wrong = ("exit_code", "n:256", "tags", "s:one", "colour", "s:red", "config", "n:1", "notes", "n:1")
    ended = drive(
        language_of(language),
        tmp_path,
        init("job", "gen"),
        command("run", "members", *wrong, "name", "s:n"),
        command("close"),
    )
    found = records(only_file(tmp_path / "job"))
    assert merged(found) == {"name": "n"}
    assert [fault for record in found for fault in faults("record", record)] == []
    assert ended.code == 0
    assert 1 <= len(ended.said.splitlines()) <= 5


@pytest.mark.parametrize("language", [language.name for language in LANGUAGES if language.forks])
def test_a_forked_child_does_not_say_the_run_again(language: str, tmp_path: Path) -> None:
    """The parent's file has it, and later values of the parent are newer than the child's copy."""
    drive(
        language_of(language),
        tmp_path,
        init("job", "gen"),
        command("define", "x", "max", "", "", ""),
        command("run", "config", "lr", "n:1"),
        command("fork", 1, 2),
        command("run", "config", "lr", "n:2"),
        command("close"),
    )
    both = [records(path) for path in files(tmp_path / "job")]
    (child,) = (found for found in both if "parent" in found[0])
    (parent,) = (found for found in both if "parent" not in found[0])
    assert of_kind(child, "run") == []
    assert of_kind(child, "define")
    assert merged(parent) == {"config": {"lr": 2}}


def has_read(driver: Driver) -> bool:
    """Whether a driver has read what it was given. It reads on once it has done what it read before."""
    assert driver.process.stdin is not None
    return fcntl.ioctl(driver.process.stdin, termios.FIONREAD, bytes(4)) == bytes(4)


@pytest.mark.parametrize("language", NAMES)
def test_what_a_full_buffer_dropped_is_written_later(language: str, tmp_path: Path) -> None:
    """While the disk is full the buffer fills up, and a record of the run with it; it comes once there is room."""
    disk = LimitedFiles()
    buffers = "cut" in language_of(language).able
    with Driver(language_of(language), tmp_path, prepare=disk.prepare) as driver:
        driver.tell(init("job", "gen"), command("run", "config", "lr", "n:1", "a", "s:b"))
        driver.tell(command("burst", 120_000 if buffers else 4_000), command("run", "config", "lr", "n:2"))
        driver.tell(command("run", "summary", "best", "n:3"), command("event", "", "reached"))
        wait_until(lambda: has_read(driver), "it has all commands")
        driver.tell(command("sleep", 1))
        wait_until(lambda: has_read(driver), "it is through with those before")
        disk.mend(driver)
        driver.tell(*(command("sleep", 200) + command("log", step, "", "x", step) for step in range(40)))
        wait_until(is_there(tmp_path / "job", b'"step":39,'), "lines after it was mended")
        assert driver.end(command("close")).code == 0
    found = all_records(tmp_path / "job")
    assert of_kind(found, "gap")
    assert merged(found) == {"config": {"lr": 2, "a": "b"}, "summary": {"best": 3}}
    assert found[-1]["kind"] == "close"


@pytest.mark.parametrize("language", ["c-sanitized", "dash", "ash", "bash"])
@pytest.mark.parametrize(
    ("json_text", "kept", "dropped"),
    [
        (
            '{ "a\\"b" : {"passwd": "x\\\\", "y\\n" : [ ] } , "n":-1e5}',
            {'a"b': {"y\n": []}, "n": -1e5},
            ['.a"b.passwd'],
        ),
        ('["\\u00e9","hf_abcdefghijklmnopqrstuvwxyz"]', ["é", "***"], [".1"]),
        ('{"api_key":"x"', None, [""]),
        ('{"api_key":"x" "b":1}', None, [""]),
        ("[" * 80 + '"hf_abcdefghijklmnopqrstuvwxyz"' + "]" * 80, None, [""]),
        ('"hf_abcdefghijklmnopqrstuvwxyz"', None, [""]),
    ],
    ids=["escapes", "array", "cut", "no comma", "deep", "text"],
)
def test_secrets_within_json_go_by_their_keys(
    language: str, json_text: str, kept: Any, dropped: list[str], tmp_path: Path
) -> None:
    """What is left is the rest of the value. Of what is no JSON, or nested too deep, nothing is."""
    drive(
        language_of(language),
        tmp_path,
        init("job", "trainer"),
        command("run", "config", "k", f"j:{json_text}"),
        command("close"),
    )
    (run,) = of_kind(records(only_file(tmp_path / "job")), "run")
    assert run.get("config", {}).get("k") == kept
    assert run["dropped"] == [f"config.k{path}" for path in dropped]
