"""One round: a fresh job with its sidecar and server, struck as planned, brought to its end, and judged."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.endtoend.evidence import state_of
from tests.loopback.backend import LoopbackBackend
from tests.soak.evidence import Verdict, gather
from tests.soak.injector import Injector, Tally
from tests.soak.isolation import Disk, isolated
from tests.soak.oracle import judge
from tests.soak.plan import DISKS, Round
from tests.soak.promises import tables
from tests.soak.server_faults import ServerFaults
from tests.soak.sidecars import CHILD, CORE, Sidecars
from tests.soak.writers import Job

END_S = 30.0
STOP_S = 90.0
DRAIN_S = 120.0
GONE_S = 15.0
DISK_MB = 64


@dataclass
class Outcome:
    """What a round came to. `problems`: what else should not have been, in words; `exits`: how often sidecars ended by
    themselves, by exit code; `rows`, by `kinds` of units and `revisions` of them in the store; `samples` that they
    show; in `tables_shown`, of which `tables` came to the W&B server; `resent`: lines that came to the W&B server
    again.
    """

    plan: Round
    tally: Tally = field(default_factory=Tally)
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    tables_shown: int = 0
    tables: int = 0
    revisions: int = 0
    resent: int = 0
    writers: int = 0
    sidecars: int = 0
    seconds: float = 0.0
    kept: str = ""

    @property
    def clean(self) -> bool:
        return not self.problems and bool(self.verdicts) and all(verdict.clean for verdict in self.verdicts)


def run_round(plan: Round, folder: Path, keep: Path) -> Outcome:
    """Run it in `folder`, which must not exist and is removed; if something is wrong, all that is in it goes to
    `keep` first.
    """
    began = time.monotonic()
    outcome = Outcome(plan)
    experiment, home = folder / "job", folder / "home"
    home.mkdir(parents=True)
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            _run(plan, experiment, home, outcome, undo)
        except Exception:  # a broken round is reported like a wrong one, and the next ones still run
            outcome.problems.append(traceback.format_exc())
        if not outcome.clean:
            # The W&B client's own folders hold sockets, which cannot be copied.
            shutil.copytree(folder, keep, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("wandb-*-*"))
            outcome.kept = str(keep)
    outcome.seconds = time.monotonic() - began
    return outcome


def _run(plan: Round, experiment: Path, home: Path, outcome: Outcome, undo: ExitStack) -> None:
    state_dir = state_of(experiment)
    (experiment / "rlship").mkdir(parents=True)
    disks = {}
    if plan.disks and isolated():
        for kind, place in zip(DISKS, (experiment / "rlship", state_dir)):
            disks[kind] = Disk(place, DISK_MB)
            undo.callback(disks[kind].close)
    backend = undo.enter_context(LoopbackBackend())
    job = Job(experiment, home, plan.pace_s, plan.seed)
    undo.callback(job.close)
    (home / "tmp").mkdir()
    variables = {**backend.environment(home), "TMPDIR": str(home / "tmp")}
    sidecars = Sidecars(experiment, home, variables)
    undo.callback(sidecars.close)
    injector = Injector(job, sidecars, ServerFaults(backend), state_dir, disks, random.Random(plan.seed + "/injector"))
    try:
        job.start()
        injector.run(plan.strikes, plan.seconds)
    finally:
        outcome.tally, outcome.exits = injector.tally, sidecars.exits
        outcome.problems += injector.problems
    backend.heal()
    outcome.problems += _end(job, sidecars)
    outcome.writers, outcome.sidecars = len(job.attempts), len(sidecars.daemons)
    _judge(experiment, backend, job, sidecars, outcome)


def _end(job: Job, sidecars: Sidecars) -> Iterator[str]:
    """All faults are over: the job ends, then the sidecars, then a last one brings everything home."""
    yield from job.end(END_S)
    deadline = time.monotonic() + GONE_S
    while len(sidecars.alive()) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield from sidecars.reap()
    if len(sidecars.alive()) > 1:
        told = "\n".join(f"{one.number}: {one.said()}" for one in sidecars.alive())
        yield f"more than one sidecar goes on with one experiment:\n{told}"
    yield from sidecars.stop(STOP_S)
    yield from sidecars.drain(DRAIN_S)
    deadline = time.monotonic() + GONE_S
    while left := [*sidecars.client_processes(CHILD), *sidecars.client_processes(CORE)]:
        if time.monotonic() > deadline:
            yield f"left behind: {left}"
            return
        time.sleep(0.05)


def _judge(experiment: Path, backend: LoopbackBackend, job: Job, sidecars: Sidecars, outcome: Outcome) -> None:
    runs = list(backend.runs.values())
    evidence = gather(
        experiment,
        runs[0].history if runs else [],
        runs[0].rewritten if runs else [],
        [run.name for run in runs[1:]],
        backend.stored,
        [one.word() for one in job.attempts],
        sidecars.replay(sidecars.home / "replay"),
    )
    outcome.rows = len(evidence.rows)
    outcome.kinds = Counter(row.unit.kind.partition(":")[0] for row in evidence.rows)
    outcome.samples = sum(len(samples) for row in evidence.rows for samples in row.samples.values())
    outcome.tables_shown = sum(len(tables(row)) for row in evidence.rows)
    outcome.tables = sum(path.startswith("media/table/") for path in backend.stored)
    outcome.resent = sum(run.resent + len(run.rewritten) for run in runs)
    outcome.revisions = sum(row.arrival.revision > 0 for row in evidence.rows)
    if not evidence.rows:
        outcome.problems.append("there is not one row")
    outcome.verdicts = judge(evidence)
