"""A network filesystem on which calls on one file do not return: the other files' rows go on, and `status` names it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import resting, watched
from rlship_sidecar.daemon.loop import watch
from rlship_sidecar.daemon.resting import Footprint, Rest, Resting, Sighting
from rlship_sidecar.errors import OK
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Unit
from rlship_sidecar.tail.listing import WRITERS_FOLDER, Folder, Listing
from rlship_sidecar.tail.looks import HANGS_S, Looks
from rlship_sidecar.tail.tail import NO_ANSWER, Descriptors
from rlship_sidecar.tally import Tally
from tests.endtoend.evidence import shipped
from tests.endtoend.hostile import line, metrics, opened

PATIENCE_S = 20.0


class Hanging:
    """Calls on the file called `name` wait while `stuck` is set."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stuck = False
        self.goes_on = threading.Event()
        real = Descriptors.look

        def look(
            files: Descriptors, path: str, do: Callable[[int, int | None], object], *, known: bool = False
        ) -> object:
            if self.stuck and path.endswith(name):
                self.goes_on.wait()
            return real(files, path, do, known=known)

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


def at_rest(folder: Path, looks: Looks) -> Resting:
    """An experiment at rest on a network filesystem, as it is now."""
    (folder / "rlship" / "state").mkdir(parents=True)
    (folder / "rlship" / "a.jsonl").write_bytes(opened("a") + b"\n")
    found = Footprint(str(folder / "rlship"), (), (), str(folder / "rlship" / "state"), True)
    seen = Sighting(found, looks).wait()
    assert seen is not None and seen.files == 1
    return Resting(replace(found, seen=seen.number), cast(Any, None), Tally())


def test_an_experiment_at_rest_that_hangs_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments at rest are looked at by threads: one whose file hangs is looked at once, and the others go on."""
    monkeypatch.setattr(resting, "LOOK_EVERY_S", 0.05)
    goes_on, real = threading.Event(), resting.open_plain
    asked: list[str] = []

    def look(path: str) -> int:
        asked.append(path)
        if "bad" in path and len(asked) > 2:
            goes_on.wait()
        return real(path)

    monkeypatch.setattr(resting, "open_plain", look)
    looks = Looks(2)
    rest = Rest(looks)
    bad, good = tmp_path / "bad", tmp_path / "good"
    try:
        for path in (bad, good):
            rest.add(path, at_rest(path, looks))
        append(bad / "rlship", "a", 0)
        for step in range(3):
            append(good / "rlship", "a", step)
            until(lambda: rest.look(time.monotonic()) == [good])
            seen = Sighting(rest.all[good].footprint, looks).wait()
            assert seen is not None
            rest.all[good].footprint = replace(rest.all[good].footprint, seen=seen.number)
            time.sleep(HANGS_S / 2)
        assert asked.count(f"{bad}/rlship/a.jsonl") == 2
        goes_on.set()
        until(lambda: rest.look(time.monotonic()) == [bad])
    finally:
        goes_on.set()
        assert looks.close() == 0


def test_a_folder_that_hangs_is_named(writers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go on while the folder of the writers' files cannot be listed, and the status says what does not answer."""
    told, stuck, goes_on = list[Status](), threading.Event(), threading.Event()
    monkeypatch.setattr(watched, "filesystem_of", lambda path: Filesystem("nfs4", False, "/"))
    real = Folder.look

    def look(folder: Folder, now: float, *, force: bool) -> Listing | None:
        if stuck.is_set() and folder.path == str(writers):
            goes_on.wait()
        return real(folder, now, force=force)

    monkeypatch.setattr(Folder, "look", look)
    try:
        with daemon(writers.parent, told):
            until(lambda: len(shipped(writers.parent)) == 2)
            stuck.set()
            until(lambda: any(NO_ANSWER in note and WRITERS_FOLDER in note for note in told[-1].notes))
            append(writers, "good", 1)
            until(lambda: len(shipped(writers.parent)) == 3)
            stuck.clear()
            goes_on.set()
            (writers / "late.jsonl").write_bytes(opened("late") + b"\n")
            append(writers, "late", 0)
            until(lambda: len(shipped(writers.parent)) == 4)
            until(lambda: not any(NO_ANSWER in note for note in told[-1].notes))
    finally:
        goes_on.set()
