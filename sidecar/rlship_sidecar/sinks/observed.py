"""Keeps observations coming from the writers' files while a sink is open: a thread, and a file that holds each once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from rlship_sidecar.plainfiles import make_plain, write_plain
from rlship_sidecar.sinks.claim import Claim
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.observing import Observer, Place

EVERY_S = 0.5
SHARE = 0.05  # of a core that looking may take
COMMIT_BYTES = 8 << 20


class Taken(msgspec.Struct):
    """How far the files were taken in: the places in them, and how many bytes of observations that made."""

    size: int = 0
    places: dict[str, Place] = msgspec.field(default_factory=dict)


def load_taken(path: Path) -> Taken:
    """What was taken in so far; nothing where that is not known."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Taken)
    except (FileNotFoundError, msgspec.DecodeError):
        return Taken()


class ObservationFile:
    """A file of observations, each once, whatever ends the process when.

    What is in it and how far the files were taken in must agree: data are appended and synced, then the position file
    `<path>.position` is replaced. What the data hold beyond that is cut at the next `open`, and read again.
    """

    def __init__(self, sink: str, path: Path, run: Run) -> None:
        self.path = path
        self._position = path.with_name(path.name + ".position")
        claim = self._claim = Claim(sink, path, path, run)
        size = path.stat().st_size if path.exists() else 0
        if claim.take(occupied=size > 0):
            if path.exists():
                claim.copy(path, size)
            claim.fenced()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        claim.verify()
        self.taken = load_taken(self._position)
        if self.taken.size > os.fstat(self._fd).st_size:
            self.taken = Taken()  # somebody cut it: all is read again
        os.ftruncate(self._fd, self.taken.size)
        self._end = self.taken.size

    def append(self, data: bytes) -> None:
        """Take observations in."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, self._end)
            self._end += written
            view = view[written:]

    def commit(self, places: dict[str, Place]) -> None:
        """Make sure that what was appended stays, as the observations up to these places."""
        os.fsync(self._fd)
        ours, there = os.fstat(self._fd), os.stat(self.path)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) or there.st_size != self._end:
            raise SinkUnavailable(f"{self.path} was changed by another hand: looking at it anew")
        self.taken = Taken(self._end, places)
        scratch = self._claim.scratch("position")
        with open(make_plain(scratch), "wb") as file:
            file.write(msgspec.json.encode(self.taken))
            file.flush()
            os.fsync(file.fileno())
        self._claim.publish(scratch, self._position)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class PositionFile:
    """For observations that go where nobody can look them up: after a crash the last ones may come again."""

    def __init__(self, path: Path, show: Callable[[bytes], None]) -> None:
        self.taken = load_taken(path)
        self._path = path
        self._show = show

    def append(self, data: bytes) -> None:
        """Show observations."""
        self._show(data)

    def commit(self, places: dict[str, Place]) -> None:
        """Remember up to where they were shown."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_suffix(".tmp")
        write_plain(scratch, msgspec.json.encode(Taken(0, places)))
        os.replace(scratch, self._path)

    def close(self) -> None:
        """There is nothing to release."""


class Following:
    """Takes in what is new about every half second, in a thread of its own, from `start` to `close`."""

    def __init__(self, sink: str, experiment: Path, into: ObservationFile | PositionFile) -> None:
        self.trouble = ""
        """What keeps observations from coming, "" if nothing does."""
        self._sink = sink
        self._into = into
        self._observer = Observer(experiment, dict(into.taken.places))
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"rlship-{sink}-observations", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Raise what keeps observations from coming: SinkRefused, else SinkUnavailable."""
        if self._failure is not None:
            raise self._failure

    def catch_up(self) -> None:
        """Take in all that is there now; raises as `check` does."""
        self.check()
        with self._lock:
            self._take()
        self.check()

    def close(self, *, catch_up: bool) -> None:
        """Stop, after a last look if there is time for it."""
        self._stop.set()
        self._thread.join(5.0)
        if catch_up and self._failure is None and not self._thread.is_alive():
            with self._lock:
                self._take()
        self._into.close()

    def _follow(self) -> None:
        while not self._stop.is_set() and self._failure is None:
            began = time.monotonic()
            with self._lock:
                self._take()
            self._stop.wait(max(EVERY_S, (time.monotonic() - began) / SHARE))

    def _take(self) -> None:
        uncommitted = 0
        try:
            for data in self._observer.look():
                self._into.append(data)
                uncommitted += len(data)
                if uncommitted >= COMMIT_BYTES:
                    self._into.commit(self._observer.places)
                    uncommitted = 0
                    if self._stop.is_set():
                        return
            if uncommitted:
                self._into.commit(self._observer.places)
        except (SinkRefused, SinkUnavailable) as problem:
            self._failure = problem
        except OSError as problem:
            self._failure = SinkUnavailable(f"sink {self._sink}: observations: {problem.strerror or problem}")
        if self._failure is not None:
            self.trouble = str(self._failure)
