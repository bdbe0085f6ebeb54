"""A real sidecar on a network filesystem that hangs in one file for 30 s: it holds up that file's steps only.

A library of C, preloaded into the sidecar, makes calls on that file wait. All filesystems count as network ones, so the
state lies on one too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.network import SlowCalls, compiled
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Unit
from rlship_sidecar.tail.tail import NO_ANSWER
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.hostile import line, metrics, opened
from tests.endtoend.sidecar import Sidecar, watching
from tests.foreign.titan import put, scalar, span
from tests.kit.tools import needed

pytestmark = pytest.mark.toolchain

HANGS_S = 30.0
SOON_S = 8.0  # for a row on a machine with other work
CALL_S = 0.0005


def append(job: Path, name: str, *lines: bytes) -> None:
    with open(job / "rlship" / f"{name}.jsonl", "ab") as file:
        file.write(b"".join(one + b"\n" for one in lines))


def finish(job: Path, actor: str, step: int) -> None:
    append(job, actor, metrics(step, loss=step), line(kind="barrier", step=step))


@dataclass(frozen=True)
class Bad:
    """The file that hangs: its path in the experiment, its name in a status, its actor, and how it grows by a step."""

    path: str
    name: str
    actor: str
    grow: Callable[[Path, int], object]


def _titan(job: Path, step: int) -> None:
    name = "training.global_rank_0.20260101-000000-AAAAAA.jsonl"
    put(job, name, span("step", float(step), 100.0, step), scalar("loss", step, step + 0.1, step))


OWN = Bad("rlship/bad.jsonl", "bad.jsonl", "bad", lambda job, step: finish(job, "bad", step))
TITAN = Bad(
    "structured_logs/training.global_rank_0.20260101-000000-AAAAAA.jsonl",
    "structured_logs/training.global_rank_0.20260101-000000-AAAAAA.jsonl",
    "trainer",
    _titan,
)
KINDS = pytest.mark.parametrize("lab", [OWN, TITAN], ids=["own", "foreign"], indirect=True)


@dataclass
class Lab:
    """A job of two actors, one of which has the file that hangs."""

    job: Path
    bad: Bad
    calls: SlowCalls
    settings: dict[str, str]
    home: Path

    def has(self, actor: str, step: int) -> bool:
        return Unit(actor, "step", step) in newest(shipped(self.job))

    def good_goes_on(self, sidecar: Sidecar, first: int, until: float) -> int:
        """Rows of the other actor come soon, step after step, until that time. Returns the next step."""
        step = first
        while step == first or time.monotonic() < until:
            finish(self.job, "good", step)
            assert sidecar.until(lambda step=step: self.has("good", step)) < SOON_S
            step += 1
            time.sleep(0.5)
        return step

    def is_named(self, status: Status) -> bool:
        """Whether a status names the file, and no other one."""
        notes = {writer.file: writer.note for writer in status.writers if writer.note}
        return list(notes) == [self.bad.name] and NO_ANSWER in notes[self.bad.name]


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    needed("gcc")
    bad: Bad = request.param
    job, home = tmp_path / "job", tmp_path / "home"
    (job / "rlship").mkdir(parents=True)
    home.mkdir()
    for actor in {"good", bad.actor} - {"trainer"}:
        append(job, actor, opened(actor))
    with SlowCalls(job, CALL_S, state=True, hanging=job / bad.path) as calls:
        lab = Lab(job, bad, calls, calls.environment(compiled(tmp_path)), home)
        bad.grow(job, 0)
        finish(job, "good", 0)
        yield lab


@KINDS
@pytest.mark.timeout(180)
def test_it_holds_up_its_own_steps_only(lab: Lab) -> None:
    """While one file hangs, rows of others come, a new file is found, and the status names the one that hangs."""
    with watching(lab.job, home=lab.home, settings=lab.settings) as sidecar:
        sidecar.until(lambda: lab.has("good", 0))
        lab.bad.grow(lab.job, 1)
        sidecar.until(lambda: lab.has(lab.bad.actor, 0))
        lab.calls.hang()
        began = time.monotonic()
        lab.bad.grow(lab.job, 2)
        lab.bad.grow(lab.job, 3)
        step = lab.good_goes_on(sidecar, 1, began + HANGS_S / 2)
        append(lab.job, "late", opened("late"))
        finish(lab.job, "late", 0)
        assert sidecar.until(lambda: lab.has("late", 0)) < SOON_S
        lab.good_goes_on(sidecar, step, began + HANGS_S)
        sidecar.until_status(lab.is_named)
        assert not lab.has(lab.bad.actor, 2)
        lab.calls.go_on()
        assert sidecar.until(lambda: lab.has(lab.bad.actor, 2)) < SOON_S
        sidecar.until_status(lambda status: not any(writer.note for writer in status.writers))
        assert sidecar.stop() == 0, sidecar.said()
        assert "Traceback" not in sidecar.said()


@KINDS
@pytest.mark.timeout(180)
@pytest.mark.parametrize("killed", [False, True], ids=["start", "takeover"])
def test_it_does_not_hold_up_a_start(lab: Lab, killed: bool) -> None:
    """A start, and a takeover with steps open, go on with all other files. What was open is whole once it answers."""
    step = 1
    if killed:
        with watching(lab.job, home=lab.home, settings=lab.settings) as sidecar:
            sidecar.until(lambda: lab.has("good", 0))
            lab.bad.grow(lab.job, 1)
            sidecar.until(lambda: lab.has(lab.bad.actor, 0))
            time.sleep(6.0)  # positions alone are saved every five seconds
            sidecar.kill()
    lab.calls.hang()
    began = time.monotonic()
    with watching(lab.job, home=lab.home, settings=lab.settings) as sidecar:
        step = lab.good_goes_on(sidecar, step, began + HANGS_S)
        if killed:
            sidecar.until_status(lab.is_named)
        lab.calls.go_on()
        lab.bad.grow(lab.job, 2)
        lab.bad.grow(lab.job, 3)
        assert sidecar.until(lambda: lab.has(lab.bad.actor, 2)) < SOON_S
        assert lab.has(lab.bad.actor, 0) and lab.has(lab.bad.actor, 1) == killed
        assert sidecar.stop() == 0, sidecar.said()
        assert "Traceback" not in sidecar.said()
