"""The workers of a real Ray cluster, whose environment is not the driver's: each line of the table in docs/run.md."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.rows import STEP
from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import rlship
from tests.hook.jobs import ASK, CLEAN, Place
from tests.kit.tools import module
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

# What a job would print: of a task, of an actor, of an actor that sets PYTHONPATH, and of a child of a worker.
JOB = """
import os, subprocess, sys
{before}
import ray

def ask():
    import os, wandb
    return ("rlship" if hasattr(wandb, "_rlship") else "no") + " " + os.environ.get("RLSHIP_DIR", "")[-3:]

@ray.remote(num_cpus=0)
def task():
    return ask()

@ray.remote(num_cpus=0)
def child():
    code = {ask!r}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()

@ray.remote(num_cpus=0)
class Actor:
    def ask(self):
        return ask()

ray.init(log_to_driver=False, logging_level="error", {options})
assert "RAY_RUNTIME_ENV_HOOK" not in os.environ
own = {{"env_vars": {{"PYTHONPATH": {packages!r}}}}}
print(ray.get(task.remote()))
print(ray.get(Actor.remote().ask.remote()))
print(ray.get(Actor.options(runtime_env=own).remote().ask.remote()))
print(ray.get(child.remote()))
{after}
"""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
ALL = ["rlship run", "rlship run", "rlship run", "rlship"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A job whose Python has Ray and what it needs, and nothing of rlship."""
    packages = Path(module("ray").__path__[0]).parent
    folder = tmp_path_factory.mktemp("ray")
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=CLEAN)
    (own,) = home.glob("lib/python*/site-packages")
    for entry in packages.iterdir():
        if not entry.name.startswith(("rlship", "wandb", "__editable__", "_rlship")) and entry.suffix != ".pth":
            (own / entry.name).symlink_to(entry)
    place = Place(folder, str(home / "bin" / "python"))
    place.write("packages/hooks.py", HOOKS)
    return place


HOOKS = """
import os

def in_worker():
    os.environ["USERS_HOOK"] = "ran"

def of_driver(runtime_env):
    return {**(runtime_env or {}), "worker_process_setup_hook": in_worker}
"""


@pytest.fixture(scope="module")
def address(place: Place) -> Iterator[str]:
    """A cluster that was started before the job, in an environment without the hook and without RLSHIP_DIR."""
    # Paths of sockets must be short, shorter than those of pytest.
    with tempfile.TemporaryDirectory(prefix="rlship-ray-", dir="/tmp") as scratch:
        environ = {**CLEAN, "PYTHONPATH": str(place.packages), **QUIET}
        command = [
            place.python,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            "--port=0",
            "--node-ip-address=127.0.0.1",
            "--num-cpus=2",
        ]
        command += ["--include-dashboard=false", "--object-store-memory=100000000", f"--temp-dir={scratch}"]
        log = place.folder / "cluster.log"
        with log.open("w") as output:
            head = subprocess.Popen(
                command, cwd=place.folder, env=environ, stdout=output, stderr=output, start_new_session=True
            )
        try:
            port = Path(scratch) / "session_latest" / "node_ip_address.json"
            wait_until(lambda: "--address='" in log.read_text() or head.poll() is not None, log.read_text)
            assert port.parent.exists() and head.poll() is None, log.read_text()
            yield log.read_text().partition("--address='")[2].partition("'")[0]
        finally:
            head.send_signal(signal.SIGTERM)
            head.wait(60)


