"""The overlays as kubectl renders them, and the listed patches with which podman can play them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import rendered
from tests.guards.tree import ROOT

Object = dict[str, Any]


def overlay(name: str, folder: Path, image: str, settings: Mapping[str, str]) -> list[Object]:
    """The objects of an overlay, from a copy of k8s/ in which a person wrote the image and these settings."""
    top = folder / "k8s"
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(ROOT / "k8s", top)
    file = top / "components" / "image" / "kustomization.yaml"
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    place, _, tag = image.rpartition(":")
    told["images"][0] |= {"newName": place, "newTag": tag}
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    file = top / "base" / "kustomization.yaml"
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    literals = dict(line.split("=", 1) for line in told["configMapGenerator"][0]["literals"]) | dict(settings)
    told["configMapGenerator"][0]["literals"] = [f"{name}={value}" for name, value in literals.items()]
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    return rendered(top / "overlays" / name)


def of_kind(objects: list[Object], kind: str) -> Object:
    """The only object of a kind."""
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def containers(objects: list[Object]) -> Iterator[Object]:
    """All containers of all pods, first those that begin first."""
    for pod in pods(objects):
        yield from (*pod.get("initContainers", ()), *pod.get("containers", ()))


def pods(objects: list[Object]) -> Iterator[Object]:
    """The specs of all pods."""
    for one in objects:
        if "template" in one.get("spec", {}):
            yield one["spec"]["template"]["spec"]


def images(objects: list[Object]) -> dict[str, str]:
    """The image of each container, by its name."""
    return {container["name"]: container["image"] for container in containers(objects)}


def probes(objects: list[Object]) -> dict[str, tuple[int, str]]:
    """The port and the path that the kubelet asks, by the name of the probe."""
    found = {}
    for container in containers(objects):
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for name in [key for key in container if key.endswith("Probe")]:
            asked = container[name]["httpGet"]
            found[name] = (ports[asked["port"]], asked["path"])
    return found


def _say_optional(objects: list[Object]) -> int:
    changed = 0
    for pod in pods(objects):
        for volume in pod.get("volumes", ()):
            if "secret" in volume and "optional" not in volume["secret"]:
                volume["secret"]["optional"] = False
                changed += 1
    return changed


def _say_needed(objects: list[Object]) -> int:
    changed = 0
    for pod in pods(objects):
        for volume in pod.get("volumes", ()):
            if volume.get("secret", {}).get("optional"):
                volume["secret"]["optional"] = False
                changed += 1
    return changed


def _begin_first(objects: list[Object]) -> int:
    changed = 0
    for pod in pods(objects):
        for container in reversed(pod.pop("initContainers", ())):
            container.pop("restartPolicy", None)
            pod["containers"].insert(0, container)
            changed += 1
    return changed


def _claim_outputs(objects: list[Object]) -> int:
    changed = 0
    for pod in pods(objects):
        for volume in pod.get("volumes", ()):
            if volume["name"] == "outputs" and "emptyDir" in volume:
                del volume["emptyDir"]
                volume["persistentVolumeClaim"] = {"claimName": JOBS_CLAIM}
                objects.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": JOBS_CLAIM}})
                changed += 1
    return changed


def _pod_of_job(objects: list[Object]) -> int:
    changed = 0
    for one in objects:
        if one["kind"] == "Job":
            pod = one["spec"]["template"]
            name = {"name": one["metadata"]["name"]}
            one |= {"apiVersion": "v1", "kind": "Pod", "metadata": name | pod["metadata"], "spec": pod["spec"]}
            changed += 1
    return changed


def _drop_probes(objects: list[Object]) -> int:
    changed = 0
    for container in containers(objects):
        for name in [key for key in container if key.endswith("Probe")]:
            del container[name]
            changed += 1
    return changed


def _drop_ports(objects: list[Object]) -> int:
    return sum(container.pop("ports", None) is not None for container in containers(objects))


def _drop_accounts(objects: list[Object]) -> int:
    before = len(objects)
    objects[:] = [one for one in objects if one["kind"] != "ServiceAccount"]
    return before - len(objects)


def _own_claims(objects: list[Object]) -> int:
    changed = 0
    for one in objects:
        if one["kind"] == "PersistentVolumeClaim":
            owner = {"volume.podman.io/uid": "65532", "volume.podman.io/gid": "65532"}
            one["metadata"].setdefault("annotations", {}).update(owner)
            changed += 1
    return changed


JOBS_CLAIM = "jobs-outputs"
# What podman 4.3 cannot play, with how it is checked otherwise.
PATCHES: tuple[tuple[str, str, Callable[[list[Object]], int]], ...] = (
    (
        "the native sidecar becomes the first of the pod's containers: podman lets an init container end first",
        "the rendered manifest has a native sidecar; what ends first is stopped first here",
        _begin_first,
    ),
    (
        "a secret that is optional is said to be needed: podman mounts none that is optional",
        "the rendered manifest has an optional secret, and the image is started without the file of its key",
        _say_needed,
    ),
    (
        "the job's emptyDir becomes a claim: podman does not heed fsGroup",
        "nothing: a cluster's fsGroup was not at hand",
        _claim_outputs,
    ),
    (
        "optional: false, which is the default, is said of the secret: without a word podman 4.3 panics",
        "the rendered manifest has a secret that is not optional",
        _say_optional,
    ),
    (
        "HTTP probes are removed: podman asks them by curl, which the image lacks, and at port 0",
        "each URL is asked from inside the pod; a hung loop is ended as the kubelet does it",
        _drop_probes,
    ),
    (
        "the list of ports is removed: the pod is played without a network, where podman opens none",
        "the probes' URLs have the port of the rendered list",
        _drop_ports,
    ),
    (
        "the Job becomes its pod: podman knows no Job",
        "the rendered manifest has it",
        _pod_of_job,
    ),
    ("the ServiceAccount is left out: podman has none", "the rendered manifest has it", _drop_accounts),
    (
        "the claim gets annotations with its owner: podman does not heed fsGroup",
        "nothing: a cluster's fsGroup was not at hand",
        _own_claims,
    ),
)


def playable(objects: list[Object]) -> tuple[str, list[tuple[str, str]]]:
    """The YAML that podman plays, and what was changed, with how it is checked otherwise."""
    changed = [(what, instead) for what, instead, patch in PATCHES if patch(objects)]
    return yaml.safe_dump_all(objects), changed
