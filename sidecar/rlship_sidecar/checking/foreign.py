"""The lines of another framework's file, one after the other, as its reader takes them: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

from rlship_formats.foreign.contract import BadRecord
from rlship_formats.foreign.native import Bound, Native
from rlship_formats.reading import DeadLetter, Define, FileReader, Metrics
from rlship_sidecar.checking.finding import ERROR, HOLE, WARNING, Finding

_PAGE = "docs/foreign.md has what is read of each format"
_FIX = f"nothing, where the framework was killed while it wrote; else its format has changed: {_PAGE}"


class ForeignCheck:
    """What `FileCheck` is to a writer's file. `relative` is the file's path in its experiment."""

    def __init__(self, bound: Bound, relative: str) -> None:
        self.errors = self.warnings = self.lines = 0
        self._name = bound.reader.name
        parts = [
            Native(bound.reader, one, f"{relative}#{one.part}" if one.part else relative) for one in bound.translations
        ]
        self._parts = [(native, FileReader()) for native in parts]
        for native, reader in self._parts:
            reader.read(native.opening)

    def line(self, line: bytes, at: int) -> list[Finding]:
        """Check a line (without its LF) that begins at the byte `at`. Raises ReaderFailed."""
        self.lines += 1
        if not line.strip(b" \t\r"):
            return []
        found: dict[str, Finding] = {}  # by what is wrong: each part of a file may say so
        for native, reader in self._parts:
            try:
                made = native.lines(line)
            except BadRecord as bad:
                found[str(bad)] = self._found(at, str(bad), f"the reader {self._name} cannot use the line: {bad}")
                continue
            for one in made:
                self._look(reader, one, lambda finding: found.setdefault(finding.what, finding), at)
        self.errors += len(found)
        return [*found.values()]

    def too_long(self, at: int) -> list[Finding]:
        """Report a line that exceeds the maximum length."""
        self.lines += 1
        self.errors += 1
        return [self._found(at, "line too long", "the line has more than 1048576 bytes")]

    def end(self, size: int, complete: int, *, hole: bool = False) -> list[Finding]:
        """Check the end of a file of `size` bytes, of which `complete` bytes are lines with an LF. `hole`: NUL bytes
        follow them.
        """
        if size <= complete:
            return []
        self.warnings += 1
        why = f"{size - complete} bytes after the last LF are not a line yet, and are not read"
        fix = "nothing, if the process died in a write or still writes"
        if hole:
            why, fix = HOLE[0].format(size - complete), HOLE[1]
        return [Finding(self.lines + 1, complete, WARNING, "unfinished line", why, fix)]

    def _look(self, reader: FileReader, line: bytes, note: Callable[[Finding], object], at: int) -> None:
        record = reader.read(line)
        if isinstance(record, DeadLetter):
            note(self._found(at, record.reason, f"the reader {self._name} makes a record of it that is no such record"))
        elif isinstance(record, (Metrics, Define)):
            dead = record.observed()[1] if isinstance(record, Metrics) else record.dead
            for name, what in dead:
                why = f"the reader {self._name} makes a value of it that cannot be used"
                note(Finding(self.lines, at, ERROR, what, why, _FIX, metric=name))

    def _found(self, at: int, what: str, why: str) -> Finding:
        return Finding(self.lines, at, ERROR, what, why, _FIX)
