"""The same fact has the same words and the same exit code in every verb, and DIR the same place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlship_sidecar.cli.group import EPILOG, rlship
from rlship_sidecar.cli.query import _parts
from rlship_sidecar.cli.scrape import _split
from rlship_sidecar.errors import FAILED, INCOMPLETE, OK, OWNED, REFUSED, USAGE, UsageProblem, worst
from rlship_sidecar.report.status import write_status
from tests.cli.sample import a_status
from tests.guards.tree import ROOT

VERBS = (
    ("watch", ["--once", "--sink", "jsonl"]),
    ("status", []),
    ("replay", ["--sink", "jsonl", "--quiet"]),
    ("query", ["select 1"]),
    ("export", ["-o", "rows.csv"]),
    ("export", ["--chrome-trace", "-o", "trace.json"]),
    ("sysmon", ["--once", "--quiet"]),
)


def run(*words: object) -> Result:
    return CliRunner().invoke(rlship, [*map(str, words)])


@pytest.mark.parametrize(("verb", "more"), VERBS)
def test_a_folder_without_an_experiment(tmp_path: Path, verb: str, more: list[str]) -> None:
    """Every verb says so in the same two lines, with exit code 1, and takes DIR as its first word."""
    found = run(verb, tmp_path, *more)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.splitlines() == [
        f"rlship: no experiment in {tmp_path}: neither it nor a sub-folder holds a folder `rlship`, or files of a "
        "framework that rlship reads",
        f'  a process makes one when it logs: rlship.init("{tmp_path}/my-run", actor="trainer")',
    ]


@pytest.mark.parametrize(("verb", "more"), VERBS)
def test_a_folder_that_is_not_there(tmp_path: Path, verb: str, more: list[str]) -> None:
    """Every verb exits with 1, and offers the folder that was meant."""
    (tmp_path / "outputs").mkdir()
    found = run(verb, tmp_path / "output", *more)
    assert found.exit_code == 1
    assert found.stderr == (f"rlship: there is no folder {tmp_path}/output\n  did you mean {tmp_path}/outputs?\n")


def test_the_worst_of_several_experiments() -> None:
    """One order for all verbs: a sink that refused needs a person, so it is worst."""
    assert [worst(codes) for codes in ([], [OK, INCOMPLETE], [FAILED, INCOMPLETE], [REFUSED, FAILED, OWNED])] == [
        *(OK, INCOMPLETE, FAILED, REFUSED),
    ]
    assert worst([USAGE, FAILED]) == FAILED


def test_an_experiment_with_a_damaged_status_does_not_hide_the_others(tmp_path: Path) -> None:
    """`status` of several names it, shows the others, and exits with 1, though data of another are incomplete."""
    for name in ("a", "b"):
        state = tmp_path / name / "rlship" / "state"
        state.mkdir(parents=True)
        write_status(state, a_status(experiment=str(tmp_path / name), complete=False))
    (tmp_path / "a" / "rlship" / "state" / "status.json").write_text("{half")
    found = run("status", tmp_path)
    assert found.exit_code == 1
    assert "status.json is damaged" in found.stderr and found.stdout.startswith(str(tmp_path / "b"))


def test_the_documented_exit_codes_are_those_of_the_help() -> None:
    """docs/cli.md has the same numbers and meanings as `rlship --help`."""
    page = (ROOT / "docs" / "cli.md").read_text()
    for line in EPILOG.splitlines():
        code, _, meaning = line.strip().partition("  ")
        if code.isdecimal():
            assert f"| {code} | {meaning}" in page, line


def test_the_folder_of_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DIR comes first; where it comes last it is known by being a folder, or by the question's words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o").mkdir()
    assert _parts(("o", "rows")) == _parts(("rows", "o")) == (Path("o"), "rows")
    assert _parts(("gone", "select 1")) == _parts(("select 1", "gone")) == (Path("gone"), "select 1")
    assert _parts(("o", "-")) == _parts(("-", "o")) == (Path("o"), "-")
    assert _parts(("select 1",)) == (Path(), "select 1")
    for wrong in (("o",), ("o", "select", "1")):
        with pytest.raises(UsageProblem):
            _parts(wrong)


def test_the_folder_of_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DIR comes first, whether it is there or not. With --dir or RLSHIP_DIR all words are addresses."""
    monkeypatch.chdir(tmp_path)
    assert _split(("new/run", "10.0.0.7:8000"), None) == ("new/run", ("10.0.0.7:8000",))
    for address in ("10.0.0.7:8000", "http://vllm", "engine=vllm", "[::1]:8000/metrics"):
        assert _split((address,), None) == (None, (address,))
    assert _split(("vllm", "sglang"), "run") == ("run", ("vllm", "sglang"))
    os.mkdir("run")
    assert _split(("run", "vllm"), "other") == ("run", ("vllm",))
    assert _split((), "run") == ("run", ())
