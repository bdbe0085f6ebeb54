"""`rlship demo`: runs the job with a sidecar beside it, then reports the results."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import click

from rlship_sidecar.child_process import module_command
from rlship_sidecar.demo import looks, report
from rlship_sidecar.demo.faults import FAULTS
from rlship_sidecar.demo.job import Failure, Job, clean_environment, end, start_process
from rlship_sidecar.demo.learning import LearningReport
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.straggler import find_straggler, read_files
from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.ownership.lease import last_owner
from rlship_sidecar.report.status import read_status

SECONDS = 30.0
MARK = "rlship-demo.json"  # marks a folder as a demo's
SINKS = ("wandb", "tensorboard", "jsonl")
CATCH_UP_S = 30.0
DRAIN_S = 90.0  # longer than the sidecar allows itself
STARTING_S = 60.0  # how long a demo may take until its sidecar runs
INTERRUPTED = 130

CONFIGURATION = """\
# Written by `rlship demo`.
clock_window_s = 2  # rows of what is logged without a step: short, as the demo is

# The run stays on this machine until `wandb sync` is called.
[sink.wandb]
mode = "offline"
project = "rlship-demo"
"""

# A rank that is killed holds rows back for a while; the demo is too short to wait long.
IMPATIENCE = "grace_s = 3\n"

Echo = Callable[[str], object]


class SidecarEndedError(RlshipError):
    """The sidecar ended before the demo stopped it. Exit code 1."""


def run_demo(directory: Path, *, seconds: float | None = SECONDS, fault: str = "", echo: Echo = click.echo) -> int:
    """Run the demo in `directory` and return the exit code.

    `seconds` is about how long the job takes on a machine that is quick enough: the number of steps is fixed, and they
    are paced. None is the default of 30. The exit code is 0 if the rows show that the job learned and all rows are
    complete. It is 130 after Ctrl-C, otherwise 1. `directory` is made if it does not exist; a former demo in it gets
    another name first. With a `fault`, one of FAULTS, the job has that fault from its middle on, and the exit code is 0
    if the job and the sidecar ended as they should. Raises UsageProblem for a folder with other contents.
    """
    seconds = SECONDS if seconds is None else seconds
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageProblem(f"the demo cannot take {seconds} seconds", "give a finite number of seconds, 0 or more")
    if fault and fault not in FAULTS:
        raise UsageProblem(f"the demo has no fault {fault!r}", f"choose from {', '.join(FAULTS)}")
    plan = JobPlan(fault=fault)
    plan = replace(plan, pace_s=seconds / plan.steps)
    experiment = claim(directory, plan, echo)
    echo(
        f"{plan.trainers} trainer ranks, {plan.generators} generators, {'a buffer, ' if fault else ''}"
        "a reward worker and its verifier\n"
        f"learn to reverse sequences, in {plan.steps} steps and about {seconds:.0f} s (more on a busy machine).\n"
        + (f"From step {plan.onset} on {FAULTS[fault].about}." if fault else "One rank is slow on purpose.")
    )
    try:
        with _signals_as_interrupts():
            problems = _run(experiment, plan, echo)
    except KeyboardInterrupt:
        echo(f"interrupted: every process of the demo has been ended; what was logged until then is in {experiment}")
        return INTERRUPTED
    if problems:
        echo("\nNot as it should be:")
        for problem in problems:
            echo(f"  {problem}")
        return 1
    return 0


def claim(directory: Path, plan: JobPlan, echo: Echo) -> Path:
    """The absolute folder to use, made an experiment: `directory`, or `<directory>-1`, -2, … beside a demo that runs.

    A former demo in `directory` gets such a name, so that what shows `directory` shows the newest demo.
    """
    directory = directory.absolute()
    chosen = directory
    try:
        if (directory / MARK).is_file() and not _in_use(directory):
            _set_aside(directory, echo)
        for number in range(1, 10_000):
            chosen.mkdir(parents=True, exist_ok=True)
            if not any(chosen.iterdir()):
                break
            if chosen == directory and not (chosen / MARK).is_file():
                raise UsageProblem(
                    f"{directory} is not empty and holds no former demo",
                    f"name a folder that does not exist yet, such as {shlex.quote(str(directory / 'demo'))}",
                )
            chosen = directory.with_name(f"{directory.name}-{number}")
        with (chosen / MARK).open("x") as mark:
            json.dump({"rlship_demo": 1, "plan": asdict(plan)}, mark)
        settings = chosen / "rlship.toml"
        settings.write_text((IMPATIENCE if plan.detailed else "") + CONFIGURATION)
        settings.chmod(0o644)  # whatever the umask: the sidecar reads no sinks from a file that other users can write
        (chosen / "rlship").mkdir()
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageProblem(
            f"{chosen} cannot be used: {error.strerror}", "name a folder that does not exist yet"
        ) from error
    except OSError as error:
        raise RlshipError(
            f"{chosen} cannot be made or written: {error.strerror}", "name a folder that you may write to"
        ) from error
    if chosen != directory:
        echo(f"{directory} holds another demo, so this one goes to {chosen}")
    return chosen


def _in_use(demo: Path) -> bool:
    """Whether a sidecar has this demo, or may soon have it."""
    state_dir = _state_dir(demo)
    last = last_owner(state_dir)
    if last is None:
        return time.time() - (demo / MARK).stat().st_mtime < STARTING_S
    return not last.released and last.alive is not False


def _set_aside(demo: Path, echo: Echo) -> None:
    """Give a former demo a name that is free. It stays where it is if its folder cannot be renamed."""
    names = (demo.with_name(f"{demo.name}-{number}") for number in range(1, 10_000))
    aside = next((path for path in names if not os.path.lexists(path)), None)
    if aside is None:
        return
    try:
        demo.rename(aside)
    except OSError:  # such as where a disk is mounted there: this demo gets another name
        return
    echo(f"the former demo in {demo} is now {aside}")


def _run(experiment: Path, plan: JobPlan, echo: Echo) -> list[str]:
    """Run everything and print the summary; returns the problems."""
    began = time.monotonic()
    sidecar = _start_sidecar(experiment)
    try:
        with Job(experiment, experiment / "logs", plan) as job:
            learning = LearningReport(_state_dir(experiment) / "rows.jsonl", plan.steps, echo)

            def look() -> None:
                _insist_on(sidecar)
                learning()

            failure = job.wait(look)
        took_s = time.monotonic() - began
        if failure is None:
            _wait_for_rows(experiment, plan, sidecar)
        learning()
    finally:
        end([sidecar], patience_s=DRAIN_S)
    echo("")
    echo(f"The job took {took_s:.1f} s.")
    problems = [] if failure is None else [_describe(failure)]
    if sidecar.returncode != 0:
        problems.append(f"the sidecar ended with exit code {sidecar.returncode}")
    return problems + _tell(experiment, plan, echo)


def _start_sidecar(experiment: Path) -> subprocess.Popen[bytes]:
    command = module_command("rlship", "watch", str(experiment), "--no-table", "--no-announce-stop")
    for sink in SINKS:
        command += ["--sink", sink]
    return start_process(command, environment={**clean_environment(os.environ), "WANDB_MODE": "offline"})


def _insist_on(sidecar: subprocess.Popen[bytes]) -> None:
    code = sidecar.poll()
    if code is not None:
        raise SidecarEndedError(
            f"the sidecar ended with exit code {code} while the job was running",
            "its own message is above; the job has been ended too",
        )


def _wait_for_rows(experiment: Path, plan: JobPlan, sidecar: subprocess.Popen[bytes]) -> None:
    """Give the sidecar time to read the last lines. If that is not enough, the report shows the missing rows."""
    deadline = time.monotonic() + CATCH_UP_S
    while time.monotonic() < deadline and sidecar.poll() is None:
        status = read_status(_state_dir(experiment))
        done = {} if status is None else {actor.actor: actor.step for actor in status.actors}
        if all(done.get(actor) == plan.steps - 1 for actor in report.ranks_of(plan)):
            return
        time.sleep(0.1)


def _tell(experiment: Path, plan: JobPlan, echo: Echo) -> list[str]:
    """Print the results; returns the problems."""
    state_dir = _state_dir(experiment)
    rows_file = state_dir / "rows.jsonl"
    lines = rows_file.read_bytes().splitlines() if rows_file.is_file() else []
    rows = report.final_rows(lines)
    status = read_status(state_dir)
    for line in report.summary(rows, status, find_straggler(read_files(experiment)), plan):
        echo(line)
    problems = [] if plan.detailed else report.problems(rows, status, plan)
    if plan.detailed:
        echo("\nThe alerts")
        for line in report.episodes(lines):
            echo(f"  {line}")
    runs = sorted({path.parent for path in state_dir.rglob("*.wandb")})
    boards = sorted({path.parent for path in state_dir.rglob("events.out.tfevents.*")})
    if len(runs) != 1:
        problems.append(f"one offline W&B run was expected below {state_dir}, there are {len(runs)}")
    if len(boards) != 1:
        problems.append(f"one folder of TensorBoard files was expected below {state_dir}, there are {len(boards)}")
    echo("\nThe files")
    echo(f"  the writers' files   {experiment / 'rlship'}")
    echo(f"  rows                 {rows_file}")
    for board in boards:
        echo(f"  TensorBoard          {board}")
    for run in runs:
        echo(f"  W&B, offline         {run}")
    echo(f"  the job's own output {experiment / 'logs'}")
    echo("\nCommands that show them")
    # As `rlship status` prints it: the folder above the run's, whose name changes if the run is written again.
    for line in looks.commands(experiment, boards, sorted({run.parent for run in runs}), alerts=plan.detailed):
        echo(f"  {line}")
    return problems


def _state_dir(experiment: Path) -> Path:
    return experiment / "rlship" / "state"


def _describe(failure: Failure) -> str:
    how = f"by signal {-failure.code}" if failure.code < 0 else f"with exit code {failure.code}"
    said = f": {failure.tail}" if failure.tail else ""
    return f"{failure.name} ended {how}, see {failure.log}{said}"


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does. Only the main thread can set this up, and no other needs it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
