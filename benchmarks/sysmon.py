"""The cost of an agent to its node: CPU, memory and whether either grows, over minutes at a sample a second."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Finding, Result, median
from benchmarks.rounds import ROOT, SubjectFailed, clean_environment

CORE_PERCENT, LIMIT_MB = 1.0, 60.0
WARM_SHARE = 0.2
GREW = 1.02

METHOD = (
    "`rlship sysmon` on this machine, a sample a second for {minutes:g} minutes, beside {workers} workers that log a "
    "step a second and {processes} processes in all; {gpus}. CPU is user and system time of the agent, as a share of "
    "one core, without its start; memory is resident (VmRSS), looked at every second. It has grown if the last fifth "
    "of the time has a median above that of the second fifth by more than {allowed:.0%}. Beside: a bare interpreter "
    "that has imported psutil and pynvml."
)
_WORKER = """
import sys, time, rlship
rlship.init(sys.argv[1], actor="trainer", rank=int(sys.argv[2]), world=int(sys.argv[3]))
for step in range(10**9):
    rlship.log({"loss": 1.0}, step=step)
    rlship.barrier(step)
    time.sleep(1.0)
"""
_BARE = """
import psutil, pynvml
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


def measure(folder: Path, quick: bool) -> Result:
    """Run an agent in `folder`."""
    seconds, workers = (6.0, 2) if quick else (600.0, 8)
    experiment = folder / "experiment"
    experiment.mkdir()
    env = clean_environment()
    gpus = _gpus(folder, env, workers)
    with _workers(experiment, workers, env) as pids:
        gpus.place(pids)
        command = [sys.executable, "-m", "rlship", "sysmon", str(experiment)]
        agent = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
        try:
            cores, resident = _observed(agent, seconds)
        finally:
            agent.terminate()
            code = agent.wait(30)
    if code:
        raise SubjectFailed(f"rlship sysmon ended with {code}")
    (file,) = (experiment / "rlship").glob("node-*.jsonl")
    lines = file.read_bytes().splitlines()
    samples = sum(line.startswith(b'{"t"') for line in lines)
    if samples < 0.9 * seconds - 3:
        raise SubjectFailed(f"{samples} samples in {seconds:.0f} s")
    fifth = max(1, len(resident) // 5)
    grown = median(resident[-fifth:]) / median(resident[fifth : 2 * fifth])
    bare = int(subprocess.run([sys.executable, "-c", _BARE], capture_output=True, check=True).stdout) * 1024 / 1e6
    percent, most = 100 * cores, max(resident)
    findings = [
        Finding("CPU", percent, "% of a core", aim=f"< {CORE_PERCENT:g} %", reached=percent < CORE_PERCENT),
        Finding("memory, most", most, "MB", "imports alone", bare, most / bare, f"< {LIMIT_MB:g} MB", most < LIMIT_MB),
        Finding("memory, last fifth / second fifth", grown, "", aim="no growth", reached=grown <= GREW),
        Finding("written", file.stat().st_size / seconds / 1e3, "kB/s"),
        Finding("samples", float(samples), ""),
    ]  # fmt: skip
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    method = METHOD.format(minutes=seconds / 60, workers=workers, processes=processes, gpus=gpus.what, allowed=GREW - 1)
    return Result("an agent of a node", method, findings)


class _Gpus:
    """The machine's own GPUs, or eight that a test library simulates."""

    def __init__(self, what: str, figures: Path | None) -> None:
        self.what = what
        self._figures = figures

    def place(self, pids: list[int]) -> None:
        """Put each worker on a GPU."""
        if self._figures is None:
            return
        from tests.system.driver import WHOLE, Driver

        driver = Driver(self._figures)
        driver.gpus(*({**WHOLE, "sampled_us": 1, "proc.0": f"{pid} 1000000000 40"} for pid in pids))


def _gpus(folder: Path, env: dict[str, str], count: int) -> _Gpus:
    import pynvml

    try:
        pynvml.nvmlInit()
        return _Gpus(f"{pynvml.nvmlDeviceGetCount()} GPUs", None)
    except pynvml.NVMLError:
        from tests.system.driver import build

        build(folder)
        env["LD_LIBRARY_PATH"], env["FAKE_NVML"] = str(folder), str(folder / "gpus.txt")
        what = f"there is no GPU: a library in place of NVIDIA's answers for {count} through nvidia-ml-py"
        return _Gpus(what, folder / "gpus.txt")


@contextmanager
def _workers(experiment: Path, count: int, env: dict[str, str]) -> Iterator[list[int]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(experiment), str(rank), str(count)], env=env, stderr=subprocess.DEVNULL
        )
        for rank in range(count)
    ]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def _observed(agent: subprocess.Popen[bytes], seconds: float) -> tuple[float, list[float]]:
    """The cores that it used, and its resident memory second by second."""
    warm = max(2.0, min(10.0, seconds * WARM_SHARE))
    time.sleep(warm)
    began, before = time.monotonic(), _cpu_s(agent.pid)
    resident = []
    while time.monotonic() - began < seconds - warm:
        time.sleep(1.0)
        resident.append(_resident_mb(agent.pid))
    return (_cpu_s(agent.pid) - before) / (time.monotonic() - began), resident


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SubjectFailed(f"/proc/{pid}/status has no VmRSS")
