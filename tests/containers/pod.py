"""The overlay `singleton`, rendered and played as a pod, with its config map, secret and claim and a W&B server."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import yaml

from tests.containers import manifests
from tests.containers.engine import Engine
from tests.containers.image import IMAGE, NO_ALERTS, USER, ask, check_confined, start_job
from tests.containers.watched import Watched
from tests.guards.tree import ROOT
from tests.kit.findings import Findings

POD, SIDECAR, SERVER = "rlship-pod-0", "rlship-pod-0-rlship", "wandb-server"
CLAIM, SECRET = "rlship-outputs", "rlship-wandb"
PORT = 8099
RAW = "the secret is written as it is: podman 4.3 does not decode it; checked otherwise: W&B gets its key, below"
KEY = "89abcdef0123456789abcdef0123456789abcdef"
# What a person writes into the config map besides: a server of their own, and a second sink for the comparison.
SETTINGS = {
    "RLSHIP_SINKS": "wandb,jsonl",
    "WANDB_BASE_URL": f"http://127.0.0.1:{PORT}",
    **dict([NO_ALERTS.split("=")]),
}


def singleton(engine: Engine, folder: Path, found: Findings, *, ranks: int = 4, steps: int = 600) -> None:
    """Play the pod under a job; hang, stop and start it; in the end every row is there and at W&B, once."""
    found.part("The singleton as a pod")
    objects = manifests.overlay("singleton", folder, IMAGE, SETTINGS)
    probes = manifests.probes(objects)
    grace_s = pod_spec(objects)["terminationGracePeriodSeconds"]
    optional = [s["configMapRef"]["optional"] for c in manifests.containers(objects) for s in c.get("envFrom", ())]
    found.held(optional == [True], "rendered, the config map is optional")
    images = manifests.images(objects)
    found.held(images == {"rlship": IMAGE}, "rendered, the image is the one that components/image names", IMAGE)
    hung_s = liveness_grace(objects)
    play(engine, folder, objects)
    place = Path(engine("volume", "inspect", CLAIM, "--format", "{{.Mountpoint}}"))
    found.said("podman plays it, with config map, secret and claim")
    for name, (port, path) in sorted(probes.items()):
        status, _ = ask(engine, SIDECAR, port, path, until=200)
        found.said(f"{name}, asked from inside the pod", f":{port}{path} {status}")
    check_confined(engine, SIDECAR, found)
    watched = Watched(place / "grpo", lambda: engine.logs(SIDECAR)[-3000:])
    job = start_job(engine, CLAIM, "grpo", ranks, steps, 0.1)
    found.said("rows came in the pod while W&B could not be reached", f"{watched.until_rows(20):.1f} s")
    status, _ = ask(engine, SIDECAR, *probes["readinessProbe"])
    found.held(status == 200, "it is ready nevertheless")
    hang(engine, probes["livenessProbe"], hung_s, watched, found)
    serve(engine, folder, POD)
    began = time.monotonic()
    engine("stop", "-t", grace_s, SIDECAR)  # not the pod: the server is in it
    code = engine.inspect(SIDECAR)["State"]["ExitCode"]
    took = f"{time.monotonic() - began:.1f} s"
    found.held(code == 0, f"stopped under the job, with the pod's grace of {grace_s} s: exit code {code}", took)
    again_s = watched.after(lambda: engine("start", SIDECAR))
    found.said("started again: further rows came", f"{again_s:.1f} s")
    found.held(engine.inspect(job)["State"]["Running"], "all of that while the job ran", f"{watched.count()} rows")
    found.held(int(engine("wait", job)) == 0, "the job ended with 0")
    watched.until_finished()
    engine("stop", "-t", grace_s, SIDECAR)
    found.said("rows to the last one, as the reference makes them", f"{watched.check(steps)} rows of {steps} steps")
    check_server(engine, folder, watched, found)
    engine("rm", "-f", job)
    engine("pod", "rm", "-f", POD)


def play(engine: Engine, folder: Path, objects: list[manifests.Object]) -> None:
    """Play what an overlay makes, by the patches that are printed, with the secret of W&B's key."""
    text, changed = manifests.playable(objects)
    for what, instead in changed:
        print(f"  patch  {what}; checked otherwise: {instead}", flush=True)
    (folder / "pod.yaml").write_text(text)
    is_raw = engine("version", "--format", "{{.Client.Version}}").startswith("4.3.")
    if is_raw:
        print(f"  patch  {RAW}", flush=True)
    engine.tried("secret", "rm", SECRET)
    engine("secret", "create", SECRET, "-", given=secret(is_raw=is_raw))
    engine("kube", "play", "--network=none", folder / "pod.yaml")


