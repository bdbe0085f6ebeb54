"""The units, by systemd's own tools, and by doing what they say."""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tools import run
from tests.endtoend.job import crew
from tests.endtoend.sidecar import environment
from tests.guards.tree import ROOT, name_of

UNITS = sorted((ROOT / "systemd").rglob("*.service"))
WATCHING = [unit for unit in UNITS if unit.name == "rlship@.service"]
FOLDER = "/data/my outputs/grpo-7b_é"
# In tenths. A user's manager may drop no capability and hide no device, which systemd counts for half of the exposure.
MOST_EXPOSURE = {"system": 19, "user": 53}
DROPPING = ("CapabilityBoundingSet", "ProtectClock", "ProtectKernelLogs", "ProtectKernelModules", "PrivateDevices")


def an_instance(unit: Path, folder: Path, text: str | None = None) -> Path:
    """The unit as an instance for FOLDER, with a program in it that is there."""
    program = folder / "rlship"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    done = run("systemd-escape", "--path", f"--template={unit.name}", FOLDER)
    instance = folder / done.stdout.strip()
    text = unit.read_text(encoding="utf-8") if text is None else text
    instance.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", text, flags=re.MULTILINE), encoding="utf-8")
    return instance


def analyze(unit: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """systemd-analyze as the manager that the unit is for."""
    (folder / "run").mkdir(exist_ok=True)
    manager = f"--{unit.parent.name}"
    return run("systemd-analyze", manager, "--no-pager", *arguments, env={"XDG_RUNTIME_DIR": str(folder / "run")})


def lines(unit: Path, key: str) -> list[str]:
    """What a unit says for a key, in order."""
    return re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_four() -> None:
    """The sidecar and the agent of a node, each for the system and for a user."""
    assert [name_of(unit) for unit in UNITS] == [
        "systemd/system/rlship-sysmon@.service",
        "systemd/system/rlship@.service",
        "systemd/user/rlship-sysmon@.service",
        "systemd/user/rlship@.service",
    ]


@pytest.mark.toolchain
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_unit_is_right(unit: Path, tmp_path: Path) -> None:
    """systemd has nothing to say of it, for a folder with blanks, dashes and letters beyond ASCII."""
    done = analyze(unit, tmp_path, "verify", "--recursive-errors=one", an_instance(unit, tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.toolchain
def test_what_the_page_adds_is_right(tmp_path: Path) -> None:
    """Each drop-in of docs/systemd.md is one that systemd has nothing to say of, and its variables are heeded."""
    page = (ROOT / "docs/systemd.md").read_text(encoding="utf-8")
    added = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    unit = next(unit for unit in WATCHING if unit.parent.name == "system")
    assert len(added) == 2
    for drop_in in added:
        instance = an_instance(unit, tmp_path, unit.read_text(encoding="utf-8") + drop_in)
        done = analyze(unit, tmp_path, "verify", "--recursive-errors=one", instance)
        assert (done.returncode, done.stderr) == (0, "")
    variables = set(re.findall(r"\b(RLSHIP_\w+)=", added[1]))
    told = run(sys.executable, "-m", "rlship", "watch", "--help").stdout
    assert variables == {"RLSHIP_STATE_DIR", "RLSHIP_CONFIG"}
    assert all(variable in told for variable in variables)


@pytest.mark.toolchain
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_typo_in_any_line_is_found(unit: Path, tmp_path: Path) -> None:
    """Each key with a letter too many is named, and the check fails."""
    text = unit.read_text(encoding="utf-8")
    keys = [key for key in re.findall(r"^(\w+)=", text, re.MULTILINE) if key != "ExecStart"]
    instance = an_instance(unit, tmp_path, re.sub(r"^(?!ExecStart)(\w+)=", r"\1x=", text, flags=re.MULTILINE))
    done = analyze(unit, tmp_path, "verify", "--recursive-errors=one", instance)
    assert done.returncode != 0
    assert len(keys) > 20
    assert [key for key in keys if f"'{key}x'" not in done.stderr] == []


@pytest.mark.toolchain
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_value_that_is_none_is_found(unit: Path, tmp_path: Path) -> None:
    """So is a value that its key cannot have."""
    text = unit.read_text(encoding="utf-8").replace("ProtectSystem=strict", "ProtectSystem=strickt")
    done = analyze(unit, tmp_path, "verify", "--recursive-errors=one", an_instance(unit, tmp_path, text))
    assert done.returncode != 0
    assert "strickt" in done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_unit_is_never_given_up(unit: Path) -> None:
    """What may take hours (a share that is away, another machine's sidecar) leaves no unit stopped for good: it is
    tried again without a limit, and no condition lets systemd pass over it in silence.
    """
    assert lines(unit, "StartLimitIntervalSec") == ["0"]
    assert lines(unit, "Restart") == ["on-failure"] and lines(unit, "RestartSec") == ["10s"]
    assert not re.search(r"^(Condition|Assert)", unit.read_text(encoding="utf-8"), re.MULTILINE)
    assert "5" not in lines(unit, "RestartPreventExitStatus")[0].split()


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_unit_waits_for_no_network(unit: Path) -> None:
    """Without one that delays a start by minutes. What a unit needs of the network is its folder's mount."""
    assert [word for key in ("After", "Wants", "Requires") for word in lines(unit, key) if "network" in word] == []
    assert unit.parent.name == "user" or lines(unit, "RequiresMountsFor") == ["%f"]


@pytest.mark.toolchain
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_a_unit_is_hardened(unit: Path, tmp_path: Path) -> None:
    """systemd puts its exposure under 2.0 of 10, for a user's unit under 5.4."""
    instance = an_instance(unit, tmp_path)
    done = analyze(
        unit, tmp_path, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE[unit.parent.name]}", instance
    )
    assert done.returncode == 0, done.stdout[-200:]
    assert re.search(r"Overall exposure level for .*: \d\.\d", done.stdout)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.parent.name == "user"], ids=name_of)
