"""`rlship sysmon` as a process beside a real job, and system metrics inside a real worker, up to the rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlship.system.processes import in_first_pid_namespace
from rlship_sidecar.cli.group import rlship
from tests.system.driver import WHOLE, Driver

HOST = os.uname().nodename
# Steps of 0.2 s until it is asked to stop; a child of its own computes.
TRAINER = """
import subprocess, sys, time, rlship
rlship.init(sys.argv[1], actor="trainer", rank=0, world=1)
busy = "import os\\nparent = os.getppid()\\nwhile os.getppid() == parent: pass"
child = subprocess.Popen([sys.executable, "-c", busy])
for step in range(int(sys.argv[2])):
    rlship.log({"loss": 1.0}, step=step)
    time.sleep(0.2)
    rlship.barrier(step)
child.kill(); child.wait()
"""


def environment(library: Path, driver: Driver, **more: str) -> dict[str, str]:
    """What a process needs to find the library for tests as it would find NVIDIA's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RLSHIP_", "CUDA_"))}
    return kept | {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": str(driver.file)} | more


@contextmanager
def running(*command: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process, killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def rows(folder: Path, **config: object) -> list[dict[str, Any]]:
    """The rows that a sidecar makes of the files."""
    (folder / "rlship.toml").write_text("".join(f"{name} = {value}\n" for name, value in config.items()))
    done = subprocess.run(
        [sys.executable, "-m", "rlship", "watch", str(folder), "--once", "--sink", "jsonl", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    text = (folder / "rlship" / "state" / "rows.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_an_agent_beside_a_job(library: Path, driver: Driver, tmp_path: Path) -> None:
    """Its figures stand beside the steps of the lead and in windows of time, with this rank's processes; SIGTERM ends
    it with code 0 and nothing lost.
    """
    env = environment(library, driver)
    with running("-c", TRAINER, str(tmp_path), "25", env=env) as job:
        driver.gpus({**WHOLE, "proc.0": f"{job.pid} 4096 50"}, {**WHOLE, "util": 17})
        with running("-m", "rlship", "sysmon", str(tmp_path), "--interval", "0.25", env=env) as agent:
            assert job.wait(60) == 0
            agent.send_signal(signal.SIGTERM)
            _, told = agent.communicate(timeout=20)
            assert agent.returncode == 0
    assert told == f"rlship: logging this node, {HOST}, into {tmp_path}\n"
    (file,) = (tmp_path / "rlship").glob("node-*.jsonl")
    assert json.loads(file.read_text().splitlines()[-1])["kind"] == "close"
    made = rows(tmp_path, clock_window_s=2)
    steps = [row for row in made if row["actor"] == "trainer" and row["kind"] == "step"]
    assert len(steps) == 25
    assert not [row for row in steps if row["coverage"]["missing"]], "no step waits for an agent"
    aligned = [row for row in made if (row["actor"], row["kind"]) == ("node", "aligned") and row["m"]]
    assert len(aligned) > 10
    figures: dict[str, float] = {}
    for row in aligned:
        figures |= row["m"]
    assert figures["node/gpu_util"] == pytest.approx(0.5)
    assert figures["node/gpu_util/max"] == 0.83
    assert figures["node/gpu/1/util"] == 0.17
    assert figures["node/gpus"] == 2
    assert figures["node/gpu_throttle/hw_thermal"] == 1
    used = [row["m"].get("node/proc/trainer/r0.0/cpu/max", 0.0) for row in aligned]
    assert max(used) > 0.1, "the child computes"
    assert figures["node/proc/trainer/r0.0/host_mem"] > 1e6
    # In a container the driver's pids say nothing here.
    assert figures.get("node/proc/trainer/r0.0/gpu_mem") == (4096 if in_first_pid_namespace() else None)
    by_rank = [row["per_rank"] for row in aligned if "per_rank" in row]  # not of a look that came before the GPUs'
    assert next(one["node/gpu_util"] for one in by_rank if "node/gpu_util" in one) == {f"{HOST}.0": pytest.approx(0.5)}
    over_time = [row for row in made if (row["actor"], row["kind"]) == ("node", "clock")]
    assert over_time
    assert "clock/node/host_mem_frac" in over_time[0]["m"]


def test_once_prints_what_it_logs(library: Path, driver: Driver, tmp_path: Path) -> None:
    """`--once` logs into an experiment in which no process writes any more, prints what it logged as JSON, and
    exits.
    """
    driver.gpus(WHOLE)
    env = environment(library, driver)
    subprocess.run([sys.executable, "-c", TRAINER, str(tmp_path), "1"], env=env, check=True, timeout=60)
    command = [
        sys.executable,
        "-m",
        "rlship",
        "sysmon",
        str(tmp_path),
        "--once",
        "--interval",
        "0.2",
        "--host",
        "rack-7",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["experiment"] == str(tmp_path)
    assert found["m"]["gpu/0/power"] == 512.3
    assert {"cpu", "cpu_limit", "net_recv_per_s", "gpu_util", "fs_free"} <= set(found["m"])
    (file,) = (tmp_path / "rlship").glob("node-*.jsonl")
    assert json.loads(file.read_text().splitlines()[0])["replica"] == "rack-7"


def test_what_it_says_moves_no_cursor(tmp_path: Path) -> None:
    """Control characters in the name of an experiment are spelled out on the terminal."""
    (tmp_path / "job\x1b[2J" / "rlship").mkdir(parents=True)
    done = CliRunner().invoke(rlship, ["sysmon", str(tmp_path), "--once", "--interval", "0.1", "--gpus", "none"])
    assert done.exit_code == 0
    assert "job\\x1b[2J" in done.stderr and "\x1b" not in done.stderr


def test_nothing_to_log_into(tmp_path: Path) -> None:
    """`--once` where there is no experiment fails with a hint; a folder that is not there is named."""
    done = CliRunner().invoke(rlship, ["sysmon", str(tmp_path), "--once", "--interval", "0.1", "--gpus", "none"])
    assert done.exit_code == 1
    assert "no experiment in" in done.stderr
    done = CliRunner().invoke(rlship, ["sysmon", str(tmp_path / "nowhere"), "--once"])
    assert done.exit_code == 1
    assert "there is no folder" in done.stderr


@pytest.mark.parametrize("flags", [["--interval", "0"], ["--gpus", ","], ["--quiet-after", "0"]])
def test_wrong_use(tmp_path: Path, flags: list[str]) -> None:
    """Values that make no sense are refused with exit code 2."""
    assert CliRunner().invoke(rlship, ["sysmon", str(tmp_path), *flags]).exit_code == 2


WORKER = """
import os, sys, time, rlship
{before}
logger = rlship.init(sys.argv[1], actor="trainer", rank=3, world=8, labels={{"x": 1}}{asked})
rlship.set_step(7)
for _ in range(int(sys.argv[2])):
    time.sleep(0.1)
rlship.log({{"loss": 1.0}})
rlship.barrier()
rlship.close()
{after}
assert logger.errors == 0
"""


def work(
    folder: Path, env: Mapping[str, str], *, asked: str = "", before: str = "", after: str = "", tenths: int = 8
) -> tuple[list[dict[str, Any]], str]:
    """What a worker wrote, and its stderr."""
    code = WORKER.format(asked=asked, before=before, after=after)
    command = [sys.executable, "-c", code, str(folder), str(tenths)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = [
        json.loads(line) for file in (folder / "rlship").glob("trainer-*") for line in file.read_text().split("\n")[:-1]
    ]
    return found, done.stderr


def metrics(records: list[dict[str, Any]]) -> dict[str, Any]:
    """All metrics of records without a step."""
    found: dict[str, Any] = {}
    for record in records:
        if "kind" not in record and "step" not in record:
            found |= record["m"]
    return found


def test_a_worker_that_asks_for_system_metrics(library: Path, driver: Driver, tmp_path: Path) -> None:
    """Its file has what its machine, its visible GPUs and its own processes use, without steps beside its own steps."""
    driver.gpus(WHOLE, {**WHOLE, "util": 17})
    env = environment(library, driver, CUDA_VISIBLE_DEVICES="1")
    records, told = work(tmp_path, env, asked=", system_metrics=0.1")
    found = metrics(records)
    assert found["node/gpu_util"] == 0.17
    assert found["node/gpus"] == 1
    assert found["perf/sm_active"] == 0.7125
    assert found["proc/host_mem"] > 1e6
    assert {"proc/cpu", "node/cpu", "node/host_mem_limit", "node/fs_free"} <= set(found)
    assert [record["m"] for record in records if record.get("step") == 7 and "m" in record] == [{"loss": 1.0}]
    assert [record["attrs"]["1"] for record in records if record.get("name") == "gpus"] == ["NVIDIA Test GPU-1000-aa"]
    assert [record.get("kind") for record in records][-1] == "close"
    assert "rlship: trainer: " not in told
    made = rows(tmp_path, clock_window_s=600)
    (row, *_) = [row for row in made if (row["actor"], row["kind"]) == ("trainer", "clock")]
    assert row["m"]["clock/trainer/node/gpu_util"] == pytest.approx(0.17)
    assert row["per_rank"]["clock/trainer/proc/host_mem"].keys() == {"0.3"}


def test_a_worker_looks_at_the_gpus_that_it_uses(library: Path, driver: Driver, tmp_path: Path) -> None:
    """Of several visible GPUs, as a launcher leaves them, only those that the process has memory on count."""
    driver.gpus(WHOLE, {**WHOLE, "util": 17})
    before = f"""
from pathlib import Path
import rlship.system.attribution as attribution
attribution.in_first_pid_namespace = lambda root: True
file = Path({str(driver.file)!r})
file.write_text(file.read_text() + f"1.proc.0 {{os.getpid()}} 2048 -1\\n")
"""
    records, _ = work(tmp_path, environment(library, driver), asked=", system_metrics=0.1", before=before)
    found = metrics(records)
    assert found["node/gpu_util"] == 0.17
    assert found["proc/gpu_mem"] == 2048


def test_the_environment_asks_too(library: Path, driver: Driver, tmp_path: Path) -> None:
    """RLSHIP_SYSTEM_METRICS turns it on where the code says nothing, and the code's word counts more."""
    env = environment(library, driver, RLSHIP_SYSTEM_METRICS="0.1")
    on, _ = work(tmp_path / "on", env)
    off, _ = work(tmp_path / "off", env, asked=", system_metrics=False")
    assert "proc/host_mem" in metrics(on)
    assert metrics(off) == {}


def test_off_unless_asked_for(library: Path, driver: Driver, tmp_path: Path) -> None:
    """A worker that does not ask imports neither package, nor the sampling."""
    after = "assert not {'psutil', 'pynvml', 'rlship.system'} & sys.modules.keys()"
    records, told = work(tmp_path, environment(library, driver), after=after, tenths=1)
    assert metrics(records) == {}
    assert "system" not in told


def test_a_worker_without_the_packages(library: Path, driver: Driver, tmp_path: Path) -> None:
    """One line says what to install, the job goes on, and its processes are looked at all the same."""
    before = "sys.modules['psutil'] = sys.modules['pynvml'] = None"
    records, told = work(tmp_path, environment(library, driver), asked=", system_metrics=0.1", before=before)
    assert told.count("pip install psutil nvidia-ml-py") == 1
    assert {name.split("/")[0] for name in metrics(records)} == {"proc"}


def test_wrong_values_are_told(library: Path, driver: Driver, tmp_path: Path) -> None:
    """A value that is no interval is reported, and nothing is sampled."""
    records, told = work(tmp_path, environment(library, driver), asked=", system_metrics=-2", tenths=1)
    assert "system_metrics=-2 is not True, a number of seconds from 0.1 to 3600, or a dict; no system metrics" in told
    assert metrics(records) == {}


def test_a_driver_that_breaks_does_not_break_the_worker(library: Path, driver: Driver, tmp_path: Path) -> None:
    """With a driver that hangs for ever the worker ends as soon as it would, with all that it logged."""
    driver.gpus(WHOLE)
    driver.put("hang.nvmlDeviceGetMemoryInfo", 1)
    driver.write()
    began = time.monotonic()
    records, _ = work(tmp_path, environment(library, driver), asked=", system_metrics=0.1")
    assert time.monotonic() - began < 20
    assert "proc/host_mem" in metrics(records)
    assert records[-1]["kind"] == "close"


def test_a_forked_child_is_not_sampled_twice(library: Path, driver: Driver, tmp_path: Path) -> None:
    """A forked child logs on without a sampler of its own: what it uses is in its parent's tree."""
    code_fork = """
pid = os.fork()
if pid == 0:
    rlship.log({"child": 1.0})
    time.sleep(0.4)
    rlship.close()
    os._exit(0)
os.waitpid(pid, 0)
"""
    code = WORKER.format(asked=", system_metrics=0.1", before="", after="").replace(
        "rlship.set_step(7)", code_fork + "rlship.set_step(7)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "3"],
        env=environment(library, driver),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    files = [
        [json.loads(line) for line in file.read_text().splitlines()] for file in (tmp_path / "rlship").glob("*.jsonl")
    ]
    assert len(files) == 2
    (child,) = [records for records in files if "parent" in records[0]]
    assert [record["m"] for record in child if "m" in record] == [{"child": 1.0}]


def test_no_fork_happens_inside_a_call(library: Path, driver: Driver, tmp_path: Path) -> None:
    """A fork waits until NVML is not in use, so that a child can use it, but not long for a call that hangs."""
    driver.gpus(WHOLE)
    before = """
import rlship.system.worker as worker
def fork():
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if worker._fork.looking.acquire(timeout=5) else 1)
    took = time.monotonic() - began
    assert os.waitpid(pid, 0)[1] == 0
    return took
"""
    after = """
with worker._fork.looking:
    assert 0.04 < fork() < 5, "held, as by a call that hangs"
assert fork() < 5
assert worker._fork.looking.acquire(timeout=5)
"""
    records, _ = work(tmp_path, environment(library, driver), asked=", system_metrics=0.1", before=before, after=after)
    assert "node/gpu_util" in metrics(records)
