"""Counters, control groups, the host, and names of metrics: each on its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.metrics import METRICS
from rlship.system import asked, sampler, series, visible
from rlship.system.background import Due, Repeated
from rlship.system.cgroup import Cgroup
from rlship.system.host import Host, Place
from rlship.system.nvml import Device
from rlship.system.rates import Rates
from rlship.system.readings import GpuReading
from tests.kit.waiting import wait_until


def put(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below `root`."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# Counters


@given(st.lists(st.tuples(st.integers(0, 2**33), st.floats(0.06, 100)), min_size=2, max_size=20))
def test_rates_add_up_to_what_a_counter_grew(parts: list[tuple[int, float]]) -> None:
    """However it grows and whenever it is read, rates times seconds are what was added, also over wraps of 32 bits."""
    rates, total, t = Rates(), 0, 0.0
    assert rates.of("x", 0, t, bits=32, most=float("inf")) is None
    for grown, seconds in parts:
        grown %= 2**32
        total, t = total + grown, t + seconds
        found = rates.of("x", total % 2**32, t, bits=32, most=float("inf"))
        assert found is not None
        assert found >= 0
        assert found * seconds == pytest.approx(grown, rel=1e-6, abs=1e-3)


def test_what_gives_no_rate() -> None:
    """A first value, one that is lower, one at the same time, one that would be more than is possible, a forgotten one;
    the next one goes on from it.
    """
    rates = Rates()
    assert rates.of("x", 5, 1.0) is None
    assert rates.of("x", 3, 2.0) is None
    assert rates.of("x", 13, 3.0) == 10
    assert rates.of("x", 14, 3.01) is None
    assert rates.of("x", 15, 5.0) == 1
    assert rates.of("x", 0, 6.0, bits=32, most=1e9) is None
    rates.forget("x")
    assert rates.of("x", 9, 7.0) is None


# Time


def test_rounds_do_not_drift() -> None:
    """Rounds begin at multiples of the interval from the start; a late one at once, and others missed are left out."""
    now = 100.0
    due = Due(1.0, lambda: now)
    begun = []
    for took in (0.1, 0.3, 2.5, 0.0, 1.0):
        now += took
        now += due.left()
        begun.append(now)
    assert begun == pytest.approx([101, 102, 104.5, 105, 106])


def test_what_hangs_is_known_and_what_fails_is_told() -> None:
    """A look that hangs is seen to, its result comes once; one that raises is reported and does not end the thread."""
    go, told = threading.Event(), []

    def look() -> str:
        if not go.is_set():
            go.wait(10)
            raise RuntimeError("first")
        return "found"

    repeated = Repeated(look, 0.01, told.append)
    repeated.start()
    wait_until(lambda: repeated.hangs_s > 0.02, "the look hangs")
    assert repeated.take() is None
    go.set()
    wait_until(lambda: repeated.take() == "found", "the next look finds it")
    assert repeated.latest() == "found"
    assert [str(error) for error in told] == ["first"]
    repeated.stop()
    assert repeated.ended(10)
    repeated.take()
    assert repeated.take() is None


# Control groups


def test_limits_of_version_two(tmp_path: Path) -> None:
    """The least limit of the group and of those above it holds, with what that group uses; file pages that can be
    dropped are not in use.
    """
    root = put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/p1/c1\n",
            "sys/fs/cgroup/pods/memory.max": "8000\n",
            "sys/fs/cgroup/pods/memory.current": "7000\n",
            "sys/fs/cgroup/pods/memory.stat": "anon 1\ninactive_file 1500\n",
            "sys/fs/cgroup/pods/p1/memory.max": "max\n",
            "sys/fs/cgroup/pods/p1/memory.current": "10\n",
            "sys/fs/cgroup/pods/p1/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pods/p1/c1/memory.max": "9000\n",
            "sys/fs/cgroup/pods/p1/c1/memory.current": "100\n",
            "sys/fs/cgroup/pods/p1/c1/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/p1/c1/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        },
    )
    group = Cgroup(str(root))
    assert group.memory() == (5500, 8000)
    assert group.cpus() == 1.5
    assert group.cpu_s() == 2.5


def test_limits_of_version_one(tmp_path: Path) -> None:
    """Memory and cpu have trees of their own; the greatest number of pages is no limit, and a quota of -1 is no
    quota.
    """
    root = put(
        tmp_path,
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "99\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "900\n",
            "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 200\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpuacct.usage": "3000000000\n",
        },
    )
    group = Cgroup(str(root))
    assert group.memory() == (700, 1000)
    assert group.cpus() is None
    assert group.cpu_s() == 3.0


@pytest.mark.parametrize("path", ["/../../etc", "/not/there", "/"])
def test_a_path_that_is_not_to_be_seen_here(tmp_path: Path, path: str) -> None:
    """In a container the group's path may be the host's: what is mounted is looked at, and nothing outside it."""
    root = put(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{path}\n",
            "sys/fs/cgroup/memory.max": "100\n",
            "sys/fs/cgroup/memory.current": "60\n",
        },
    )
    assert Cgroup(str(root)).memory() == (60, 100)


def test_no_control_groups(tmp_path: Path) -> None:
    """A machine without them has no limits."""
    group = Cgroup(str(tmp_path))
    assert (group.memory(), group.cpus(), group.cpu_s()) == (None, None, None)


# The host


class Machine:
    """psutil on a machine whose numbers the test sets."""

    def __init__(self) -> None:
        self.busy = self.idle = 0.0
        self.used = 400
        self.disks = {"sda": (0, 0), "sda1": (0, 0), "dm-0": (0, 0)}
        self.cards = {"eth0": (0, 0), "lo": (0, 0), "docker0": (0, 0)}

    def cpu_count(self) -> int:
        return 4

    def cpu_times(self) -> Any:
        return psutil._pslinux.scputimes(self.busy, 0, 0, self.idle, 0, 0, 0, 0, 0, 0)

    def virtual_memory(self) -> Any:
        return SimpleNamespace(total=1000, available=1000 - self.used)

    def swap_memory(self) -> Any:
        return SimpleNamespace(used=3)

    def disk_io_counters(self, perdisk: bool, nowrap: bool) -> Any:
        return {name: SimpleNamespace(read_bytes=r, write_bytes=w) for name, (r, w) in self.disks.items()}

    def net_io_counters(self, pernic: bool, nowrap: bool) -> Any:
        return {name: SimpleNamespace(bytes_recv=r, bytes_sent=s) for name, (r, s) in self.cards.items()}


def hardware(root: Path) -> Path:
    """/sys of a machine with one disk, one network card and an InfiniBand port."""
    put(
        root,
        {
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "100\n",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "10\n",
        },
    )
    for folder in ("sys/block/sda/device", "sys/class/net/eth0/device", "sys/block/dm-0", "sys/class/net/docker0"):
        (root / folder).mkdir(parents=True)
    return root


def test_what_a_host_uses(tmp_path: Path) -> None:
    """Shares of all cores and of memory; bytes a second of hardware alone, so that nothing counts twice."""
    machine = Machine()
    host = Host(machine, root=str(hardware(tmp_path)))
    assert host.sample(10.0) == {"node/host_mem": 400, "node/host_mem_frac": 0.4}
    machine.busy, machine.idle = 3.0, 5.0
    machine.disks = {"sda": (2000, 600), "sda1": (2000, 600), "dm-0": (2000, 600)}
    machine.cards = {"eth0": (50, 70), "lo": (999, 999), "docker0": (50, 70)}
    counters = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    (counters / "port_rcv_data").write_text("1100\n")
    assert host.sample(12.0) == {
        "node/cpu": 0.375,
        "node/host_mem": 400,
        "node/host_mem_frac": 0.4,
        "node/disk_read_per_s": 1000,
        "node/disk_write_per_s": 300,
        "node/net_recv_per_s": 25,
        "node/net_sent_per_s": 35,
        "node/rdma_recv_per_s": 2000,
        "node/rdma_sent_per_s": 0,
    }
    assert host.limits() == {"node/cpu_limit": 4.0, "node/host_mem_limit": 1000, "node/swap": 3}


def test_a_container_counts_as_what_it_may_use(tmp_path: Path) -> None:
    """Where the control group allows less than the machine has, shares are of that; without hardware in sight all but
    loopback is the network.
    """
    put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "500\n",
            "sys/fs/cgroup/memory.current": "250\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1000000\n",
        },
    )
    machine = Machine()
    host = Host(machine, root=str(tmp_path))
    assert host.sample(1.0) == {"node/host_mem": 250, "node/host_mem_frac": 0.5}
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 2000000\n")
    machine.cards = {"eth0": (30, 0), "lo": (999, 999)}
    found = host.sample(2.0)
    assert found["node/cpu"] == 0.5
    assert found["node/net_recv_per_s"] == 30
    assert "node/disk_read_per_s" not in found
    assert host.limits() == {"node/cpu_limit": 2.0, "node/host_mem_limit": 500, "node/swap": 3}


def test_a_part_that_fails_leaves_the_others(tmp_path: Path) -> None:
    """A machine that does not tell its disks tells its memory."""
    machine = Machine()
    machine.disk_io_counters = None  # type: ignore[assignment]

    def broken(**_: object) -> None:
        raise OSError("no /proc/diskstats")

    machine.disk_io_counters = broken  # type: ignore[assignment,method-assign]
    assert Host(machine, root=str(tmp_path)).sample(1.0) == {"node/host_mem": 400, "node/host_mem_frac": 0.4}


def test_the_place_of_an_experiment(tmp_path: Path) -> None:
    """Free space as statvfs has it; traffic of the disk below, where /sys leads to one."""
    device = os.stat(tmp_path).st_dev
    link = tmp_path / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    (tmp_path / "sys/devices/sda").mkdir(parents=True)
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "sys/devices/sda")
    machine = Machine()
    place = Place(machine, str(tmp_path), root=str(tmp_path))
    first = place.sample(1.0)
    assert set(first) == {"node/fs_free", "node/fs_used_frac"}
    assert isinstance(first["node/fs_used_frac"], float)
    assert 0 <= first["node/fs_used_frac"] <= 1
    machine.disks["sda"] = (500, 100)
    second = place.sample(2.0)
    assert (second["node/fs_read_per_s"], second["node/fs_write_per_s"]) == (500, 100)


def test_this_machine() -> None:
    """The real psutil gives numbers of the right kind here."""
    host = Host(psutil)
    host.sample(time.monotonic())
    time.sleep(0.1)
    found = host.sample(time.monotonic())
    assert {"node/cpu", "node/host_mem", "node/host_mem_frac"} <= set(found)
    assert all(isinstance(value, int | float) and value >= 0 for value in found.values())
    limits = host.limits()
    assert isinstance(limits["node/host_mem_limit"], int)
    assert limits["node/host_mem_limit"] > 1e8


# Names


def a_reading() -> GpuReading:
    """A whole GPU and one in MIG mode."""
    found = GpuReading()
    found.known = True
    found.figures = {
        "0": {"util": 0.5, "mem": 40, "mem_limit": 80, "throttle/sw_power": 1},
        "1": {"mem": 10, "mem_limit": 80, "throttle/sw_power": 0},
        "1_0": {"util": 0.25, "mem": 4, "mem_limit": 40},
    }
    found.parents = {"1_0": "1"}
    return found


def test_figures_of_all_gpus() -> None:
    """A MIG device counts only where its GPU does not tell that figure; what hardly changes can be left out."""
    assert series.overall(a_reading()) == {
        "node/gpus": 2,
        "node/gpu_util": [0.5, 0.25],
        "node/gpu_mem": [40, 10],
        "node/gpu_mem_limit": [80, 80],
        "node/gpu_throttle/sw_power": [1, 0],
        "node/gpu_mem_frac": [0.5, 0.125, 0.1],
    }
    assert "node/gpu_mem_limit" not in series.overall(a_reading(), rare=False)
    assert series.by_device(a_reading(), rare=False) == {
        "gpu/0/util": 0.5,
        "gpu/0/mem": 40,
        "gpu/0/throttle/sw_power": 1,
        "gpu/1/mem": 10,
        "gpu/1/throttle/sw_power": 0,
        "gpu/1_0/util": 0.25,
        "gpu/1_0/mem": 4,
    }


def test_lost_gpus_and_no_gpus_differ() -> None:
    """Where all GPUs were lost no GPU answers; where there is no driver nothing is said of them."""
    reading = GpuReading()
    assert series.overall(reading) == {}
    reading.known = True
    assert series.overall(reading) == {"node/gpus": 0}


def test_every_name_is_in_the_catalogue() -> None:
    """What is logged of hosts and GPUs is known by name; definitions of devices agree with it."""
    known = {metric.name: metric for metric in METRICS}
    figures = [*(own for own, *_ in series._GPU), *(f"throttle/{name}" for name in sampler_reasons())]
    reading = GpuReading()
    reading.known, reading.figures = True, {"0": dict.fromkeys(figures, 1)}
    names = series.overall(reading)
    assert set(names) <= set(known)
    devices = dict(series.device_definitions(series.by_device(reading)))
    for figure in figures:
        name = series._CATALOGUE.get(figure) or f"node/gpu_{figure}"
        told = devices[f"gpu/0/{figure}"]
        assert (tuple(told["reduce"]), told["unit"]) == (known[name].reduce, known[name].unit)  # type: ignore[arg-type]
    for name, told in series.process_definitions("proc", per_rank=True).items():
        assert (tuple(told["reduce"]), told["unit"]) == (known[name].reduce, known[name].unit)  # type: ignore[arg-type]


def sampler_reasons() -> list[str]:
    """The names of why a GPU may be slowed."""
    from rlship.system.look import THROTTLE

    return [*THROTTLE]


# What is asked for


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        (None, {}, None),
        (None, {"CUDA_VISIBLE_DEVICES": "1, GPU-8"}, ["1", "GPU-8"]),
        (None, {"CUDA_VISIBLE_DEVICES": ""}, [""]),
        (["0", "2"], {"CUDA_VISIBLE_DEVICES": "1"}, ["0", "2"]),
        (["all"], {"CUDA_VISIBLE_DEVICES": "1"}, None),
        ([], {}, []),
    ],
)
def test_gpus_that_are_asked_for(given: list[str] | None, environment: dict[str, str], found: list[str] | None) -> None:
    """What was given counts, else the variable, which hides all where it is empty; without either it is all."""
    assert visible.wanted(given, environment) == found


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"ROCR_VISIBLE_DEVICES": "4,5,6"}, ["4", "5", "6"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "2,0"}, ["6", "4"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "1,7"}, ["5"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["1"]),
        ({}, None),
    ],
)
def test_variables_that_nest(environment: dict[str, str], found: list[str] | None) -> None:
    """On AMD one variable hides GPUs, and the indices of the next one count those that are left."""
    assert visible.wanted(None, environment, visible.ROCM) == found


@pytest.mark.parametrize(
    ("environment", "local_rank", "found"),
    [
        ({}, 3, ["3"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, 1, ["5"]),
        ({"CUDA_VISIBLE_DEVICES": "6"}, 5, ["6"]),  # the launcher left it one
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, None, ["4", "5"]),
        ({}, None, None),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, 7, []),
    ],
)
def test_the_gpu_of_a_local_rank(environment: dict[str, str], local_rank: int | None, found: list[str] | None) -> None:
    """`local` is the visible GPU at the process's local rank; without a local rank it is the visible ones."""
    assert visible.wanted(["local"], environment, visible.CUDA, local_rank) == found


