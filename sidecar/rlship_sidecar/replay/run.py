"""Replays one experiment: reads it to the end, reduces, commits and delivers. It changes nothing in the files.

A replay is a sidecar of its own, independent of one that watches the experiment: it has its own folder, lease, store
and runs.
"""

from __future__ import annotations

import gc
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.limits import Budget
from rlship_sidecar.daemon.watched import ReplayOptions, Watched, is_damage, open_watched
from rlship_sidecar.ownership.inherit import damaged
from rlship_sidecar.ownership.place import make_place
from rlship_sidecar.pipeline.intake import Access
from rlship_sidecar.replay import folders
from rlship_sidecar.replay.ahead import DecodedAhead, Engine
from rlship_sidecar.replay.found import Replayed, keys_of, replayed
from rlship_sidecar.replay.local import LocalEngine
from rlship_sidecar.report.survey import MAX_LISTED, survey, unread_files
from rlship_sidecar.scratch import scratch
from rlship_sidecar.sinks.ship import Shipper
from rlship_sidecar.steps import Steps

LOCAL, RAY = "local", "ray"
TELL_EVERY_S = 0.2
HELD_POLL_S = 0.1
_SLICE_S = 0.2

# Options of an experiment's own rlship.toml that say where the live rows go: a replay's rows must not go there.
LIVE_PLACES = {"wandb": ("run_id",), "tensorboard": ("dir",), "jsonl": ("path",)}


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay, and how. Without `out` a folder is chosen. With `dry_run` nothing is kept or shipped.

    `jobs` counts the processes that work, this one included; in Ray it counts tasks at a time. `engine` names where
    they decode.
    """

    experiment: Path
    config: Config
    steps: Steps | None = None
    out: Path | None = None
    dry_run: bool = False
    jobs: int = 1
    engine: str = LOCAL


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far the replay is: bytes read of the total, lines and rows so far, and the rows that each sink has."""

    bytes_read: int
    bytes_total: int
    lines: int
    rows: int
    delivered: dict[str, int]


OnProgress = Callable[[ReplayProgress], None]


def replay(
    order: ReplayRequest,
    *,
    on_progress: OnProgress = lambda progress: None,
    say: Callable[[str], None] = lambda line: None,
    stop: threading.Event | None = None,
) -> Replayed:
    """Replay until all rows are delivered or `stop` is set; gives up on a sink that makes no progress for `drain_s`.

    It continues an unfinished replay. Raises RlshipError, OSError and sqlite3.Error if the files, the folder or the
    store cannot be used.
    """
    stop = stop or threading.Event()
    # Most objects here live as long as the process; scanning them again and again costs a fifth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    marker = folders.marker_of(order.config, order.steps)
    with _folder(order, marker) as folder:
        config = order.config
        if order.dry_run:
            config = _without_sinks(config)
        else:
            if order.out is not None:
                folders.check(folder, marker, state_dir_for(order.experiment, order.config), order.experiment)
            make_place(order.experiment, folder)
            if folders.read_marker(folder) is not None:
                say(f"continuing the replay in {folder}")
            folders.write_marker(folder, marker)
        engine = _engine(order)
        options = ReplayOptions(folder, f"{order.experiment.resolve().name}-replay", order.steps)
        try:
            access = Access(Budget(config.sinks).files_each(1))
            watched = open_watched(order.experiment, config, alone=True, replay=options, access=access)
        except BaseException:
            if engine is not None:
                engine.close()
            raise
        try:
            if engine is not None:
                intake = watched.experiment.intake
                intake.ahead = DecodedAhead(engine, intake, watched.store, say)
            try:
                found = _Replay(watched, config.drain_s, on_progress, stop).run()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                raise damaged(watched.lease.store_path, error) from error
            if order.dry_run:
                found.keys, found.state_dir = keys_of(watched.store), ""
            elif found.finished:
                folders.write_marker(folder, folders.finished(marker))
        finally:
            if engine is not None:
                engine.close()
            watched.close()
    return found


def _engine(order: ReplayRequest) -> Engine | None:
    """The engine that decodes files ahead; None without one."""
    if order.engine == RAY:
        from rlship_sidecar.replay.cluster import RayEngine  # an extra

        return RayEngine(order.jobs)
    return LocalEngine(order.jobs - 1) if order.jobs > 1 else None


