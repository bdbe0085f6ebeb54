"""Workers that log their devices by role, declared by variables: real processes, from the setting to the row."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.facade import jobs
from tests.system import printed
from tests.system.test_sysmon import metrics, rows

JOB = """
import os, sys, time, rlship
logger = rlship.init(sys.argv[1], actor=sys.argv[2], rank=int(sys.argv[3]), world=2{asked})
until, step = {until!r}, 0
deadline = time.monotonic() + 60
while step < 8 or (until not in open(logger.path).read() and time.monotonic() < deadline):
    time.sleep(0.1)
    rlship.log({{"loss": 1.0}}, step=step)
    rlship.barrier(step)
    step += 1
rlship.close()
assert logger.errors == 0
"""


GPU = '"node/gpus"'


def without_nvidia(commands: Path, **more: str) -> dict[str, str]:
    """The environment of a machine whose only device commands are those in `commands`, with no driver of NVIDIA's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RLSHIP_", "CUDA_", "ASCEND_"))}
    return kept | {"PATH": f"{commands}:/usr/bin:/bin"} | more


def work(
    folder: Path, env: Mapping[str, str], actor: str = "trainer", *, rank: int = 0, asked: str = "", until: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """What one worker wrote, and its stderr. It does at least eight steps, and more until its file has `until`, as the
    answer of a command may come late on a busy machine.
    """
    command = [sys.executable, "-c", JOB.format(asked=asked, until=until), str(folder), actor, str(rank)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "rlship").glob(f"{actor}-0-r{rank}-*")
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]], done.stderr


def npu_smi(folder: Path, script: str = "") -> Path:
    """A folder with an `npu-smi` that answers as an Atlas A2, after `script`."""
    printed.command(folder, "npu-smi", f"{script} {printed.prints(printed.ATLAS_A2)}")
    return folder


def test_roles_by_variables(tmp_path: Path) -> None:
    """With one environment for all, only processes of the named actors sample, each below its actor's name; the figures
    stand in rows beside those of the job.
    """
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS_ROLES="generator,trainer")
    env |= {"RLSHIP_SYSTEM_METRICS_GPUS": "1", "RLSHIP_SYSTEM_METRICS": "0.2"}
    job = tmp_path / "job"
    trainer, said = work(job, env, until=GPU)
    work(job, env, rank=1, until=GPU)
    generator, _ = work(job, env, "generator", until=GPU)
    reward, _ = work(job, env, "reward")
    assert metrics(reward) == {}
    for records in (trainer, generator):
        found = metrics(records)
        assert found["perf/sm_active"] == 0
        assert found["node/gpu_mem"] == 8 << 20
        assert (found["node/gpu_power"], found["node/gpu_temp"], found["node/gpus"]) == (75.8, 38, 1)
        assert "proc/host_mem" in found
    assert [record["attrs"] for record in trainer if record.get("name") == "gpus"] == [
        {"1": "910ProB 0000:81:00.0", "reader": "npu-smi"}
    ]
    assert "no NVIDIA driver" not in said, "another reader has found devices"
    made = rows(job, clock_window_s=600)
    clocks: dict[str, dict[str, float]] = {}
    for row in made:
        if row["kind"] == "clock" and row["m"]:
            clocks.setdefault(row["actor"], {}).update(row["m"])
    assert clocks["trainer"]["clock/trainer/node/gpu_power"] == 75.8
    assert clocks["generator"]["clock/generator/perf/sm_active"] == 0
    assert "reward" not in clocks


def test_the_argument_of_init(tmp_path: Path) -> None:
    """A dict says the same in code, and counts more than the variables."""
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS_ROLES="generator")
    asked = ", system_metrics={'interval': 0.2, 'roles': ['trainer'], 'gpus': [0]}"
    records, _ = work(tmp_path / "on", env, asked=asked, until=GPU)
    assert metrics(records)["perf/sm_active"] == 0.87
    assert "node/gpus" not in metrics(work(tmp_path / "off", env)[0])


