"""Rows as lines of JSON in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.options import check_names, check_text

DEFAULT_NAME = "rows.jsonl"
OPTIONS = ("path",)


class JsonlSink:
    """Appends `Row.to_json` lines to `<state_dir>/rows.jsonl`, or to the option `path` (relative to the experiment).

    Beside it `<path>.store` holds the id of the store whose rows these are.
    """

    def __init__(self) -> None:
        self.where = ""
        self._fd: int | None = None
        self._end = 0

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("jsonl", options, OPTIONS)
        if options.get("path") is not None:
            check_text("jsonl", "path", options["path"], "a file name, relative to the experiment or absolute")

    def open(self, run: Run) -> int | None:
        """Count the whole lines, check that they are rows 0, 1, 2, …, and cut a torn last line."""
        path = _path(run)
        self.where = str(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _claim(path, run.store_id, empty=os.fstat(self._fd).st_size == 0)
            rows, self._end = _count(path)
            os.ftruncate(self._fd, self._end)
        except OSError as error:
            raise SinkUnavailable(f"sink jsonl: {path}: {error.strerror}") from error
        return rows

    def write(self, rows: Sequence[Row]) -> None:
        """Append the rows; what a failed write left behind is cut at the next `open`."""
        assert self._fd is not None
        data = memoryview(b"".join(row.to_json() + b"\n" for row in rows))
        try:
            while data:
                written = os.pwrite(self._fd, data, self._end)
                self._end += written
                data = data[written:]
        except OSError as error:
            raise SinkUnavailable(f"sink jsonl: {self.where}: {error.strerror}") from error

    def flush(self) -> None:
        """Sync the file to the disk."""
        assert self._fd is not None
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SinkUnavailable(f"sink jsonl: {self.where}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _path(run: Run) -> Path:
    JsonlSink.check_options(run.options)
    given = run.options.get("path")
    return run.state_dir / DEFAULT_NAME if given is None else run.experiment / given


def _claim(path: Path, store_id: str, *, empty: bool) -> None:
    """Mark the file as this store's, or refuse if it is another's."""
    mark = path.with_name(path.name + ".store")
    try:
        owner = mark.read_text("utf-8").strip()
    except FileNotFoundError:
        owner = ""
    if owner == store_id:
        return
    if not empty:
        whose = (
            f"the rows of another store ({owner})" if owner else f"rows of an unknown store ({mark.name} is not there)"
        )
        raise SinkRefused(
            f"sink jsonl: {path} holds {whose}, not of this one ({store_id}): move it away, "
            "or set [sink.jsonl] path to another file"
        )
    scratch = mark.with_name(mark.name + ".tmp")
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(store_id + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, mark)


def _count(path: Path) -> tuple[int, int]:
    """How many whole lines the file has and where they end, in bytes. A line that is not the row of its place refuses
    the file.
    """
    rows = end = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                number = orjson.loads(line)["row"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                number = None
            if number != rows:
                found = "no row" if number is None else f"row {number!r}"
                raise SinkRefused(
                    f"sink jsonl: {path}, byte {end}: here should be row {rows}, but it is {found}: "
                    "move the file away, it is then written again from row 0"
                )
            rows += 1
            end += len(line)
    return rows, end
