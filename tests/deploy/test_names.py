"""What units, manifests and the image call by name exists in the code."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rlship_sidecar import config
from rlship_sidecar.cli.group import EPILOG, SETTINGS, rlship
from rlship_sidecar.observe.server import HEALTH, METRICS, READY
from rlship_sidecar.sinks.wandb.link import KEY_CREDENTIAL, KEY_FILE_VARIABLE
from tests.deploy.test_image import TEXT as IMAGE
from tests.deploy.test_image import said
from tests.deploy.test_manifests import OVERLAYS, containers, settings
from tests.deploy.test_units import UNITS, lines
from tests.guards.tree import PACKAGES, ROOT, modules, name_of

PORT = "9464"
# Of others: the shell's, Python's, the NVIDIA runtime's.
FOREIGN = {"PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHON"}
FOREIGN |= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_CACHE_DIR"}
FOREIGN |= {"PIP_CONSTRAINT"}
DEPLOYED = [*UNITS, *sorted((ROOT / "k8s").rglob("*.yaml")), ROOT / "sidecar" / "Dockerfile"]
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in modules(*PACKAGES.values()))


def commands() -> Iterator[tuple[str, list[str]]]:
    """(where, words after `rlship`) of everything that is run."""
    for unit in UNITS:
        for command in lines(unit, "ExecStart"):
            yield name_of(unit), shlex.split(command)[1:]
    for overlay in OVERLAYS:
        for _, container in containers(overlay):
            if "args" in container:
                yield overlay, container["args"]
    yield "Dockerfile", json.loads(said("CMD")[0])


def wrong_words(words: list[str]) -> str:
    """What the command line says against them, "" if nothing."""
    verb, *rest = words
    if verb not in rlship.commands:
        return f"there is no verb {verb}"
    try:
        rlship.commands[verb].make_context(verb, list(rest), **SETTINGS)
    except click.UsageError as problem:
        return problem.message
    return ""


def variables(text: str) -> set[str]:
    """Names of variables that are set or meant in a text."""
    named = set(re.findall(r"\b(?:RLSHIP|WANDB|NVIDIA|PIP|PYTHON)_?[A-Z][A-Z_]*\b", text))
    named |= set(re.findall(r"^(?:Environment=|\s+- name: |ENV )([A-Z][A-Z_]+)", text, re.MULTILINE))
    return {name for name in named if not name.endswith("_")}


def is_known(variable: str) -> bool:
    """Whether the code, a setting or another program gives it a meaning."""
    is_setting = variable in {f"RLSHIP_{key.upper()}" for key in config.Config.__struct_fields__}
    of_a_sink = variable.startswith("RLSHIP_SINK__")
    return is_setting or of_a_sink or variable in FOREIGN or re.search(rf"\b{variable}\b", SOURCE) is not None


@pytest.mark.toolchain
def test_every_command_line_is_understood() -> None:
    """Each verb, flag and value of what units, pods and the image run is one that there is."""
    run = dict(commands())
    assert len(run) >= len(UNITS) + len(OVERLAYS) + 1
    assert {where: wrong for where, words in run.items() if (wrong := wrong_words(words))} == {}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["wach", "/outputs"], "there is no verb wach"),
        (["watch", "--no-tabel", "/outputs"], "No such option '--no-tabel'"),
        (["watch", "--own-rows", "often"], "'often' is not a valid float"),
        (["watch", "/outputs", "more"], "Got unexpected extra argument (more)"),
    ],
)
def test_a_wrong_command_line_is_found(words: list[str], wrong: str) -> None:
    """A mistake in a verb, a flag, a value or an argument is."""
    assert wrong in wrong_words(words).replace(":", "")


@pytest.mark.parametrize("file", DEPLOYED, ids=name_of)
def test_every_variable_is_known(file: Path) -> None:
    """Each variable in it is a setting, one that the code reads, or one of others."""
    assert {name for name in variables(file.read_text(encoding="utf-8")) if not is_known(name)} == set()


def test_an_unknown_variable_is_found() -> None:
    """A slip in a name is, wherever it stands."""
    text = "  - name: RLSHIP_DIRR\n- RLSHIP_METRICS_PROT=9464\nEnvironment=WANDB_API_KEY_FIEL=/x\nENV HOM=/tmp\n"
    unknown = {name for name in variables(text) if not is_known(name)}
    assert unknown == {"RLSHIP_DIRR", "RLSHIP_METRICS_PROT", "WANDB_API_KEY_FIEL", "HOM"}


@pytest.mark.toolchain
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_settings_are_allowed(overlay: str, tmp_path: Path) -> None:
    """The sidecar takes every value of the config map, and of its container's own variables."""
    own = [c["env"] for _, c in containers(overlay) if c["name"] == "rlship"]
    found = config.load(tmp_path, {}, settings(overlay) | {one["name"]: one["value"] for env in own for one in env})
    assert not own or (found.metrics_address, found.metrics_port) == ("0.0.0.0", int(PORT))
    assert found.own_rows_s > 0 and found.sinks == ["wandb"]


@pytest.mark.toolchain
def test_ports_and_paths_agree() -> None:
    """The port is one everywhere; probes ask for what is answered."""
    assert said("EXPOSE") == [PORT]
    assert f"RLSHIP_METRICS_PORT={PORT}" in IMAGE
    assert f"{HEALTH}'" in said("HEALTHCHECK")[0] and "RLSHIP_METRICS_PORT" in said("HEALTHCHECK")[0]
    probed = set()
    for overlay in OVERLAYS:
        for _, container in containers(overlay):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
            assert set(ports.values()) <= {int(PORT)}
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if kind in container:
                    probe = container[kind]["httpGet"]
                    assert probe["port"] in ports
                    probed.add((kind, probe["path"]))
    assert probed == {("startupProbe", HEALTH), ("livenessProbe", HEALTH), ("readinessProbe", READY)}
    assert METRICS == "/metrics"


@pytest.mark.toolchain
def test_secrets_are_looked_for_where_they_are() -> None:
    """The file that the variable names is in the secret's mount, and systemd's credential has the name that is read."""
    for overlay in ("sidecar", "singleton"):
        (found,) = [c for _, c in containers(overlay) if c["name"] == "rlship"]
        (path,) = [v["value"] for v in found["env"] if v["name"] == KEY_FILE_VARIABLE]
        (mount,) = [m["mountPath"] for m in found["volumeMounts"] if m["name"] == "wandb"]
        assert path == f"{mount}/{KEY_CREDENTIAL}"
    (unit,) = [unit for unit in UNITS if name_of(unit) == "systemd/system/rlship@.service"]
    assert lines(unit, "LoadCredential") == [f"{KEY_CREDENTIAL}:%E/rlship/{KEY_CREDENTIAL}"]


def test_exit_codes_and_documents_exist() -> None:
    """Exit codes that forbid a restart are those that the command line explains; pages that are named are there."""
    for unit in UNITS:
        (codes,) = lines(unit, "RestartPreventExitStatus")
        assert all(re.search(rf"^  {code}  ", EPILOG, re.MULTILINE) for code in codes.split())
    for file in DEPLOYED:
        for page in re.findall(r"\bdocs/[\w/]+\.md", file.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), page


def test_the_images_first_process_exists() -> None:
    """The module that the image starts is in the package that it installs."""
    program, isolated, flag, module = json.loads(said("ENTRYPOINT")[0])
    assert (program, isolated, flag) == ("python", "-I", "-m")
    package, _, rest = module.partition(".")
    assert (PACKAGES[package] / f"{rest}.py").is_file()