def said(place: Place, options: str, before: str = "", after: str = "", **variables: str) -> list[str]:
    """What the job prints with these arguments of `ray.init`."""
    text = JOB.format(ask=ASK, before=before, options=options, packages=str(place.packages), after=after)
    environ = place.environment(**QUIET, **variables)
    done = subprocess.run(
        [place.python, "-c", text], cwd=place.folder, env=environ, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "rlship" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_cluster_of_the_job(place: Place) -> None:
    """In a cluster that the job starts every worker is reached, those that set PYTHONPATH anew too."""
    with tempfile.TemporaryDirectory(prefix="rlship-ray-", dir="/tmp") as scratch:
        options = f"num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, _temp_dir={scratch!r}"
        assert said(place, options) == ALL


def test_a_cluster_that_was_there_before(place: Place, address: str) -> None:
    """Nothing of the driver's environment is in such a cluster, and every worker is reached."""
    assert said(place, f"address={address!r}") == ALL


def test_a_job_that_sets_pythonpath(place: Place, address: str) -> None:
    """The job's runtime_env sets PYTHONPATH for all workers, and an actor does so again."""
    packages = str(place.packages)
    assert said(place, f"address={address!r}, runtime_env={{'env_vars': {{'PYTHONPATH': {packages!r}}}}}") == ALL


def test_a_runtime_env_object(place: Place, address: str) -> None:
    """A job may give its runtime environment as an object of Ray's class."""
    options = f"address={address!r}, runtime_env=ray.runtime_env.RuntimeEnv(env_vars={{'GIVEN': 'kept'}})"
    after = """
@ray.remote(num_cpus=0)
def given():
    return os.environ["GIVEN"]
print(ray.get(given.remote()))
"""
    assert said(place, options, after=after) == [*ALL, "kept"]


def test_workers_in_another_environment(place: Place, address: str) -> None:
    """Workers whose Python is another one are reached."""
    other = Path(place.python).with_name("python-other")
    other.symlink_to("python")
    options = f"address={address!r}, runtime_env={{'py_executable': {str(other)!r}}}"
    after = """
@ray.remote(num_cpus=0)
def program():
    return os.path.basename(sys.executable)
print(ray.get(program.remote()))
"""
    assert said(place, options, after=after) == [*ALL, "python-other"]


@pytest.mark.parametrize("how", ["hooks.in_worker", "callable"])
def test_the_jobs_own_setup_hook_runs(place: Place, address: str, how: str) -> None:
    """A `worker_process_setup_hook` of the job, given as a name or as a function, runs in each worker as well."""
    hook = repr(how) if how != "callable" else "__import__('hooks').in_worker"
    after = """
@ray.remote(num_cpus=0)
def ran():
    return os.environ["USERS_HOOK"]
print(ray.get(ran.remote()))
"""
    options = f"address={address!r}, runtime_env={{'worker_process_setup_hook': {hook}}}"
    assert said(place, options, after=after) == [*ALL, "ran"]


def test_the_jobs_own_runtime_env_hook_runs(place: Place, address: str) -> None:
    """RAY_RUNTIME_ENV_HOOK of the job's user is called, and is set again afterwards."""
    before = "os.environ['RAY_RUNTIME_ENV_HOOK'] = 'hooks.of_driver'"
    after = """
@ray.remote(num_cpus=0)
def ran():
    return os.environ["USERS_HOOK"]
print(ray.get(ran.remote()))
"""
    text = JOB.format(ask=ASK, before=before, options=f"address={address!r}", packages=str(place.packages), after=after)
    text = text.replace('assert "RAY_RUNTIME_ENV_HOOK" not in os.environ', 'print(os.environ["RAY_RUNTIME_ENV_HOOK"])')
    done = place.run("-c", text, environ=place.environment(**QUIET))
    assert done.stdout.splitlines() == ["hooks.of_driver", *ALL, "ran"], done.stderr


@pytest.mark.parametrize("hook", [{}, {"worker_process_setup_hook": "hooks.in_worker"}])
def test_a_submitted_job(place: Place, address: str, hook: dict[str, str]) -> None:
    """`ray job submit … -- rlship run -- …`: the driver's variables hold the job's runtime_env, with which Ray merges
    that of `ray.init`. It has a PYTHONPATH, and a setup hook of its own that Ray has noted among the variables.
    """
    variables = {"PYTHONPATH": str(place.packages)}
    if hook:
        variables["__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"] = hook["worker_process_setup_hook"]
    submitted = {"runtime_env": {"env_vars": variables, **hook}, "metadata": {}}
    assert said(place, f"address={address!r}", RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(submitted)) == ALL


def test_a_node_without_rlship_runs_the_job(place: Place, address: str) -> None:
    """Where the hook's folder is not on a worker's node, its wandb is the real one, and the job goes on."""
    gone = "import rlship.hook.ray as own; own._FOLDER = '/nowhere/rlship/hook'"
    text = JOB.format(ask=ASK, before=gone, options=f"address={address!r}", packages=str(place.packages), after="")
    done = place.run("-c", text, environ=place.environment(**QUIET))
    assert done.stdout.splitlines() == ["no run", "no run", "no run", "no"], done.stderr


def test_a_driver_without_the_hook_starts_ray(place: Place, address: str) -> None:
    """A driver whose PYTHONPATH was replaced, below `rlship run`, starts Ray as ever."""
    environ = place.environment(**QUIET, PYTHONPATH=str(place.packages))
    text = JOB.format(ask=ASK, before="", options=f"address={address!r}", packages=str(place.packages), after="")
    done = place.run("-c", text, environ=environ)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "no "), done.stderr
    assert os.environ.get("RAY_RUNTIME_ENV_HOOK") is None


