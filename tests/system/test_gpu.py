"""What is read of GPUs, through the real nvidia-ml-py, from a driver that answers as drivers do."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from rlship.system.gpu import AGAIN_S, Gpus
from rlship.system.readings import GpuReading
from tests.system.driver import WHOLE, Driver

# Codes of the real library.
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, UNKNOWN = 3, 4, 9, 15, 999


class Heard:
    """What a sampler said and wrote into the record."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._topics: set[str] = set()

    def said(self, topic: str, line: str) -> None:
        """Keep a line, once for each topic."""
        if not topic or topic not in self._topics:
            self._topics.add(topic)
            self.lines.append(line)

    def event(self, name: str, attrs: dict[str, Any]) -> None:
        """Keep an event."""
        self.events.append((name, attrs))


@pytest.fixture
def heard() -> Heard:
    """Nothing yet."""
    return Heard()


def gpus(module: Any, heard: Heard, asked: list[str] | None = None) -> Gpus:
    """A sampler of the driver's GPUs."""
    return Gpus(module, asked, heard.said, heard.event)


def pids(reading: GpuReading) -> list[tuple[str, int, int | None, float | None]]:
    """Processes as plain data."""
    return [(one.device, one.pid, one.memory, one.util) for one in reading.processes]


def test_everything_a_gpu_tells(nvml: Any, driver: Driver, heard: Heard) -> None:
    """Figures have the catalogue's units; what needs two looks is there from the second on."""
    driver.gpus(WHOLE)
    watched = gpus(nvml, heard)
    first = watched.sample(10.0).figures["0"]
    at_once = {
        "mem": 60_000_000_000,
        "mem_limit": 80_000_000_000,
        "util": 0.83,
        "power": 512.3,
        "power_limit": 700.0,
        "temp": 64,
        "mem_temp": 80,
        "sm_clock": 1755,
        "mem_clock": 2619,
        "throttle/app_clocks": 0,
        "throttle/sw_power": 1,
        "throttle/hw_slowdown": 0,
        "throttle/sync_boost": 0,
        "throttle/sw_thermal": 0,
        "throttle/hw_thermal": 1,
        "throttle/hw_power_brake": 0,
        "throttle/display": 0,
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
    }
    assert first == at_once
    driver.tell(_0__pcie_tx=3_000_000, _0__pcie_rx=2_500_000, _0__nvlink_tx_kib=1_100, _0__nvlink_rx_kib=2_000)
    assert watched.sample(12.0).figures["0"] == {
        **at_once,
        "pcie_sent_per_s": 1_000_000,
        "pcie_recv_per_s": 250_000,
        "nvlink_sent_per_s": 51_200,
        "nvlink_recv_per_s": 0,
        "sm_active": 0.7125,
        "tensor_active": 0.4,
        "dram_active": 0.555,
    }
    assert heard.lines == []
    assert heard.events == [("gpus", {"0": "NVIDIA Test GPU-0000-aa", "driver": "580.1.2"})]
    watched.close()


def test_values_that_are_not_supported_are_left_out(nvml: Any, driver: Driver, heard: Heard) -> None:
    """A GPU that tells only its memory gives that, without a word, and is not asked for the rest again."""
    driver.gpus({"mem": 1, "mem_total": 2}, {**WHOLE, "gpm": 0})
    watched = gpus(nvml, heard)
    found = watched.sample(1.0).figures
    assert found["0"] == {"mem": 1, "mem_limit": 2}
    assert found["1"]["util"] == 0.83
    driver.tell(_0__util=5)
    assert "util" not in watched.sample(2.0).figures["0"]
    assert heard.lines == []


def test_values_that_cannot_be_are_left_out(nvml: Any, driver: Driver, heard: Heard) -> None:
    """A number with all bits set stands for none, and a share above 1 is no share; the rest of the GPU is reported."""
    none, broken = 0xFFFFFFFF, {"util", "power", "power_limit", "mem_temp", "sm_clock", "mem_clock"}
    names = {"power": "power_mw", "power_limit": "power_limit_mw"}
    driver.gpus({**WHOLE, **{names.get(name, name): none for name in broken}}, {**WHOLE, "util": 250})
    watched = gpus(nvml, heard)
    whole = gpus(nvml, heard)
    found = watched.sample(1.0).figures
    assert broken.isdisjoint(found["0"])
    assert "util" not in found["1"]
    driver.gpus(WHOLE)
    assert whole.sample(1.0).figures["0"].keys() == found["0"].keys() | broken


