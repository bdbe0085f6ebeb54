"""The daemons of one experiment, and the processes of the W&B client below them."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rlship_sidecar.rows import Row
from tests.endtoend.job import ROOT
from tests.endtoend.sidecar import environment
from tests.soak.isolation import elsewhere
from tests.soak.plan import LEASE_TTL_S

SINKS = ("wandb", "tensorboard", "jsonl")
OWNED_ELSEWHERE = 5
LEFT = "is left as it is: cannot keep the state"
CLOCK_WINDOW_S = 2.0
SAMPLES_EVERY = 8
CHILD, CORE = "wandb child", "wandb-core"
SETTINGS = {
    "RLSHIP_LEASE_TTL_S": str(LEASE_TTL_S),
    "RLSHIP_GRACE_S": "2.5",
    "RLSHIP_REVISE_S": "0.5",
    "RLSHIP_JOIN_S": "5",
    "RLSHIP_IMPLICIT_S": "2",
    "RLSHIP_CLOCK_WINDOW_S": str(CLOCK_WINDOW_S),
    "RLSHIP_SAMPLES_EVERY": str(SAMPLES_EVERY),
    "RLSHIP_ALERTS": "true",
    "RLSHIP_SINK__WANDB__RANKS": "per_rank_reduce",
    "RLSHIP_SINK__TENSORBOARD__RANKS": "per_rank_reduce",
}

# Beside the rules that come with rlship: values of the campaign are random, so that this one fires every few steps.
RULES = """
[alert.campaign]
about = "a loss of the campaign is high"
warning = "high"
critical = "higher"
need = [1, 1]
critical_need = [1, 2]
clear = 3
[alert.campaign.signals]
high = { kind = "above", metric = "trainer/loss", high = 1.12 }
higher = { kind = "above", metric = "trainer/loss", high = 1.3 }
"""
REPLAY_S = 300.0


@dataclass
class Daemon:
    """One `rlship watch`."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    host: str
    stopped: bool = False
    judged: bool = False

    def said(self) -> str:
        """The end of its stderr."""
        return self.log.read_text(errors="replace")[-1500:]


