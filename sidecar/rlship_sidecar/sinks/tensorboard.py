"""TensorBoard event files, one Event for each row, so that the files themselves say how many rows they hold."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import tfevents, tfparts
from rlship_sidecar.sinks.claim import Claim
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.flat import axis, flatten
from rlship_sidecar.sinks.options import check_names, check_text

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event

logger = logging.getLogger("rlship.sinks.tensorboard")

OPTIONS = ("dir",)
PART_BYTES = 16 << 20  # a part of which an earlier sidecar may be a late writer is copied: that has to stay cheap


class TensorBoardSink:
    """Writes `<state_dir>/tensorboard`, or the option `dir` (relative to the experiment), for `tensorboard --logdir`.

    A new part is begun at every `open` and every 16 MiB. Parts that do not fit together any more are written again from
    where they go wrong. Files of other writers in the folder are left alone; parts of another store refuse it.
    """

    def __init__(self) -> None:
        self.where = ""
        self._folder = Path()
        self._run: Run | None = None
        self._claim: Claim | None = None
        self._path = Path()
        self._fd: int | None = None
        self._last = b""
        self._end = 0

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("tensorboard", options, OPTIONS)
        if options.get("dir") is not None:
            check_text("tensorboard", "dir", options["dir"], "a folder, relative to the experiment or absolute")

    def open(self, run: Run) -> int | None:
        """Count the rows in this store's parts, in order; cut what follows them."""
        folder = self._folder = _folder(run)
        self._run = run
        self.where = str(folder)
        with _outages(self.where):
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_others(folder, run)
            claim = self._claim = Claim("tensorboard", folder, folder / "rlship", run)
            fence = claim.take(occupied=False)
            # Looked at only now: what an earlier sidecar still gave a name to is among them.
            found = tfparts.chain(tfparts.parts(folder))
            if found.problem:
                logger.warning(
                    "sink tensorboard: %s: written again from row %d out of the store", found.problem, found.rows
                )
            for part in found.unfit:
                part.path.unlink()
            if found.kept and (fence or found.end < found.size):
                claim.copy(found.kept[-1].path, found.end)
            if fence:
                claim.fenced()
            self._last = b"" if found.last is None else tfevents.read(found.kept[-1].path, found.last)
        return found.rows

    def ends_with(self, row: Row) -> bool:
        """Whether the last event is this row's."""
        return self._last == bytes(event(row).SerializeToString(deterministic=True))

    def write(self, rows: Sequence[Row]) -> None:
        """Append one Event for each row. A part is made with its first row, so that restarts leave no empty files."""
        data = memoryview(b"".join(tfevents.encode(event(row).SerializeToString(deterministic=True)) for row in rows))
        with _outages(self.where):
            if self._fd is None or self._end >= PART_BYTES:
                self._begin(rows[0])
            assert self._fd is not None
            self._check_place()
            while data:
                written = os.pwrite(self._fd, data, self._end)
                self._end += written
                data = data[written:]

    def flush(self) -> None:
        """Sync the part to the disk."""
        if self._fd is None:
            return
        with _outages(self.where):
            os.fsync(self._fd)
            self._check_place()

    def close(self) -> None:
        """Close the part."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _begin(self, row: Row) -> None:
        """Begin a part with this row, once the one before it is safe."""
        assert self._run is not None and self._claim is not None
        self.flush()
        self.close()
        scratch = self._claim.scratch("part")
        self._fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._end = 0
        data = tfevents.encode(_file_version(row.t))
        while self._end < len(data):
            self._end += os.pwrite(self._fd, data[self._end :], self._end)
        os.fsync(self._fd)
        self._path = self._folder / tfparts.name(row.arrival.no, self._run.store_id, self._run.generation)
        self._claim.publish(scratch, self._path)

    def _check_place(self) -> None:
        """Make sure that the part is still in its place, as long as it was left, and the folder still ours."""
        assert self._fd is not None and self._claim is not None
        self._claim.verify()
        ours, there = os.fstat(self._fd), os.stat(self._path)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) or there.st_size != self._end:
            raise SinkUnavailable(f"sink tensorboard: {self._path} was changed by another hand: looking at it anew")


@contextmanager
def _outages(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkUnavailable(f"sink tensorboard: {where}: {error.strerror}") from error


def _refuse_others(folder: Path, run: Run) -> None:
    for part in tfparts.parts(folder):
        if part.store_id != run.store_id:
            raise SinkRefused(
                f"sink tensorboard: {part.path} was written by another store ({part.store_id}), not by this one "
                f"({run.store_id}): move the folder away, or set [sink.tensorboard] dir to another one"
            )


def event(row: Row) -> Event:
    """The row as one Event: `step` is where it stands on its own axis, `wall_time` the records' time, every number a
    scalar.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    values = [
        Summary.Value(tag=key, simple_value=value) for key, value in flatten(row).items() if not isinstance(value, str)
    ]
    _, at = axis(row)
    return Event(wall_time=row.t, step=int(at), summary=Summary(value=values))


def _file_version(t: float) -> bytes:
    """The first Event of every file. Without it readers drop a tag's later points where a revision's step goes back."""
    from tensorboardX.proto.event_pb2 import Event

    return bytes(Event(wall_time=t, file_version="brain.Event:2").SerializeToString())


def _folder(run: Run) -> Path:
    TensorBoardSink.check_options(run.options)
    given = run.options.get("dir")
    return run.state_dir / "tensorboard" if given is None else run.experiment / given