def test_an_old_driver_tells_what_it_can(old_nvml: Any, driver: Driver, heard: Heard) -> None:
    """Functions that are not there are done without: older ones take their place where there are any."""
    driver.gpus({**WHOLE, "pcie_tx_kb": 7, "pcie_rx_kb": 9, "proc.0": "41 5000 50"})
    watched = gpus(old_nvml, heard)
    watched.sample(1.0)
    found = watched.sample(2.0)
    figures = found.figures["0"]
    assert figures["throttle/sw_power"] == 1
    assert (figures["pcie_sent_per_s"], figures["pcie_recv_per_s"]) == (7 * 1024, 9 * 1024)
    assert "sm_active" not in figures
    assert "mem_temp" not in figures
    assert figures["mem"] == 60_600_000_000, "what the driver keeps for itself cannot be told apart"
    assert pids(found) == [("0", 41, 5000, None)]
    assert heard.lines == []


def test_a_lost_gpu_does_not_stop_the_others(nvml: Any, driver: Driver, heard: Heard) -> None:
    """A GPU that falls off the bus half-way through a look is reported and left out; once it is back it counts
    again.
    """
    driver.gpus(WHOLE, WHOLE, WHOLE)
    watched = gpus(nvml, heard)
    assert [*watched.sample(1.0).figures] == ["0", "1", "2"]
    driver.put("fail.nvmlDeviceGetPowerUsage.1", GPU_IS_LOST)
    driver.write()
    found = watched.sample(2.0)
    assert [*found.figures] == ["0", "2"]
    assert {one.device for one in found.processes} <= {"0", "2"}
    driver.put("fail.nvmlDeviceGetPowerUsage.1", None)
    driver.put("fail.any.1", GPU_IS_LOST)
    driver.write()
    assert [*watched.sample(3.0).figures] == ["0", "2"]
    assert [*watched.sample(2.0 + AGAIN_S).figures] == ["0", "2"]
    assert watched.lost == 1
    (event,) = [attrs for name, attrs in heard.events if name == "gpu_lost"]
    assert (event["gpu"], event["uuid"]) == ("1", "GPU-1000-aa")
    assert "GPU 1 (GPU-1000-aa) does not answer any more: " in heard.lines[0]
    driver.put("fail.any.1", None)
    driver.write()
    assert [*watched.sample(3.0 + 2 * AGAIN_S).figures] == ["0", "1", "2"]
    assert watched.lost == 0
    assert heard.lines[-1] == "GPU 1 (GPU-1000-aa) answers again"


def test_other_errors_cost_one_value_and_are_told_once(nvml: Any, driver: Driver, heard: Heard) -> None:
    """An unknown error leaves out its value until the call works again; missing rights leave it out for good."""
    driver.gpus(WHOLE)
    driver.put("fail.nvmlDeviceGetTemperature", UNKNOWN)
    driver.put("fail.nvmlDeviceGetUtilizationRates", NO_PERMISSION)
    driver.write()
    watched = gpus(nvml, heard)
    for t in (1.0, 2.0, 3.0):
        found = watched.sample(t).figures["0"]
        assert "temp" not in found
        assert "util" not in found
        assert found["power"] == 512.3
    assert heard.lines == ["nvmlDeviceGetTemperature of GPU 0: Unknown Error; that is left out"]
    driver.gpus(WHOLE)
    found = watched.sample(4.0).figures["0"]
    assert found["temp"] == 64
    assert "util" not in found


