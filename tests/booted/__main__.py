"""`make systemd`: boot systemd in a container, do what docs/systemd.md says, and try every unit."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.booted import confined, install, watching
from tests.booted.machine import Machine, Unit
from tests.booted.troubles import missing, network, power, sysmon
from tests.booted.watching import Place
from tests.containers import base
from tests.containers.engine import Engine, Failed
from tests.containers.image import REQUIREMENTS, python_of
from tests.containers.needs import ENGINE, provide
from tests.guards.tree import ROOT
from tests.kit.debian import Missing
from tests.kit.findings import Findings

COMMAND = "make systemd"
IMAGE = "localhost/systemd:1"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd")
TOOLS = ("python3", "python3-venv", "procps", "ca-certificates")


def main() -> int:
    """0 if all was as it has to be, 1 if not, 2 if this machine cannot run it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=ROOT / "build" / "containers", help="where packages are kept")
    folder: Path = arguments.parse_args().folder.resolve()
    found = Findings()
    try:
        provide(COMMAND, ENGINE, folder)
        with tempfile.TemporaryDirectory(prefix="rlship-systemd-") as scratch, Engine(folder) as engine:
            run(engine, folder, Path(scratch), found)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    except (AssertionError, Failed, subprocess.TimeoutExpired) as error:
        print(f"\nFAILED after {found.count} facts: {error}", file=sys.stderr)
        return 1
    print(f"\n{found.count} facts in {found.seconds():.0f} s")
    return 0


def run(engine: Engine, folder: Path, scratch: Path, found: Findings) -> None:
    """Everything, in one machine."""
    found.part("The machine")
    scratch.chmod(0o755)
    engine("import", base.built(folder / "systemd.tar", (*PACKAGES, *TOOLS)), IMAGE)
    version = python_of(engine, IMAGE)
    wheels = base.wheels(folder / f"wheels-{version}", version, REQUIREMENTS)
    data, home = scratch / "data", scratch / "home"
    for made in (data, home):
        made.mkdir(mode=0o755)
    mounts = {
        wheels: "/wheels:ro",
        install.project(scratch): "/mounted/project:ro",
        watching.JOB: "/mounted/job.py:ro",
        confined.PROBING: "/mounted/probe.py:ro",
        data: "/data",
        home: "/home",
    }
    machine = Machine(engine, IMAGE, "lab", mounts)
    took = machine.boot()
    systemd = machine.sh("systemctl --version").split(" (")[0]
    found.said(f"{systemd} of Debian's, Python {version}, without a network: booted", f"{took:.1f} s")
    install.prepare(machine)

    found.part("Units of the system")
    install.with_root(machine)
    found.said("installed and started by the commands of docs/systemd.md", install.OUTPUTS)
    unit = Unit(machine, "rlship@.service", install.OUTPUTS)
    system = Place(
        unit,
        install.OUTPUTS,
        data / "outputs",
        "/opt/rlship/bin",
        "/etc/rlship/rlship.env",
        f"/run/rlship/{unit.instance}/rlship.prom",
        user="",
        worker=install.USER,
    )
    watching.watching(machine, system, found)
    blank = "/data/my outputs"
    machine.sh(f"install -d -m 2775 -o {install.USER} -g rlship '{blank}'")
    other = Unit(machine, "rlship@.service", blank)
    watching.exit_codes(machine, system.at(other, blank, data / "my outputs"), found)
    confined.documented_drop_ins(machine, system.at(other, blank, data / "my outputs"), found)
    for template in ("rlship@.service", "rlship-sysmon@.service"):
        confined.sandbox(machine, Unit(machine, template, blank), found)
    missing(machine, found)
    sysmon(machine, system, Unit(machine, "rlship-sysmon@.service", install.OUTPUTS), found)

    found.part("Units of a user")
    install.without_root(machine)
    outputs = f"{install.HOME}/outputs"
    found.said("installed and started by the commands of docs/systemd.md, but for `wandb login`", outputs)
    unit = Unit(machine, "rlship@.service", outputs, install.USER)
    number = machine.sh(f"id -u {install.USER}")
    users = Place(
        unit,
        outputs,
        home / install.USER / "outputs",
        f"{install.HOME}/.local/share/rlship/bin",
        f"{install.HOME}/.config/rlship/rlship.env",
        f"/run/user/{number}/rlship/{unit.instance}/rlship.prom",
        user=install.USER,
        worker=install.USER,
    )
    watching.watching(machine, users, found)
    blank = f"{install.HOME}/my outputs"
    machine.sh(f"mkdir '{blank}'", user=install.USER)
    other = Unit(machine, "rlship@.service", blank, install.USER)
    watching.exit_codes(machine, users.at(other, blank, home / install.USER / "my outputs"), found)
    for template in ("rlship@.service", "rlship-sysmon@.service"):
        confined.users_sandbox(machine, Unit(machine, template, blank, install.USER), found)
    sysmon(machine, users, Unit(machine, "rlship-sysmon@.service", outputs, install.USER), found)

    found.part("The machine restarts")
    network(machine, system, found)
    power(machine, system, found)


if __name__ == "__main__":
    sys.exit(main())