def test_settings_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    """The job goes on and logs; stderr and the file say what is wrong."""
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS_GPUS="0;1")
    for folder, asked, wrong in (
        ("a", "", "RLSHIP_SYSTEM_METRICS_GPUS='0;1' has '0;1', which is no GPU"),
        ("b", ", system_metrics={'gpu': 0}", "system_metrics has no setting 'gpu': it takes interval, roles and gpus"),
        ("c", ", system_metrics=type('X', (), {'__float__': lambda s: 1 / 0})()", "division by zero"),
    ):
        records, said = work(tmp_path / folder, env, asked=asked)
        assert metrics(records) == {}
        assert wrong in said
        assert "no system metrics are logged" in said
        assert len([record for record in records if record.get("kind") == "barrier"]) == 8
        (event,) = [record for record in records if record.get("name") == "rlship_error"]
        assert wrong in json.dumps(event["attrs"], ensure_ascii=False)


def test_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    """It is named with those that are here; the others are looked at."""
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS_GPUS="1,5")
    records, said = work(tmp_path / "job", env, until=GPU)
    assert metrics(records)["node/gpus"] == 1
    assert "there is no GPU '5'; there are: 0 (0000:C1:00.0), 1 (0000:81:00.0); the others are looked at" in said


def test_the_gpu_of_the_local_rank(tmp_path: Path) -> None:
    """With `local` each rank of a launcher has its own device, and rows count none of them twice."""
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS_GPUS="local", WORLD_SIZE="2")
    code = JOB.format(asked="", until=GPU).replace(", rank=int(sys.argv[3]), world=2", "")
    for rank in range(2):
        more = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-c", code, str(tmp_path / "job"), "trainer"]
        done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
    (row,) = [row for row in rows(tmp_path / "job", clock_window_s=600) if row["kind"] == "clock" and row["m"]]
    assert row["per_rank"]["clock/trainer/node/gpu_power"] == {"0.0": 278.4, "0.1": 75.8}


def test_no_gpus(tmp_path: Path) -> None:
    """`none` looks at the host and at the process only, and runs no command."""
    log = tmp_path / "log"
    env = without_nvidia(npu_smi(tmp_path / "bin", f"echo asked >> {log};"), RLSHIP_SYSTEM_METRICS_GPUS="none")
    records, said = work(tmp_path / "job", env)
    assert "node/cpu_limit" in metrics(records)
    assert "node/gpus" not in metrics(records)
    assert not log.exists()
    assert "system_metrics" not in said
    assert "pip install" not in said


def test_a_command_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    """Steps go on, the rest is logged, and the process ends as it would."""
    env = without_nvidia(npu_smi(tmp_path / "bin", "sleep 300;"), RLSHIP_SYSTEM_METRICS="0.2")
    began = time.monotonic()
    records, _ = work(tmp_path / "job", env, until="proc/host_mem")
    assert time.monotonic() - began < 100
    assert "proc/host_mem" in metrics(records)
    assert "node/gpus" not in metrics(records)
    assert records[-1]["kind"] == "close"


def test_a_spawned_child_is_not_counted_twice(tmp_path: Path) -> None:
    """A child process that logs for its parent's rank does not sample because of a variable: the parent's values have
    its use.
    """
    child = "import rlship, sys; rlship.init(sys.argv[1], actor='trainer', rank=0, world=2); rlship.log({'x': 1.0})"
    code = JOB.format(asked="", until="proc/host_mem").replace(
        "until,", f"import subprocess\nsubprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])\nuntil,"
    )
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS="0.1")
    command = [sys.executable, "-c", code, str(tmp_path / "job"), "trainer", "0"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    files = [
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "job" / "rlship").glob("*.jsonl")
    ]
    of_child, of_parent = sorted(files, key=lambda records: "parent" not in records[0])
    assert metrics(of_child) == {"x": 1.0}
    assert "proc/host_mem" in metrics(of_parent)


def test_amd_on_a_node(tmp_path: Path) -> None:
    """`rlship sysmon` has the same readers: an `amd-smi` on PATH is asked without a setting."""
    (tmp_path / "job" / "rlship").mkdir(parents=True)
    printed.command(tmp_path / "bin", "amd-smi", printed.amd(printed.AMD_6, printed.AMD_PROCESSES))
    command = [sys.executable, "-m", "rlship", "sysmon", str(tmp_path / "job"), "--once", "--interval", "0.2"]
    env = without_nvidia(tmp_path / "bin")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["m"]
    assert "gpu/0/util" in found, done.stderr
    assert (found["gpu/0/util"], found["gpu_power"], found["gpu_mem_frac"]) == (0.42, 550.0, 0.5)


# The reader of the page on devices.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "devices.md"
(PLUGIN,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "class Reader" in block)


