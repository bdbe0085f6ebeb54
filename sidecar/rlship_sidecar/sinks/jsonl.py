"""Rows as lines of JSON in one file."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson

from rlship_sidecar import state_file
from rlship_sidecar.filesystem import sync_folder
from rlship_sidecar.plainfiles import make_folder
from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks.budget import GLOBAL_REDUCE, PER_RANK_NO_REDUCE, check_budget
from rlship_sidecar.sinks.claim import Claim
from rlship_sidecar.sinks.contract import Observed, Sink, SinkContext, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.observed import Progress, load_progress
from rlship_sidecar.sinks.options import check_names, check_text

logger = logging.getLogger("rlship.sinks.jsonl")

DEFAULT_NAME = "rows.jsonl"
OBSERVATIONS = "observations.jsonl"
RUN = "run.json"
OPTIONS = ("path", "ranks")
MODES = (GLOBAL_REDUCE, PER_RANK_NO_REDUCE)


class JsonlSink(Sink):
    """Appends `Row.to_json` lines to `<state_dir>/rows.jsonl`, or to the option `path` (relative to the experiment).

    Beside it `<path>.<store>.<generation>.owner` names the owner of these rows (see `claim`). If the file differs from
    what this store's sidecars wrote, it is cut where it goes wrong and continued from there. Option `ranks`:
    "global_reduce" (default), or "per_rank_no_reduce" to write every observation as well. They go to a file of their
    own beside it (`observations.jsonl`, or `<path>.observations.jsonl`). What the job said of the run is in
    `run.json` (or `<path>.run.json`).
    """

    def __init__(self) -> None:
        self.where = ""
        self._claim: Claim | None = None
        self._fd: int | None = None
        self._last_line = b""
        self._end = 0
        self._run_file = Path()
        self._observations: _ObservationFile | None = None

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("jsonl", options, OPTIONS)
        if options.get("path") is not None:
            check_text("jsonl", "path", options["path"], "a file name, relative to the experiment or absolute")
        check_budget("jsonl", options, MODES)

    def open(self, run: SinkContext) -> int | None:
        """Count the lines that are rows 0, 1, 2, …, and cut the rest."""
        path = _path(run)
        self.where, self._run_file = str(path), _beside(path, RUN)
        with _outages(self.where):
            make_folder(path.parent, run.state_dir, run.experiment)
            if path.exists():  # before anything replaces it: the whole machine uses /dev/null
                _check_regular(path, path.stat())
            claim = self._claim = Claim("jsonl", path, path, run)
            if claim.take(occupied=_size(path) > 0):
                if path.exists():
                    claim.copy(path, _size(path))
                claim.fenced()
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            _check_regular(path, os.fstat(self._fd))
            claim.verify()
            sync_folder(path.parent)
            rows, self._last_line, self._end = _count(path, self._fd)
            os.ftruncate(self._fd, self._end)
            if run.options.get("ranks") == PER_RANK_NO_REDUCE:
                self._observations = _ObservationFile(_beside(path, OBSERVATIONS), run)
            self.observes = self._observations is not None
        return rows

    def ends_with(self, row: Row) -> bool:
        """Whether the last line is this row."""
        try:
            return Row.from_json(self._last_line).to_json() == row.to_json()
        except (KeyError, TypeError, AttributeError):
            return False

    def describe(self, run: RunData) -> None:
        """Replace the file that has it."""
        assert self._claim is not None
        text = msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"
        with _outages(str(self._run_file)):
            if not (self._run_file.exists() and self._run_file.read_bytes() == text):
                with state_file.replacing(self._run_file, scratch_prefix=self._claim.scratch_prefix("run")) as file:
                    file.write(text)
                    self._claim.verify()

    def write(self, rows: Sequence[Row]) -> None:
        """Append the rows; the next `open` cuts the rest of a failed write."""
        assert self._fd is not None
        data = memoryview(b"".join(row.to_json() + b"\n" for row in rows))
        with _outages(self.where):
            self._check_place()
            while data:
                written = os.pwrite(self._fd, data, self._end)
                self._end += written
                data = data[written:]

    def flush(self) -> None:
        """Sync the file to the disk."""
        assert self._fd is not None
        with _outages(self.where):
            os.fsync(self._fd)
            self._check_place()

    def observed(self) -> Observed | None:
        """The position up to which the file holds observations."""
        return None if self._observations is None else self._observations.progress.places

    def observe(self, lines: bytes, position: Observed) -> None:
        """Append the observations and sync them, then their position."""
        assert self._observations is not None
        self._observations.append(lines)
        self._observations.commit(position)

    def close(self) -> None:
        """Close the files."""
        observations, self._observations = self._observations, None
        if observations is not None:
            observations.close()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _check_place(self) -> None:
        """Make sure that the path still names the open file, that its length is ours, and that the claim holds."""
        assert self._fd is not None and self._claim is not None
        self._claim.verify()
        ours, there = os.fstat(self._fd), os.stat(self.where)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) or there.st_size != self._end:
            raise SinkUnavailable(f"sink jsonl: another program changed {self.where}: opening the sink again")


class _ObservationFile:
    """A file that holds each observation once, whenever the process ends.

    Lines are appended and synced, then the position file `<path>.position` is replaced. The next start cuts the lines
    beyond the position, and observes them again.
    """

    def __init__(self, path: Path, run: SinkContext) -> None:
        self.path = path
        self._position = path.with_name(path.name + ".position")
        claim = self._claim = Claim("jsonl", path, path, run)
        size = path.stat().st_size if path.exists() else 0
        if claim.take(occupied=size > 0):
            if path.exists():
                claim.copy(path, size)
            claim.fenced()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        claim.verify()
        self.progress = load_progress(self._position)
        if self.progress.size > os.fstat(self._fd).st_size:
            self.progress = Progress()  # another program cut the file, so everything is observed again
        os.ftruncate(self._fd, self.progress.size)
        self._end = self.progress.size

    def append(self, data: bytes) -> None:
        """Append observations."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, self._end)
            self._end += written
            view = view[written:]

    def commit(self, position: Observed) -> None:
        """Make the appended lines durable, as the observations up to this position."""
        os.fsync(self._fd)
        ours, there = os.fstat(self._fd), os.stat(self.path)
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) or there.st_size != self._end:
            raise SinkUnavailable(f"another program changed {self.path}: opening the sink again")
        self.progress = Progress(self._end, dict(position))
        with state_file.replacing(self._position, scratch_prefix=self._claim.scratch_prefix("position")) as file:
            file.write(msgspec.json.encode(self.progress))
            self._claim.verify()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


