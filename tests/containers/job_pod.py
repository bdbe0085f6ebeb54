"""The overlay `sidecar`, rendered and played as a pod: the trainer of the example, the sidecar beside it, the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rlship_sidecar.rows import Row, Unit
from tests.containers import manifests
from tests.containers.engine import Engine
from tests.containers.image import IMAGE, ask, check_confined
from tests.containers.pod import KEY, SETTINGS, check_server, play, pod_spec, serve
from tests.containers.watched import Watched
from tests.endtoend.evidence import files_of, newest, shipped
from tests.kit.findings import Findings
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import DEFAULTS

POD, SIDECAR, TRAINER = "grpo", "grpo-rlship", "grpo-trainer"
TERMINATED, KILLED = 128 + 15, 128 + 9
SHORT_S = 3
# The program of a person who knows nothing of signals.
TRAIN = """
import time, rlship
rlship.init()
step = 0
while True:
    rlship.log({"loss": 1 / (step + 1)}, step=step)
    rlship.barrier(step)
    rlship.flush()
    step += 1
    time.sleep(0.1)
"""
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\nCOPY train.py .\n"
READ_KEY = "import glob; print([open(one).read() for one in glob.glob('/proc/[0-9]*/root/run/secrets/rlship/*_key')])"


def in_the_jobs_pod(engine: Engine, folder: Path, found: Findings) -> None:
    """Play it; then end it as the kubelet ends a pod: the trainer first, and the sidecar in the time that is left."""
    found.part("The sidecar in a job's pod")
    objects = manifests.overlay("sidecar", folder, IMAGE, SETTINGS)
    spec = pod_spec(objects, "Job")
    (native,) = spec["initContainers"]
    is_native = native["restartPolicy"] == "Always" and "startupProbe" not in native
    found.held(is_native, "rendered, it is a native sidecar, and the job's containers do not wait for it to be ready")
    images, grace_s = manifests.images(objects), spec["terminationGracePeriodSeconds"]
    found.held(images["rlship"] == IMAGE, "rendered, the image is the one that components/image names", IMAGE)
    build_trainer(engine, folder, images["trainer"])
    probes = manifests.probes(objects)
    play(engine, folder, objects)
    place = Path(engine("volume", "inspect", manifests.JOBS_CLAIM, "--format", "{{.Mountpoint}}"))
    found.said("podman plays it beside the example's `python train.py`")
    watched = Watched(place / POD, lambda: engine.logs(SIDECAR)[-3000:])
    found.said("rows came while W&B could not be reached", f"{watched.until_rows(20):.1f} s")
    for name, (port, path) in sorted(probes.items()):
        status, _ = ask(engine, SIDECAR, port, path, until=200)
        found.said(f"{name}, asked from inside the pod", f":{port}{path} {status}")
    check_confined(engine, SIDECAR, found)
    serve(engine, folder, POD)
    said = engine("exec", SIDECAR, "rlship", "status", f"/outputs/{POD}")
    found.held("trainer  1/1" in said, "rlship status in the sidecar's container shows the job")
    key = engine("exec", TRAINER, "python", "-c", READ_KEY)
    found.held(KEY in key, "as the page says, the job can read the sidecar's key in a shared process namespace")

    took, code = stopped(engine, TRAINER, grace_s)
    figure = f"{took:.1f} s of {grace_s} s, exit code {code}"
    found.held(code == TERMINATED and took < grace_s / 4, "the pod's end: SIGTERM ends the trainer at once", figure)
    took, code = stopped(engine, SIDECAR, int(grace_s - took))
    found.held(code == 0, "the sidecar has the rest of the time, and drains in it: exit code 0", f"{took:.1f} s")
    rows, wanted = (of_steps(all_rows) for all_rows in (newest(shipped(place / POD)), reference(place / POD)))
    whole = [unit.index for unit in rows] == list(range(finished(place / POD)))
    found.held(whole and not differing(wanted, rows), "each step that it finished is a row, as the reference makes it")
    check_server(engine, folder, watched, found)
    engine("pod", "rm", "-f", "-t", "0", POD)

    engine("run", "-d", "--name", "alone", "--network=none", "-e", "RLSHIP_DIR=/tmp/x", "-e", "RLSHIP_ACTOR=trainer",
           "--entrypoint=python", images["trainer"], "train.py")  # fmt: skip
    took, code = stopped(engine, "alone", SHORT_S)
    held = code == KILLED and took >= SHORT_S
    found.held(held, "without the shared namespace it ignores SIGTERM, and uses up what time it has", f"{took:.1f} s")
    engine("rm", "-f", "alone")


def build_trainer(engine: Engine, folder: Path, name: str) -> None:
    """The image of the example's job, under the name that the example gives it."""
    context = folder / "trainer"
    context.mkdir()
    (context / "train.py").write_text(TRAIN)
    (context / "Dockerfile").write_text(DOCKERFILE)
    engine("build", "--network=none", "--format=docker", "-t", name, context)


def stopped(engine: Engine, name: str, grace_s: int) -> tuple[float, int]:
    """Stop a container; returns the seconds that took, and its exit code."""
    began = time.monotonic()
    engine("stop", "-t", grace_s, name)
    return time.monotonic() - began, int(engine.inspect(name)["State"]["ExitCode"])


def reference(experiment: Path) -> Mapping[Unit, Row]:
    """The rows that the files have in the end."""
    return final_rows(files_of(experiment), settings=DEFAULTS)


def of_steps(rows: Mapping[Unit, Row]) -> dict[Unit, Row]:
    """Those of the trainer's steps, in order. Of what else is logged, the pod's end leaves the newest open."""
    steps = [row for unit, row in rows.items() if unit.actor == "trainer" and unit.kind == "step"]
    return {row.unit: row for row in sorted(steps, key=lambda row: row.unit.index)}


def finished(experiment: Path) -> int:
    """How many steps the trainer has said to be done with."""
    (file,) = (experiment / "rlship").glob("trainer-*.jsonl")
    return file.read_bytes().count(b'"kind":"barrier"')
