"""The image: built without a network, and one container of it under a job, stopped, killed and started again."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.containers import base
from tests.containers.engine import Engine
from tests.containers.watched import Watched
from tests.guards.tree import ROOT
from tests.kit.findings import Findings
from tests.kit.waiting import wait_until

BASE = "localhost/base:1"
IMAGE = "localhost/rlship:0.1.0"
USER = 65532
JOB = Path(__file__).with_name("job.py")
HARDENED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
DOCUMENTED_IMAGE = "registry.example.com/rlship:0.1.0"
STOP_S = 90
REQUIREMENTS = (ROOT / "sidecar" / "requirements.txt", ROOT / "sidecar" / "build-requirements.txt")
NO_INDEX = "[global]\nno-index = true\nfind-links = /wheels\n"
# Rows are compared with a reference that knows no verdicts of alerts.
NO_ALERTS = "RLSHIP_ALERTS=false"


def python_of(engine: Engine, image: str) -> str:
    """The Python in an image, such as 3.11."""
    command = ("-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    return engine("run", "--rm", "--network=none", image, "python3", *command)


def build(engine: Engine, folder: Path, found: Findings) -> None:
    """Make the base of Debian's packages, and the image on it, by a build that has no network."""
    found.part("The image")
    began = time.monotonic()
    tarball = base.built(folder / "python.tar", base.PYTHON)
    engine("import", tarball, BASE)
    version = python_of(engine, BASE)
    took = f"Python {version}, {megabytes(engine, BASE)} MB, {time.monotonic() - began:.0f} s"
    found.said("a base of Debian's packages, in place of python:3.12-slim", took)
    wheels = base.wheels(folder / f"wheels-{version}", version, REQUIREMENTS)
    pip = folder / "pip.conf"
    pip.write_text(NO_INDEX)
    began = time.monotonic()
    options = ["--network=none", "--format=docker", f"--secret=id=pip,src={pip}", f"--volume={wheels}:/wheels:ro"]
    file = ROOT / "sidecar" / "Dockerfile"
    engine("build", *options, "--build-arg", f"PYTHON={BASE}", "-f", file, "-t", IMAGE, ROOT)
    took = f"{megabytes(engine, IMAGE)} MB with the base, {time.monotonic() - began:.0f} s"
    found.said("podman builds the Dockerfile without a network, with pip's secret", took)
    told = engine.inspect(IMAGE, "image")
    found.held(told.get("Healthcheck", {}).get("Test"), "with --format docker it keeps its HEALTHCHECK")
    found.held(told["User"] == f"{USER}:{USER}", "its user", told["User"])
    inside = engine("run", "--rm", *HARDENED, "--entrypoint=python", IMAGE, "-c", LEFT_OVER)
    found.held(inside == "[]", "neither pip, nor its secret, nor the wheels are in it", inside)


LEFT_OVER = """
import importlib.util, os
left = [path for path in ("/etc/pip.conf", "/wheels", "/src") if os.path.exists(path)]
print(left + [name for name in ("pip",) if importlib.util.find_spec(name)])
"""


def megabytes(engine: Engine, image: str) -> int:
    """The size of an image."""
    return int(engine.inspect(image, "image")["Size"] / 1e6)


def outputs(folder: Path) -> Path:
    """An empty folder of experiments that the image's user owns."""
    made = folder / "outputs"
    made.mkdir()
    os.chown(made, USER, USER)
    return made


def start_job(engine: Engine, mounted: str, experiment: str, ranks: int, steps: int, pause_s: float) -> str:
    """Start a job in a container of the image, for its Python and rlship; returns the container's name."""
    words = ["--read-only", "--cap-drop=all", "--network=none", "--entrypoint=python", "-v", f"{JOB}:/job.py:ro"]
    name = f"job-{experiment}"
    told = (f"/outputs/{experiment}", ranks, steps, pause_s)
    engine("run", "-d", "--name", name, *words, "-v", f"{mounted}:/outputs", IMAGE, "/job.py", *told)
    return name