@contextmanager
def _outages(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkUnavailable(f"sink jsonl: {where}: {error.strerror}") from error


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SinkRefused(f"sink jsonl: {path} is not a regular file: give [sink.jsonl] path another one")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _path(run: SinkContext) -> Path:
    JsonlSink.check_options(run.options)
    given = run.options.get("path")
    if given is None:
        return run.state_dir.absolute() / DEFAULT_NAME
    path = run.experiment / given
    return Path(os.path.realpath(path))  # the target of a link may be replaced, but not the link itself


def _beside(path: Path, name: str) -> Path:
    """The path of another file of the sink."""
    return path.with_name(name if path.name == DEFAULT_NAME else f"{path.stem}.{name}")


def _count(path: Path, fd: int) -> tuple[int, bytes, int]:
    """How many of the first whole lines are rows 0, 1, 2, …, the last of them, and the byte where they end."""
    rows = end = 0
    last = b""
    with open(fd, "rb", closefd=False) as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                row_number = orjson.loads(line)["row"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                row_number = None
            if row_number != rows:
                logger.warning(
                    "sink jsonl: %s, byte %d: here should be row %d, but it is %s: cut there, and written again from "
                    "the store",
                    path,
                    end,
                    rows,
                    "no row" if row_number is None else f"row {row_number!r}",
                )
                break
            rows += 1
            last = line[:-1]
            end += len(line)
    return rows, last, end
