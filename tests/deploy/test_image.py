"""The image's recipe. No container engine is needed: what it says is checked, and what it runs is run without one."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import distribution
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.tools import run
from tests.guards.tree import ROOT

DOCKERFILE = ROOT / "sidecar" / "Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
PINS = ROOT / "sidecar" / "requirements.txt"


def said(instruction: str) -> list[str]:
    """The arguments of each such instruction."""
    return re.findall(rf"^{instruction}\s+(.*)$", TEXT, re.MULTILINE)


@pytest.mark.toolchain
def test_the_linter_has_nothing_to_say() -> None:
    """hadolint finds nothing, not even a matter of style."""
    done = run("hadolint", "--failure-threshold", "style", DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("\nRUN ", "\nRUNN "),
        ("USER 65532:65532", "USR 65532:65532"),
        ("--from=build", "--form=build"),
        ('ENTRYPOINT ["python"', "ENTRYPOINT [python"),
        ("STOPSIGNAL SIGTERM\n", "STOPSIGNAL SIGTERM\nADD rlship rlship\n"),
        (":3.12.8-slim-bookworm", ":latest"),
    ],
)
def test_a_typo_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    """With it the linter fails."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("FROM ${PYTHON}", "FROM python:3.12.8-slim-bookworm")
    assert right in text
    (tmp_path / "Dockerfile").write_text(text.replace(right, wrong), encoding="utf-8")
    assert run("hadolint", "--failure-threshold", "style", tmp_path / "Dockerfile").returncode != 0


def test_its_shape() -> None:
    """Two stages from one base of an exact version, a user that is not root, exec forms, a stop signal, no platform."""
    (base,) = said("ARG")
    assert re.fullmatch(r"PYTHON=python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert said("FROM") == ["${PYTHON} AS build", "${PYTHON}"]
    final = TEXT.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE) == ["65532:65532"]
    assert said("STOPSIGNAL") == ["SIGTERM"]
    for instruction in ("ENTRYPOINT", "CMD"):
        (line,) = said(instruction)
        assert all(isinstance(word, str) for word in json.loads(line))
    assert "apt-get" not in TEXT and "--platform" not in re.sub(r"^#.*$", "", TEXT, flags=re.MULTILINE)


def test_every_dependency_is_pinned() -> None:
    """Each package that rlship needs has one exact version, which is one that rlship allows."""
    lines = [line for line in PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    pins = {}
    for line in lines:
        name, version = line.split("==")
        assert name == canonicalize_name(name)
        pins[name] = version
    assert len(pins) == len(lines)
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    wanted = [Requirement(spec) for spec in project["dependencies"]]
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"python_version": "3.12"})]
    assert len(needed) > 8
    assert [str(one) for one in needed if not one.specifier.contains(pins[canonicalize_name(one.name)])] == []


def test_what_builds_it_is_pinned() -> None:
    """hatchling and each package that it needs has one exact version, by which the build is bound."""
    lines = (ROOT / "sidecar" / "build-requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = {"hatchling"}
    for name in sorted(wanted):
        needs = [Requirement(spec) for spec in distribution(name).requires or ()]
        wanted |= {one.name for one in needs if one.marker is None or one.marker.evaluate({"python_version": "3.12"})}
    assert pins.keys() == wanted
    assert "PIP_CONSTRAINT=sidecar/build-requirements.txt" in TEXT


def test_the_build_asks_no_registry_for_its_own_words() -> None:
    """A `# syntax=` line fetches a frontend from a registry, so that a build without a network fails."""
    assert not re.search(r"^#\s*(syntax|escape|check)=", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_build_gets_what_it_copies() -> None:
    """Each source of a COPY exists, and is not kept out of the build's context."""
    allowed = (ROOT / "sidecar" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [word for line in said("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert "rlship" in sources and "sidecar/rlship_sidecar" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, source
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert any(package == source or package.startswith(f"{source}/") for source in sources), package
    # What hatchling runs of ours, and what the metadata is made of.
    hooks = project["tool"]["hatch"]["metadata"]["hooks"]
    needed = {"pyproject.toml", "README.md", *project["project"]["license-files"]}
    assert needed | {hook.get("path", "hatch_build.py") for hook in hooks.values()} <= set(sources)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_works(status: int, code: int) -> None:
    """Its command succeeds where the loop is alive, and fails where it is not, on the port of the settings."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        (line,) = said("HEALTHCHECK")
        program, *words = json.loads(line.partition("CMD ")[2])
        assert program == "python"
        variables = {**os.environ, "RLSHIP_METRICS_PORT": str(server.server_port)}
        done = subprocess.run([sys.executable, *words], env=variables, capture_output=True, timeout=60)
        server.shutdown()
        thread.join()
    assert done.returncode == code