def under_a_job(engine: Engine, folder: Path, found: Findings, *, ranks: int = 4, steps: int = 500) -> None:
    """A container beside a job: stopped, killed and started, it has every row in the end."""
    found.part("A container under a job")
    place = outputs(folder)
    run_sidecar(engine, "sidecar", place, ["RLSHIP_SINKS=jsonl,tensorboard,wandb", NO_ALERTS])
    watched = Watched(place / "grpo", lambda: engine.logs("sidecar")[-3000:])
    job = start_job(engine, str(place), "grpo", ranks, steps, 0.1)
    watched.until_rows(20)
    check_confined(engine, "sidecar", found)
    found.held(engine.tried("healthcheck", "run", "sidecar").returncode == 0, "its HEALTHCHECK passes")
    began = time.monotonic()
    engine("stop", "-t", STOP_S, "sidecar")
    code = engine.inspect("sidecar")["State"]["ExitCode"]
    found.held(code == 0, "podman stop under the job: exit code 0", f"{time.monotonic() - began:.1f} s")
    took = watched.after(lambda: engine("start", "sidecar"))
    found.said("started again: further rows came", f"{took:.1f} s")
    engine("kill", "-s", "KILL", "sidecar")
    engine("wait", "sidecar")
    took = watched.after(lambda: engine("start", "sidecar"))
    found.said("killed and started again: further rows came", f"{took:.1f} s")
    running = engine.inspect(job)["State"]["Running"]
    found.held(running, "all of that while the job ran", f"{watched.count()} of {steps} rows")
    ended = int(engine("wait", job))
    found.held(ended == 0, "the job ended with 0")
    watched.until_finished()
    engine("stop", "-t", STOP_S, "sidecar")
    rows = watched.check(steps)
    found.said("rows to the last one, as the reference makes them of the files", f"{rows} rows of {steps} steps")
    status = watched.status()
    assert status is not None
    behind = {sink.name: status.rows - sink.next_row for sink in status.sinks}
    found.held(set(behind.values()) == {0}, "jsonl, TensorBoard and W&B (offline) have all of them", ", ".join(behind))
    engine("rm", "-f", "sidecar", job)


def run_sidecar(engine: Engine, name: str, place: Path, settings: Sequence[str], words: Sequence[str] = ()) -> None:
    """Start the image by the command of docs/kubernetes.md, without a network. An empty key counts as no key."""
    key = place.parent / "key"
    key.touch()
    here = {"sidecar": name, "/data/outputs": place, "/etc/rlship/key": key, DOCUMENTED_IMAGE: IMAGE}
    *told, image = shlex.split(documented())
    for documents, ours in here.items():
        told = [re.sub(rf"^{documents}(?=$|:)", str(ours), word) for word in told]
    given = [word for setting in settings for word in ("-e", setting)]
    assert image == DOCUMENTED_IMAGE and str(key) in " ".join(told) and name in told, told
    engine("run", *told, "--network=none", *given, IMAGE, *words)


def documented() -> str:
    """What the page has after `podman run`."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^podman run ((?:.*\\\n)*.*)$", page, re.MULTILINE)
    return str(found).replace("\\\n", " ")


def check_confined(engine: Engine, name: str, found: Findings) -> None:
    """The kernel says of every process of the container that it may do little."""
    told = json.loads(engine("exec", name, "python", "-c", CONFINED))
    found.held(told["uids"] == [USER], "every process runs as", told["uids"])
    found.held(told["capabilities"] == [0], "without capabilities, not even in the bounding set")
    found.held(told["no_new_privileges"] == [1], "without a way to new privileges")
    found.held("Read-only" in told["root"], "the root filesystem is read-only", told["root"])


CONFINED = """
import glob, json
lines = {}
for path in glob.glob("/proc/[0-9]*/status"):
    told = open(path).read().splitlines()
    if told[0].endswith("catatonit"):  # podman's own, seen where the pod's containers share a process namespace
        continue
    for line in told:
        name, _, value = line.partition(":")
        lines.setdefault(name, set()).add(value.strip())
try:
    open("/opt/rlship/planted", "w")
    root = "writable"
except OSError as problem:
    root = problem.strerror
