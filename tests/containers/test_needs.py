"""What `make containers` and `make systemd` do before they begin, and the patches, as far as no engine is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.containers import base, manifests, needs
from tests.containers.needs import ENGINE, provide
from tests.guards.tree import ROOT
from tests.kit import debian
from tests.kit.debian import Missing

STAND_IN = """#!/bin/sh
echo "$@" >> {calls}
"""


def test_without_root_it_ends_with_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was done then, and every package is named."""
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    with pytest.raises(Missing) as caught:
        provide("make systemd", ENGINE, tmp_path / "lab")
    said = str(caught.value)
    assert all(package in said for package in ENGINE.values())
    assert "sudo make systemd" in said
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("command", ["containers", "booted"])
def test_where_it_cannot_run_the_exit_code_is_2(command: str, tmp_path: Path) -> None:
    """Without apt-get nothing is begun."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.{command}", "--folder", tmp_path / "lab"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "CARGO_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert "needs Debian or Ubuntu, root" in done.stderr and "mmdebstrap" in done.stderr
    assert not (tmp_path / "lab").exists()


def test_what_is_missing_is_said_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only packages whose program is not there, after an update of the lists; a failure of apt's is passed on."""
    calls = tmp_path / "calls"
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("apt-get", "podman"):
        (tools / name).write_text(STAND_IN.format(calls=calls))
        (tools / name).chmod(0o755)
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian, "PLACES", str(tools))
    monkeypatch.setattr(needs, "FREE_BYTES", 0)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    wanted = {"podman": "podman", "b": "b-package", "a": "a-package"}
    provide("make systemd", wanted, tmp_path / "lab")
    install = "install -qq -y --no-install-recommends a-package b-package"
    assert calls.read_text().splitlines() == ["update -qq", install]
    assert "installing a-package b-package with apt-get" in capsys.readouterr().out
    (tools / "apt-get").write_text("#!/bin/sh\necho 'E: no route' >&2; exit 100\n")
    with pytest.raises(Missing, match="`apt-get update -qq` failed: E: no route"):
        provide("make systemd", wanted, tmp_path / "lab")


def test_mirrors_are_those_of_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite and the lines for the base come from apt's own sources, without those that are not Debian's."""
    told = [
        "Debian|bookworm|bookworm|http://m.example/debian/|main",
        "Debian|bookworm-updates|bookworm-updates|http://m.example/debian/|main",
        "Debian|bookworm-security|bookworm-security|http://m.example/security/|main",
        "Others|nodistro|nodistro|https://others.example/|main",
    ]
    monkeypatch.setattr(base, "_run", lambda _: "\n".join(told))
    suite, lines = base.sources()
    assert suite == "bookworm"
    assert "deb http://m.example/debian/ bookworm main" in lines
    assert "deb http://m.example/security/ bookworm-security main" in lines
    assert len(lines) == 3 and not [line for line in lines if "others" in line]


def test_each_patch_is_told_with_what_it_changes() -> None:
    """A manifest with what podman cannot play is changed, and the list says what; another stays as it is."""
    probe: Mapping[str, object] = {"httpGet": {"path": "/healthz", "port": "metrics"}}
    container = {"name": "c", "livenessProbe": probe, "envFrom": [{"configMapRef": {"name": "m", "optional": True}}]}
    secret = {"name": "wandb", "secret": {"secretName": "s"}}
    container["ports"] = [{"name": "metrics", "containerPort": 9464}]
    native = {"name": "n", "restartPolicy": "Always"}
    optional = {"name": "k", "secret": {"secretName": "k", "optional": True}}
    volumes = [optional, {"name": "outputs", "emptyDir": {}}]
    a_pod = {"containers": [{"name": "j"}], "initContainers": [native], "volumes": volumes}
    objects = [
        {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container], "volumes": [secret]}}}},
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "p"}},
        {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"metadata": {"labels": {}}, "spec": a_pod}}},
        {"kind": "ServiceAccount", "metadata": {"name": "s"}},
    ]
    assert manifests.probes(objects) == {"livenessProbe": (9464, "/healthz")}
    text, changed = manifests.playable(objects)
    assert [what for what, _ in changed] == [what for what, _, _ in manifests.PATCHES]
    assert (a_pod["containers"], "initContainers" in a_pod) == ([{"name": "n"}, {"name": "j"}], False)
    assert "kind: Job" not in text and text.count("kind: PersistentVolumeClaim") == 2 and "emptyDir" not in text
    assert "Probe" not in text and "ports" not in text and "ServiceAccount" not in text
    assert "optional: true" in text and "optional: false" in text
    assert "volume.podman.io/uid: '65532'" in text
    assert manifests.playable([{"kind": "ConfigMap"}]) == ("kind: ConfigMap\n", [])