# Three actors with the package itself, each in an environment of its own.
WORKERS = """
import ray, sys

@ray.remote(num_cpus=0)
class Worker:
    def work(self, job_type, first):
        import wandb
        wandb.init(project="p", group="g", job_type=job_type)
        for step in range(3):
            wandb.log({{job_type + "/x": first + step}}, step=step)
        wandb.finish()

path = {path!r}
all = {{"env_vars": {{"PYTHONPATH": path}}}}
ray.init(address={address!r}, log_to_driver=False, logging_level="error", runtime_env=all)
own = {{"env_vars": {{"PYTHONPATH": path + ":/nowhere"}}}}
workers = [Worker.options(runtime_env=own).remote() for _ in range(3)]
ray.get([one.work.remote(*what) for one, what in zip(workers, [("train", 0), ("rollout", 10), ("rollout", 20)])])
"""


def test_all_actors_are_in_one_run(place: Place, address: str, tmp_path: Path) -> None:
    """`rlship run` on a cluster from before: actors that set PYTHONPATH anew, in a job that does so too, log by the
    real package into one experiment. Its rows hold the trainer, and the mean of both generators.
    """
    real = tmp_path / "real"
    real.mkdir()
    (real / "wandb").symlink_to(Path(module("wandb").__path__[0]))
    job = tmp_path / "job.py"
    job.write_text(WORKERS.format(path=str(real), address=address))
    environ = {**CLEAN, **QUIET, "PYTHONPATH": str(real), "HOME": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    command = [sys.executable, "-m", "rlship", "run", "--dir", "run", "--", place.python, str(job)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [path.parent.name for path in tmp_path.glob("run*/rlship")] == ["run"]
    rlship(tmp_path / "home", "watch", tmp_path / "run", "--once", "--sink", "jsonl")
    rows = {
        (unit.actor, unit.index): row for unit, row in newest(stored(tmp_path / "run")).items() if unit.kind == STEP
    }
    assert {place: row.values[f"{place[0]}/{WHAT[place[0]]}"] for place, row in rows.items()} == {
        ("trainer", 0): 0.0,
        ("trainer", 1): 1.0,
        ("trainer", 2): 2.0,
        ("generator", 0): 15.0,
        ("generator", 1): 16.0,
        ("generator", 2): 17.0,
    }
    assert {len(row.coverage.ranks) for (actor, _), row in rows.items() if actor == "generator"} == {2}


WHAT = {"trainer": "train/x", "generator": "rollout/x"}