def test_gpus_that_are_not_here() -> None:
    """A GPU that was named and is not here is left out and named; of a variable's list it ends the list."""
    devices = [Device(str(index), None, f"GPU-{index}", "A") for index in range(3)]
    assert [one.key for one in visible.choose(devices, ["0", "9", "1"])] == ["0"]
    assert [one.key for one in visible.choose(devices, ["0", "9", "GPU-1"], ends=False)] == ["0", "1"]
    assert visible.unknown(devices, ["0", "GPU-1"]) == ""
    assert visible.unknown(devices, ["9"]) == "there is no GPU '9'; there are: 0 (GPU-0), 1 (GPU-1), 2 (GPU-2)"
    assert visible.unknown([], ["9"]) == "there is no GPU '9'; there are: no devices"


SWITCH, ROLES, GPUS = asked.SWITCH, asked.ROLES, asked.GPUS


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (False, None), (0, None), ("0", None), (True, 1.0), ("1", 1.0), (10, 10.0), ("0.5", 0.5)],
)
def test_intervals_of_workers(given: object, seconds: float | None) -> None:
    """True and 1 are once a second, other numbers their seconds, and nothing is off."""
    found = asked.read(given, {}, "trainer")
    assert (found and found.interval_s) == seconds


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        (None, {SWITCH: "2"}, (2.0, None)),
        (None, {SWITCH: "0", ROLES: "trainer"}, None),
        (None, {ROLES: "trainer, generator"}, (1.0, None)),
        (None, {ROLES: "generator"}, None),
        (None, {ROLES: "all", GPUS: "0,GPU-8"}, (1.0, ["0", "GPU-8"])),
        (None, {ROLES: "none", SWITCH: "1"}, None),
        (None, {GPUS: "local"}, (1.0, ["local"])),
        (None, {SWITCH: "", ROLES: "", GPUS: ""}, None),
        # What the code says counts, and the variables say the rest.
        (True, {ROLES: "generator"}, None),
        (True, {SWITCH: "0", GPUS: "none"}, (1.0, [])),
        (False, {SWITCH: "1", ROLES: "trainer"}, None),
        ({}, {}, (1.0, None)),
        ({"interval": 5, "roles": ["trainer"], "gpus": [0, "1"]}, {ROLES: "x", GPUS: "7"}, (5.0, ["0", "1"])),
        ({"roles": "all"}, {ROLES: "generator"}, (1.0, None)),
        ({"roles": ("reward",)}, {}, None),
        ({"gpus": 3}, {}, (1.0, ["3"])),
        ({"gpus": "all"}, {GPUS: "7"}, (1.0, ["all"])),
        ({"interval": False}, {SWITCH: "1"}, None),
    ],
)
def test_what_is_asked_for_by_role(
    given: object, environment: dict[str, str], found: tuple[float, list[str] | None] | None
) -> None:
    """A process of `trainer` logs what the argument says, and the variables where that is silent."""
    read = asked.read(given, environment, "trainer")
    assert (read and (read.interval_s, read.gpus)) == found


