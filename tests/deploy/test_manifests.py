"""The manifests, by Kubernetes' own schemas, and what pods and containers of ours have to have."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import rendered, validate
from tests.guards.tree import ROOT

pytestmark = pytest.mark.toolchain

K8S = ROOT / "k8s"
OVERLAYS = ("sidecar", "singleton", "sysmon")
CLOSING_S = 15  # beyond the drain: a sink's last call, and the files
# One word in every file, and what a reader might write for it.
TYPOS = {
    "base/kustomization.yaml": ("resources:", "resorces:"),
    "base/serviceaccount.yaml": ("automountServiceAccountToken", "automountServiceAcountToken"),
    "components/image/kustomization.yaml": ("kind: Component", "kind: Componant"),
    "components/sidecar/kustomization.yaml": ("labelSelector", "labelSelektor"),
    "components/sidecar/sidecar.yaml": ("livenessProbe", "livenesProbe"),
    "overlays/sidecar/kustomization.yaml": ("components:", "componants:"),
    "overlays/sidecar/job.yaml": ("backoffLimit", "backofLimit"),
    "overlays/singleton/kustomization.yaml": ("- deployment.yaml", "- deploiment.yaml"),
    "overlays/singleton/volume.yaml": ("accessModes", "acessModes"),
    "overlays/singleton/deployment.yaml": ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
    "overlays/sysmon/kustomization.yaml": ("resources:", "resource:"),
    "overlays/sysmon/daemonset.yaml": ("hostPID", "hostPid"),
}


def objects(overlay: str, top: Path = K8S) -> list[dict[str, Any]]:
    return rendered(top / "overlays" / overlay)


def pods(overlay: str) -> Iterator[dict[str, Any]]:
    """The specs of all pods."""
    for found in objects(overlay):
        if "template" in found.get("spec", {}):
            yield found["spec"]["template"]["spec"]


def containers(overlay: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(pod, container) of all containers."""
    for pod in pods(overlay):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield pod, container


def settings(overlay: str) -> dict[str, str]:
    (found,) = [found for found in objects(overlay) if found["kind"] == "ConfigMap"]
    return dict(found["data"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_right(overlay: str) -> None:
    """Everything that it makes is as the schemas say, with no unknown field, from the first Kubernetes with native
    sidecars on to the newest.
    """
    found = objects(overlay)
    assert len(found) >= 3
    for one in found:
        validate(one)


def test_every_file_has_a_typo_to_find() -> None:
    """No file is left out below."""
    assert sorted(TYPOS) == sorted(str(file.relative_to(K8S)) for file in K8S.rglob("*.yaml"))


@pytest.mark.parametrize("file", TYPOS)
def test_a_typo_is_found(file: str, tmp_path: Path) -> None:
    """With it, making the objects or checking them fails."""
    top = tmp_path / "k8s"
    shutil.copytree(K8S, top)
    right, wrong = TYPOS[file]
    text = (top / file).read_text(encoding="utf-8")
    assert right in text
    (top / file).write_text(text.replace(right, wrong), encoding="utf-8")
    folder, name, *_ = file.split("/")
    overlays = [name] if folder == "overlays" or name == "sidecar" else OVERLAYS
    for overlay in overlays:
        with pytest.raises(ValueError):
            for found in objects(overlay, top):
                validate(found)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_of_ours_has_the_one_image(overlay: str, tmp_path: Path) -> None:
    """Its name and tag stand in one file, and reach the containers that an overlay or a patch adds. So does the label
    of all objects.
    """
    top = tmp_path / "k8s"
    shutil.copytree(K8S, top)
    file = top / "components/image/kustomization.yaml"
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    written["images"][0] |= {"newName": "r.example.org/ours", "newTag": "9.9.9"}
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    found = objects(overlay, top)
    specs = [one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})]
    images = [c["image"] for spec in specs for c in (*spec.get("initContainers", ()), *spec["containers"])]
    job = ["registry.example.com/trainer:1.0.0"] if overlay == "sidecar" else []
    assert images == ["r.example.org/ours:9.9.9", *job]
    assert {one["metadata"]["labels"]["app.kubernetes.io/part-of"] for one in found} == {"rlship"}


