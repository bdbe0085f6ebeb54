"""Device readers by a vendor's command: what is read of its answers, and what happens when it does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.system import amd, ascend, command
from rlship.system.command import CommandFailed, CommandReader, Printed
from rlship.system.devices import Devices, installed
from rlship.system.processes import holds_gpu
from rlship.system.readings import GpuReading
from tests.kit.waiting import wait_until
from tests.system import printed
from tests.system.test_gpu import Heard, heard, pids

__all__ = ["heard"]
MIB = 1 << 20


def plain(found: Printed) -> tuple[dict[str, Any], list[tuple[str, int, int | None]]]:
    """Figures and processes as plain data."""
    return found.figures, [(one.device, one.pid, one.memory) for one in found.processes]


# npu-smi


def test_the_manual_of_npu_smi() -> None:
    """The table of Huawei's manual: AI cores, power, temperature, and memory of a chip without HBM."""
    figures, processes = plain(ascend.parse(printed.ATLAS_200I_A2))
    assert figures == {"0": {"sm_active": 0.0, "mem": 957 * MIB, "mem_limit": 10810 * MIB, "power": 10.4, "temp": 66}}
    assert processes == []


def test_processors_with_hbm() -> None:
    """Where a chip has HBM its memory is that; a process belongs to the chip that its line names."""
    figures, processes = plain(ascend.parse(printed.ATLAS_A2.replace("PID", "4711")))
    first = {"sm_active": 0.87, "mem": 30759 * MIB, "mem_limit": 32 << 30, "power": 278.4, "temp": 58}
    assert figures["0"] == first
    assert figures["1"]["mem"] == 8 * MIB
    assert processes == [("0", 4711, 197 * MIB)]


def test_processors_with_two_chips() -> None:
    """Chips go by their number in the machine. The second one of a processor has no power of its own."""
    found = ascend.parse(printed.ATLAS_A3)
    figures, processes = plain(found)
    assert [(one.key, one.uuid, one.name) for one in found.devices] == [
        ("0", "0000:9D:00.0", "Ascend910"),
        ("1", "0000:9F:00.0", "Ascend910"),
        ("2", "0000:99:00.0", "Ascend910"),
    ]
    assert (figures["0"]["power"], "power" in figures["1"], figures["1"]["sm_active"]) == (178.8, False, 0.03)
    assert processes == [("1", 632268, 197 * MIB)]


@pytest.mark.parametrize("text", ["", "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\n", "| a | b | c |\n" * 5])
def test_other_answers_of_npu_smi(text: str) -> None:
    """An answer without the table is no reading."""
    with pytest.raises(CommandFailed, match="another table"):
        ascend.parse(text)


TABLES = [printed.ATLAS_200I_A2, printed.ATLAS_A2, printed.ATLAS_A3]


@given(st.sampled_from(TABLES), st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(list("|-/ 9N\n+:")))))
def test_broken_tables(text: str, changes: list[tuple[int, str]]) -> None:
    """Whatever becomes of its characters, a table gives a reading or the one error, with shares from 0 to 1."""
    characters = list(text)
    for place, character in changes:
        characters[place % len(characters)] = character
    try:
        found = ascend.parse("".join(characters))
    except CommandFailed:
        return
    for figures in found.figures.values():
        assert 0 <= figures.get("sm_active", 0) <= 1
        assert all(value >= 0 for value in figures.values())


# amd-smi


def test_the_form_of_amd_smi() -> None:
    """Activity, power, clocks, temperatures and memory of ROCm 6, in the catalogue's units, with the processes."""
    figures, processes = plain(amd.parse(json.dumps(printed.AMD_6), json.dumps(printed.AMD_PROCESSES)))
    assert figures == {
        "0": {
            "util": 0.42,
            "mem": 98296 * MIB,
            "mem_limit": 196592 * MIB,
            "power": 550.0,
            "temp": 61.0,
            "mem_temp": 50.0,
            "sm_clock": 2100.0,
            "mem_clock": 1300.0,
        }
    }
    assert processes == [("0", 420157, 0), ("0", 420315, 4096)]


def test_the_form_of_rocm_7() -> None:
    """GPUs stand in `gpu_data`; what is not available is absent, and the edge stands in for a hot spot."""
    figures, processes = plain(amd.parse(json.dumps(printed.AMD_7), json.dumps([])))
    assert figures["0"]["util"] == 0.07
    assert figures["1"] == {"temp": 44.0}
    assert processes == []


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[1]", '{"gpu_data": 3}', "no driver", '[{"gpu": "0"}]'])
def test_other_answers_of_amd_smi(text: str) -> None:
    """An answer without a GPU is no reading."""
    with pytest.raises(CommandFailed, match="no GPUs"):
        amd.parse(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["N/A", "MB", "%"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpu", "usage", "gfx_activity", "value", "unit", "power", "process_info", "pid"]), inner
        )
    ),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.sampled_from(["usage", "power", "temperature", "process_list"]), JSON)), JSON)