def installed(folder: Path, module: str, point: str) -> Path:
    """A folder for PYTHONPATH with an installed package that has this module and this entry point."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "acme.py").write_text(module)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rlship.devices]\n{point}\n")
    return folder


def test_a_reader_of_another_package(tmp_path: Path) -> None:
    """Its devices come before those of the built-in readers, and a figure of its own has a name too."""
    site = installed(tmp_path / "site", PLUGIN, "acme = acme:Reader")
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS="0.2", PYTHONPATH=str(site))
    records, _ = work(tmp_path / "job", env, until=GPU)
    found = metrics(records)
    assert (found["node/gpu_util"], found["node/gpu_mem"], found["node/gpu_gizmos"]) == (0.25, 1024, 3)
    assert "perf/sm_active" not in found


def test_a_broken_reader_of_another_package(tmp_path: Path) -> None:
    """It is named and left out."""
    site = installed(tmp_path / "site", PLUGIN, "acme = acme:Missing")
    env = without_nvidia(npu_smi(tmp_path / "bin"), RLSHIP_SYSTEM_METRICS="0.2", PYTHONPATH=str(site))
    records, said = work(tmp_path / "job", env, until=GPU)
    assert metrics(records)["perf/sm_active"] == [0.87, 0.0]
    assert "the device reader 'acme' (acme:Missing) cannot be loaded, so it is left out: AttributeError" in said


@pytest.mark.long  # a process with the real package
def test_a_job_that_calls_wandb(tmp_path: Path) -> None:
    """A job that logs to W&B and is recorded has them by the variables alone, in the file of its run."""
    env = without_nvidia(npu_smi(tmp_path / "bin"))
    (tmp_path / "job").mkdir()
    job = jobs.run(
        tmp_path / "job",
        """
        import os, time
        from pathlib import Path
        def text():
            return "".join(file.read_text() for file in Path(os.environ["RLSHIP_DIR"], "rlship").glob("*.jsonl"))
        wandb.init()
        wandb.define_metric("eval/step")
        wandb.define_metric("eval/*", step_metric="eval/step")
        wandb.log({"eval/acc": 0.5, "eval/step": 1})
        deadline, step = time.monotonic() + 60, 0
        while step < 8 or ("node/gpus" not in text() and time.monotonic() < deadline):
            wandb.log({"x": step})
            time.sleep(0.1)
            step += 1
        """,
        RLSHIP_SYSTEM_METRICS_ROLES="trainer",
        RLSHIP_SYSTEM_METRICS="0.2",
        PATH=env["PATH"],
    )
    assert [records[0]["actor"] for records in job.files() if "node/gpus" in metrics(records)] == ["trainer"]
    found = metrics(job.file())
    assert found["perf/sm_active"] == [0.87, 0.0]
    assert [record["m"]["x"] for record in job.file() if "step" in record and "m" in record][:8] == [*range(8)]


def test_memory_of_torch_stands_in_the_rows_of_steps(tmp_path: Path) -> None:
    """With system metrics each step's row has what the allocators of all ranks hold: the greatest size, the least
    device, and counts of all ranks.
    """
    torch = """
from tests.tracing import fake_torch
torch = sys.modules["torch"] = fake_torch.make()
rank = int(sys.argv[3])
torch.cuda.allocate(400 * (rank + 1))
torch.cuda.retries = 2 + rank
"""
    env = without_nvidia(tmp_path / "bin", RLSHIP_SYSTEM_METRICS_GPUS="none", PYTHONPATH=str(jobs.ROOT))
    for rank in range(2):
        code = JOB.format(asked="", until="").replace("logger =", f"{torch}\nlogger =")
        command = [sys.executable, "-c", code, str(tmp_path / "job"), "trainer", str(rank)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
    steps = [row["m"] for row in rows(tmp_path / "job") if (row["actor"], row["kind"]) == ("trainer", "step")]
    assert len(steps) == 8
    for found in steps:
        own = {name.removeprefix("trainer/"): value for name, value in found.items() if "/mem/" in f"/{name}"}
        assert {name: own[name] for name in ("mem/allocated", "mem/reserved", "mem/capacity", "mem/frag_ratio")} == {
            "mem/allocated": 800,
            "mem/reserved": 800,
            "mem/capacity": 1000,
            "mem/frag_ratio": 0.0,
        }
        assert (own["mem/alloc_retries"], own["mem/alloc_retries/max"], own["mem/ooms"]) == (5, 3, 0)
