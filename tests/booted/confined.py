"""The sandbox of each unit, probed with real files, and the page's drop-ins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.booted.install import drop_ins
from tests.booted.machine import Machine, Unit
from tests.booted.watching import Place, start_job
from tests.kit.findings import Findings

ALLOWED = "allowed"
PROBING = Path(__file__).with_name("probe.py")
# As root, so that nothing but the sandbox refuses it.
PROBE = """[Service]
Type=exec
Restart=no
{user}
ExecStart=
ExecStart=/usr/bin/python3 /mounted/probe.py %f {home}
StandardOutput=file:{out}
"""
# What every unit of the system refuses, with the error that the kernel gives.
REFUSED: Mapping[str, str] = {
    "write in /etc": "EROFS",
    "write in /usr": "EROFS",
    "write in /var": "EROFS",
    "write in the home": "EROFS",
    "see another's file in /tmp": "ENOENT",
    "change the kernel": "EROFS",
    "make a device": "EPERM",
    "make a setuid file": "EPERM",
    "mount": "EPERM",
    "open a packet socket": "EAFNOSUPPORT",
    "raise its priority": "EPERM",
}
PLAIN: Mapping[str, str] = {"capabilities": "0", "no new privileges": "1", "see other processes": ALLOWED}
WATCH_ALONE = {"write and execute memory": "EPERM", "see a device": "ENOENT"}
SYSMON_ALONE = {"open a TCP socket": "EAFNOSUPPORT"}
# What needs no mount namespace, which a user's manager makes with PrivateUsers=yes only.
USERS = ("make a device", "make a setuid file", "mount", "open a packet socket", "raise its priority")


def expected(template: str) -> dict[str, str]:
    """What a probe of a unit of the system finds."""
    alone = SYSMON_ALONE if "sysmon" in template else WATCH_ALONE
    return {**REFUSED, **PLAIN, **alone, "write in the folder": ALLOWED, "write in /tmp": ALLOWED}


def probe(machine: Machine, unit: Unit, text: str = "") -> dict[str, str]:
    """What a unit may do, tried in the place of its command; `text` is a further drop-in."""
    top = f"/run/user/{machine.sh(f'id -u {unit.user}')}" if unit.user else "/run"
    out, home = f"{top}/probed.json", f"/home/{unit.user}" if unit.user else "/root"
    machine.sh("touch /tmp/planted; rm -f /tmp/probe; test -e /dev/planted || mknod -m 666 /dev/planted c 1 3")
    machine.sh(f"rm -f {out}")
    if text:
        unit.add("further", text)
    unit.add("probe", PROBE.format(user="" if unit.user else "User=root", home=home, out=out))
    unit.ctl("start")
    unit.until(lambda: unit.show("ActiveState")[0] in ("inactive", "failed"), "the end of the probe")
    result, code = unit.show("Result", "ExecMainStatus")
    told = machine.read(out)
    unit.drop()
    assert result == "success", f"{unit.name}: {result}, {code}; {unit.explain()}"
    found: dict[str, str] = json.loads(told)
    found["leave a file in /tmp"] = ALLOWED if machine.tried("test -e /tmp/probe").returncode == 0 else "private"
    return found


def sandbox(machine: Machine, unit: Unit, found: Findings) -> None:
    """A unit of the system: each attempt ends as it has to."""
    told, wanted = probe(machine, unit), expected(unit.template)
    wrong = {name: told[name] for name, outcome in wanted.items() if told[name] != outcome}
    refused = [name for name, outcome in told.items() if outcome not in (ALLOWED, "0", "1", "private")]
    found.held(
        not wrong, f"{unit.template}: as root in its sandbox refused", ", ".join(refused) + (str(wrong) * bool(wrong))
    )
    found.held(told["leave a file in /tmp"] == "private", f"{unit.template}: its /tmp is its own")


def users_sandbox(machine: Machine, unit: Unit, found: Findings) -> None:
    """A unit of a user: what needs no mount namespace is refused; with PrivateUsers=yes the rest is, too."""
    told = probe(machine, unit)
    wrong = {name: told[name] for name in USERS if told[name] != REFUSED[name]}
    refused = [name for name, outcome in told.items() if outcome not in (ALLOWED, "0", "1", "private")]
    found.held(not wrong, f"{unit.template} of a user: refused", ", ".join(refused) + (str(wrong) * bool(wrong)))
    told = probe(machine, unit, "[Service]\nPrivateUsers=yes\n")
    refused = [name for name, outcome in told.items() if outcome not in (ALLOWED, "0", "1", "private")]
    found.held(
        told["write in the home"] == "EROFS",
        f"{unit.template} of a user, with PrivateUsers=yes: refused",
        ", ".join(refused),
    )


def documented_drop_ins(machine: Machine, place: Place, found: Findings) -> None:
    """Those of the page: another user, and state and settings elsewhere with the folder only read."""
    another, untrusted = drop_ins()
    unit = place.unit
    machine.sh("getent group rl || groupadd rl; usermod -aG rl alice")
    unit.add("override", another)
    unit.ctl("start")
    who = machine.sh(f"stat -c %U:%G /proc/{unit.show('MainPID')[0]}")
    found.held(who == "alice:rl", "the drop-in with another user", who)
    unit.ctl("stop")
    unit.drop()
    machine.write("/etc/rlship/rlship.toml", 'sinks = ["jsonl"]\nalerts = false\n')
    unit.add("override", untrusted)
    unit.ctl("start")
    start_job(machine, place, "untrusted", steps=50)
    state = f"/var/lib/rlship/{unit.instance}"
    rows = "find {} -name rows.jsonl -exec cat {{}} + | wc -l"
    unit.until(lambda: int(machine.sh(rows.format(f"'{state}'"))) >= 50, "rows in the state folder")
    unit.ctl("stop")
    left = Path(place.here / "untrusted" / "rlship" / "state").exists()
    found.held(
        not left, "the drop-in for untrusted writers: rows are in the state folder, and none in the folder", state
    )
    told = probe(machine, unit, untrusted)
    found.held(told["write in the folder"] == "EROFS", "with it the folder is only read", told["write in the folder"])
