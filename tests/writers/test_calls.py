"""The scripts of calls on the writers of all languages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spec.calling import differences, unreported
from tests.spec.schemas import faults
from tests.spec.vectors import call_scripts
from tests.writers.commands import command, init, one_by_one, played
from tests.writers.driver import all_records, drive, lines, of_kind, only_file, records
from tests.writers.languages import LANGUAGES, NAMES, language_of

pytestmark = pytest.mark.toolchain

SCRIPTS = call_scripts()
PLAYED = [
    (language.name, name)
    for language in LANGUAGES
    for name, script in SCRIPTS.items()
    if language.able.issuperset(script["needs"])
]
# The records of some calls that are reported once, and the one line that says so.
TOLD = {"weights-bad", "names-long", "unusable-values", "after-close"}


@pytest.mark.parametrize(("language", "name"), PLAYED)
def test_a_writer_makes_the_records_of_the_script(language: str, name: str, tmp_path: Path) -> None:
    """Every script that a language can play comes to the records of the vector, which are valid and fit; the program
    ends as if nothing were, and says nothing, but for one line of a kind where it was called wrongly.
    """
    script, experiment = SCRIPTS[name], tmp_path / "job"
    ended = drive(language_of(language), tmp_path, played(script, experiment))
    found = records(only_file(experiment))
    assert differences(one_by_one(script["records"]), one_by_one(found), ended.pid) == []
    assert [fault for record in found for fault in faults("record", record)] == []
    assert max(map(len, lines(only_file(experiment)))) < 1 << 20
    assert ended.code == 0
    reports = len(script.get("reports", []))
    assert reports <= len(ended.said.splitlines()) <= (2 if name in TOLD else reports), ended.said
    assert "reports" not in script or unreported(script, found) == []


@pytest.mark.parametrize("language", NAMES)
def test_scripts_without_needs_are_played(language: str) -> None:
    """No language leaves a script out that needs nothing."""
    needless = {name for name, script in SCRIPTS.items() if not script["needs"]}
    assert needless <= {name for of, name in PLAYED if of == language}


@pytest.mark.parametrize("language", NAMES)
def test_a_program_that_ends_without_closing_has_written_everything(language: str, tmp_path: Path) -> None:
    """Lines logged just before the end are in the file, and a close where the language can tell the end."""
    ended = drive(
        language_of(language),
        tmp_path,
        init("job", "trainer"),
        *(command("log", step, "", "x", step) for step in range(100)),
        command("exit"),
    )
    assert (ended.code, ended.said) == (0, "")
    found = records(only_file(tmp_path / "job"))
    assert [record["step"] for record in of_kind(found, None)] == list(range(100))
    assert len(of_kind(found, "close")) == language_of(language).closes_at_exit


@pytest.mark.parametrize("language", NAMES)
def test_the_environment_says_who_writes(language: str, tmp_path: Path) -> None:
    """Folder, actor and the rest come from RLSHIP_* where the program does not say them, rank and world else from the
    launcher.
    """
    launched = {"RLSHIP_DIR": str(tmp_path / "a"), "RLSHIP_ACTOR": "gen", "RANK": "3", "WORLD_SIZE": "8"}
    own = {**launched, "RLSHIP_DIR": str(tmp_path / "b"), "RLSHIP_RANK": "1", "RLSHIP_WORLD": "2"}
    own |= {"RLSHIP_REPLICA": "eu", "RLSHIP_ATTEMPT": "4"}
    slurm = {"RLSHIP_DIR": str(tmp_path / "c"), "RLSHIP_ACTOR": "gen", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"}
    slurm |= {"SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}
    for settings in (launched, own, slurm):
        assert drive(language_of(language), tmp_path, init("", ""), command("close"), settings=settings).code == 0
    facts = ("actor", "rank", "world", "replica", "attempt")
    said = [[all_records(tmp_path / name)[0].get(fact) for fact in facts] for name in "abc"]
    assert said == [["gen", 3, 8, "0", 0], ["gen", 1, 2, "eu", 4], ["gen", 5, 6, "0", 2001]]


@pytest.mark.parametrize("language", NAMES)
def test_the_first_line_says_among_which_processes_its_number_counts(language: str, tmp_path: Path) -> None:
    """`pid_space` names this boot of the kernel and the pid namespace, so that a reader can look for the process."""
    drive(language_of(language), tmp_path, init("job", "gen"), command("close"))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    first = all_records(tmp_path / "job")[0]
    assert first["pid_space"] == f"{boot} {os.readlink('/proc/self/ns/pid')}"


@pytest.mark.parametrize("language", NAMES)
def test_arguments_come_before_the_environment(language: str, tmp_path: Path) -> None:
    """A rank that the program gives is not joined with the size of a launcher's group."""
    settings = {"RLSHIP_ACTOR": "other", "RLSHIP_RANK": "7", "RLSHIP_ATTEMPT": "3", "RANK": "9", "WORLD_SIZE": "16"}
    drive(language_of(language), tmp_path, init("job", "gen", rank=2, attempt=1), command("close"), settings=settings)
    first = all_records(tmp_path / "job")[0]
    assert [first.get(fact) for fact in ("actor", "rank", "world", "attempt")] == ["gen", 2, None, 1]


@pytest.mark.parametrize("language", NAMES)
def test_a_writer_that_is_switched_off_writes_nothing(language: str, tmp_path: Path) -> None:
    """RLSHIP_DISABLE=1 makes every call nothing; an empty one, and 0, say nothing."""
    script = SCRIPTS["three-lines"]
    for value, there in (("1", False), ("0", True), ("", True)):
        experiment = tmp_path / f"job{value}"
        ended = drive(language_of(language), tmp_path, played(script, experiment), settings={"RLSHIP_DISABLE": value})
        assert (ended.code, ended.said, experiment.exists()) == (0, "", there)


@pytest.mark.parametrize("language", [language.name for language in LANGUAGES if "arrays" in language.able])
def test_a_list_longer_than_a_line_is_several_records(language: str, tmp_path: Path) -> None:
    """What one line does not hold is split within the array, and no observation is lost."""
    values = [i + 0.1234567890123 for i in range(language_of(language).values)]
    drive(
        language_of(language),
        tmp_path,
        init("job", "gen"),
        command("list", 1, "x", ",".join(map(repr, values)), ""),
        command("close"),
    )
    path = only_file(tmp_path / "job")
    assert max(map(len, lines(path))) < 1 << 20
    assert len(of_kind(records(path), None)) > 1
    assert [value for record in of_kind(records(path), None) for value in record["m"]["x"]] == values
