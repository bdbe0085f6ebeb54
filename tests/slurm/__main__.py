"""`make slurm`: run the batch script of docs/operations.md with four tasks on a real Slurm of one node."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlship_sidecar.report.status import Status, read_status
from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import check_rows, newest, shipped, state_of
from tests.endtoend.sidecar import RLSHIP, environment
from tests.guards.tree import ROOT
from tests.kit.debian import Missing, provide
from tests.kit.findings import Findings
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend
from tests.slurm.node import PROGRAMS, Node
from tests.slurm.train import BACK, SAVE_S

COMMAND = "make slurm"
PAGE = ROOT / "docs" / "operations.md"
TRAIN = Path(__file__).with_name("train.py")
RANKS = 4
SOME = 10  # rows that a job has before something happens to it
MANY = 100_000  # steps, which no job does
LIMIT_S = 240.0
PLACES = [(rank, RANKS) for rank in range(RANKS)]
# What the page advises against.
PASSES_ON = """#!/bin/bash
#SBATCH --ntasks=4
srun python train.py & job=$!
trap 'kill -TERM $job' TERM
wait $job; wait $job
"""
OTHER = "import rlship; rlship.init('outputs/other', 'trainer'); rlship.log({'loss': 1.0}, step=0); rlship.close()"


def batch_script() -> str:
    """The script of the page."""
    (found,) = re.findall(r"^```sh\n(#!/bin/bash\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the script's, its experiment, and how one sees what it printed."""

    node: Node
    number: int
    scratch: Path

    @property
    def experiment(self) -> Path:
        return self.scratch / "outputs" / f"grpo-{self.number}"

    def printed(self) -> str:
        output = self.scratch / f"{self.number}.out"
        return output.read_text() if output.exists() else ""

    def state(self) -> str:
        return self.node.told_of(self.number)["JobState"]

    def rows(self) -> list[Row]:
        """Those of the trainer that the sink jsonl has."""
        return [row for row in shipped(self.experiment) if row.unit.actor == "trainer"]

    def until_rows(self, attempt: float = 0.0) -> None:
        """Wait for some rows of an attempt."""
        self.until(lambda: sum(row.values.get("trainer/attempt") == attempt for row in self.rows()) >= SOME, "rows")

    def until_state(self, *states: str) -> float:
        """Wait for one of these states; returns the seconds it took."""
        return self.until(lambda: self.state() in states, " or ".join(states))

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait; if that takes too long, say what Slurm and the job say."""
        return wait_until(
            condition,
            lambda: f"job {self.number}: {what}; {self.node.told_of(self.number)}; it printed:\n{self.printed()}",
            timeout_s=LIMIT_S,
        )

    def status(self) -> Status:
        status = read_status(state_of(self.experiment))
        assert status is not None, f"{self.experiment} has no status; the job printed:\n{self.printed()}"
        return status


@dataclass(frozen=True, slots=True)
class Checks:
    """What every job has to have left."""

    found: Findings
    backend: LoopbackBackend
    home: Path

    def check(self, job: Job, *attempts: int, saved: bool = True) -> list[Row]:
        """Ranks, world, attempts, rows to the last one, one run at W&B, the job's id; returns the newest rows of steps.

        `saved`: the job was asked to stop, so that the checkpoint's figure of each rank is the last one.
        """
        opened = [json.loads(file.open().readline()) for file in (job.experiment / "rlship").glob("trainer-*.jsonl")]
        places = {n: sorted((one["rank"], one["world"]) for one in opened if one["attempt"] == n) for n in attempts}
        self.found.held(
            places == dict.fromkeys(attempts, PLACES) and len(opened) == RANKS * len(attempts),
            f"{RANKS} ranks of world {RANKS}, by Slurm's variables; attempt",
            " and ".join(map(str, attempts)),
        )
        self._deliver_the_rest(job)
        check_rows(job.experiment, shipped(job.experiment))
        found = newest(job.rows())
        rows = [found[Unit("trainer", "step", step)] for step in range(len(found))]
        whole = all(row.values["trainer/who"] == 1111 and not row.coverage.missing for row in rows)
        figure = f"{len(rows)} steps"
        if saved:
            took = rows[-1].values["trainer/checkpoint_s"]
            whole = whole and took is not None and took >= SAVE_S and rows[-1].coverage.expected == RANKS
            figure += f", the last one with the checkpoint of {took:.1f} s"
        self.found.held(whole, "each step is a row of all ranks, to the last one, as the reference makes them", figure)
        status = job.status()
        (wandb,) = [sink for sink in status.sinks if sink.name == "wandb"]
        run = self.backend.run("rlship", wandb.where.rpartition("/")[2])
        self.found.held(
            run.steps() == list(range(status.rows)),
            "one run at W&B has each row once, in order",
            f"{len(run.steps())} rows and revisions",
        )
        facts = status.run.facts if status.run is not None else {}
        self.found.held(facts.get("job") == f"slurm:{job.number}", "rlship status names the job", facts.get("job"))
        return rows

    def _deliver_the_rest(self, job: Job) -> None:
        """As the page says, where the batch script was killed before all was delivered."""
        if job.status().finished:
            self.found.said("delivered by the job itself, before its end")
            return
        settings = job_settings(self.backend, self.home)
        command = [*RLSHIP, "watch", str(job.experiment), "--once"]
        done = subprocess.run(command, env=environment(self.home, settings), capture_output=True, text=True)
        self.found.held(done.returncode == 0, "the rest delivered by rlship watch --once", done.stderr.strip()[-300:])


def job_settings(backend: LoopbackBackend, home: Path) -> Mapping[str, str]:
    """The variables of jobs and sidecars."""
    return {**backend.environment(home), "RLSHIP_SINKS": "jsonl,wandb"}


def main(arguments: Sequence[str]) -> int:
    """0 if all was as it has to be, 1 if not, 2 if this machine cannot run it."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    try:
        provide(COMMAND, PROGRAMS, "Slurm's daemons and for apt-get")
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found = Findings()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="rlship-slurm-jobs-") as scratch,
            LoopbackBackend() as backend,
            Node() as node,
        ):
            print(f"{node.run('sinfo', '--version')}, one node, in {node.folder}; what it has is removed at the end")
            run(node, backend, Path(scratch), found)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(f"\nFAILED after {found.count} facts: {error}", file=sys.stderr)
        return 1
    print(f"\n{found.count} facts in {time.monotonic() - found.began:.0f} s")
    return 0


