"""Turns a foreign file's lines into those of a native one. Pure, as far as readers of other packages are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import orjson

from rlship_formats.foreign.contract import HEAD_BYTES, BadRecord, Reader, Record, Translation
from rlship_formats.reading import read_open
from rlship_formats.records import FORMAT_VERSION, MAX_LINE_BYTES, is_step

_FORBIDDEN = ("open", "gap")
_STEPPED = (None, "span", "event", "sample", "barrier", "rollback")
_FOR_PEOPLE = ("host", "pid", "labels")
_MAX_PARTS = 16


class ReaderFailed(Exception):
    """A reader broke the contract. The message explains how, for people."""

    def __init__(self, reader: Reader, problem: str) -> None:
        super().__init__(f"the reader {reader.name} failed: {problem}")
        self.reader = reader


class Bound(NamedTuple):
    """The reader that a file belongs to, and the writers in it."""

    reader: Reader
    translations: tuple[Translation, ...]


def reads(reader: Reader, path: str) -> bool:
    """True if a file with this path, relative to the experiment, may be the reader's."""
    found = path.split("/")
    return any(
        len(parts) == len(found) and all(map(fnmatchcase, found, parts))
        for parts in (place.split("/") for place in reader.places)
    )


def bind(readers: Iterable[Reader], path: str, head: bytes) -> Bound | None:
    """The first reader that recognises a line in the first `HEAD_BYTES` of a file, with the writers that it found; None
    if none does. Definition the readers in their order, line by line, so that a longer head never changes the result.
    Raises ReaderFailed.
    """
    candidates = list(readers)
    if not candidates:
        return None
    for line in head[:HEAD_BYTES].split(b"\n")[:-1]:
        for reader in candidates:
            try:
                found = tuple(reader.bind(path, line))
            except BadRecord:
                continue
            except Exception as error:  # another package's code
                raise ReaderFailed(reader, words(error)) from error
            if found:
                _check(reader, found)
                return Bound(reader, found)
    return None


def _check(reader: Reader, translations: Sequence[Translation]) -> None:
    if not all(isinstance(translation, Translation) for translation in translations):
        raise ReaderFailed(reader, "bind() gave no Translation")
    parts = [translation.part for translation in translations]
    if len(set(parts)) < len(parts) or len(parts) > _MAX_PARTS:
        raise ReaderFailed(reader, f"bind() gave several translations for one part, or too many: {parts[:20]}")
    if any(part and not part.replace("_", "").isalnum() for part in parts):
        raise ReaderFailed(reader, f"a part's name is of letters, digits and _: {parts}")


def document(reader: Reader, text: bytes) -> bytes:
    """The text of a document as lines. Raises BadRecord if it is not whole, and ReaderFailed."""
    assert reader.lines is not None
    try:
        return b"".join([line + b"\n" for line in reader.lines(text)])
    except BadRecord:
        raise
    except Exception as error:  # another package's code
        raise ReaderFailed(reader, words(error)) from error


class Native:
    """The native lines of one writer in a foreign file. `opening` is its `open` record, `name` the file's name with the
    name of the part.
    """

    def __init__(self, reader: Reader, translation: Translation, name: str) -> None:
        given = {"id": name, **translation.open}
        self._reader = reader
        self._line = translation.line
        self.restarts = translation.restarts
        try:
            self.opening = _opening(given, reader.name)
            read_open(orjson.loads(self.opening))
        except (BadRecord, ValueError) as bad:
            raise ReaderFailed(reader, f"bind() gave an open record that cannot be used: {given!r:.200}") from bad

    def lines(self, raw: bytes) -> list[bytes]:
        """The records in a line, as lines. Raises BadRecord if the line cannot be used, and ReaderFailed."""
        return self.lines_after(-1, raw)[0]

    def lines_after(self, step: int, raw: bytes) -> tuple[list[bytes], int]:
        """The records in a line, and its step. `step` is that of the line before; -1: none. Raises like `lines`."""
        try:
            return _native(raw, self._line(raw), step if self.restarts else -1)
        except BadRecord:
            raise
        except Exception as error:  # another package's code
            raise ReaderFailed(self._reader, words(error)) from error


def _opening(given: Record, reader: str) -> bytes:
    opened = {"kind": "open", "rlship": FORMAT_VERSION, **given, "writer": reader}
    try:
        return _dumped(opened)
    except BadRecord:  # fields that are only for people are copied from the job's file and may hold anything
        return _dumped({name: value for name, value in opened.items() if name not in _FOR_PEOPLE})


def _native(raw: bytes, records: Sequence[Record], before: int) -> tuple[list[bytes], int]:
    if len(records) > len(raw):
        raise BadRecord("more records than bytes")  # each record needs a position of its own in the file
    steps = [record.get("step") for record in records if record.get("kind") in _STEPPED]
    if any(step != steps[0] for step in steps):
        raise BadRecord("records of several steps")
    step = steps[0] if steps and is_step(steps[0]) else -1
    made = []
    for record in records:
        kind = record.get("kind")
        if kind in _FORBIDDEN or (kind == "rollback" and len(records) > 1):
            raise BadRecord(f"a reader may not give this {kind}")
        line = _dumped(record)
        if len(line) > MAX_LINE_BYTES:
            raise BadRecord("line too long")
        made.append(line)
    if 0 <= step < before and records[0].get("kind") != "rollback" and len(made) < len(raw):
        made.insert(0, _dumped({"kind": "rollback", "step": step, "t": records[-1].get("t")}))
    return made, step


def _dumped(record: Record) -> bytes:
    try:
        return orjson.dumps(record)
    except orjson.JSONEncodeError:  # half a surrogate pair, an integer too large, nested too deeply
        raise BadRecord("not JSON") from None


def words(error: Exception) -> str:
    """An exception's type and message, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