print(json.dumps({
    "uids": sorted({int(one) for value in lines["Uid"] for one in value.split()}),
    "capabilities": sorted({int(value, 16) for key in ("CapPrm", "CapBnd", "CapAmb") for value in lines[key]}),
    "no_new_privileges": sorted(int(value) for value in lines["NoNewPrivs"]),
    "root": root,
}))
"""


def without_settings(engine: Engine, folder: Path, found: Findings) -> None:
    """The image without any setting, as where the optional config map is missing, and with a wrong one."""
    found.part("Without its config map, and with a wrong setting")
    place = outputs(folder)
    run_sidecar(engine, "bare", place, [])
    asked = ask(engine, "bare", 9464, "/readyz", until=200)
    found.held(asked == (200, "ok"), "without the map it starts and is ready", asked[0])
    engine("stop", "-t", STOP_S, "bare")
    run_sidecar(engine, "wrong", place, ["RLSHIP_SINKS=nonsense"])
    status, said = ask(engine, "wrong", 9464, "/readyz", until=503)
    found.held(status == 503 and "nonsense" in said, "with a wrong setting /readyz says 503, and why", first(said))
    found.held(ask(engine, "wrong", 9464, "/healthz")[0] == 200, "and /healthz 200: the container goes on")
    found.held(engine.inspect("wrong")["State"]["Running"], "it runs, and is not started again by others")
    began = time.monotonic()
    engine("stop", "-t", STOP_S, "wrong")
    code = engine.inspect("wrong")["State"]["ExitCode"]
    found.held(code == 2, "stopped it ends with exit code 2", f"{time.monotonic() - began:.1f} s")
    later = ["watch", "--no-table", "/outputs/later"]
    run_sidecar(engine, "early", place, ["RLSHIP_SINKS=jsonl"], words=later)
    status, said = ask(engine, "early", 9464, "/readyz", until=503)
    found.held("/outputs/later" in said, "where the folder is not there yet, /readyz says 503, and which", first(said))
    (place / "later").mkdir()
    found.held(ask(engine, "early", 9464, "/readyz", until=200)[0] == 200, "once it is there, it is ready by itself")
    job = start_job(engine, str(place), "mine", 1, 3, 0.0)
    engine("wait", job)
    run_sidecar(engine, "keyless", place, ["RLSHIP_SINKS=wandb", "WANDB_API_KEY_FILE=/run/secrets/absent"])
    status, said = ask(engine, "keyless", 9464, "/readyz", until=503)
    found.held("/run/secrets/absent" in said, "without the file of its key, /readyz says 503, and which")
    engine("stop", "-t", STOP_S, "keyless")
    subprocess.run([sys.executable, "-c", OF_ROOT, place / "of-root"], check=True, capture_output=True)
    run_sidecar(engine, "other", place, ["RLSHIP_SINKS=jsonl"])
    status, said = ask(engine, "other", 9464, "/readyz", until=503)
    named = "/outputs/of-root/rlship/state" in said and "Permission denied" in said
    found.held(named, "an experiment of another user: /readyz says 503, and which", first(said))
    engine("rm", "-f", "bare", "wrong", "early", "keyless", "other", job)


OF_ROOT = "import sys, rlship; rlship.init(sys.argv[1], actor='trainer').close()"


def ask(engine: Engine, name: str, port: int, path: str, *, until: int = 0) -> tuple[int, str]:
    """What a URL answers from inside a container: the status and the text; (0, problem) for no answer in five seconds.
    With `until`, wait for that status.
    """
    answers: list[tuple[int, str]] = [(0, "")]

    def asked() -> bool:
        done = engine.tried("exec", name, "python", "-c", ASKING, f"http://127.0.0.1:{port}{path}")
        answers[0] = (0, done.stderr) if done.returncode else tuple(json.loads(done.stdout))
        return until in (0, answers[0][0])

    wait_until(asked, lambda: f"{path} answers {until}: {answers[0]}; {engine.logs(name)[-2000:]}")
    return answers[0]


ASKING = """
import json, sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as problem:
    answer = problem
except OSError as problem:
    print(json.dumps([0, str(problem)]))
    sys.exit()
print(json.dumps([answer.status, answer.read().decode().strip()]))
"""


def first(said: str) -> str:
    """The line of a message that says most: the first one, without who says it."""
    return re.sub(r"^rlship: ", "", said.splitlines()[0])[:120]