def steps_of(rows: Iterable[Row], attempt: float) -> list[int]:
    """The steps that have a row of that attempt."""
    return sorted({row.unit.index for row in rows if row.values.get("trainer/attempt") == attempt})


def run(node: Node, backend: LoopbackBackend, scratch: Path, found: Findings) -> None:
    """Four jobs side by side in one folder of experiments, beside an experiment of another job."""
    script, home = scratch / "batch.sh", scratch / "home"
    script.write_text(batch_script())
    (scratch / "train.py").write_bytes(TRAIN.read_bytes())
    plain = environment(home, job_settings(backend, home))
    plain["PATH"] = f"{Path(sys.executable).parent}:{plain['PATH']}"
    settings = {**plain, "SCRATCH": str(scratch)}
    told = settings | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", OTHER], cwd=scratch, env=told, check=True, capture_output=True)

    def submit(steps: int, *options: str) -> Job:
        told = {**settings, "STEPS": str(steps), "PACE_S": "0.2"}
        return Job(node, node.submit(script, scratch, told, *options), scratch)

    def submit_passing_on() -> Job:
        (scratch / "passes-on.sh").write_text(PASSES_ON)
        told = {**plain, "PYTHONPATH": str(ROOT), "STEPS": str(MANY), "PACE_S": "0.2"}
        told["RLSHIP_DIR"] = str(scratch / "outputs" / "passes-on")
        return Job(node, node.submit(scratch / "passes-on.sh", scratch, told), scratch)

    whole, limited = submit(40, "--time=10"), submit(MANY, "--time=1", "--signal=TERM@30")
    cancelled, requeued = submit(MANY, "--time=10"), submit(MANY, "--time=10")
    checks = Checks(found, backend, home)

    cancelled.until_rows()
    node.run("scancel", cancelled.number)
    requeued.until_rows()
    node.run("scontrol", "requeue", requeued.number)
    cancelled.until_state("CANCELLED")
    waited_for = cancelled.status().finished
    requeued.until(lambda: "Restarts=1 " in node.run("scontrol", "-o", "show", "job", requeued.number), "a restart")
    requeued.until_state("PENDING")
    node.run("scontrol", "update", f"jobid={requeued.number}", "StartTime=now")  # else it starts two minutes later
    requeued.until_rows(1000.0)
    node.run("scancel", "--signal=TERM", requeued.number)

    found.part("A job that ends by itself")
    whole.until_state("COMPLETED")
    checks.check(whole, 0, saved=False)

    found.part("scancel JOB")
    found.held(waited_for, "the job has not ended before its rows are delivered: the script stays")
    checks.check(cancelled, 0)

    found.part("The time limit, with --signal=TERM@30")
    limited.until_state("COMPLETED", "TIMEOUT")
    found.held(limited.state() == "COMPLETED", "it ended in order, before its limit", limited.state())
    checks.check(limited, 0)

    found.part("scontrol requeue JOB, and scancel --signal=TERM JOB once it runs again")
    requeued.until_state("COMPLETED", "CANCELLED", "FAILED")
    found.held(requeued.state() == "COMPLETED", "it ended in order", requeued.state())
    rows = checks.check(requeued, 0, 1000)
    first, second = (steps_of(requeued.rows(), attempt) for attempt in (0, 1000))
    again = [step for step in first if step >= second[0]]
    found.held(
        second == steps_of(rows, 1000) == list(range(second[0], len(rows))) and len(again) == BACK,
        f"it went on {BACK} steps before the end of the first attempt, whose place they take",
        f"attempt 1000 from step {second[0]} on, {len(second)} steps",
    )
    found.part("What the page advises against: SIGTERM to srun")
    passed_on = submit_passing_on()
    experiment = scratch / "outputs" / "passes-on"
    passed_on.until(lambda: len(list(experiment.glob("rlship/trainer-*.jsonl"))) == RANKS, "files of all ranks")
    node.run("scancel", "--batch", "--signal=TERM", passed_on.number)
    passed_on.until_state("COMPLETED", "CANCELLED", "FAILED")
    saved = list(experiment.glob("checkpoint-*"))
    found.held(not saved, "srun kills the tasks: no checkpoint is saved", passed_on.state())

    found.part("What each sidecar watched")
    mine = {f"grpo-{job.number}" for job in (whole, cancelled, limited, requeued)}
    watched = {path.parents[1].name for path in (scratch / "outputs").glob("*/rlship/state")}
    found.held(watched == mine, "of the common folder, each job's sidecar took that job's experiment alone", len(mine))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