@contextmanager
def _folder(order: ReplayRequest, marker: folders.Marker) -> Iterator[Path]:
    if order.dry_run:
        with scratch("replay") as folder:
            yield folder
    elif order.out is not None:
        yield order.out
    else:
        yield folders.choose(order.experiment, order.config, marker)


def _without_sinks(config: Config) -> Config:
    import msgspec

    return msgspec.structs.replace(config, sinks=[])


class _Replay:
    def __init__(self, watched: Watched, drain_s: float, on_progress: OnProgress, stop: threading.Event) -> None:
        self._watched = watched
        self._drain_s = drain_s
        self._on_progress = on_progress
        self._stop = stop
        self._tell_at = 0.0
        self._had = 0  # bytes that were read before this run

    def run(self) -> Replayed:
        began, self._had = time.monotonic(), self._bytes()[0]
        read = self._read()
        read_s = time.monotonic() - began
        delivered = read and self._deliver()
        self._tell(force=True)
        return self._found(read_s, finished=read and delivered)

    def _read(self) -> bool:
        """Read to the end; returns whether it got there."""
        watched = self._watched
        while watched.read_to_the_end():
            self._tell()
            if self._stop.is_set():
                return False
            if watched.experiment.intake.holding:
                self._stop.wait(HELD_POLL_S)
        return True

    def _deliver(self) -> bool:
        """Wait for the sinks as long as each makes progress; returns whether all of them have all rows."""
        watched = self._watched
        watched.ship()
        waiting = dict.fromkeys(watched.shippers, (-1, 0.0))
        short = False
        while waiting and not self._stop.is_set():
            for shipper in list(waiting):
                watched.lease.check()
                if shipper.drain(_SLICE_S):
                    del waiting[shipper]
                    continue
                confirmed, since = waiting[shipper]
                now, delivered = time.monotonic(), shipper.status().next_row
                if shipper.refused is not None or (delivered <= confirmed and now - since >= self._drain_s):
                    del waiting[shipper]
                    short = True
                elif delivered > confirmed:
                    waiting[shipper] = delivered, now
            self._tell()
        return not (waiting or short)

    def _tell(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if now < self._tell_at and not force:
            return
        self._tell_at = now + TELL_EVERY_S
        read, total = self._bytes()
        lines, rows = self._watched.experiment.intake.lines, self._watched.store.row_count()
        self._on_progress(ReplayProgress(read, total, lines, rows, {s.name: _has(s) for s in self._watched.shippers}))

    def _bytes(self) -> tuple[int, int]:
        sources = self._watched.experiment.sources.values()
        read = sum(source.read for source in sources if not source.gone)
        return read, max(read, sum(source.size for source in sources if not source.gone))

    def _found(self, read_s: float, *, finished: bool) -> Replayed:
        watched = self._watched
        sinks = [shipper.status() for shipper in watched.shippers]
        status = survey(watched.experiment, sinks, now=time.monotonic(), wall=time.time())
        unread = unread_files(watched.experiment)  # a status lists them among the writers, a replay has no such list
        status.notes[:0] = unread[:MAX_LISTED]
        if len(unread) > MAX_LISTED:
            status.notes.insert(MAX_LISTED, f"and {len(unread) - MAX_LISTED} more files that could not be read")
        read_bytes = max(0, self._bytes()[0] - self._had)
        volume = len(watched.experiment.sources), read_bytes, watched.experiment.intake.lines
        where = str(watched.lease.state_dir)
        found = replayed(watched.store, status, state_dir=where, finished=finished, volume=volume, read_s=read_s)
        found.logged = _logged(watched)
        return found


def _logged(watched: Watched) -> tuple[int, int] | None:
    writers = [source.writer for source in watched.experiment.sources.values() if source.writer is not None]
    firsts = [writer.begins for writer in writers if writer.begins is not None]
    lasts = [segment.last for writer in writers for segment in writer.segments if segment.last >= 0]
    return (min(firsts), max(lasts)) if firsts and lasts else None


def _has(shipper: Shipper) -> int:
    return shipper.status().next_row
