"""What docs/systemd.md says of trouble: what is missing at a start, no network, a machine that loses its power."""

from __future__ import annotations

import time

from tests.booted.machine import Machine, Unit
from tests.booted.watching import Place, start_job
from tests.containers.watched import Watched
from tests.endtoend.evidence import check_rows, shipped
from tests.kit.findings import Findings

KEY = "/etc/rlship/wandb_api_key"
WAITING = "systemd-networkd-wait-online.service"


def missing(machine: Machine, found: Findings) -> None:
    """Without its key, or its folder, a unit says which, and comes up by itself once it is there."""
    unit = Unit(machine, "rlship@.service", "/data/absent")
    unit.ctl("start", "--no-block")
    unit.until(lambda: unit.show("SubState", "ExecMainStatus") == ["auto-restart", "226"], "226")
    found.said("a folder that is missing: tried again", "226/NAMESPACE")
    machine.sh("install -d -m 2775 -g rlship /data/absent")
    took = unit.until(lambda: unit.show("ActiveState") == ["active"], "a start with the folder")
    found.said("once the folder is there it starts by itself", f"{took:.1f} s")
    unit.ctl("stop")
    machine.sh(f"mv {KEY} {KEY}.away")
    unit.ctl("start", "--no-block")
    unit.until(lambda: unit.show("SubState", "ExecMainStatus") == ["auto-restart", "243"], "243")
    found.said("a file for the key that is missing: tried again", "243/CREDENTIALS")
    machine.sh(f"mv {KEY}.away {KEY}")
    took = unit.until(lambda: unit.show("ActiveState") == ["active"], "a start with the key")
    found.said("once the file is there it starts by itself", f"{took:.1f} s")
    unit.ctl("stop")


def sysmon(machine: Machine, place: Place, unit: Unit, found: Findings) -> None:
    """The agent logs into the experiment of a job on this machine; killed it comes back, wrong usage is final."""
    name = f"{unit.template} of {'a user' if unit.user else 'the system'}"
    experiment = place.here / "measured"
    unit.ctl("start")
    start_job(machine, place, "measured", steps=300)
    files = lambda: list((experiment / "rlship").glob("node-*.jsonl"))  # noqa: E731
    took = unit.until(lambda: any(b"cpu" in file.read_bytes() for file in files()), "metrics of the machine")
    found.said(f"{name}: the machine's metrics are in the experiment of its job", f"{took:.1f} s")
    unit.ctl("kill", "--signal=KILL")
    took = unit.until(lambda: unit.show("NRestarts", "ActiveState") == ["1", "active"], "a restart")
    found.said(f"{name}: kill -9: started again", f"{took:.1f} s")
    began = time.monotonic()
    unit.ctl("stop")
    result, code = unit.show("Result", "ExecMainStatus")
    found.held((result, code) == ("success", "0"), f"{name}: stopped", f"{time.monotonic() - began:.1f} s")
    top = f"/home/{unit.user}/.config" if unit.user else "/etc"
    machine.write(f"{top}/rlship/sysmon.env", "RLSHIP_SYSMON_GPUS=nonsense\n")
    unit.ctl("start", "--no-block")
    unit.until(lambda: unit.show("ActiveState", "ExecMainStatus") == ["failed", "2"], "exit code 2")
    found.said(f"{name}: a wrong setting: exit code 2, and not started again", "failed")
    machine.sh(f"rm {top}/rlship/sysmon.env")


def network(machine: Machine, place: Place, found: Findings) -> None:
    """Where the machine has no network, no unit of ours waits for one at the boot."""
    machine.sh(f"systemctl enable --quiet systemd-networkd.service {WAITING}")
    machine.write("/etc/systemd/system/lab.service", LAB)
    machine.sh("systemctl enable --quiet lab.service")
    machine.cut_power()
    machine.start()
    took = place.unit.until(lambda: place.unit.show("ActiveState") == ["active"], "a start at the boot")
    state = machine.sh(f"systemctl show -p ActiveState --value {WAITING}")
    found.held(
        state == "activating", "a boot without a network: active while another unit still waits for it", f"{took:.1f} s"
    )
    machine.sh(f"systemctl disable --quiet systemd-networkd.service {WAITING} lab.service")


# Something else that wants the network, so that the machine waits for it.
LAB = """[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""


def power(machine: Machine, place: Place, found: Findings) -> None:
    """Every process of the machine ends at once, under a job. After the boot the service is back, and has every row."""
    unit = place.unit
    watched = Watched(place.here / "cut", unit.explain)
    start_job(machine, place, "cut", steps=10_000)
    watched.until_rows(50)
    machine.cut_power()
    before, at = watched.count(), time.time()
    took = machine.boot()
    took += unit.until(lambda: unit.show("ActiveState") == ["active"], "a start at the boot")
    found.said("every process killed at once under a job, and booted: the service is back", f"{took:.1f} s")
    watched.until_seen_since(at)
    unit.ctl("stop")
    # The last step lacks the line of a rank that was killed: `--once` makes its row, too, and ends with 3.
    once = f"RLSHIP_ALERTS=false {place.program}/rlship watch --once --no-table --sink jsonl {place.inside}/cut"
    done = machine.tried(f"umask 027; {once}", user="rlship")
    assert done.returncode in (0, 3), done.stderr
    rows = shipped(watched.experiment)
    check_rows(watched.experiment, rows)
    found.held(len(rows) >= before, "rows as the reference makes them of what the files have", f"{len(rows)} rows")