def test_any_json(gpus: list[dict[str, Any]], other: Any) -> None:
    """Any JSON gives a reading or the one error."""
    metrics = json.dumps([{"gpu": 0, **one} for one in gpus])
    try:
        found = amd.parse(metrics, json.dumps(other))
        amd.parse(metrics, metrics)
    except CommandFailed:
        assert not gpus
        return
    assert found.devices


# The command


def reader(
    path: Path, heard: Heard, ask: Callable[..., Printed] = ascend.ask, asked: list[str] | None = None
) -> CommandReader:
    """A reader of this command."""
    return CommandReader(str(path), ask, asked, heard.said, heard.event, asked is not None)


def test_a_command_is_run(tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is a reading, in which it is known what is here; the record has the devices once."""
    log = tmp_path / "log"
    path = printed.command(
        tmp_path / "bin",
        "npu-smi",
        f'echo "$@" "$PYTHONPATH" "$RLSHIP_DIR" "$LC_ALL" "$PWD" >> {log}; {printed.prints(printed.ATLAS_A3)}',
    )
    monkeypatch.setenv("PYTHONPATH", "/job")
    monkeypatch.setenv("RLSHIP_DIR", "/job")
    watched = reader(path, heard)
    first = watched.sample(0.0)
    assert first is not None
    assert first.known
    assert [*first.figures] == ["0", "1", "2"]
    assert pids(first) == [("1", 632268, 197 * MIB, None)]
    assert watched.sample(1.0) is None, "the next look is not due"
    again = watched.sample(1000.0)
    assert again is not None
    assert again.figures == first.figures
    devices = {f"{key}": f"Ascend910 0000:{bus}:00.0" for key, bus in (("0", "9D"), ("1", "9F"), ("2", "99"))}
    assert heard.events == [("gpus", {**devices, "reader": "npu-smi"})]
    assert log.read_text() == "info   C /\n" * 2, "what the job set for its own Python is not passed on"
    assert heard.lines == []


def test_amd_smi_is_asked_twice(tmp_path: Path, heard: Heard) -> None:
    """`metric` and `process` make one reading."""
    path = printed.command(tmp_path, "amd-smi", printed.amd(printed.AMD_6, printed.AMD_PROCESSES))
    found = reader(path, heard, amd.ask).sample(0.0)
    assert found is not None
    assert found.figures["0"]["util"] == 0.42
    assert len(found.processes) == 2


def test_chips_that_are_asked_for(tmp_path: Path, heard: Heard) -> None:
    """Only these count, with their processes; one that is not here is named, with those that are."""
    path = printed.command(tmp_path, "npu-smi", printed.prints(printed.ATLAS_A3))
    found = reader(path, heard, asked=["2", "7"]).sample(0.0)
    assert found is not None
    assert [*found.figures] == ["2"]
    assert found.processes == []
    (line,) = heard.lines
    assert line.startswith("there is no GPU '7'; there are: 0 (0000:9D:00.0), 1 (0000:9F:00.0), 2 (")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "npu-smi ended with code 3: no GPU metrics until it answers"),
        ("kill -9 $$", "npu-smi ended with code"),
        ("echo hello", "npu-smi printed another table than is known here, or none"),
        ("yes", "npu-smi ended with code"),  # what it may print is bounded
    ],
)
def test_a_command_that_fails(tmp_path: Path, heard: Heard, script: str, said: str) -> None:
    """It is reported once, there is no reading, and the command is tried again later."""
    path = printed.command(tmp_path, "npu-smi", script)
    watched = reader(path, heard)
    assert watched.sample(0.0) is None
    assert watched.sample(1000.0) is None
    (line,) = heard.lines
    assert line.startswith(said)
    printed.command(tmp_path, "npu-smi", printed.prints(printed.ATLAS_A3))
    assert watched.sample(2000.0) is not None


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """After its time it is killed, with what it started; it leaves no process behind."""
    path = printed.command(tmp_path, "npu-smi", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    began = time.monotonic()
    with pytest.raises(CommandFailed, match=r"has not answered for 0\.5 s and was ended"):
        command.run(str(path), "info", deadline_s=0.5)
    assert time.monotonic() - began < 10
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    wait_until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z", "its end")


def test_a_command_that_hangs_ends_after_the_job(tmp_path: Path) -> None:
    """A job that ends while its command hangs leaves no process behind for longer than the command's time."""
    path = printed.command(tmp_path, "npu-smi", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    code = (
        "import sys, threading, os, time; from rlship.system import command\n"
        "threading.Thread(target=command.run, args=[sys.argv[1]], kwargs={'deadline_s': 2.0}, daemon=True).start()\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "pid")], check=True, timeout=60)
    wait_until(lambda: (tmp_path / "pid").read_text().strip(), "its pid")
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    wait_until(lambda: not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z", "its end")


def test_a_slow_command_is_asked_rarely(tmp_path: Path, heard: Heard) -> None:
    """At most a twentieth of the time goes into it."""
    path = printed.command(tmp_path, "npu-smi", f"sleep 0.5; {printed.prints(printed.ATLAS_A3)}")
    watched = reader(path, heard)
    assert watched.sample(0.0) is not None
    assert watched.sample(9.9) is None
    assert watched.sample(60.0) is not None


def test_where_commands_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PATH, but not in the current folder, where another user's file may lie."""
    path = printed.command(tmp_path, "npu-smi-of-tests", "exit 0")
    monkeypatch.chdir(tmp_path)
    assert command.find("npu-smi-of-tests", {"PATH": ":.:relative"}) is None
    assert command.find("npu-smi-of-tests", {"PATH": f"/nowhere:{tmp_path}"}) == str(path)
    path.chmod(0o644)
    assert command.find("npu-smi-of-tests", {"PATH": str(tmp_path)}) is None


def test_files_of_devices(tmp_path: Path) -> None:
    """A process that has a device of any of the vendors open is seen to use one."""
    for pid, target in ((1, "/dev/null"), (2, "/dev/davinci3"), (3, "/dev/kfd"), (4, "/dev/nvidia0")):
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/fd/5").symlink_to(target)
    assert [holds_gpu(pid, str(tmp_path)) for pid in (1, 2, 3, 4)] == [False, True, True, True]


# Which reader is used


class Fake:
    """A reader that finds what the test says."""

    def __init__(self, *finds: bool | Exception | None) -> None:
        self.finds = [*finds]
        self.closed = False

    def __call__(self, requested: Any, report: Any, event: Any) -> Fake:
        self.requested = requested
        report("why", f"{id(self)} speaks")
        return self

    def sample(self, t: float) -> GpuReading | None:
        found = self.finds.pop(0) if len(self.finds) > 1 else self.finds[0]
        if isinstance(found, Exception):
            raise found
        if found is None:
            return None
        reading = GpuReading()
        reading.known = found
        return reading

    def close(self) -> None:
        self.closed = True


def test_the_first_reader_that_finds_devices_is_used(heard: Heard) -> None:
    """The others are closed, and only what this one says counts."""
    without, broken, used, later = Fake(False), Fake(OSError("no driver")), Fake(True), Fake(True)
    watched = Devices({"a": without, "b": broken, "c": used, "d": later}, ["0"], heard.said, heard.event)
    found = watched.sample()
    assert found is not None
    assert found.known
    assert watched.name == "c"
    assert used.requested == ["0"]
    assert without.closed
    assert not hasattr(later, "requested"), "it was not asked"
    assert heard.lines == ["the device reader 'b': OSError: no driver", f"{id(used)} speaks"]
    watched.close()
    assert used.closed


def test_no_reader_finds_devices(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says why, and all are asked again after a minute."""
    one, other = Fake(False, True), Fake(None)
    watched = Devices({"a": other, "b": one}, None, heard.said, heard.event)
    assert watched.sample() is None
    assert heard.lines == [f"{id(other)} speaks"], "one line for each topic"
    assert watched.sample() is None, "the next search is not due"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    found = watched.sample()
    assert found is not None
    assert watched.name == "b"


def test_readers_that_are_installed(tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader is tried if its package or command is here."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed(None, None, heard.said) == {}
    printed.command(tmp_path, "amd-smi", "exit 0")
    assert [*installed(object(), None, heard.said)] == ["NVML", "amd-smi"]
    printed.command(tmp_path, "npu-smi", "exit 0")
    assert [*installed(None, None, heard.said)] == ["npu-smi", "amd-smi"]


def test_variables_of_the_vendors(tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader looks at the devices that the variable of its vendor leaves visible, or at the local rank's."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    printed.command(tmp_path, "npu-smi", printed.prints(printed.ATLAS_A3))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "2,1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for asked, local_rank, keys in ((None, None, ["1", "2"]), (["local"], 0, ["2"]), (["all"], 0, ["0", "1", "2"])):
        make = installed(None, local_rank, heard.said)["npu-smi"]
        found = make(asked, heard.said, heard.event).sample(0.0)
        assert found is not None
        assert [*found.figures] == keys
