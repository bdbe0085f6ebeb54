"""What facts mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from rlship_sidecar.doctor.facts import ExperimentFiles, Machine, NamedFolder, Place, Server, Space
from rlship_sidecar.doctor.findings import (
    DoctorFinding,
    fits,
    of_files,
    of_folder,
    of_machine,
    of_server,
    of_status,
)
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.report.ended import FileEnds, ended_processes
from rlship_sidecar.report.status import ClockStatus, Status
from tests.cli.sample import a_dead_letter, a_sink, a_status, a_writer, an_actor

MACHINE = Machine(
    "0.1.0", "3.11.7", {"click": ">=8.1", "wandb": "<0.32,>=0.31"}, {"click": "8.5", "wandb": "0.31.0"}, 1024, 80, None
)
LOCAL = NamedFolder("/o/a", Filesystem("ext4", True, "/"), [Space("/o/a", 5 << 30, 100_000, False)])
PRIVATE = Place("/o/a", 0o755, "rl", True)
FILES = ExperimentFiles(PRIVATE, replace(PRIVATE, path="/o/a/rlship"), PRIVATE, 0, "", -3.0, 0o022)
T = 1763600000.0


def mends(found: Iterable[DoctorFinding]) -> list[tuple[str, str]]:
    return [(finding.what, finding.do) for finding in found if finding.mend]


def of(status: Status, version: str = "") -> list[DoctorFinding]:
    silent = {writer.file: writer.silent_s for writer in status.writers}
    return list(of_status(status, ended_processes(status, silent, FileEnds()), T, version))


@pytest.mark.parametrize(
    ("version", "wanted", "right"),
    [
        ("0.31.2", ">=0.31,<0.32", True),
        ("0.32.0", "<0.32,>=0.31", False),
        ("0.30.9", "<0.32,>=0.31", False),
        ("8.10", ">=8.1", True),
        ("2.0.0rc1", ">=2.0", True),
        ("5.1", "", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, wanted: str, right: bool) -> None:
    """Lower bounds are included, upper ones are not."""
    assert fits(version, wanted) is right


def test_packages() -> None:
    """A missing package and one of a wrong version are named with the command that mends both."""
    assert mends(of_machine(MACHINE, 0)) == []
    wrong = replace(MACHINE, installed={"wandb": "0.29.0"})
    assert mends(of_machine(wrong, 0)) == [
        ("click is missing, wandb is 0.29.0", "pip install 'click>=8.1' 'wandb<0.32,>=0.31'")
    ]


def test_limits() -> None:
    """Descriptors that do not do for all unfinished experiments are to mend, and so are few threads."""
    assert mends(of_machine(replace(MACHINE, threads=5000), 80)) == []
    short = [what for what, _ in mends(of_machine(replace(MACHINE, threads=30), 81))]
    assert short == [
        "1024 descriptors: 80 experiments may be open at a time, of 81 that are not finished",
        "30 threads left to start",
    ]


def test_the_server() -> None:
    """Offline is no trouble. Online needs a key, an answer, and that the server takes the key."""
    online = Server("auto", "https://w", "WANDB_API_KEY")
    fine = [Server("offline", "https://w", ""), Server("auto", "https://w", ""), online]
    assert not any(of_server(one).mend for one in fine)
    assert of_server(fine[1]).do == "to send them, run `wandb login` or set WANDB_API_KEY"
    broken = [
        Server("online", "https://w", ""),
        replace(online, trouble="refused"),
        replace(online, is_rejected=True),
    ]
    assert [(found.mend, found.what) for found in map(of_server, broken)] == [
        (True, "no API key for https://w"),
        (True, "https://w gives no answer: refused"),
        (True, "https://w does not take the API key of WANDB_API_KEY"),
    ]


def test_the_filesystem() -> None:
    """Its kind says how soon a row appears, and whether files outlive the machine; none of that is to mend."""
    kinds = {}
    for kind, local in (("ext4", True), ("tmpfs", True), ("nfs4", False)):
        found = list(of_folder(replace(LOCAL, filesystem=Filesystem(kind, local, "/m"))))
        assert not mends(found)
        kinds[kind] = found[0].what
    assert "well under a second" in kinds["ext4"] and "go with the machine" not in kinds["ext4"]
    assert "go with the machine" in kinds["tmpfs"]
    assert "a second or two after its last line (docs/nfs.md)" in kinds["nfs4"]


@pytest.mark.parametrize(
    ("space", "what"),
    [
        (Space("/o", 12_000_000, 100_000, False), "12.0 MB free at /o"),
        (Space("/o", 5 << 30, 7, False), "5.4 GB free at /o, and room for 7 more files"),
        (Space("/o", 5 << 30, None, True), "/o is mounted read-only"),
    ],
)
def test_space(space: Space, what: str) -> None:
    """A full disk, one without inodes, and one that cannot be written are to mend."""
    assert [found for found, _ in mends(of_folder(replace(LOCAL, spaces=[space])))] == [what]


def test_settings_that_do_not_count() -> None:
    """A file in the folder above and overridden keys are named. They may be meant, so they are not to mend."""
    found = list(of_folder(replace(LOCAL, unused="/o/rlship.toml", overridden=["RLSHIP_SINKS"])))
    assert [(one.what, one.do, one.mend) for one in found if one.about == "settings"] == [
        (
            "/o/rlship.toml does not count where /o/a is watched by itself",
            "rlship watch /o, or --config /o/rlship.toml",
            False,
        ),
        ("RLSHIP_SINKS in the environment wins over rlship.toml", "", False),
    ]


def test_permissions() -> None:
    """Unreadable files and a place where no state can be kept are to mend; the latter only without a sidecar."""
    assert mends(of_files(FILES, False)) == []
    shut = replace(FILES, unreadable=2, example="/o/a/rlship/x.jsonl", keeps_state=replace(PRIVATE, may_write=False))
    assert [what for what, _ in mends(of_files(shut, False))] == [
        "2 files cannot be read, such as /o/a/rlship/x.jsonl",
        "this user cannot write in /o/a (mode 0755), where a sidecar keeps its state",
    ]
    assert len(mends(of_files(shut, True))) == 1


def test_how_far_a_sidecar_is_behind() -> None:
    """Steps that are no rows, bytes that are not read and what each sink lacks are named, while a sidecar runs."""
    status = a_status(running=True, actors=[an_actor(open_units=2, note="waits for r3")], sinks=[a_sink(next_row=118)])
    assert [found.what for found in of(status) if found.about == "lag"] == [
        "17 bytes not read; 2 steps no rows yet, the oldest for 0.8 s; trainer: waits for r3; wandb lacks 2 of 120 rows"
    ]
    assert not [found for found in of(a_status()) if found.about == "lag"]


def test_silent_writers() -> None:
    """Processes that ended without a close are named with rank and host, and what can be done. Others are counted."""
    silent = a_writer(awaited=True, beats=True, silent_s=400.0, host="n07", pid=4121)
    (found,) = [
        one
        for one in of(a_status(writers=[silent, a_writer(file="b", rank=1, awaited=True)]))
        if one.about == "writers"
    ]
    assert found.mend and found.what.startswith(
        "ended without a close: trainer r0 (n07 pid 4121) at step 13, last line 6.7 min ago"
    )
    assert found.do.startswith("it was killed, crashed or stopped: see the log of the job.")
    error = a_writer(file="b", rank=1, awaited=True, failure="RuntimeError: boom")
    raised = [one for one in of(a_status(writers=[error])) if one.about == "writers"]
    assert "ended with RuntimeError: boom" in raised[0].what and raised[0].do.startswith("see the log of the job.")
    (found,) = [one for one in of(a_status(writers=[silent, error])) if one.about == "writers"]
    assert found.do.startswith("the other one was killed, crashed or stopped: see the log of the job.")
    (found,) = [one for one in of(a_status(writers=[a_writer(awaited=True)])) if one.about == "writers"]
    assert (found.mend, found.what) == (False, "1 of the job's processes go on, silent for 0.2 s at most")


CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "claims": ({"claims": ["16 writers claim trainer/0/r0"]}, ["16 writers claim trainer/0/r0"]),
    "refused": ({"sinks": [a_sink(state="refused", error="another store's")]}, ["another store's"]),
    "outage": ({"sinks": [a_sink(error="no route", trouble_s=60.0)]}, ["no route"]),
    "short outage": ({"sinks": [a_sink(error="no route", trouble_s=3.0)]}, []),
    "dead letters": (
        {"dead_letters": [a_dead_letter()], "dead_letter_count": 3, "dead_value_count": 1},
        ["lines or values that could not be used: 4"],
    ),
    "clock": (
        {"clocks": [ClockStatus("n07", -2.5, 0.01, 4.0), ClockStatus("n08", 0.2, 0.01, 4.0)]},
        ["n07 is 2.5 s behind the file server (± 0.01 s), which rows allow for"],
    ),
    "uncertain clock": ({"clocks": [ClockStatus("n07", 1.5, 1.0, 4.0)]}, []),
    "clock of a finished job": ({"clocks": [ClockStatus("n07", 9.0, 0.01, 4.0)], "finished": True}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_status_tells(case: str) -> None:
    """Claims, sinks in trouble, unusable lines and clocks are to mend, as long as they matter."""
    changes, expected = CASES[case]
    told = [what for what, _ in mends(of(a_status(**changes)))]
    assert told == expected


def test_another_version_of_the_sidecar_is_named() -> None:
    """It is not to mend: old and new understand each other's files."""
    (found,) = [one for one in of(a_status(version="0.1.0"), "0.2.0") if one.about == "sidecar"]
    assert (found.what, found.mend) == ("it is rlship 0.1.0, this is 0.2.0", False)