@pytest.mark.parametrize("given", ["yes", -1, 0.01, 1e9, float("nan"), "inf", [], object()])
def test_intervals_that_are_none(given: object) -> None:
    """Anything else is named with what is allowed."""
    with pytest.raises(ValueError, match=r"^system_metrics=.* is not True, a number of seconds from 0\.1 to 3600"):
        asked.read(given, {}, "trainer")


@pytest.mark.parametrize(
    ("given", "environment", "said"),
    [
        ({"gpu": [0]}, {}, "system_metrics has no setting 'gpu': it takes interval, roles and gpus"),
        ({"interval": "often"}, {}, "system_metrics['interval']='often' is not True or a number of seconds from"),
        (None, {SWITCH: "yes"}, "RLSHIP_SYSTEM_METRICS='yes' is not 1, 0 or a number of seconds from 0.1 to 3600"),
        ({"roles": []}, {}, "system_metrics['roles']=[] names no actors: give their names, such as trainer,generator"),
        ({"roles": {"trainer": 1}}, {}, "system_metrics['roles']={'trainer': 1} names no actors"),
        (None, {ROLES: ","}, "RLSHIP_SYSTEM_METRICS_ROLES=',' names no actors"),
        ({"gpus": [-1]}, {}, "system_metrics['gpus']=[-1] has '-1', which is no GPU: give indices or UUIDs"),
        ({"gpus": [0, "all"]}, {}, "has 'all', which is no GPU"),
        ({"gpus": True}, {}, "system_metrics['gpus']=True names no GPUs"),
        ({"gpus": [True]}, {}, "system_metrics['gpus']=[True] names no GPUs"),
        (
            None,
            {GPUS: "0;1"},
            "RLSHIP_SYSTEM_METRICS_GPUS='0;1' has '0;1', which is no GPU: give indices or UUIDs, such",
        ),
        (None, {GPUS: "0-3"}, "RLSHIP_SYSTEM_METRICS_GPUS='0-3' has '0-3', which is no GPU"),
    ],
)
def test_settings_that_cannot_be_used(given: object, environment: dict[str, str], said: str) -> None:
    """The error names the setting, the value, what is allowed and the way out."""
    with pytest.raises(ValueError) as caught:
        asked.read(given, environment, "trainer")
    assert said in str(caught.value)


def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is reported with the command that installs it, in one sentence."""
    import sys

    assert None not in sampler.packages().values()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert sampler.packages() == {"psutil": None, "pynvml": None}
    gpus = "without the GPUs' metrics; to have them: pip install nvidia-ml-py"
    both = "without the host's and the GPUs' metrics; to have them: pip install psutil nvidia-ml-py"
    assert sampler.lacking(host=False, gpus=True) == gpus
    assert sampler.lacking(host=True, gpus=True) == both