def pod_spec(objects: list[manifests.Object], kind: str = "Deployment") -> manifests.Object:
    """The pod of the only object of a kind."""
    spec: manifests.Object = manifests.of_kind(objects, kind)["spec"]["template"]["spec"]
    return spec


def liveness_grace(objects: list[manifests.Object]) -> int:
    """The time that the kubelet leaves a loop that hangs."""
    (container,) = pod_spec(objects)["containers"]
    return int(container["livenessProbe"]["terminationGracePeriodSeconds"])


def secret(*, is_raw: bool) -> str:
    """What `kubectl create secret generic` makes of a file with the key; `is_raw`: but not encoded."""
    data = {"wandb_api_key": KEY if is_raw else base64.b64encode(KEY.encode()).decode()}
    told = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
    return yaml.safe_dump(told)


def serve(engine: Engine, folder: Path, pod: str) -> None:
    """Start the W&B server in a pod, so that 127.0.0.1 is the same for both. It takes this key alone."""
    result = folder / "server"
    result.mkdir(exist_ok=True)
    result.chmod(0o777)
    mounts = ["-v", f"{ROOT / 'tests'}:/project/tests:ro", "-v", f"{result}:/result"]
    program = ["-m", "tests.containers.wandb_server", PORT, KEY, "/result/found.json"]
    words = ["--pod", pod, "--name", SERVER, "--workdir=/project", "--user", f"{USER}:{USER}", *mounts]
    engine("run", "-d", *words, "--entrypoint=python", IMAGE, *program)


def hang(engine: Engine, probe: tuple[int, str], grace_s: int, watched: Watched, found: Findings) -> None:
    """Stop the loop by SIGSTOP, and do what the kubelet does once the probe has failed three times."""
    engine("exec", SIDECAR, "python", "-c", FREEZE)
    status, said = ask(engine, SIDECAR, *probe)
    found.held(status == 0, "a loop that hangs (SIGSTOP) does not answer the liveness probe", said)
    began = time.monotonic()
    engine("stop", "-t", grace_s, SIDECAR)
    took = time.monotonic() - began
    found.held(took < grace_s + 5, f"ended as the kubelet does it, with {grace_s} s of grace", f"{took:.1f} s")
    took = watched.after(lambda: engine("start", SIDECAR))
    found.said("killed with W&B out of reach, and started again: further rows came", f"{took:.1f} s")


FREEZE = """
import os, signal
for name in os.listdir("/proc"):
    if name.isdecimal() and name != "1":
        words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")
        if b"watch" in words:
            os.kill(int(name), signal.SIGSTOP)
"""


def check_server(engine: Engine, folder: Path, watched: Watched, found: Findings) -> None:
    """W&B has each row once, in order, by the secret's key."""
    engine("stop", "-t", 20, SERVER)
    told = json.loads((folder / "server" / "found.json").read_text())
    (steps,) = told["runs"].values()
    found.held(steps == list(range(watched.count())), "W&B has each row once, in order", f"{len(steps)} rows")
    found.held(told["refused"] == 0, "each request had the secret's key", f"{told['refused']} refused")
