"""TensorBoard event files, one Event for each row, so that the files themselves say how many rows they hold."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks import tfevents
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.flat import axis, flatten
from rlship_sidecar.sinks.options import check_names, check_text

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event

OPTIONS = ("dir",)
NAME = re.compile(r"events\.out\.tfevents\.(?P<part>\d{8,})\.rlship\.(?P<store>.+)")


class TensorBoardSink:
    """Writes `<state_dir>/tensorboard`, or the option `dir` (relative to the experiment), for `tensorboard --logdir`.

    A new part is begun at every `open`, named after its first row and the store, so that a part that was removed is
    missed. Files of other writers in the folder are left alone; parts of another store refuse it.
    """

    def __init__(self) -> None:
        self.where = ""
        self._folder = Path()
        self._store_id = ""
        self._file: BinaryIO | None = None

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("tensorboard", options, OPTIONS)
        if options.get("dir") is not None:
            check_text("tensorboard", "dir", options["dir"], "a folder, relative to the experiment or absolute")

    def open(self, run: Run) -> int | None:
        """Count the rows in this store's parts, in order; cut a torn tail."""
        self._folder = _folder(run)
        self._store_id = run.store_id
        self.where = str(self._folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            parts = _parts(self._folder, run.store_id)
            rows = 0
            for path in parts:
                if _number(path) != rows:
                    raise SinkRefused(
                        f"sink tensorboard: {path} begins with row {_number(path)}, but the parts before it hold "
                        f"{rows}: move {self._folder} away, it is then written again from row 0"
                    )
                held = _count(path, last=path == parts[-1])
                if not held:
                    path.unlink()  # the last one, cut before its first row: the next has its name
                rows += held
        except OSError as error:
            raise SinkUnavailable(f"sink tensorboard: {self._folder}: {error.strerror}") from error
        return rows

    def write(self, rows: Sequence[Row]) -> None:
        """Append one Event for each row. A part is made with its first row, so that restarts leave no empty files."""
        try:
            if self._file is None:
                path = self._folder / f"events.out.tfevents.{rows[0].arrival.no:08d}.rlship.{self._store_id}"
                self._file = open(path, "xb")  # noqa: SIM115 - open until close
                self._file.write(tfevents.encode(_file_version(rows[0].t)))
            self._file.write(b"".join(tfevents.encode(event(row).SerializeToString()) for row in rows))
            self._file.flush()
        except OSError as error:
            raise SinkUnavailable(f"sink tensorboard: {self._folder}: {error.strerror}") from error

    def flush(self) -> None:
        """Sync the part to the disk."""
        if self._file is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SinkUnavailable(f"sink tensorboard: {self._folder}: {error.strerror}") from error

    def close(self) -> None:
        """Close the part; what a full disk keeps from being written is cut and written again after the next `open`."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                # BufferedWriter.close closes the descriptor before it raises; the rows in its buffer are lacking at the
                # next open.
                return


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


def _parts(folder: Path, store_id: str) -> list[Path]:
    """This store's parts in the order of writing."""
    ours = []
    for path in folder.iterdir():
        match = NAME.fullmatch(path.name)
        if match is None:
            continue
        if match["store"] != store_id:
            raise SinkRefused(
                f"sink tensorboard: {path} was written by another store ({match['store']}), not by this one "
                f"({store_id}): move the folder away, or set [sink.tensorboard] dir to another one"
            )
        ours.append(path)
    return sorted(ours, key=_number)


def _number(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match["part"])


def _count(path: Path, *, last: bool) -> int:
    """How many rows a part holds: its whole records but the first, the file version. Cuts the last part's torn tail."""
    records, end = 0, 0
    for frame in tfevents.frames(path, checked_tail=tfevents.CHECKED_TAIL_BYTES if last else 0):
        records, end = records + 1, frame.end
    if end < path.stat().st_size:
        if not last:
            raise SinkRefused(
                f"sink tensorboard: {path} is damaged at byte {end}, though later parts follow it: "
                f"move {path.parent} away, it is then written again from row 0"
            )
        os.truncate(path, end)
    return max(0, records - 1)
