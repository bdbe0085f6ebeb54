"""The agent in this process: when it logs into which experiment, and what."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlship
from rlship.identity import Identity
from rlship.logger import Logger
from rlship_agents.sysmon.agent import Agent, Plan
from rlship_agents.sysmon.crew import Scout
from rlship_agents.sysmon.post import MAX_LABELS
from tests.kit.waiting import wait_until
from tests.spec.schemas import valid_lines
from tests.system.driver import WHOLE, Driver

HOST = os.uname().nodename


@pytest.fixture(autouse=True)
def every_record_is_valid(tmp_path: Path) -> Iterator[None]:
    """Whatever the agent writes is valid by the schemas of the format."""
    yield from valid_lines(tmp_path)


@pytest.fixture(autouse=True)
def the_first_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pids here are those of the driver."""
    monkeypatch.setattr("rlship.system.attribution.in_first_pid_namespace", lambda _: True)


class Runs:
    """An agent on a thread, and what it said."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.said: list[str] = []
        self.stop = threading.Event()
        self.agent = Agent(directory, plan, self.said.append)
        self.thread = threading.Thread(target=self.agent.run, args=(self.stop,))

    def __enter__(self) -> Runs:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()


def worker(folder: Path, actor: str = "trainer", rank: int = 0, replica: str = "0") -> Logger:
    """A writer of this process."""
    logger = Logger(str(folder), Identity(actor, replica, rank, 8, 0, "given", HOST))
    logger.start()
    logger.flush()
    return logger


def node_files(folder: Path) -> list[Path]:
    """The agents' files."""
    return sorted((folder / "rlship").glob("node-*.jsonl"))


def records(folder: Path) -> list[dict[str, Any]]:
    """All records of agents."""
    return [json.loads(line) for file in node_files(folder) for line in file.read_text().split("\n")[:-1]]


def logged(folder: Path) -> dict[str, Any]:
    """The last value of each metric."""
    found: dict[str, Any] = {}
    for record in records(folder):
        if "kind" not in record:
            found |= record["m"]
    return found


def test_what_a_node_logs(nvml: Any, driver: Driver, tmp_path: Path) -> None:
    """One writer without world and steps: the host, each GPU, and for each rank here what it and its children use."""
    mine, gone = os.getpid(), 4_000_000
    driver.gpus(
        {**WHOLE, "sampled_us": 1, "proc.0": f"{mine} 5000 62", "proc.1": f"{gone} 300 1"},
        {**WHOLE, "util": 17, "proc.0": f"{mine} 2000 -1"},
    )
    trainer, buffer = worker(tmp_path, rank=3), worker(tmp_path, "buffer")
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: node_files(tmp_path) and "proc/buffer/r0.0/cpu" in logged(tmp_path), "metrics of processes")
        wait_until(lambda: "gpu/1/sm_active" in logged(tmp_path), "what needs two looks")
    trainer.close()
    buffer.close()
    found = logged(tmp_path)
    (opened,) = [record for record in records(tmp_path) if record.get("kind") == "open"]
    assert (opened["actor"], opened["replica"], opened["rank"]) == ("node", HOST, 0)
    assert "world" not in opened
    assert all("step" not in record for record in records(tmp_path))
    assert found["gpu_util"] == [0.83, 0.17]
    assert found["gpus"] == 2
    assert found["gpu/1/util"] == 0.17
    assert found["gpu/0/throttle/hw_thermal"] == 1
    assert found["gpu_mem_other"] == 300
    assert found["proc/trainer/r0.3/gpu_mem"] == 7000
    assert found["proc/trainer/gpu_mem"] == [7000]
    assert found["proc/trainer/r0.3/host_mem"] > 1e6
    assert found["fs_free"] > 0
    defined = {name: told for r in records(tmp_path) if r.get("kind") == "define" for name, told in r["m"].items()}
    assert defined["gpu/0/power"] == {"reduce": ["mean", "max"], "unit": "W", "per_rank": False}
    assert defined["proc/trainer/r0.3/cpu"]["unit"] == "cores"
    (event,) = [record for record in records(tmp_path) if record.get("name") == "gpus"]
    assert event["attrs"]["1"] == "NVIDIA Test GPU-1000-aa"
    assert records(tmp_path)[-1]["kind"] == "close"
    assert runs.said == [f"logging this node, {HOST}, into {tmp_path}"]


