"""What the units of `rlship watch` do: start, stop, crash, hang, and end with exit codes 2 and 5."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.booted.machine import Machine, Unit
from tests.containers import job
from tests.containers.watched import Watched
from tests.kit.findings import Findings

RANKS, STEPS, PAUSE_S = 2, 700, 0.1
OWNED_STEPS = 400
JOB = Path(job.__file__)
HANG = "[Service]\nWatchdogSec=6s\n"


@dataclass(frozen=True)
class Place:
    """Where a unit is tried: its folder in the machine and on this host, its program, settings and metrics."""

    unit: Unit
    inside: str
    here: Path
    program: str
    settings: str
    metrics: str
    user: str
    worker: str

    def at(self, unit: Unit, inside: str, here: Path) -> Place:
        """The same for another instance."""
        return replace(self, unit=unit, inside=inside, here=here)


def start_job(machine: Machine, place: Place, experiment: str, *, steps: int = STEPS, user: str = "") -> None:
    """Start a job in the machine, with umask 022."""
    python = f"{place.program}/python"
    words = [python, "/mounted/job.py", f"{place.inside}/{experiment}", str(RANKS), str(steps), str(PAUSE_S)]
    log = f"/tmp/{experiment}.log"
    command = f"umask 022; setsid {shlex.join(words)} > {log} 2>&1 < /dev/null &"
    machine.sh(command, user=user or place.worker)


def watching(machine: Machine, place: Place, found: Findings) -> None:
    """One job, during which the service is stopped, killed and hung; in the end every row is there."""
    unit = place.unit
    machine.write(place.settings, "RLSHIP_SINKS=wandb,jsonl\nRLSHIP_ALERTS=false\n")
    owner(machine, place)
    began = time.monotonic()
    unit.ctl("restart")
    state, kind = unit.show("ActiveState", "Type")
    found.held((state, kind) == ("active", "notify"), "started once it said so", f"{time.monotonic() - began:.1f} s")
    watched = Watched(place.here / "grpo", unit.explain)
    start_job(machine, place, "grpo")
    watched.until_rows(20)
    words = re.compile(rf"step \d+, {RANKS}/{RANKS} ranks")
    unit.until(lambda: words.match(unit.show("StatusText")[0]), "a status text")
    found.said("its status", unit.show("StatusText")[0])
    unit.until(lambda: "rlship_up 1.0" in machine.read(place.metrics), "metrics")
    found.said("metrics are written", place.metrics)
    began = time.monotonic()
    unit.ctl("stop")
    result, code = unit.show("Result", "ExecMainStatus")
    found.held((result, code) == ("success", "0"), "stopped under the job", f"{time.monotonic() - began:.1f} s")
    took = watched.after(lambda: unit.ctl("start"))
    found.said("started again: further rows came", f"{took:.1f} s")
    took = watched.after(lambda: killed(unit))
    found.said("kill -9: started again, and further rows came", f"{took:.1f} s")
    hang(machine, unit, watched, found)
    running = machine.tried(f"pgrep -f /mounted/job.py.*{place.inside}/grpo").stdout
    found.held(running, "all of that while the job ran", f"{watched.count()} of {STEPS} rows")
    watched.until_finished()
    unit.ctl("stop")
    rows = watched.check(STEPS)
    found.said("rows to the last one, as the reference makes them of the files", f"{rows} rows of {STEPS} steps")


def owner(machine: Machine, place: Place) -> None:
    """Let the user of the settings' folder own them."""
    if place.user:
        machine.sh(f"chown -R {place.user}: /home/{place.user}/.config")


def hang(machine: Machine, unit: Unit, watched: Watched, found: Findings) -> None:
    """SIGSTOP, with a drop-in that has a shorter watchdog: systemd ends it and starts it again."""
    unit.add("hang", HANG)
    watched.after(lambda: unit.ctl("restart"))
    (pid,) = unit.show("MainPID")
    results: set[str] = set()

    def restarted() -> bool:
        result, count, state = unit.show("Result", "NRestarts", "ActiveState")
        results.add(result)
        return (count, state) == ("1", "active")

    def freeze() -> None:
        machine.sh(f"kill -STOP {pid}")
        unit.until(restarted, "a restart by the watchdog")

    took = watched.after(freeze)
    found.held("watchdog" in results, "hung (SIGSTOP), with WatchdogSec=6s: started again, rows came", f"{took:.0f} s")
    unit.drop()


def killed(unit: Unit) -> None:
    """kill -9, and wait until systemd has started it again."""
    unit.ctl("kill", "--signal=KILL")
    unit.until(lambda: unit.show("NRestarts", "ActiveState") == ["1", "active"], "a restart")


def exit_codes(machine: Machine, place: Place, found: Findings) -> None:
    """2 is final: a person has to mend it. 5 is tried again until the other sidecar is gone, which has every row of the
    job so far; in the end every row is there.
    """
    unit = place.unit
    machine.write(place.settings, "RLSHIP_SINKS=nonsense\n")
    owner(machine, place)
    unit.ctl("start", "--no-block")
    unit.until(lambda: unit.show("ActiveState", "ExecMainStatus") == ["failed", "2"], "exit code 2")
    found.said("a wrong setting: exit code 2, and not started again", unit.show("SubState")[0])
    machine.write(place.settings, "RLSHIP_SINKS=jsonl\nRLSHIP_ALERTS=false\n")
    owner(machine, place)
    watched = Watched(place.here / "owned", unit.explain)
    start_job(machine, place, "owned", steps=OWNED_STEPS)
    watch = f"{place.program}/rlship watch --no-table --sink jsonl {shlex.quote(place.inside)}"
    other = f"umask 027; RLSHIP_ALERTS=false setsid {watch} > /tmp/other-{place.user}.log 2>&1 < /dev/null & echo $!"
    pid = machine.sh(other, user=place.user or "rlship")
    watched.until_rows(20)
    unit.ctl("start", "--no-block")
    unit.until(lambda: unit.show("SubState", "ExecMainStatus") == ["auto-restart", "5"], "exit code 5")
    found.said("another sidecar owns the folder: exit code 5, and tried again", "auto-restart")

    def free() -> None:
        machine.sh(f"kill -TERM {pid}")
        unit.until(lambda: unit.show("ActiveState") == ["active"], "a start after the other one")

    found.said("once that one has ended it goes on: further rows came", f"{watched.after(free):.1f} s")
    watched.until_finished()
    unit.ctl("stop")
    found.said("rows to the last one", f"{watched.check(OWNED_STEPS)} rows of {OWNED_STEPS} steps")
