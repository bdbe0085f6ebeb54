"""An experiment under a simulated clock: files that grow in pieces, ticks in between, restarts of the sidecar."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.align.units import Patience, StreamConfig
from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.pipeline.alert_book import Alerting
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.intake import Access
from rlship_sidecar.reduce.custom import Customs
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.samples import SampleChoice
from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.store.store import Store

LOCAL = Filesystem("tmpfs", True, "/")
REMOTE = Filesystem("nfs4", False, "/")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: the store syncs often, which a disk makes slow."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="rlship-test-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass
class Simulation:
    """One experiment in `directory`. `now` is the sidecar's clock, which only `wait` moves."""

    directory: Path
    overrides: Mapping[str, Sequence[str]] = field(default_factory=dict)
    per_rank: bool = False
    customs: Customs | None = None
    samples: SampleChoice = field(default_factory=lambda: SampleChoice(every=1))
    patience: Patience = field(default_factory=Patience)
    filesystem: Filesystem = LOCAL
    now: float = 1000.0
    wal: bool = True
    wall: float = math.inf  # what the sidecar's clock said when `now` was 0
    streams: StreamConfig = field(default_factory=StreamConfig)
    short_window: int = 20
    ledger_wait_s: float = 3600.0
    access: Access = field(default_factory=lambda: Access(4))
    alerts: tuple[Rule, ...] = ()
    hinted: bool = False  # change events name what was written

    def __post_init__(self) -> None:
        (self.directory / "rlship" / "state").mkdir(parents=True)
        self._written: set[str] = set()
        self._start()

    def _start(self) -> None:
        self.store = Store(self.directory / "rlship" / "state" / "store.db", local=self.wal)
        self.experiment = Experiment(
            self.directory,
            self.store,
            self.filesystem,
            now=self.now,
            patience=self.patience,
            rules=Rules(
                *(self.overrides, self.per_rank, self.customs or Customs(()), self.samples, self.short_window),
                ledger_wait_s=self.ledger_wait_s,
            ),
            streams=self.streams,
            access=self.access,
        )
        self.experiment.judge(Alerting(self.alerts), self.now)

    def stop(self) -> None:
        self.experiment.close()
        self.store.close()

    def restart(self) -> None:
        """The sidecar ends without warning and starts again; what it had not committed is gone."""
        self.stop()
        self._start()

    def write(self, name: str, data: bytes) -> None:
        """Append to a writer's file."""
        with open(self.directory / "rlship" / name, "ab") as file:
            file.write(data)
        self._written.add(name)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> None:
        """Take in all that is there: first what was written, as change events name it, then look at all files."""
        written, self._written = self._written, set()
        if self.filesystem.local and self.hinted:
            self.experiment.tick(self.now, self.wall + self.now, only=written, timers=False)
        while self.experiment.tick(self.now, self.wall + self.now):
            pass

    def finish(self) -> None:
        """Take in all that is there and close every unit."""
        while self.experiment.tick(self.now, self.wall + self.now, end=True):
            if self.experiment.intake.holding:
                self.wait(10.0)

    def rows(self) -> list[Row]:
        """Every row made so far, in order."""
        return self.store.read_rows(0, 1 << 30)

    def final(self) -> dict[Unit, Row]:
        """The newest row of every unit."""
        return {row.unit: row for row in self.rows()}

    def dead(self) -> list[tuple[str, int, str, str | None]]:
        """(file, offset, reason, metric) of all dead letters and values."""
        return [_key(file, dead) for file, dead in self.store.dead_letters(1 << 30)]


def _key(file: str, dead: Dead) -> tuple[str, int, str, str | None]:
    return file, dead.offset, dead.reason, dead.metric


@contextmanager
def simulation(**settings: object) -> Iterator[Simulation]:
    """A simulation in a scratch folder."""
    with scratch() as folder:
        running = Simulation(folder, **settings)  # type: ignore[arg-type]
        try:
            yield running
        finally:
            running.stop()