def test_roles_and_gpus(nvml: Any, driver: Driver, tmp_path: Path) -> None:
    """Only processes of the roles asked for have metrics, and only the GPUs asked for are looked at."""
    driver.gpus(WHOLE, WHOLE, WHOLE)
    loggers = [worker(tmp_path), worker(tmp_path, "reward")]
    with Runs(tmp_path, Plan(interval_s=0.1, roles=["reward"], gpus=["2"])):
        wait_until(lambda: node_files(tmp_path) and "proc/reward/r0.0/cpu" in logged(tmp_path), "metrics of the role")
        wait_until(lambda: "gpu/2/sm_active" in logged(tmp_path), "metrics of the GPU")
    for logger in loggers:
        logger.close()
    names = set(logged(tmp_path))
    assert not {name for name in names if name.startswith(("proc/trainer", "gpu/0", "gpu/1"))}
    assert logged(tmp_path)["gpu_util"] == 0.83


def test_visible_gpus(nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a choice CUDA_VISIBLE_DEVICES holds."""
    driver.gpus(WHOLE, WHOLE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1000-aa")
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)):
        wait_until(lambda: node_files(tmp_path) and "gpu_util" in logged(tmp_path), "metrics of the GPU")
    logger.close()
    assert {name.split("/")[1] for name in logged(tmp_path) if name.startswith("gpu/")} == {"1"}


def test_a_hanging_driver(nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While NVML hangs all else is logged, once it answers the GPUs too; both are reported, and the end is not held
    up.
    """
    monkeypatch.setattr("rlship.system.sampler.HANGS_S", 0.3)
    driver.gpus(WHOLE)
    driver.put("hang.nvmlDeviceGetMemoryInfo", 1)
    driver.write()
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: any("NVML has not answered for" in line for line in runs.said), "that it hangs")
        wait_until(lambda: "cpu" in logged(tmp_path), "metrics of the host")
        assert not [name for name in logged(tmp_path) if name.startswith("gpu")]
        driver.put("hang.nvmlDeviceGetMemoryInfo", None)
        driver.write()
        wait_until(lambda: "gpu_util" in logged(tmp_path), "metrics of the GPU")
        assert "NVML answers again" in runs.said
        driver.put("hang.nvmlDeviceGetMemoryInfo", 1)
        driver.write()
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    driver.put("hang.nvmlDeviceGetMemoryInfo", None)
    driver.write()
    logger.close()


def test_a_lost_gpu_is_in_the_record(nvml: Any, driver: Driver, tmp_path: Path) -> None:
    """A GPU that falls off the bus is an event with its UUID, and one GPU less; the other one's figures go on."""
    driver.gpus(WHOLE, WHOLE)
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: node_files(tmp_path) and logged(tmp_path).get("gpus") == 2, "both GPUs")
        driver.put("fail.any.1", 15)
        driver.write()
        wait_until(lambda: logged(tmp_path).get("gpus") == 1, "one GPU")
        before = sum("gpu/0/util" in record.get("m", {}) for record in records(tmp_path))
        wait_until(
            lambda: sum("gpu/0/util" in r.get("m", {}) for r in records(tmp_path)) > before + 2, "the other's figures"
        )
    logger.close()
    (event,) = [record for record in records(tmp_path) if record.get("name") == "gpu_lost"]
    assert event["attrs"]["uuid"] == "GPU-1000-aa"
    assert any("GPU 1 (GPU-1000-aa) does not answer any more" in line for line in runs.said)


def test_a_folder_that_hangs(nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the experiment's folder does not answer any more the agent goes on with what it knew, and says so."""
    monkeypatch.setattr("rlship_agents.sysmon.agent.SCOUT_EVERY_S", 0.1)
    monkeypatch.setattr("rlship_agents.sysmon.agent.HANGS_S", 0.3)
    monkeypatch.setattr("rlship.system.processes._MIN_S", 0.1)
    answers, seen = threading.Event(), Scout.look

    def look(scout: Scout) -> Any:
        found = seen(scout)
        if node_files(tmp_path):
            answers.wait(20)
        return found

    monkeypatch.setattr(Scout, "look", look)
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: any("has not answered for" in line for line in runs.said), "that it hangs")
        before = len(records(tmp_path))
        wait_until(lambda: len(records(tmp_path)) > before + 2, "more records")
        answers.set()
        wait_until(lambda: f"{tmp_path} answers again" in runs.said, "that it answers")
    logger.close()