@dataclass
class Sidecars:
    """All daemons that were ever started on `experiment`; any number of them at a time. Those that start while it is
    `older` have another row function (see `older.py`).
    """

    experiment: Path
    home: Path
    variables: Mapping[str, str]
    older: bool = False
    daemons: list[Daemon] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    """Of those that ended by themselves."""

    def __post_init__(self) -> None:
        (self.experiment / "rlship.toml").write_text(RULES)

    def start(self, host: str = "") -> Daemon:
        """One more, under another host name if one is given."""
        program = "tests.soak.older" if self.older else "rlship"
        argv = [sys.executable, "-m", program, "watch", str(self.experiment)]
        return self._launch(argv, {}, host)

    def alive(self, *, stopped: bool | None = None) -> list[Daemon]:
        """Those that run, or of those the stopped ones, or the others."""
        return [
            one for one in self.daemons if one.process.poll() is None and (stopped is None or one.stopped == stopped)
        ]

    def reap(self) -> Iterator[str]:
        """Look at those that ended by themselves; yields what should not be. One that finds another owner may go."""
        for one in self.daemons:
            status = one.process.poll()
            if status is None or one.judged:
                continue
            one.judged = True
            if status == -signal.SIGKILL:
                continue
            self.exits.append(status)
            if status != OWNED_ELSEWHERE:
                yield f"sidecar {one.number} ended with {status}: {one.said()}"

    def kill(self, victims: list[Daemon]) -> int:
        """kill -9, all at once; returns how many it struck."""
        for one in victims:
            one.process.send_signal(signal.SIGKILL)
        return sum(one.process.wait() == -signal.SIGKILL for one in victims)

    def client_processes(self, kind: str) -> list[psutil.Process]:
        """The running children that speak to W&B, or their wandb-core processes, of all daemons."""
        found = []
        for process in psutil.process_iter():
            try:
                if self._is(process, kind):
                    found.append(process)
            except psutil.Error:
                continue  # it has just ended
        return found

    def _is(self, process: psutil.Process, kind: str) -> bool:
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return False
        if process.environ().get("HOME") != str(self.home):
            return False
        if kind == CORE:
            return "wandb-core" in process.name()
        return "rlship_sidecar.sinks.wandb.child" in process.cmdline()

    def stop(self, timeout_s: float) -> Iterator[str]:
        """SIGTERM to all; yields what should not be."""
        running = self.alive()
        for one in running:
            one.process.send_signal(signal.SIGTERM)
        for one in running:
            try:
                one.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                yield f"sidecar {one.number} did not end within {timeout_s:g} s of SIGTERM: {one.said()}"
                one.process.kill()
                one.process.wait()
                one.judged = True
                continue
            if one.process.returncode in (0, -signal.SIGTERM):  # the latter before it had begun anything
                one.judged = True
            # Told to stop while it waits to try again after a full disk, it leaves the rest to the next one.
            if one.process.returncode == 1 and LEFT in one.log.read_text(errors="replace"):
                one.judged = True
                self.exits.append(1)
        yield from self.reap()

    def drain(self, timeout_s: float) -> Iterator[str]:
        """`rlship watch --once` until one could have the experiment; yields what should not be."""
        argv = [sys.executable, "-m", "rlship", "watch", str(self.experiment), "--once"]
        deadline = time.monotonic() + timeout_s
        while True:
            # On a busy machine two seconds are too short a lease for the last one.
            one = self._launch(argv, {"RLSHIP_LEASE_TTL_S": "6"}, "")
            one.judged = True
            try:
                status = one.process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
                yield f"the last sidecar did not end within {timeout_s:g} s: {one.said()}"
                return
            if status in (0, 3):
                return
            if status != OWNED_ELSEWHERE:
                yield f"the last sidecar ended with {status}: {one.said()}"
                return

    def replay(self, out: Path) -> list[Row]:
        """All rows as a replay makes them, which nothing strikes and which knows the files alone; kept in `out`."""
        argv = [sys.executable, "-m", "rlship", "replay", str(self.experiment), "--out", str(out), "--sink", "jsonl"]
        done = subprocess.run(
            [*argv, "--jobs", "1", "--quiet"],
            cwd=self.home,
            env=self._environment({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=REPLAY_S,
        )
        assert done.returncode in (0, 3), done.stderr[-1500:]
        return [Row.from_json(line) for line in (out / "rows.jsonl").read_bytes().splitlines()]

    def close(self) -> None:
        """Make sure that nothing is left."""
        for one in self.alive():
            one.process.kill()
            one.process.wait()

    def _launch(self, argv: list[str], settings: Mapping[str, str], host: str) -> Daemon:
        number = len(self.daemons)
        log = self.home / f"sidecar-{number}.log"
        argv = [*argv, *(word for sink in SINKS for word in ("--sink", sink))]
        with open(log, "wb") as err:
            process = subprocess.Popen(
                elsewhere(host, argv) if host else argv,
                cwd=self.home,
                env=self._environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )
        self.daemons.append(Daemon(number, process, log, host))
        return self.daemons[-1]

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        path = os.pathsep.join([_path(), str(_reductions(self.home))])
        return {**environment(self.home, {**SETTINGS, **settings}), **self.variables, "PYTHONPATH": path}


def _path() -> str:
    """The tree that the campaign itself is from comes first, whichever is installed."""
    packages = [str(ROOT), str(ROOT / "sidecar"), str(ROOT / "formats")]
    return os.pathsep.join([*packages, *filter(None, [os.environ.get("PYTHONPATH")])])


def custom_reductions() -> dict[str, Callable[[], Any]]:
    """The same for the reference."""
    scope = runpy.run_path(str(ROOT / "examples" / "custom_reduction" / "mypkg.py"))
    return {"mypkg.trimmed_mean": scope["TrimmedMean"]}


def _reductions(home: Path) -> Path:
    """A folder in which the example of a custom reduction is installed."""
    site = home / "site"
    if not site.exists():
        package = ROOT / "examples" / "custom_reduction"
        scratch = home / "site.new"
        facts = scratch / "mypkg-1.0.dist-info"
        facts.mkdir(parents=True)
        shutil.copy(package / "mypkg.py", scratch)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mypkg\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[rlship.reductions]\nmypkg.trimmed_mean = mypkg:TrimmedMean\n")
        scratch.rename(site)
    return site
