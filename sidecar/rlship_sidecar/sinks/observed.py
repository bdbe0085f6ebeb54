"""Brings observations from the writers' files to a sink that wants them, in a thread, while the sink is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from rlship_sidecar import state_file
from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks.contract import Sink, SinkContext, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.observing import FilePlace, Observer

EVERY_S = 0.5
SHARE = 0.05  # share of a core that looking at the files may take
COMMIT_BYTES = 8 << 20


class Progress(msgspec.Struct):
    """The content of a position file: how far the writers' files were observed, and how many bytes the observations
    take.
    """

    size: int = 0
    places: dict[str, FilePlace] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(Progress).decode


def load_progress(path: Path) -> Progress:
    """The progress in a position file; no progress if the file is missing or torn."""
    with suppress(FileNotFoundError, msgspec.DecodeError):
        return _decode(path.read_bytes())
    return Progress()


class ObservingSink(Sink):
    """The sink `inner`, whose `observe` is called while it is open, if it `observes`. Calls come one at a time."""

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self.inner = sink
        self._calls = threading.Lock()
        self._following: _Following | None = None

    @property
    def trouble(self) -> str:  # type: ignore[override]  # a property here, because it is read and never set
        """The reason why rows or observations are not delivered right now."""
        following = self._following
        return self.inner.trouble or ("" if following is None else following.trouble)

    @property
    def named_after_s(self) -> float:  # type: ignore[override]  # as above
        """The sink's own answer."""
        return self.inner.named_after_s

    @property
    def flush_due_s(self) -> float | None:
        """The sink's own answer."""
        return self.inner.flush_due_s

    def open(self, run: SinkContext) -> int | None:
        """Open the sink, and begin to observe if it wants that."""
        answer = self.inner.open(run)
        self.where = self.inner.where
        self.note, self.advice = self.inner.note, self.inner.advice
        if self.inner.observes:
            self._following = _Following(self._name, self.inner, run, self._calls)
        return answer

    def destination(self, run: SinkContext) -> str:
        """The sink's own answer."""
        return self.inner.destination(run)

    def ends_with(self, row: Row) -> bool:
        """The sink's own answer."""
        return self.inner.ends_with(row)

    def describe(self, run: RunData) -> None:
        """Pass the run's data on."""
        with self._calls:
            self.inner.describe(run)

    def write(self, rows: Sequence[Row]) -> None:
        """Write the rows; raises the error that keeps observations from being delivered."""
        if self._following is not None:
            self._following.check()
        with self._calls:
            self.inner.write(rows)
        self.note = self.inner.note

    def flush(self) -> None:
        """Return once all rows are delivered, and all observations that are in the files now."""
        with self._calls:
            self.inner.flush()
        self.where = self.inner.where
        if self._following is not None:
            self._following.catch_up()

    def interrupt(self) -> None:
        """Interrupt the sink."""
        self.inner.interrupt()

    def close(self) -> None:
        """Observe the new lines up to now, then close the sink."""
        self._stop_following(catch_up=True)
        self.inner.close()

    def abandon(self) -> None:
        """Stop observing, and abandon the sink."""
        self._stop_following(catch_up=False)
        self.inner.abandon()

    def _stop_following(self, *, catch_up: bool) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.close(catch_up=catch_up)


class _Following:
    """The thread that follows the files and calls `observe` under the lock `calls`, until `close`."""

    def __init__(self, name: str, sink: Sink, run: SinkContext, calls: threading.Lock) -> None:
        self.trouble = ""
        self._name = name
        self._sink = sink
        self._calls = calls
        self._looking = threading.Lock()
        held = sink.observed()
        self._position_file: Path | None = None
        """Where the position is kept for a sink that cannot be read back."""
        if held is None:
            self._position_file = run.state_dir / f"{name}-observations.json"
            held = load_progress(self._position_file).places
        self._observer = Observer(run.experiment, dict(held))
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"rlship-{name}-observations", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that keeps observations from being delivered: SinkRefused, otherwise SinkUnavailable."""
        if self._failure is not None:
            raise self._failure

    def catch_up(self) -> None:
        """Deliver every observation that is in the files now; raises as `check` does."""
        self.check()
        with self._looking:
            self._look()
        self.check()

    def close(self, *, catch_up: bool) -> None:
        """Stop, after a last look if there is time for it."""
        self._stop.set()
        self._thread.join(5.0)
        if catch_up and self._failure is None and not self._thread.is_alive():
            with self._looking:
                self._look()

    def _follow(self) -> None:
        while not self._stop.is_set() and self._failure is None:
            began = time.monotonic()
            with self._looking:
                self._look()
            self._stop.wait(max(EVERY_S, (time.monotonic() - began) / SHARE))

    def _look(self) -> None:
        try:
            self._deliver_new()
        except (SinkRefused, SinkUnavailable) as problem:
            self._failure = problem
        except OSError as problem:
            self._failure = SinkUnavailable(f"sink {self._name}: observations: {problem.strerror or problem}")
        except Exception as problem:  # noqa: BLE001 - a sink may be third-party code; the status must show its exception
            self._failure = SinkUnavailable(f"sink {self._name}: observations: {type(problem).__name__}: {problem}")
        if self._failure is not None:
            self.trouble = str(self._failure)

    def _deliver_new(self) -> None:
        gathered: list[bytes] = []
        for lines in self._observer.look():
            gathered.append(lines)
            if sum(map(len, gathered)) >= COMMIT_BYTES:
                self._deliver(b"".join(gathered))
                gathered.clear()
                if self._stop.is_set():
                    return
        if gathered:
            self._deliver(b"".join(gathered))

    def _deliver(self, lines: bytes) -> None:
        with self._calls:
            self._sink.observe(lines, self._observer.places)
        if self._position_file is not None:
            # Not durable: a terminal cannot take back its lines anyway, and this is written twice a second.
            state_file.replace(
                self._position_file, msgspec.json.encode(Progress(0, self._observer.places)), durable=False
            )
