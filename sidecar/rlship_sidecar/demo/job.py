"""The demo job: eight processes, started and linked up, waited for, and ended together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rlship_sidecar.child_process import module_command
from rlship_sidecar.demo import faults
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import PEER_GONE, name_of

TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Failure:
    """The process that ended for a reason of its own: its name, exit code (negative: signal) and last output."""

    name: str
    code: int
    log: Path
    tail: str


def wiring(plan: JobPlan) -> list[tuple[str, str]]:
    """The pairs of processes that talk to each other."""
    server = name_of("trainer", 0)
    generators = [name_of("generator", rank) for rank in range(plan.generators)]
    pairs = [(server, name_of("trainer", rank)) for rank in range(1, plan.trainers)]
    pairs.append((name_of("reward", 0), name_of("verifier", 0)))
    if plan.detailed:
        pairs.extend((name_of("trainer", rank), name_of("buffer", 0)) for rank in range(plan.trainers))
    for rank, generator in enumerate(generators):
        pairs.append((generator, name_of("reward", 0)))
        if plan.detailed:
            pairs.append((generator, name_of("buffer", 0)))
        else:
            pairs.extend((name_of("trainer", fed), generator) for fed in plan.fed_by(rank))
    linked = set(pairs)
    return pairs + [(server, generator) for generator in generators if (server, generator) not in linked]


def members(plan: JobPlan) -> list[tuple[str, int]]:
    """All processes, as (actor, rank)."""
    return [
        *(("trainer", rank) for rank in range(plan.trainers)),
        *(("generator", rank) for rank in range(plan.generators)),
        ("reward", 0),
        ("verifier", 0),
        *([("buffer", 0)] if plan.detailed else []),
    ]


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without other settings of rlship, which must not change the demo."""
    return {name: value for name, value in environment.items() if not name.startswith("RLSHIP_")}


def start_process(
    command: Sequence[str],
    *,
    output: IO[bytes] | None = None,
    descriptors: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own.

    Ctrl-C reaches the demo alone, which then ends its processes in order. The process prints to `output`, by default to
    the same place as this process. It inherits `descriptors`.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        pass_fds=descriptors,
        env=environment,
        start_new_session=True,
    )


def end(processes: Iterable[subprocess.Popen[bytes]], *, patience_s: float) -> None:
    """Ask processes to end, wait up to `patience_s` for all of them together, then kill those that are left."""
    living = [process for process in processes if process.poll() is None]
    for process in living:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    try:
        for process in living:
            process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in living:
            if process.poll() is None:
                process.kill()
                process.wait()


class Job:
    """The running job. As a context manager it leaves none of its processes behind."""

    def __init__(self, experiment: Path, logs: Path, plan: JobPlan) -> None:
        """Start everything. Each process prints to `<logs>/<name>.log`."""
        self._logs = logs
        self._may_die = name_of("generator", faults.CULPRIT) if plan.fault == faults.DEAD_GENERATOR else ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)
        ends: dict[str, dict[str, socket.socket]] = {name_of(*member): {} for member in members(plan)}
        try:
            for one, other in wiring(plan):
                ends[one][other], ends[other][one] = socket.socketpair()
            for actor, rank in members(plan):
                name = name_of(actor, rank)
                self._processes[name] = self._start(experiment, plan, actor, rank, ends[name])
        except BaseException:
            self.end()
            raise
        finally:
            # A link has to end with its process, so no other process may hold it.
            for links in ends.values():
                for link in links.values():
                    link.close()

    def _start(
        self, experiment: Path, plan: JobPlan, actor: str, rank: int, links: Mapping[str, socket.socket]
    ) -> subprocess.Popen[bytes]:
        descriptors = {peer: link.fileno() for peer, link in links.items()}
        command = module_command(f"rlship_sidecar.demo.{actor}", str(experiment), "--plan", plan.to_json())
        command += ["--rank", str(rank), "--links", json.dumps(descriptors)]
        with (self._logs / f"{name_of(actor, rank)}.log").open("wb") as log:
            return start_process(
                command,
                output=log,
                descriptors=tuple(descriptors.values()),
                environment=clean_environment(os.environ),
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def wait(self, watch: Callable[[], None] = lambda: None) -> Failure | None:
        """Wait until all have ended well, or one has failed; `watch` is called ten times a second, and may raise."""
        while True:
            watch()
            codes = self._codes()
            if any(codes.values()):
                return self._failure()
            if all(code == 0 for code in codes.values()):
                return None
            time.sleep(0.1)

    def _codes(self) -> dict[str, int | None]:
        """Exit codes by name, without that of the process which the fault kills."""
        return {name: process.poll() for name, process in self._processes.items() if name != self._may_die}

    def _failure(self) -> Failure:
        """Find the process that failed first: the others end because a peer is gone."""
        time.sleep(0.2)
        failed = {name: code for name, code in self._codes().items() if code}
        name, code = min(failed.items(), key=lambda item: item[1] == PEER_GONE)
        log = self._logs / f"{name}.log"
        tail = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return Failure(name, code, log, "\n".join(tail))

    def end(self) -> None:
        """End the processes that still run."""
        end(self._processes.values(), patience_s=5.0)
