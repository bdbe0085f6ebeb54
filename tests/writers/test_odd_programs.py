"""Unusual programs: standard error closed, a name twice in a call, fast arithmetic, odd settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tools import needed
from tests.spec.calling import differences
from tests.spec.vectors import call_scripts
from tests.writer.reading import CLEAN
from tests.writers.commands import command, init, one_by_one, played
from tests.writers.driver import all_records, drive, files, lines, of_kind, only_file, records
from tests.writers.languages import NAMES, WRITERS, Language, compiled_c, language_of

pytestmark = pytest.mark.toolchain

SHELLS = ("dash", "ash", "bash")


@pytest.mark.parametrize("language", NAMES)
def test_nobody_reading_standard_error_ends_no_program(language: str, tmp_path: Path) -> None:
    """Where standard error is a closed pipe what is written there is lost, and the program goes on to its end."""
    reading, writing = os.pipe()
    os.close(reading)
    own = language_of(language)
    calls = (
        init("job", "gen"),
        command("log", 1, "", "n" * 2000, 1),
        command("log", 2, "-1", "y", 1),
        command("log", 3, "", "x", 3),
        command("sleep", 300),
        command("log", 4, "", "x", 4),
        command("close"),
    )
    done = subprocess.run(
        own.command(),
        cwd=tmp_path,
        env={**CLEAN, **own.settings, "RANK": "none"},  # which is reported before there is a file
        input="".join(calls).encode(),
        stdout=subprocess.PIPE,
        stderr=writing,
        timeout=60,
    )
    os.close(writing)
    assert done.returncode == 0
    assert [record["step"] for record in of_kind(all_records(tmp_path / "job"), None)][-2:] == [3, 4]


@pytest.mark.parametrize("language", NAMES)
def test_a_name_twice_in_one_call_is_never_twice_in_one_object(language: str, tmp_path: Path) -> None:
    """Of metrics both are there, in records that follow each other (in JavaScript maps hold one); of attributes one."""
    calls = (
        init("job", "gen"),
        command("log", 1, "", "x", 1, "y", 2, "x", 3),
        command("log", 2, 2, "w", 1, "v", 2, "w", 3),
        command("event", 3, "e", "k", "n:1", "k", "n:2", "l", "n:3"),
        command("close"),
    )
    assert drive(language_of(language), tmp_path, *calls).code == 0
    found: list[dict[str, Any]] = [
        json.loads(line, object_pairs_hook=_once) for line in lines(only_file(tmp_path / "job"))
    ]
    both = language != "javascript"
    logged = [(record["step"], record["m"]) for record in of_kind(found, None)]
    assert [m["x"] for step, m in logged if step == 1] == ([1, 3] if both else [3])
    assert [m["w"]["v"] for step, m in logged if step == 2] == ([[1], [3]] if both else [[3]])
    assert [m["y"] for step, m in logged if "y" in m] == [2]
    (event,) = [record for record in of_kind(found, "event") if record["name"] == "e"]
    assert event["attrs"].keys() == {"k", "l"}


@pytest.mark.parametrize("language", NAMES)
def test_a_unit_of_any_length_makes_no_line_too_long(language: str, tmp_path: Path) -> None:
    """It is shortened, or the definition is left out; what follows is in the file."""
    unit = command("define", "x", "sum", "u" * 1_500_000, "1", "1")
    calls = (init("job", "gen"), unit, command("log", 1, "", "x", 1))
    assert drive(language_of(language), tmp_path, *calls, command("close")).code == 0
    path = only_file(tmp_path / "job")
    assert max(map(len, lines(path))) < 1 << 20
    assert [record["m"] for record in of_kind(records(path), None)] == [{"x": 1}]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


FAST = (
    compiled_c("c-fast", "gcc", "-std=c11", "-Ofast"),
    compiled_c("c++-fast", "g++", "-std=c++20", "-Ofast", "-x", "c++"),
)


@pytest.mark.parametrize("language", FAST, ids=lambda language: language.name)
def test_c_tells_numbers_also_where_the_compiler_takes_all_for_finite(language: Language, tmp_path: Path) -> None:
    """With -Ofast non-finite numbers, negative zero and denormals stand in the file as without, and weights that are
    not finite are left out.
    """
    for name, script in call_scripts().items():
        if not script["needs"]:
            home = tmp_path / name
            home.mkdir()
            ended = drive(language, home, played(script, home / "job"))
            found = one_by_one(records(only_file(home / "job")))
            assert differences(one_by_one(script["records"]), found, ended.pid) == [], name
    tiny = (5e-324, -2.2250738585072e-310)
    values = command(
        "log", 1, "", "nan", "NaN", "inf", "-Infinity", "zero", "-0.0", "a", repr(tiny[0]), "b", repr(tiny[1])
    )
    weights = command("log", 2, "NaN", "x", 1) + command("log", 3, "Infinity", "x", 1)
    drive(language, tmp_path, init("job", "gen"), values, weights, command("close"))
    logged = [record["m"] for record in of_kind(all_records(tmp_path / "job"), None)]
    assert logged == [{"nan": "NaN", "inf": "-Infinity", "zero": 0.0, "a": tiny[0], "b": tiny[1]}, {}, {}]
    assert str(logged[0]["zero"]) == "-0.0"


def test_c_headers_have_no_warnings_and_one_program_may_include_them_often(tmp_path: Path) -> None:
    """With every warning that is usual, from C99 to C++20, and in two sources of one program."""
    (tmp_path / "main.c").write_text(
        '#define RLSHIP_IMPLEMENTATION\n#include "rlship.h"\n#include "rlship.h"\nvoid more(rlship *w);\n'
        'int main(void) { rlship *w = rlship_open("job", "gen", NULL); more(w); return 0; }\n'
    )
    (tmp_path / "more.c").write_text(
        '#include "rlship.h"\nvoid more(rlship *w);\nvoid more(rlship *w) { rlship_log(w, 1, "x", 0.1); }\n'
    )
    strict = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-pedantic", "-Werror", "-pthread")
    for compiler in (
        ("gcc", "-std=c99"),
        ("gcc", "-std=gnu17"),
        ("g++", "-x", "c++", "-std=c++11"),
        ("g++", "-x", "c++", "-std=c++20"),
    ):
        sources = ["main.c", "more.c", "-o", "program"]
        built = [needed(compiler[0]), *compiler[1:], *strict, "-I", str(WRITERS / "c"), *sources]
        done = subprocess.run(built, cwd=tmp_path, capture_output=True, text=True, timeout=110)
        assert (done.returncode, done.stderr) == (0, "")
        assert subprocess.run([str(tmp_path / "program")], cwd=tmp_path, env=CLEAN, timeout=30).returncode == 0
    found = [of_kind(records(path), None)[0]["m"] for path in files(tmp_path / "job")]
    assert found == [{"x": 0.1}] * 4


_ODD_CALLS = """
set -eu
. "$WRITER"
IFS=$SEPARATORS
rlship_open job gen
rlship_log
rlship_log_weighted
rlship_log_list
rlship_define
rlship_span
rlship_event
rlship_event 1
rlship_sample 1
rlship_barrier
rlship_rollback
rlship_run || :
rlship_log 1 x 1.5 y 2
rlship_run 2 nothing true
rlship_barrier 2
rlship_close
echo reached
"""


@pytest.mark.parametrize("separators", [",", "", "\n", ":. ", "0123456789"], ids=repr)
@pytest.mark.parametrize("shell", SHELLS)
def test_no_ifs_and_no_missing_argument_troubles_a_shell(shell: str, separators: str, tmp_path: Path) -> None:
    """Under `set -eu`, with any IFS and with calls that lack everything, the script goes on to its end, no message says
    more than the writer does, and there is one file.
    """
    command_line = language_of(shell).command()[:-1]
    environment = {**CLEAN, "WRITER": str(WRITERS / "sh" / "rlship.sh"), "SEPARATORS": separators}
    done = subprocess.run(
        [*command_line, "-c", _ODD_CALLS], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "reached\n")
    assert [line for line in done.stderr.splitlines() if not line.startswith("rlship: ")] == []
    found = records(only_file(tmp_path / "job"))
    assert {"x": 1.5, "y": 2} in [record["m"] for record in of_kind(found, None)]
    assert [record["name"] for record in of_kind(found, "span")][-1:] == ["nothing"]
    assert found[-1]["kind"] == "close"


@pytest.mark.parametrize(
    ("its_mode", "umask", "expected"), [(0o2775, 0o022, 0o2775), (0o775, 0o022, 0o755), (0o2775, 0o077, 0o2700)]
)
@pytest.mark.parametrize("language", NAMES)
def test_a_folder_of_a_group_stays_one(language: str, its_mode: int, umask: int, expected: int, tmp_path: Path) -> None:
    """Below a folder that its group shares (the set-group-ID bit, writable) the group may write in the folders that a
    writer makes, whatever the umask, unless it shuts the group out.
    """
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    outputs.chmod(its_mode)
    _log_into(language, tmp_path, umask)
    for made in ("team", "team/job", "team/job/rlship"):
        assert (outputs / made).stat().st_mode & 0o7777 == expected, made


@pytest.mark.parametrize("language", NAMES)
def test_a_folder_that_another_process_just_made(language: str, tmp_path: Path) -> None:
    """That process has called mkdir, and not chmod yet: the group may write in what is made in it all the same."""
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    outputs.chmod(0o2775)
    (outputs / "team" / "job").mkdir(parents=True)
    assert (outputs / "team" / "job").stat().st_mode & 0o7777 == 0o2755
    _log_into(language, tmp_path, 0o022)
    assert (outputs / "team" / "job" / "rlship").stat().st_mode & 0o7777 == 0o2775


def _log_into(language: str, folder: Path, umask: int) -> None:
    """Log one line into outputs/team/job."""
    own = language_of(language)
    calls = "".join((init("outputs/team/job", "gen"), command("log", 1, "", "x", 1), command("close")))
    done = subprocess.run(
        own.command(),
        cwd=folder,
        env={**CLEAN, **own.settings},
        input=calls.encode(),
        capture_output=True,
        timeout=60,
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