@pytest.mark.parametrize("overlay", ["sidecar", "singleton"])
def test_a_sidecar_starts_without_its_settings(overlay: str) -> None:
    """Its config map is optional, and what the probes need stands in the container itself. A loop that hangs is ended
    within seconds, not after the pod's grace period.
    """
    for _, container in containers(overlay):
        if container["name"] == "rlship":
            assert [source["configMapRef"]["optional"] for source in container["envFrom"]] == [True]
            variables = {one["name"]: one["value"] for one in container["env"]}
            assert variables["RLSHIP_METRICS_ADDRESS"] == "0.0.0.0"
            assert [port["containerPort"] for port in container["ports"]] == [int(variables["RLSHIP_METRICS_PORT"])]
            assert container["livenessProbe"]["terminationGracePeriodSeconds"] <= 10


def test_the_example_ends_where_it_is_asked_to() -> None:
    """Python as process 1 ignores SIGTERM, and would use up the time in which the sidecar drains. In a shared PID
    namespace it is another process.
    """
    (pod,) = pods("sidecar")
    assert pod["shareProcessNamespace"] is True


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_may_do_little(overlay: str) -> None:
    """No root, no capabilities, no way to more rights, a root filesystem that is read-only, the runtime's seccomp
    profile, no token of the cluster's API, and limits of memory.
    """
    seen = 0
    for pod, container in containers(overlay):
        seen += 1
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}  # a limit of CPU would only slow it down
    assert seen == {"sidecar": 2, "singleton": 1, "sysmon": 1}[overlay]


@pytest.mark.parametrize("overlay", ["sidecar", "singleton"])
def test_the_end_is_bounded(overlay: str) -> None:
    """The pod is given the time to drain, and to close what is open after that."""
    (pod,) = pods(overlay)
    assert float(settings(overlay)["RLSHIP_DRAIN_S"]) + CLOSING_S <= pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_secrets_are_files(overlay: str) -> None:
    """No secret is a variable or a setting; a container that mounts one cannot write it."""
    for pod, container in containers(overlay):
        assert all("valueFrom" not in variable for variable in container.get("env", ()))
        assert all("secretRef" not in source for source in container.get("envFrom", ()))
        secrets = [volume["name"] for volume in pod["volumes"] if "secret" in volume]
        for mount in container["volumeMounts"]:
            assert mount["name"] not in secrets or mount["readOnly"] is True
    assert not [name for name in settings(overlay) if re.search("KEY|TOKEN|SECRET|PASSWORD", name)]


def test_the_sidecar_is_a_native_one() -> None:
    """It starts before the job's containers, is no reason for them to wait or for the Job to last, and shares the
    volume that they write to; the job's container is as it was.
    """
    (pod,) = pods("sidecar")
    (sidecar,) = pod["initContainers"]
    (job,) = pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    assert "startupProbe" not in sidecar and "livenessProbe" in sidecar
    shared = {(m["name"], m["mountPath"]) for m in sidecar["volumeMounts"]}
    assert ("outputs", "/outputs") in shared & {(m["name"], m["mountPath"]) for m in job["volumeMounts"]}
    assert pod["restartPolicy"] == "Never"
    (written,) = yaml.safe_load_all((K8S / "overlays/sidecar/job.yaml").read_text())
    assert job == written["spec"]["template"]["spec"]["containers"][0]
    (key,) = [volume for volume in pod["volumes"] if "secret" in volume]
    assert key["secret"]["optional"] is True


def test_a_singleton_is_one() -> None:
    """Never two at a time, over a volume that many pods write to."""
    found = {one["kind"]: one for one in objects("singleton")}
    assert found["Deployment"]["spec"]["replicas"] == 1
    assert found["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert found["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    (pod,) = pods("singleton")
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert claims == [found["PersistentVolumeClaim"]["metadata"]["name"]]