def test_a_users_unit_drops_no_capability(unit: Path) -> None:
    """A user's manager has none to drop: each of these options ends the unit with 218/CAPABILITIES at its start."""
    assert [key for key in DROPPING if lines(unit, key)] == []


@pytest.mark.toolchain
def test_the_threshold_is_kept(tmp_path: Path) -> None:
    """A unit whose sandbox was taken away is above it."""
    unit = WATCHING[0]
    text = re.sub(r"^(Protect\w+|Private\w+|SystemCallFilter)=.*\n", "", unit.read_text(encoding="utf-8"), flags=re.M)
    instance = an_instance(unit, tmp_path, text)
    done = analyze(
        unit, tmp_path, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE[unit.parent.name]}", instance
    )
    assert done.returncode != 0


@pytest.mark.parametrize("unit", WATCHING, ids=name_of)
def test_a_watching_unit_tells_systemd(unit: Path) -> None:
    """It is ready when it says so, lives as long as it says so, and has more time to end than it takes to drain."""
    assert lines(unit, "Type") == ["notify"] and lines(unit, "NotifyAccess") == ["main"]
    assert lines(unit, "WatchdogSec") == ["3min"]
    assert lines(unit, "TimeoutStopSec") == ["90s"]
    assert lines(unit, "Restart") == ["on-failure"]


@pytest.mark.parametrize("unit", WATCHING, ids=name_of)
def test_its_command_works(unit: Path, tmp_path: Path) -> None:
    """Started as systemd starts it, for a folder with a blank in its name, it says that it is ready and writes the
    metrics; rows of an experiment in the folder appear, and SIGTERM ends it in order.
    """
    folder, home, runtime = tmp_path / "my outputs", tmp_path / "home", tmp_path / "run"
    for made in (folder, home, runtime):
        made.mkdir()
    (command,) = lines(unit, "ExecStart")
    words = [
        word.replace("%f", str(folder)).replace("${RUNTIME_DIRECTORY}", str(runtime)) for word in shlex.split(command)
    ]
    assert "%" not in " ".join(words[1:]) and "$" not in " ".join(words[1:])
    address = f"@rlship-unit/{tmp_path}"
    settings = {"NOTIFY_SOCKET": address, "RUNTIME_DIRECTORY": str(runtime), "RLSHIP_SINKS": "jsonl"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:])
        systemd.settimeout(60.0)
        process = subprocess.Popen(
            [sys.executable, "-m", "rlship", *words[1:]],
            env=environment(home, settings),
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert systemd.recv(4096) == b"READY=1"
                with crew(folder / "job", "trainer", 1) as (worker,):
                    worker.log({"loss": 1.0}, 7)
                    worker.barrier(7)
                    worker.end()
                while not systemd.recv(4096).decode().startswith("STATUS=step 7, 1/1 ranks"):
                    pass
                process.terminate()
                while systemd.recv(4096) != b"STOPPING=1":
                    pass
                _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert process.returncode == 0, said
    assert "rlship_up 0.0" in (runtime / "rlship.prom").read_text(encoding="utf-8")
    assert os.listdir(runtime) == ["rlship.prom"]
