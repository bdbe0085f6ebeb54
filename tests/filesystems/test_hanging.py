"""A network filesystem on which calls on one file do not return: the other files' rows go on, and `status` names it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import watched
from rlship_sidecar.daemon.loop import watch
from rlship_sidecar.errors import OK
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Unit
from rlship_sidecar.tail.looks import HANGS_S, Looks
from rlship_sidecar.tail.tail import NO_ANSWER, Descriptors
from tests.endtoend.evidence import shipped
from tests.endtoend.hostile import line, metrics, opened

PATIENCE_S = 20.0


class Hanging:
    """Calls on the file called `name` wait while `stuck` is set."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stuck = False
        self.goes_on = threading.Event()
        real = Descriptors.look

        def look(files: Descriptors, path: str, do: Callable[[int, int], object]) -> object:
            if self.stuck and path.endswith(name):
                self.goes_on.wait()
            return real(files, path, do)

        monkeypatch.setattr(Descriptors, "look", look)
        monkeypatch.setattr(watched, "filesystem_of", lambda path: Filesystem("nfs4", False, "/"))


@contextmanager
def daemon(experiment: Path, told: list[Status]) -> Iterator[threading.Thread]:
    """A daemon in this process. `told` has its statuses."""
    stop, codes = threading.Event(), []
    config = Config(sinks=["jsonl"], revise_s=0.5)
    running = threading.Thread(
        target=lambda: codes.append(watch(experiment, config, once=False, stop=stop, on_status=told.extend))
    )
    running.start()
    try:
        yield running
    finally:
        stop.set()
        running.join(PATIENCE_S)
    assert codes == [OK]


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def append(writers: Path, actor: str, step: int) -> None:
    with open(writers / f"{actor}.jsonl", "ab") as file:
        file.write(metrics(step, loss=1) + b"\n" + line(kind="barrier", step=step) + b"\n")


def notes(told: list[Status]) -> dict[str, str]:
    return {writer.file: writer.note for writer in told[-1].writers} if told else {}


@pytest.fixture
def writers(tmp_path: Path) -> Path:
    folder = tmp_path / "job" / "rlship"
    folder.mkdir(parents=True)
    for actor in ("good", "bad"):
        (folder / f"{actor}.jsonl").write_bytes(opened(actor) + b"\n")
        append(folder, actor, 0)
    return folder


def test_a_file_that_hangs_holds_up_its_own_steps_only(writers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose looks never return holds up its own actor's rows only, and the status names it."""
    hanging, told = Hanging("bad.jsonl", monkeypatch), list[Status]()
    experiment = writers.parent

    def has(actor: str, step: int) -> bool:
        return Unit(actor, "step", step) in {row.unit for row in shipped(experiment)}

    with daemon(experiment, told):
        until(lambda: has("good", 0) and has("bad", 0))
        hanging.stuck = True
        for step in range(1, 4):
            append(writers, "bad", step)
            append(writers, "good", step)
            until(lambda step=step: has("good", step))
        # A line for a step that has a row: revising it must not read the file that hangs again and again.
        until(lambda: NO_ANSWER in notes(told).get("bad.jsonl", ""))
        assert not has("bad", 1)
        assert not notes(told)["good.jsonl"]
        hanging.stuck = False
        hanging.goes_on.set()
        until(lambda: has("bad", 3))
        until(lambda: not notes(told)["bad.jsonl"])


def test_a_call_that_never_returns_does_not_hold_up_the_end(writers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon ends though a look at a file never returns."""
    hanging, told = Hanging("bad.jsonl", monkeypatch), list[Status]()
    try:
        with daemon(writers.parent, told):
            hanging.stuck = True
            append(writers, "bad", 1)
            until(lambda: NO_ANSWER in notes(told).get("bad.jsonl", ""))
            began = time.monotonic()
        assert time.monotonic() - began < PATIENCE_S / 2
    finally:
        hanging.goes_on.set()


def test_a_start_does_not_wait_for_a_file_that_hangs(writers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start goes on with all other files while one does not answer."""
    hanging, told = Hanging("bad.jsonl", monkeypatch), list[Status]()
    with daemon(writers.parent, told):
        until(lambda: len(shipped(writers.parent)) == 2)
    hanging.stuck = True
    append(writers, "good", 1)
    try:
        with daemon(writers.parent, told):
            until(lambda: len(shipped(writers.parent)) == 3)
    finally:
        hanging.goes_on.set()


def test_threads_that_hang_are_replaced_and_ended() -> None:
    """Looks that hang do not take the threads of others, and their threads end once they return."""
    stuck, looks = threading.Event(), Looks(2)
    hung = [looks.begin(stuck.wait) for _ in range(2)]
    other = looks.begin(lambda: 7)
    began = time.monotonic()
    assert not looks.wait(hung, PATIENCE_S)
    assert time.monotonic() - began >= HANGS_S
    assert looks.wait([other], PATIENCE_S)
    assert other.result == 7
    stuck.set()
    assert looks.close() == 0
    assert all(look.is_done for look in hung)