def test_an_agent_waits_for_its_experiment(
    nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins once a process writes, ends its file when no process has written for a while, and opens another when
    they go on.
    """
    monkeypatch.setattr("rlship_agents.sysmon.agent.SCOUT_EVERY_S", 0.1)
    monkeypatch.setattr("rlship.system.processes._MIN_S", 0.1)
    with Runs(tmp_path, Plan(interval_s=0.1, quiet_s=60)) as runs:
        wait_until(lambda: runs.said, "that it waits")
        assert "waiting for one" in runs.said[-1]
        logger = worker(tmp_path)
        wait_until(lambda: node_files(tmp_path), "a file")
        old = time.time() - 1000
        logger.close()
        os.utime(logger.path or "", (old, old))
        wait_until(lambda: "does not run here any more" in runs.said[-1], "that it ends")
        assert records(tmp_path)[-1]["kind"] == "close"
        again = worker(tmp_path)
        wait_until(lambda: len(node_files(tmp_path)) == 2, "another file")
        again.close()


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("job", "no process has written into {} for 60 s (--quiet-after); waiting for one"),
        (
            "",
            "1 experiment in {}, into which no process of this node has written for 60 s (--quiet-after); "
            "waiting for one",
        ),
    ],
)
def test_what_it_waits_for_is_said_once(
    nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, line: str
) -> None:
    """Started on an experiment that is over, it says why nothing comes, however often it looks."""
    driver.gpus()
    monkeypatch.setattr("rlship_agents.sysmon.agent.SCOUT_EVERY_S", 0.1)
    logger = worker(tmp_path / "job")
    logger.close()
    os.utime(logger.path or "", (1.7e9, 1.7e9))
    with Runs(tmp_path / place, Plan(interval_s=0.1, quiet_s=60)) as runs:
        wait_until(lambda: runs.said, "that it waits")
        time.sleep(0.5)
    assert runs.said == [line.format(tmp_path / place)]
    assert node_files(tmp_path / "job") == []


def test_several_experiments(nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder of experiments those get this node's metrics that have a process here, each those of its own."""
    driver.gpus()
    monkeypatch.setattr("rlship_agents.sysmon.agent.SCOUT_EVERY_S", 0.1)
    mine = worker(tmp_path / "mine")
    other = Logger(str(tmp_path / "other"), Identity("trainer", "0", 0, 1, 0, "given", "elsewhere"))
    other.start()
    other.flush()
    monkeypatch.setattr("rlship_agents.sysmon.residents.Residents._has_open", lambda *_: False)
    with Runs(tmp_path, Plan(interval_s=0.1)):
        wait_until(lambda: node_files(tmp_path / "mine") and "proc/trainer/cpu" in logged(tmp_path / "mine"), "metrics")
    mine.close()
    other.close()
    assert node_files(tmp_path / "other") == []


def test_a_second_agent_leaves_the_node_to_the_first(
    nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another process logs this node already that is said, and nothing is logged twice."""
    monkeypatch.setattr("rlship_agents.sysmon.agent.SCOUT_EVERY_S", 0.1)
    logger, first = worker(tmp_path), worker(tmp_path, "node", replica=HOST)
    # The first agent is another process, as far as the second can see.
    monkeypatch.setattr("rlship_agents.sysmon.post.os.getpid", lambda: 1)
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: any("another agent (pid " in line for line in runs.said), "that it gives way")
        time.sleep(0.3)
    logger.close()
    first.close()
    assert len(node_files(tmp_path)) == 1


def test_ranks_without_number_do_not_make_metrics_without_number(
    nvml: Any, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actors that come under ever new names have metrics of their own up to a bound, then those of their actor."""
    monkeypatch.setattr("rlship_agents.sysmon.post.MAX_LABELS", 2)
    loggers = [worker(tmp_path, "generator", replica=f"a{i}") for i in range(5)]
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: node_files(tmp_path) and "proc/generator/cpu" in logged(tmp_path), "metrics of processes")
    for logger in loggers:
        logger.close()
    found = logged(tmp_path)
    assert len({name.split("/")[2] for name in found if name.startswith("proc/generator/r")}) == 2
    assert len(found["proc/generator/cpu"]) == 5
    assert MAX_LABELS == 256
    assert any("more than 2 ranks had processes here" in line for line in runs.said)


def test_without_the_packages_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psutil and pynvml processes are still looked at, and one line says what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)) as runs:
        wait_until(lambda: node_files(tmp_path) and "proc/trainer/r0.0/cpu" in logged(tmp_path), "metrics of processes")
    logger.close()
    assert {name.split("/")[0] for name in logged(tmp_path)} == {"proc"}
    assert [line for line in runs.said if "pip install psutil nvidia-ml-py" in line] == runs.said[:1]


def test_the_module_functions_are_left_alone(nvml: Any, driver: Driver, tmp_path: Path) -> None:
    """An agent in a program that logs itself does not become the Logger of `rlship.log`."""
    logger = worker(tmp_path)
    with Runs(tmp_path, Plan(interval_s=0.1)):
        wait_until(lambda: node_files(tmp_path), "a file")
        assert rlship.registry._default is None or rlship.registry._default.actor != "node"
    logger.close()