def test_a_driver_that_is_not_loaded_is_tried_again(nvml: Any, driver: Driver, heard: Heard) -> None:
    """Without a driver there is nothing, once it is there everything."""
    driver.gpus(WHOLE)
    driver.put("fail.nvmlInitWithFlags", DRIVER_NOT_LOADED)
    driver.write()
    watched = gpus(nvml, heard)
    assert watched.sample(1.0).figures == {}
    assert not watched.sample(1.0).known
    assert heard.lines == ["no GPU metrics: NVML failed: Driver Not Loaded"]
    driver.gpus(WHOLE)
    assert watched.sample(2.0).figures == {}
    assert [*watched.sample(1.0 + AGAIN_S).figures] == ["0"]


def test_without_a_library_nothing_is_asked_again(
    driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no driver is installed that is said once."""
    import pynvml

    def no_such_library(name: str) -> None:
        tries.append(name)
        raise OSError(f"{name}: cannot open shared object file")

    tries: list[str] = []
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_such_library)
    watched = gpus(pynvml, heard)
    for t in (1.0, 2.0 + AGAIN_S, 3.0 + 2 * AGAIN_S):
        assert watched.sample(t).figures == {}
    assert tries == ["libnvidia-ml.so.1"]
    assert heard.lines == ["no GPU metrics: no NVIDIA driver is installed here"]


def test_a_library_that_was_shut_down_is_opened_again(nvml: Any, driver: Driver, heard: Heard) -> None:
    """Another part of the process may shut NVML down: one look is lost."""
    driver.gpus(WHOLE)
    watched = gpus(nvml, heard)
    watched.sample(1.0)
    with pytest.raises(nvml.NVMLError):
        while True:  # those who opened it are counted
            nvml.nvmlShutdown()
    assert watched.sample(2.0).figures == {}
    assert [*watched.sample(3.0).figures] == ["0"]
    assert heard.lines == ["NVML failed: Uninitialized: GPU metrics are left out until it works again"]
    watched.close()


@pytest.mark.parametrize(
    ("bits", "before", "after", "rate"),
    [
        (32, 2**32 - 1000, 1000, 1000),  # it wrapped
        (64, 5_000_000, 1_000, None),  # 64 bits do not wrap in a lifetime: it was reset
        (32, 2**31, 2**31 + 4000, 2000),
    ],
)
def test_counters_wrap(
    nvml: Any, driver: Driver, heard: Heard, bits: int, before: int, after: int, rate: int | None
) -> None:
    """A counter of 32 bits that begins again is followed; what cannot be told apart from a reset gives nothing."""
    driver.gpus({**WHOLE, "pcie_tx": before, "counter_bits": bits})
    watched = gpus(nvml, heard)
    watched.sample(10.0)
    driver.tell(_0__pcie_tx=after)
    assert watched.sample(12.0).figures["0"].get("pcie_sent_per_s") == rate


def test_processes_and_what_they_use(nvml: Any, driver: Driver, heard: Heard) -> None:
    """Memory that the driver does not tell is None; who has no sample of its use has used nothing."""
    driver.gpus({**WHOLE, "sampled_us": 1000, "proc.0": "41 5000 62", "proc.1": "42 -1 -1", "proc.2": "43 7 5"}, WHOLE)
    watched = gpus(nvml, heard)
    assert pids(watched.sample(1.0)) == [("0", 41, 5000, 0.62), ("0", 42, None, 0.0), ("0", 43, 7, 0.05)]
    # Samples that were told before do not count again.
    assert pids(watched.sample(2.0)) == [("0", 41, 5000, 0.0), ("0", 42, None, 0.0), ("0", 43, 7, 0.0)]
    driver.tell(_0__sampled_us=2000)
    assert pids(watched.sample(3.0))[0] == ("0", 41, 5000, 0.62)


def mig() -> dict[str, object]:
    """A GPU in MIG mode with two devices: as a whole it tells no use."""
    parts: dict[str, object] = {"mig": 2}
    parts |= {name: value for name, value in WHOLE.items() if name not in ("util", "sm_active", "graphics_active")}
    return parts


def with_parts(driver: Driver) -> None:
    """GPU 0 is whole, GPU 1 has two MIG devices."""
    driver.gpus(WHOLE, mig())
    for part, used in ((0, 10), (1, 20)):
        driver.put(f"1_{part}.mem", used)
        driver.put(f"1_{part}.mem_total", 40)
        driver.put(f"1_{part}.sm_active", 25 * (part + 1))
        driver.put(f"1_{part}.graphics_active", 30 * (part + 1))
        driver.put(f"1_{part}.proc.0", f"{70 + part} {used} -1")
    driver.write()


def test_mig_devices(nvml: Any, driver: Driver, heard: Heard) -> None:
    """MIG devices have memory, activity and processes of their own; power and clocks are those of the whole GPU."""
    with_parts(driver)
    watched = gpus(nvml, heard)
    watched.sample(1.0)
    found = watched.sample(2.0)
    assert [*found.figures] == ["0", "1", "1_0", "1_1"]
    assert found.parents == {"1_0": "1", "1_1": "1"}
    assert found.figures["1_0"] == {"mem": 10, "mem_limit": 40, "sm_active": 0.25, "util": 0.3}
    assert found.figures["1_1"] == {"mem": 20, "mem_limit": 40, "sm_active": 0.5, "util": 0.6}
    assert "util" not in found.figures["1"]
    assert found.figures["1"]["power"] == 512.3
    assert pids(found) == [("1_0", 70, 10, None), ("1_1", 71, 20, None)]


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        (["1"], ["1", "1_0", "1_1"]),
        (["GPU-0000-aa"], ["0"]),
        (["GPU-1"], ["1", "1_0", "1_1"]),
        (["MIG-1100-bb"], ["1_1"]),
        (["MIG-GPU-1000-aa/7/0"], ["1_0"]),
        (["1_1", "0"], ["0", "1_1"]),
        (["7", "0"], []),
        (["0", "-1", "1"], ["0"]),
        ([""], []),
        ([], []),
        (None, ["0", "1", "1_0", "1_1"]),
    ],
)
def test_which_gpus(nvml: Any, driver: Driver, heard: Heard, asked: list[str] | None, keys: list[str]) -> None:
    """By index, UUID, beginning of a UUID, MIG UUID in both forms; the first invalid one ends the list."""
    with_parts(driver)
    assert [*gpus(nvml, heard, asked).sample(1.0).figures] == keys


def test_mig_devices_that_are_made_later_are_found(nvml: Any, driver: Driver, heard: Heard) -> None:
    """Once MIG is set up, a running agent sees the new devices, and the record has both sets."""
    driver.gpus(WHOLE)
    watched = gpus(nvml, heard)
    watched.sample(1.0)
    driver.put("0.mig", 1)
    driver.put("0_0.mem", 1)
    driver.put("0_0.mem_total", 2)
    driver.write()
    assert [*watched.sample(2.0).figures] == ["0"]
    assert [*watched.sample(2.0 + AGAIN_S).figures] == ["0", "0_0"]
    assert [[*attrs] for name, attrs in heard.events if name == "gpus"] == [["0", "driver"], ["0", "0_0"]]


def test_a_call_that_hangs_holds_nobody_else(nvml: Any, driver: Driver, heard: Heard) -> None:
    """ctypes lets go of the interpreter during a call: another thread goes on, and the look ends once it comes back."""
    driver.gpus(WHOLE)
    driver.put("hang.nvmlDeviceGetPowerUsage", 1)
    driver.write()
    watched = gpus(nvml, heard)
    done = threading.Event()
    found: list[GpuReading] = []

    def look() -> None:
        found.append(watched.sample(1.0))
        done.set()

    threading.Thread(target=look, daemon=True).start()
    assert not done.wait(0.1)
    driver.put("hang.nvmlDeviceGetPowerUsage", None)
    driver.write()
    assert done.wait(10)
    assert found[0].figures["0"]["power"] == 512.3


def test_the_structures_are_those_of_the_package(nvml: Any) -> None:
    """The library for tests is built for the sizes that nvidia-ml-py has, so that a change there is noticed."""
    sizes = {
        "c_nvmlMemory_t": 24,
        "c_nvmlUtilization_t": 8,
        "c_nvmlProcessInfo_v2_t": 24,
        "c_nvmlFieldValue_t": 40,
        "c_nvmlProcessUtilizationSample_t": 32,
        "c_nvmlGpmMetric_t": 40,
    }
    assert {name: ctypes.sizeof(getattr(nvml, name)) for name in sizes} == sizes
